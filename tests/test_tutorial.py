"""The tutorial, walked: check, sweep, one at a time, ladder, compare, decide; through a real proxy.

The commands are those of docs/tutorial.md, with fewer requests, on simulated backends that are quicker than the page's.
A command of the page that is not walked here fails.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadgen.decoding import Autoregressive, Diffusion
from loadgen.known import answers
from tests.threaded import simulated

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
MANOMETER = [sys.executable, "-m", "loadgen.cli"]
# What is made smaller here: option -> value. The AR model takes its time for every token.
SMALLER = {
    "check": {"--pairs": "1"},
    "sweep": {"-n": "6"},
    "load": {"-n": "2", "--max-tokens": "200"},
    "ladder": {"-n": "32", "--levels": "1,4,16", "--max-tokens": "40"},
    "compare": {"-n": "6"},
}
KNOWN = answers(random.Random(0))
MERCURY = Diffusion(answers=KNOWN, pass_time=0.002, prefill=0.01)
AR = Autoregressive(answers=KNOWN, token_time=0.003, prefill=0.01, prompt_token_time=0.0)


def commands() -> list[list[str]]:
    """Every `manometer ...` of the page, continued lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("manometer ")]


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The page's backends and proxy, on free ports, from the configuration that the page shows."""
    folder = tmp_path_factory.mktemp("tutorial")
    page = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert page is not None
    with ExitStack() as stack:
        backends = [stack.enter_context(simulated(profile=profile)) for profile in (MERCURY, AR)]
        ports = {"8001": str(backends[0].port), "8002": str(backends[1].port), "8080": str(free()), "9464": str(free())}
        listen = f'[listen]\naddress = "127.0.0.1:{ports["8080"]}"\nadmin = "127.0.0.1:{ports["9464"]}"\n'
        (folder / "manometer.toml").write_text(listen + moved(page[1], ports))
        (serve,) = (arguments for arguments in commands() if arguments[0] == "serve")
        log = stack.enter_context((folder / "log").open("wb"))
        proxy = subprocess.Popen([*MANOMETER, *serve], cwd=folder, stdout=log, stderr=log)
        try:
            wait(f"http://127.0.0.1:{ports['8080']}/v1/models", folder / "log")
            yield folder, ports
        finally:
            proxy.terminate()
            proxy.wait(20)


def wait(url: str, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if len(json.load(answer)["data"]) == 2:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.2)
    raise AssertionError(f"the proxy did not start: {log.read_text()}")


def moved(text: str, ports: dict[str, str]) -> str:
    return re.sub(r"\b(8001|8002|8080|9464)\b", lambda found: ports[found[0]], text)


def walk(place: tuple[Path, dict[str, str]], name: str, number: int = 0) -> tuple[int, dict[str, Any], str]:
    """The page's n-th command of that name, made smaller: exit status, JSON, what was said."""
    folder, ports = place
    arguments = [found for found in commands() if found[0] == name][number]
    for option, value in SMALLER[name].items():
        if option in arguments:
            arguments[arguments.index(option) + 1] = value
        else:
            arguments += [option, value]
    url = [] if name == "check" else ["-u", f"http://127.0.0.1:{ports['8080']}/v1"]
    given = [*MANOMETER, *arguments, *url, "--json"]
    ended = subprocess.run(given, cwd=folder, capture_output=True, text=True, timeout=240)
    lines = ended.stdout.strip().splitlines()
    said = ended.stdout + ended.stderr
    return ended.returncode, json.loads(lines[-1]) if lines and name != "check" else {}, said


def test_every_command_of_the_page_is_walked():
    known = {"simulate", "serve", "check", "sweep", "load", "ladder", "compare", "report"}
    assert {arguments[0] for arguments in commands()} == known


def test_check_finds_both_backends_and_their_parameters(place):
    status, _, said = walk(place, "check")
    assert status == 0, said
    assert "mercury" in said and "ar" in said


def test_the_sweep_shows_speed_beside_quality(place):
    status, found, said = walk(place, "sweep")
    assert status == 0, said
    assert len(found["cells"]) == 12
    by_label = {cell["label"]: cell for cell in found["cells"]}
    assert by_label["steps 4, width 128"]["speed"] > 4 * by_label["steps 32, width 32"]["speed"]
    assert by_label["steps 4, width 128"]["quality"] < by_label["steps 32, width 32"]["quality"] == 1.0
    assert {cell["effect"] for cell in found["cells"]} == {"seen"}


@pytest.mark.parametrize("number", [0, 1])
def test_one_at_a_time_each_backend_shows_its_shape(place, number):
    status, found, said = walk(place, "load", number)
    assert status == 0, said
    mercury = found["backend"].startswith("mercury")
    assert (found["burst"]["p50"] > 8) == mercury
    assert (found["decode_rate"]["p50"] > 400) == mercury


@pytest.mark.parametrize("number", [0, 1])
def test_the_ladder_rises_and_its_cost_falls(place, number):
    status, found, said = walk(place, "ladder", number)
    assert status == 0, said
    throughputs = [level["throughput"] for level in found["levels"]]
    assert throughputs == sorted(throughputs)
    costs = [level["instance_cost_per_million"]["2.5"] for level in found["levels"]]
    assert costs == sorted(costs, reverse=True)


def test_the_comparison_decides_for_each_scenario(place):
    status, found, said = walk(place, "compare")
    assert status == 0, said
    choices = {row["scenario"]: row["choice"] for row in found["decisions"]}
    assert len(choices) == 5
    assert choices["interactive completion"] == "ar-small"  # the first word comes sooner
    assert choices["batch generation"].startswith("mercury")


def test_reports_are_compared_in_one_page(place):
    folder, _ = place
    runs = sorted((folder / "runs").glob("*-mercury")) + sorted((folder / "runs").glob("*-ar"))
    assert len(runs) == 2
    ended = subprocess.run(
        [*MANOMETER, "report", *map(str, runs)], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "Runs compared" in (folder / "runs" / "compared.html").read_text("utf-8")
