import json

import pytest
from typer.testing import CliRunner

from loadgen.cli import build
from loadgen.options import Refused
from loadgen.replay import recorded
from tests.threaded import scripted, stream


def trace(tmp_path, count=8, every=50):
    rows = [
        {"timestamp": 1000 + i * every, "input_length": 20 + i, "output_length": 5 + i, "hash_ids": [i]}
        for i in range(count)
    ]
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@pytest.mark.parametrize("pace", [1.0, 4.0])
def test_a_trace_is_sent_at_its_times_and_lengths(tmp_path, pace):
    with scripted(stream(blocks=2)) as server:
        given = [
            "replay",
            str(trace(tmp_path)),
            "-u",
            server.url,
            "--pace",
            str(pace),
            "--json",
            "--out",
            str(tmp_path),
        ]
        result = CliRunner().invoke(build("replay"), given)
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert result.exit_code == 0, result.stderr
    assert (found["ok"], found["lag"]["n"]) == (8, 8)
    assert found["wall"] >= 7 * 0.05 / pace
    asked = sorted((len(x.body["messages"][0]["content"].split()), x.body["max_tokens"]) for x in server.exchanges)
    assert asked == [(20 + i, 5 + i) for i in range(8)]


def test_what_our_own_runs_recorded_can_be_replayed(tmp_path):
    with scripted(stream(blocks=2)) as server:
        load = ["load", "-u", server.url, "-n", "6", "-c", "2", "--warmup", "0", "--json", "--out", str(tmp_path)]
        first = json.loads(CliRunner().invoke(build("load"), load).stdout.strip().splitlines()[-1])
        again = ["replay", f"{first['folder']}/readings.jsonl", "-u", server.url, "--json", "--out", str(tmp_path)]
        found = json.loads(CliRunner().invoke(build("replay"), again).stdout.strip().splitlines()[-1])
    assert found["ok"] == 6
    assert {x.body["max_tokens"] for x in server.exchanges[6:]} == {16}  # as many tokens as were answered then


def test_prompts_without_times_are_refused_with_what_to_do(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "Hi"}')
    with pytest.raises(Refused, match=r"holds no times .*: use load --prompts"):
        recorded(file)
    with pytest.raises(Refused, match="No such file"):
        recorded(tmp_path / "none.jsonl")
