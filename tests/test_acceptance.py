"""What a load generator for diffusion and autoregressive servers must get right, and where others went wrong.

Each test plays a server whose truth is known and reads what the command says of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner

from loadgen.cli import build
from loadgen.decoding import Autoregressive, Diffusion
from loadgen.script import Sharing
from loadgen.strain import Strain
from loadgen.strict import Strict
from proxy.origin import Origin
from tests.threaded import DONE, END, HEAD, LAST, ROLE, at_once, chunk, event, said, scripted, simulated, stream, usage

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def run(*arguments: str, out: Path) -> tuple[int, dict[str, Any], str]:
    """The command's exit status, its JSON and what it showed a human."""
    result = CliRunner().invoke(build(arguments[0]), [*arguments, "--json", "--out", str(out)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines = result.stdout.strip().splitlines()
    return result.exit_code, json.loads(lines[-1]) if lines else {}, result.stderr


def load(url: str, out: Path, requests: int = 12, concurrency: int = 4, *more: str) -> tuple[int, dict[str, Any], str]:
    given = ["--url", url, "-n", str(requests), "-c", str(concurrency), "--warmup", "0", "--max-tokens", "64", *more]
    return run("load", *given, out=out)


def test_1_the_decode_rate_of_a_block_stream_is_within_one_percent_of_the_truth(tmp_path):
    with scripted(stream(blocks=8, size=8, first=0.05, gap=0.1)) as server:
        status, found, _ = load(server.url, tmp_path)
    truth = [56 / (x.sent[-1] - x.sent[0]) for x in server.exchanges]
    assert status == 0
    assert found["decode_rate"]["p50"] == pytest.approx(median(truth), rel=0.01)
    assert found["burst"]["p50"] == 8
    assert found["tpot"]["p50"] < 0.95 / median(truth)  # the field's formula flatters it


def test_2_the_rate_of_a_one_chunk_answer_is_not_defined(tmp_path):
    with scripted(stream(blocks=1, size=64, first=0.05)) as server:
        _, found, shown = load(server.url, tmp_path, 12, 4, "--slo", "decode_rate=1")
    assert found["decode_rate"] == {"p50": None, "p90": None, "p95": None, "p99": None, "n": 0}
    assert found["goodput"] == 0  # nobody saw the objective kept
    assert found["e2e_rate"]["n"] == 12
    assert "not defined" in shown


def test_3_an_error_inside_the_stream_is_a_failure(tmp_path):
    error = event({"error": {"message": "out of memory", "type": "server_error", "code": 500}})
    with scripted(at_once(ROLE, said("abcd" * 8), error, DONE, LAST)) as server:
        status, found, _ = load(server.url, tmp_path)
    assert (status, found["ok"], found["failed"], found["outcomes"]) == (1, 0, 12, {"backend_error": 12})
    assert (found["completion_tokens"], found["failed_tokens"]) == (0, 12 * 8)
    assert any("out of memory" in warning for warning in found["warnings"])
    assert found["verdict"].startswith("NOT VALID: m: no request succeeded")


def test_4_a_line_separator_inside_a_text_does_not_end_a_line(tmp_path):
    raw = chunk('data: {"choices":[{"index":0,"delta":{"content":"one\u2028two"}}]}\n\n'.encode())
    with scripted(at_once(raw, END, usage(3), DONE, LAST)) as server:
        status, found, _ = load(server.url, tmp_path)
    assert (status, found["ok"], found["failed"]) == (0, 12, 0)


def test_5_a_stream_that_is_cut_is_a_failure(tmp_path):
    async def act(exchange):
        exchange.write(HEAD, ROLE, said("half of"))
        await exchange.writer.drain()
        exchange.writer.close()

    with scripted(act) as server:
        status, found, _ = load(server.url, tmp_path)
    assert (status, found["outcomes"]) == (1, {"truncated": 12})
    assert found["adjusted"]["e2e"] == {"p50": None, "p90": None, "p95": None, "p99": None, "n": 12}


def test_6_the_event_with_the_role_is_not_the_first_token(tmp_path):
    with scripted(stream(blocks=2, first=0.2)) as server:
        _, found, _ = load(server.url, tmp_path, 4, 4)
    assert found["ttft"]["p50"] >= 0.19
    assert found["silence"]["p50"] > 0.1


def test_7_tokens_nobody_reported_are_called_estimated(tmp_path):
    with scripted(stream(reported=False)) as server:
        _, found, shown = load(server.url, tmp_path)
    assert (found["usage_source"], found["completion_tokens"]) == ("estimated", 12 * 64)
    assert found["e2e_rate"]["n"] == found["decode_rate"]["n"] == 0  # estimates never mix with reported tokens
    assert "tokens are estimated by characters" in shown


def test_8_forty_requests_of_four_clients_use_four_connections(tmp_path):
    with scripted(stream(blocks=2, first=0.005)) as server:
        _, found, _ = load(server.url, tmp_path, 40, 4)
    assert (found["ok"], server.connections, found["connections"]) == (40, 4, 4)


def test_9_opening_a_connection_is_not_part_of_the_first_token(tmp_path, monkeypatch):
    connect = Origin.connect

    async def slowly(self, factory):
        import asyncio

        await asyncio.sleep(0.5)
        return await connect(self, factory)

    monkeypatch.setattr(Origin, "connect", slowly)
    with scripted(stream(blocks=2, first=0.01)) as server:
        _, found, _ = load(server.url, tmp_path, 12, 4)
    assert found["connect"]["n"] == 4
    assert found["connect"]["p50"] >= 0.5
    assert found["ttft"]["p99"] < 0.5


def test_10_a_jumping_wall_clock_changes_nothing(tmp_path, monkeypatch):
    real, calls = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * (next(calls) % 7))
    with scripted(stream()) as server:
        began = time.monotonic()
        _, found, _ = load(server.url, tmp_path)
        took = time.monotonic() - began
    assert 0 < found["wall"] < took
    assert 0 < found["ttft"]["p50"] < took
    assert found["throughput"] > 12 * 64 / took


def test_11_a_setting_that_is_refused_or_ignored_is_said_aloud(tmp_path):
    grid = ["--steps", "4,8", "--width", "32", "-n", "6", "--no-usage", "--temperature", "0.5", "--max-tokens", "32"]
    with simulated(profile=Strict(step_time=0.001)) as server:
        status, found, _ = run("sweep", "--url", server.url, *grid, out=tmp_path)
    assert status == 1
    assert all("parallel_tokens" in cell["effect"] for cell in found["cells"])
    with simulated(profile=Autoregressive(prefill=0.0, token_time=0.001)) as server:  # takes the fields, does nothing
        status, found, _ = run("sweep", "--url", server.url, *grid, out=tmp_path)
    assert status == 0
    assert [cell["effect"] for cell in found["cells"]] == ["no effect seen: steps"] * 2


def test_12_two_servers_are_compared_in_pairs_with_an_interval(tmp_path):
    with (
        scripted(stream(blocks=4, first=0.06, gap=0.02), models=("a",)) as a,
        scripted(stream(blocks=4, first=0.18, gap=0.06), models=("b",)) as b,
    ):
        arguments = [f"a@{a.url}", f"b@{b.url}", "-n", "10", "--scenarios", "interactive"]
        _, found, shown = run("compare", *arguments, out=tmp_path)
    ttft = next(row for row in found["ratios"] if row["metric"] == "ttft")
    assert ttft["low"] <= ttft["value"] <= ttft["high"]
    assert ttft["value"] == pytest.approx(3.0, rel=0.15)
    assert (ttft["pairs"], ttft["verdict"]) == (10, "worse")
    assert [row["choice"] for row in found["decisions"]] == ["a"]
    assert "interactive completion" in shown


def test_13_each_concurrency_has_its_cost_for_several_instance_prices(tmp_path):
    profile = Diffusion(prefill=0.0, pass_time=0.0005, position_time=0.0, sharing=Sharing(0.05, 0.0))
    with simulated(profile=profile) as server:
        arguments = ["--url", server.url, "--levels", "1,4", "-n", "12", "--temperature", "0.5"]
        prices = ["--price", "input=0.2,output=0.75", "--instance-price", "2,4"]
        _, found, _ = run("ladder", *arguments, *prices, out=tmp_path)
    for level in found["levels"]:
        cost = level["instance_cost_per_million"]
        assert cost["2"] == pytest.approx(2 / (level["throughput"] * 3600) * 1e6)
        assert cost["4"] == pytest.approx(2 * cost["2"])
        assert level["cost_per_million"] > 0.75  # the prompt's tokens cost too
    one, four = (level["instance_cost_per_million"]["2"] for level in found["levels"])
    assert four < one


def test_14_a_client_that_was_late_itself_makes_the_run_invalid(tmp_path, monkeypatch):
    monkeypatch.setattr(Strain, "p99", property(lambda self: 0.2))
    with scripted(stream()) as server:
        _, found, shown = load(server.url, tmp_path)
    assert found["valid"] is False
    assert found["verdict"].startswith("NOT VALID")
    assert "the client was the bottleneck: its event loop was 200 ms late at P99" in shown


def test_15_it_needs_no_tokenizer_and_nothing_from_the_network(tmp_path):
    heavy = ["tiktoken", "tokenizers", "transformers", "numpy", "scipy", "pandas", "plotly", "aiohttp"]
    program = (
        "import sys\nfrom loadgen.cli import build\n"
        f"try:\n    build('load')(sys.argv[1:])\nfinally:\n    print([m for m in {heavy} if m in sys.modules])"
    )
    with scripted(stream()) as server:
        arguments = ["load", "--url", server.url, "-n", "4", "-c", "2", "--out", str(tmp_path)]
        ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().splitlines()[-1] == "[]"


def test_16_a_server_that_is_not_the_named_one_is_not_loaded(tmp_path):
    with scripted(stream(), models=("other", "another")) as server:
        result = CliRunner().invoke(
            build("load"), ["load", "-u", server.url, "-m", "mercury-2.5", "--out", str(tmp_path)]
        )
    assert result.exit_code == 2
    assert "does not list 'mercury-2.5', so it is not loaded (it lists other, another)" in result.stderr
    assert server.exchanges == []
    assert list(tmp_path.iterdir()) == []


def test_16_a_server_that_answers_in_another_name_is_not_loaded(tmp_path):
    body = {"model": "gpt-9", "choices": [{"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"}]}

    async def act(exchange):
        text = json.dumps(body).encode()
        exchange.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(text), text
        )

    with scripted(act, models=None) as server:
        result = CliRunner().invoke(
            build("load"), ["load", "-u", server.url, "-m", "mercury-2.5", "--out", str(tmp_path)]
        )
    assert result.exit_code == 2
    assert "answers as 'gpt-9', not as 'mercury-2.5'" in result.stderr
    assert len(server.exchanges) == 1
