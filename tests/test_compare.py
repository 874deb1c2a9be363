import json

from typer.testing import CliRunner

from loadgen.analysis.pairing import Decision
from loadgen.cli import build
from loadgen.compare import SCENARIOS, verdict
from loadgen.decoding import Autoregressive, Diffusion
from tests.threaded import simulated


def test_the_scenarios_are_the_tutorial_s():
    assert [s.name for s in SCENARIOS.values()] == [
        "interactive completion", "batch generation", "code", "structured output", "long reasoning",
    ]  # fmt: skip


def test_the_verdict_groups_scenarios_by_what_to_take():
    decisions = [
        Decision("code", "a", ""),
        Decision("batch", "b", ""),
        Decision("long", "a", ""),
        Decision("x", "undecided", ""),
    ]
    assert verdict(decisions, ["a", "b"]) == "a for code, long; b for batch; undecided: x"
    assert verdict([], ["a", "b"]) == "nothing was compared"


def test_diffusion_and_autoregression_are_compared_scenario_by_scenario(tmp_path):
    quick = Diffusion(prefill=0.05, pass_time=0.003, position_time=0.0, effort="instant", answer=64, spread=0)
    steady = Autoregressive(prefill=0.005, token_time=0.004, answer=64, spread=0)
    with simulated(profile=quick) as a, simulated(profile=steady) as b:
        given = ["compare", f"mercury-2.5@{a.url}", f"ar-small@{b.url}", "-n", "8", "--temperature", "0.5", "--json",
                 "--scenarios", "interactive,structured", "--price", "input=1,output=2",
                 "--price-b", "input=1,output=4", "--out", str(tmp_path)]  # fmt: skip
        result = CliRunner().invoke(build("compare"), given)
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert result.exit_code == 0, result.stderr
    rows = {(row["scenario"], row["metric"]): row for row in found["ratios"]}
    assert rows["interactive completion", "ttfa"]["verdict"] == "better"  # the first word comes sooner,
    assert rows["interactive completion", "e2e"]["verdict"] == "worse"  # the last one later
    assert rows["structured output", "price"]["value"] > 1.5
    choices = {row["scenario"]: row["choice"] for row in found["decisions"]}
    assert choices == {"interactive completion": "ar-small", "structured output": "mercury-2.5"}
    assert found["verdict"].endswith("mercury-2.5 for structured output; ar-small for interactive completion")


def test_a_model_compared_with_itself_is_undecided_and_told_apart(tmp_path):
    profile = Diffusion(prefill=0.03, pass_time=0.001, position_time=0.0, effort="instant", answer=40, spread=0)
    with simulated(profile=profile) as a:
        spec = f"mercury-2.5@{a.url}"
        given = ["compare", spec, spec, "-n", "12", "--scenarios", "interactive", "--json", "--out", str(tmp_path)]
        found = json.loads(CliRunner().invoke(build("compare"), given).stdout.strip().splitlines()[-1])
    assert {level["backend"] for level in found["levels"]} == {"mercury-2.5 (A)", "mercury-2.5 (B)"}
    ratio = next(row for row in found["ratios"] if row["metric"] == "ttfa")
    assert 0.8 < ratio["value"] < 1.25


def test_an_unknown_scenario_is_one_line():
    result = CliRunner().invoke(build("compare"), ["compare", "a", "b", "--scenarios", "poems"])
    assert (result.exit_code, "no scenario 'poems'; there are interactive" in result.stderr) == (2, True)
