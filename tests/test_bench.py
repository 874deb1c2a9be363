import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from loadgen import bench as module
from loadgen.bench import start
from loadgen.cli import build
from loadgen.options import Options, Refused
from loadgen.plan import Ask
from loadgen.schedule import Closed
from loadgen.workers import WorkerDied
from tests.threaded import scripted, simulated, stream


def measured(url, tmp_path, after, **facts):
    """Runs a command that measures one level and then does `after`."""
    options = Options(url=url, out=tmp_path, prompts="short", warmup=1, **facts)

    async def body(bench):
        target = bench.target(keep_text=True)
        model = await bench.identify(target, "")
        await bench.measure(target, Ask(bench.work(), bench.question(model)), Closed(2), requests=6, score=True)
        return after(bench)

    return start("load", options, {"own": 1}, body)


def only(tmp_path):
    (folder,) = tmp_path.iterdir()
    return folder, json.loads((folder / "summary.json").read_text())


def test_a_run_keeps_its_levels_their_scores_and_every_reading(tmp_path):
    with simulated(profile="diffusion") as backend:
        bench = measured(backend.url, tmp_path, lambda bench: "fine")
    folder, told = only(tmp_path)
    assert bench.status() == 0
    assert told["verdict"].endswith("fine")
    assert told["levels"][0]["quality"] == 0  # a model that knows nothing
    rows = [json.loads(line) for line in (folder / "readings.jsonl").read_text().splitlines()]
    assert [row["warmup"] for row in rows].count(False) == 6
    assert all("passed" in row for row in rows if not row["warmup"])
    assert {row["prompt"] for row in rows} <= {f"short-{i:02}-{lang}" for i in range(1, 17) for lang in ("en", "zh")}


def test_the_key_is_written_nowhere(tmp_path):
    with simulated(profile="diffusion", key="sk-very-secret") as backend:
        measured(backend.url, tmp_path, lambda bench: "fine", key="sk-very-secret")
    folder, told = only(tmp_path)
    assert told["levels"][0]["ok"] == 6
    assert not [path for path in folder.iterdir() if b"sk-very-secret" in path.read_bytes()]


def test_a_wrong_key_is_one_line_and_leaves_no_folder(tmp_path):
    with simulated(profile="diffusion", key="right") as backend:
        result = CliRunner().invoke(
            build("load"), ["load", "-u", backend.url, "--key", "wrong", "--out", str(tmp_path)]
        )
    assert result.exit_code == 2
    assert result.stderr == f"manometer: {backend.url} refuses the key (401): set MANOMETER_KEY to the right one\n"
    assert list(tmp_path.iterdir()) == []


def test_a_crash_leaves_what_was_measured(tmp_path):
    def crash(bench):
        raise ZeroDivisionError("by a bug")

    with simulated(profile="diffusion") as backend, pytest.raises(ZeroDivisionError):
        measured(backend.url, tmp_path, crash)
    folder, told = only(tmp_path)
    assert told["interrupted"] and told["levels"][0]["ok"] == 6
    assert told["verdict"] == "BROKEN OFF: ZeroDivisionError; this is what was measured until then"
    assert (folder / "report.html").exists()


def test_a_dead_worker_is_one_line(tmp_path, monkeypatch):
    async def dying(*_, **__):
        raise WorkerDied("a load process died (exit status -9)")

    monkeypatch.setattr(module.runner, "run", dying)
    with (
        simulated(profile="diffusion") as backend,
        pytest.raises(Refused, match=r"a load process died \(exit status -9\)"),
    ):
        measured(backend.url, tmp_path, lambda bench: "fine")


@pytest.mark.parametrize("url", ["ftp://x/v1", "http://user:secret@x/v1", "nonsense"])
def test_a_url_that_is_none_is_one_line(tmp_path, url):
    result = CliRunner().invoke(build("load"), ["load", "-u", url, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.startswith("manometer: --url: ") and result.stderr.count("\n") == 1


def test_an_interrupt_while_the_server_is_asked_who_it_is_ends_at_once(tmp_path):
    async def silent(exchange):
        await asyncio.sleep(60)

    with scripted(silent, models=None) as server:  # lists nothing, and never answers the first question
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        result = CliRunner().invoke(build("load"), ["load", "-u", server.url, "-m", "m", "--out", str(tmp_path)])
    assert time.monotonic() - began < 30
    assert (result.exit_code, result.stderr) == (2, "manometer: interrupted before anything was loaded\n")
    assert list(tmp_path.iterdir()) == []


def test_without_a_check_the_server_is_not_asked(tmp_path):
    with scripted(stream(), models=None) as server:
        given = [
            "load",
            "-u",
            server.url,
            "-m",
            "m",
            "--no-check",
            "-n",
            "2",
            "-c",
            "1",
            "--warmup",
            "0",
            "--out",
            str(tmp_path),
        ]
        result = CliRunner().invoke(build("load"), given)
        refused = CliRunner().invoke(build("load"), [g for g in given if g not in ("-m", "m")])
    assert result.exit_code == 0
    assert len(server.exchanges) == 2
    assert (refused.exit_code, "--no-check needs --model" in refused.stderr) == (2, True)


def test_a_run_that_is_killed_leaves_its_finished_levels(tmp_path):
    seen = []
    options = Options(out=tmp_path, prompts="short", warmup=0)

    async def body(bench):
        target = bench.target()
        model = await bench.identify(target, "")
        for level in (1, 2):
            await bench.measure(target, Ask(bench.work(), bench.question(model)), Closed(level), requests=2)
            seen.append(sorted(path.name for path in bench.place.path.iterdir()))
            if level == 2:
                seen.append(json.loads((bench.place.path / "summary.json").read_text()))
        return "fine"

    with simulated(profile="diffusion") as backend:
        start("ladder", replace(options, url=backend.url), {}, body)
    assert seen[0] == ["readings.jsonl"]
    before_the_end = seen[2]
    assert [one["concurrency"] for one in before_the_end["levels"]] == [1]
    assert (before_the_end["valid"], before_the_end["verdict"]) == (False, "BROKEN OFF: killed while it ran")
