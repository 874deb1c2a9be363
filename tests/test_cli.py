"""The front door: what it lists, how fast it opens, how it says no."""

from __future__ import annotations

import importlib
import inspect
import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from loadgen import cli
from loadgen.script import FAULTS

COMMAND = [sys.executable, "-m", "loadgen.cli"]


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_every_command() -> None:
    done = ask("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in cli.COMMANDS)


def test_the_list_of_commands_imports_nothing_but_the_command_line() -> None:
    code = "import sys, loadgen.cli as c; c.build(None); print([m for m in sys.modules if m.split('.')[0] in %r])"
    heavy = {"aiohttp", "asyncio", "httptools", "orjson", "prometheus_client", "pydantic", "uvloop", "proxy"}
    done = subprocess.run([sys.executable, "-c", code % heavy], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_command_is_in_its_room_and_says_there_what_the_list_says(command: str) -> None:
    module, function, says = cli.COMMANDS[command]
    told = inspect.getdoc(getattr(importlib.import_module(module), function))
    assert told is not None
    assert told.splitlines()[0] == says


@pytest.mark.parametrize("room", ["proxy.cli", "loadgen.commands"])
def test_every_command_of_a_room_can_be_called_from_the_front_door(room: str) -> None:
    app = importlib.import_module(room).app
    names = {info.name or info.callback.__name__ for info in app.registered_commands}
    assert names <= cli.COMMANDS.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "--profile", "quantum"), "manometer: --profile: 'quantum' is not one of diffusion"),
        (("simulate", "--port", "70000"), "'--port'"),
        (("simulate", "--no-such"), "No such option: --no-such (see manometer simulate --help)"),
        (("demo", "--seconds", "0"), "'--seconds'"),
        (("demo", "--seconds", "soon"), "'--seconds'"),
        (("fly",), "No such command 'fly'. (see manometer --help)"),
    ],
)
def test_a_user_error_is_told_and_ends_with_2(arguments: tuple[str, ...], said: str) -> None:
    done = ask(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, "one line"


def test_a_port_in_use_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ask("simulate", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == (
        f"manometer: --port: cannot listen on 127.0.0.1:{port}: Address already in use; choose another\n"
    )


def test_simulate_names_every_fault_it_knows() -> None:
    assert all(fault in (cli.simulate.__doc__ or "") for fault in FAULTS)


@pytest.mark.parametrize("profile", ["diffusion", "autoregressive", "strict"])
def test_simulate_runs_alone_until_it_is_told_to_stop(profile: str) -> None:
    command = [*COMMAND, "simulate", "--profile", profile, "--port", "0", "--model", "m-1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert (told["profile"], told["models"]) == (profile, ["m-1"])
        with urllib.request.urlopen(f"{told['url']}/models", timeout=10) as answer:
            assert json.load(answer)["data"][0]["id"] == "m-1"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
