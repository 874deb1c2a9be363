import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli import build
from loadgen.load import scheduled
from loadgen.options import Options, Refused
from loadgen.schedule import Closed, Knot, Open
from tests.threaded import scripted, stream


def command(*arguments):
    return CliRunner().invoke(build("load"), ["load", *arguments])


def test_schedules_are_closed_open_or_a_ramp():
    assert scheduled(Options(), 8, 0, "poisson", 1, "") == Closed(8, 0)
    assert scheduled(Options(), 8, 0, "poisson", 1, "2.5") == Closed(8, 2.5)
    assert scheduled(Options(), 8, 20, "constant", 1, "") == Open.at(20, "constant")
    ramp = scheduled(Options(), 8, 0, "poisson", 1, "0:1,30:20")
    assert ramp.knots == (Knot(0, 1), Knot(30, 20))


@pytest.mark.parametrize(
    "given", [(0, 0, "poisson", 1, ""), (8, 5, "now and then", 1, ""), (8, 0, "poisson", 1, "0:x")]
)
def test_a_schedule_that_cannot_be_is_one_line(given):
    with pytest.raises(Refused, match="the schedule: "):
        scheduled(Options(), *given)


def test_the_last_line_is_one_object_with_the_run_s_numbers_at_the_top(tmp_path):
    with scripted(stream()) as server:
        result = command("-u", server.url, "-n", "12", "-c", "3", "--json", "--slo", "ttft=5", "--out", str(tmp_path))
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert result.exit_code == 0
    wanted = ("ok", "failed", "outcomes", "ttft", "e2e", "decode_rate", "e2e_rate", "throughput", "goodput",
              "completion_tokens", "usage_source", "cost", "wall", "valid", "warnings")  # fmt: skip
    assert not set(wanted) - found.keys()
    assert set(found["ttft"]) == {"p50", "p90", "p95", "p99", "n"}
    assert (found["ok"], found["goodput_share"], found["completion_tokens"]) == (12, 1.0, 12 * 64)
    rows = [json.loads(line) for line in Path(found["folder"], "readings.jsonl").read_text().splitlines()]
    assert sum(row["warmup"] for row in rows) == 3  # one for each client, by default
    assert len(rows) == 15


def test_nothing_is_written_where_that_is_not_wanted(tmp_path):
    with scripted(stream()) as server:
        result = command("-u", server.url, "-n", "4", "-c", "2", "--no-save", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_an_open_loop_counts_from_when_a_request_should_have_gone(tmp_path):
    with scripted(stream(blocks=2)) as server:
        given = [
            "-u",
            server.url,
            "--rate",
            "100",
            "--arrivals",
            "constant",
            "-n",
            "20",
            "--json",
            "--out",
            str(tmp_path),
        ]
        found = json.loads(command(*given).stdout.strip().splitlines()[-1])
    assert (found["rate"], found["concurrency"], found["lag"]["n"]) == (100, None, 20)
    assert found["ttft_intended"]["p50"] >= found["ttft"]["p50"]


def test_more_failures_than_allowed_are_a_failure_of_the_command(tmp_path):
    async def act(exchange):
        exchange.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")

    with scripted(act) as server:
        for allowed, status in (("0", 1), ("100%", 0), ("4", 0), ("3", 1)):
            given = ["-u", server.url, "-n", "4", "-c", "2", "--warmup", "0", "--max-failures", allowed]
            assert command(*given, "--out", str(tmp_path)).exit_code == status


def test_a_limit_that_was_hit_names_the_option_that_paces(tmp_path):
    async def act(exchange):
        exchange.write(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")

    with scripted(act) as server:
        result = command("-u", server.url, "-n", "4", "-c", "2", "--out", str(tmp_path))
    assert "--otpm paces the load" in result.stdout


def test_an_interrupted_run_leaves_its_report(tmp_path):
    async def act(exchange):
        await stream(blocks=2, first=0.1, gap=0.1)(exchange)

    with scripted(act) as server:
        given = ["load", "-u", server.url, "--duration", "60", "-c", "4", "--json", "--out", str(tmp_path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "loadgen.cli", *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        patience = time.monotonic() + 30
        while len(server.exchanges) < 12 and time.monotonic() < patience:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    found = json.loads(stdout.strip().splitlines()[-1])
    assert process.returncode == 130
    assert found["interrupted"] is True and found["verdict"].startswith("BROKEN OFF")
    assert found["ok"] > 0 and found["failed"] == 0  # what the interruption cut off is no failure of the server
    assert (tmp_path / found["folder"] / "report.html").exists()


def test_a_deadline_ends_a_run_that_would_not_end(tmp_path):
    async def act(exchange):
        await exchange.at(time.monotonic(), 60)

    with scripted(act) as server:
        began = time.monotonic()
        given = ["-u", server.url, "-n", "4", "-c", "2", "--deadline", "0.5", "--json", "--out", str(tmp_path)]
        result = command(*given)
    assert time.monotonic() - began < 30
    assert result.exit_code == 130
    assert json.loads(result.stdout.strip().splitlines()[-1])["interrupted"] is True


def test_several_processes_ask_what_one_would(tmp_path):
    with scripted(stream(blocks=2)) as server:
        given = ["-u", server.url, "-n", "12", "-c", "4", "--warmup", "0", "--processes", "2", "--json"]
        result = command(*given, "--out", str(tmp_path))
        asked = sorted(x.body["messages"][0]["content"] for x in server.exchanges)
        server.exchanges.clear()
        command(*[g if g != "2" else "1" for g in given], "--out", str(tmp_path))
        assert asked == sorted(x.body["messages"][0]["content"] for x in server.exchanges)
    assert json.loads(result.stdout.strip().splitlines()[-1])["ok"] == 12
