"""The demo as a user runs it, and its parts: the traffic, the tallies, the proxy's configuration."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadgen import demo, workload
from loadgen.board import Board, Tally
from loadgen.demo import DemoFailed, View
from loadgen.mix import SITES, Mix
from loadgen.simulator import Simulator

COMMAND = [sys.executable, "-m", "loadgen.cli", "demo"]


def start(*options: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(folder)}
    return subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_short_demo_measures_both_backends_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start("--seconds", "4", "--json", folder=tmp_path)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    backends = json.loads(out.strip().splitlines()[-1])["backends"]
    assert {name: row["decoding"] for name, row in backends.items()} == {
        "mercury": "diffusion",
        "ar": "autoregressive",
    }
    for row in backends.values():
        assert row["ok"] > 3 and row["failed"] == 0
        assert 0 < row["ttft"]["p50"] <= row["ttft"]["p95"] <= row["ttft"]["p99"]
        assert row["ttft"]["p50"] <= row["e2e"]["p50"] <= row["e2e"]["p99"]
        assert row["completion_tokens"] > row["ok"] and row["throughput"] > 1 and row["cost"] > 0
    ports = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", err)}
    assert len(ports) == 2 and all(map(refuses, ports))
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_ctrl_c_ends_a_demo_without_a_limit_cleanly(tmp_path: Path) -> None:
    process = start(folder=tmp_path)
    assert process.stdout is not None
    seen = ""
    while "ok" not in seen:  # the first line of progress
        seen += (line := process.stdout.readline())
        assert line, "the demo ended early"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "every request was measured" in out
    assert "Traceback" not in err
    assert all(map(refuses, {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", seen)}))


async def test_a_proxy_that_does_not_start_is_told_in_its_own_words(monkeypatch: Any) -> None:
    monkeypatch.setattr(demo, "config", lambda *_: 'listen = "nonsense"\n')
    with pytest.raises(DemoFailed, match=r"the proxy did not start: .*listen"):
        await demo.demo(1.0, View(), asyncio.Event())


async def test_the_configuration_is_one_that_the_proxy_accepts() -> None:
    from proxy import settings

    async with Simulator(key="sk-a") as mercury, Simulator(profile="autoregressive", key="sk-b") as ar:
        tree = tomllib.loads(demo.config(18080, 18081, {"mercury": mercury, "ar": ar}))
        made = settings.Settings(**tree)
        assert [made.backends[site.name].kind for site in SITES] == [site.decoding for site in SITES]
        assert made.backends["mercury"].prices[0].output == Decimal("0.75")
        assert mercury.url == tree["backends"]["mercury"]["url"]


def test_the_proxy_is_not_configured_by_our_own_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("MANOMETER_LISTEN__WORKERS", "64")
    monkeypatch.setenv("MERCURY_API_KEY", "sk-real")
    assert not {"MANOMETER_LISTEN__WORKERS", "MERCURY_API_KEY"} & demo._environment().keys()
    assert "PATH" in demo._environment() or "PATH" not in os.environ


def test_free_ports_differ() -> None:
    assert len(set(demo._free_ports(5))) == 5


def test_the_mix_is_the_same_each_time_and_holds_every_kind_of_request() -> None:
    prompts = tuple(workload.builtin(("short",)))
    mix = Mix("mercury-2.5", True, prompts)
    queries = [mix(n) for n in range(200)]
    assert queries == [mix(n) for n in range(200)]
    bodies = [orjson.loads(query.body) for query in queries]
    assert {query.path for query in queries} == {"/v1/chat/completions", "/v1/fim/completions"}
    assert {query.stream for query in queries} == {True, False}
    assert any(query.replace for query in queries)
    assert any("num_denoising_steps" in body for body in bodies)
    plain = [orjson.loads(Mix("ar-small", False, prompts)(n).body) for n in range(200)]
    assert not any("diffusing" in body or "num_denoising_steps" in body for body in plain)


def reading(**fields: Any) -> dict[str, Any]:
    row = {"outcome": "ok", "started_at": 100.0, "e2e": 2.0, "ttft": 0.5, "silence": 0.4, "largest_burst": 8.0}
    return row | {"streamed": True, "tokens": {"completion": 30}, "cost": "0.001"} | fields


def test_a_tally_folds_readings_by_the_definitions_of_every_report() -> None:
    tally = Tally("diffusion")
    for row in (
        reading(),
        reading(started_at=101.0, e2e=4.0, ttft=1.5),
        reading(started_at=101.0, e2e=1.0, ttft=1.0, streamed=False, cost=None),
        reading(outcome="truncated", tokens={"completion": 999}),
        reading(outcome="client_gone"),
    ):
        tally.add(row)
    said = tally.json()
    assert (said["ok"], said["failed"], said["completion_tokens"]) == (3, 1, 90)
    assert said["throughput"] == pytest.approx(90 / 5)  # from 100 to 105
    assert said["ttft"] == {"p50": 1.0, "p95": pytest.approx(1.45), "p99": pytest.approx(1.49)}
    assert said["e2e"]["p50"] == 2.0
    assert said["cost"] == pytest.approx(0.002)


def test_a_backend_without_readings_has_no_numbers_and_is_not_sound() -> None:
    board = Board("http://127.0.0.1:1")
    assert board.json()["backends"]["mercury"]["ttft"] == {"p50": None, "p95": None, "p99": None}
    assert board.json()["backends"]["mercury"]["throughput"] is None
    assert not board.sound
    for tally in board.tallies.values():
        tally.add(reading())
    assert board.sound
    next(iter(board.tallies.values())).add(reading(outcome="internal"))
    assert not board.sound
