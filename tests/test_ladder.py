import json

import pytest
from typer.testing import CliRunner

from loadgen.cli import build
from loadgen.decoding import Diffusion
from loadgen.ladder import doubling, over_repeats, verdict
from loadgen.script import Sharing
from tests.threaded import simulated


def climbed(throughputs, most=256, failed=()):
    done, seen = [], []
    for concurrency in doubling(done, most):
        seen.append(concurrency)
        broken = concurrency in failed
        done.append({"throughput": throughputs[len(done)], "ok": 0 if broken else 8, "failed": 8 if broken else 0})
    return seen


def test_doubling_ends_when_two_levels_in_a_row_bring_nothing():
    assert climbed([100, 190, 350, 380, 381, 379, 300]) == [1, 2, 4, 8, 16, 32]


def test_one_flat_level_is_not_the_end():
    assert climbed([100, 190, 190, 350, 350, 350, 0]) == [1, 2, 4, 8, 16, 32]


def test_doubling_is_bounded():
    assert climbed([10 * 2**i for i in range(20)], most=40) == [1, 2, 4, 8, 16, 32]


def test_doubling_ends_where_more_fails_than_works():
    assert climbed([100, 200, 400, 800], failed=(4,)) == [1, 2, 4]


def test_repeats_give_a_mean_with_its_interval():
    levels = [{"concurrency": 2, "throughput": x} for x in (100.0, 102.0, 98.0)] + [
        {"concurrency": 4, "throughput": 9.0}
    ]
    (row,) = over_repeats(levels)
    assert (row["concurrency"], row["mean"]) == (2, 100.0)
    assert row["interval"] == pytest.approx([100 - 4.968, 100 + 4.968], abs=0.01)


def test_the_verdict_says_when_the_knee_was_not_reached():
    levels = [{"concurrency": n, "ttft": {"p95": 0.05 * n}} for n in (4, 8)]
    told = verdict("m", {"best": 3000.0, "enough": 8, "resolved": False, "peak": 90.0}, levels)
    assert told == (
        "m: up to 3,000 tokens/s; 8 at once are enough for 95 % of it (first token 400 ms at P95); "
        "throughput still rises there: the knee lies beyond"
    )


def test_a_known_capacity_is_found_within_ten_percent(tmp_path):
    # Every answer is 64 tokens in 0.2 s of work; six clients get 6 / (1 + 0.3 · 5) = 2.4 times what one gets.
    profile = Diffusion(
        prefill=0.1, prompt_token_time=0.0, pass_time=0.0125, position_time=0.0, steps=8, width=64, effort="instant",
        sharing=Sharing(0.3, 0.0), answer=64, spread=0.0,
    )  # fmt: skip
    with simulated(profile=profile, capacity=6) as backend:
        truth = 64 / 0.2 * backend.speedup(6)
        given = ["ladder", "-u", backend.url, "--levels", "1,2,4,6,12", "-n", "24", "--max-tokens", "64",
                 "--extra", "ignore_eos=true", "--temperature", "0.5", "--json", "--out", str(tmp_path)]  # fmt: skip
        result = CliRunner().invoke(build("ladder"), given)
    found = json.loads(result.stdout.strip().splitlines()[-1])
    knee = found["knees"]["mercury-2.5"]
    assert result.exit_code == 0, result.stderr
    assert knee["best"] == pytest.approx(truth, rel=0.10)
    assert knee["enough"] in (6, 12)
    assert knee["law"]["contention"] == pytest.approx(0.3, abs=0.1)


def test_a_paced_ladder_is_refused():
    result = CliRunner().invoke(build("ladder"), ["ladder", "--otpm", "10000"])
    assert (result.exit_code, "not the capacity" in result.stderr) == (2, True)
