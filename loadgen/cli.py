"""The front door: `manometer`. Each command lives in a room of its own, which is entered only when it is called.

1. The table below is all that `--help` needs, so it answers at once, and a command pays for its own imports only.
   A test holds the table to the rooms.
2. User errors are one line on stderr and exit status 2; a command that did not do what was asked ends with 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

_UsageError: Any = typer.BadParameter.__base__  # typer shows it as a box of five lines; here one is enough

# Command -> module, function in it, and the first sentence of its help.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("proxy.cli", "serve", "Run the proxy until it is told to stop (Ctrl-C, SIGTERM)."),
    "check": (
        "proxy.cli",
        "check",
        "Ask each backend what it can do: key, address, models, stream, and whether parameters have an effect.",
    ),
    "requests": (
        "proxy.cli",
        "requests",
        "List what a running proxy measured last, newest first; with an ID: one request, arrival by arrival.",
    ),
    "load": ("loadgen.load", "load", "Load one server at one level and say how it did."),
    "ladder": (
        "loadgen.ladder",
        "ladder",
        "Climb through levels of concurrency: throughput, latency and cost at each, and the knee.",
    ),
    "sweep": (
        "loadgen.sweep",
        "sweep",
        "Try every combination of settings on the same questions: speed beside quality.",
    ),
    "compare": (
        "loadgen.compare",
        "compare",
        "Ask two models the same questions in pairs, and decide for each scenario which to use.",
    ),
    "replay": (
        "loadgen.replay",
        "replay",
        "Send recorded requests at their times; latencies count from when each should have been sent.",
    ),
    "report": ("loadgen.redraw", "redraw", "Draw the report of a run again, or compare several runs."),
    "simulate": ("loadgen.cli", "simulate", "Run a simulated backend until Ctrl-C."),
    "demo": (
        "loadgen.cli",
        "demo",
        "Two simulated backends, the proxy before them, mixed traffic through it, and what was measured.",
    ),
}


def fail(message: str, status: int = 2) -> typer.Exit:
    """What the user must know, in one line."""
    typer.echo(f"manometer: {message}", err=True)
    return typer.Exit(status)


def simulate(
    profile: Annotated[str, typer.Option(help="diffusion, autoregressive or strict.")] = "diffusion",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8001,
    model: Annotated[list[str] | None, typer.Option(help="Model name; may be given often.")] = None,
    capacity: Annotated[int, typer.Option(min=1, help="Requests that run at once.")] = 32,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; beyond them: 429.")] = 64,
    key: Annotated[str, typer.Option(envvar="SIMULATE_KEY", help="Bearer key that requests must carry.")] = "",
    seed: Annotated[int, typer.Option(help="The same seed gives the same answers.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Tell the address as one JSON object.")] = False,
) -> None:
    """Run a simulated backend until Ctrl-C.

    Ask for faults with the header `x-simulate: cut=2` or the model name `MODEL#cut=2`: error=STATUS, cut, reset,
    stall, drop, error_event, html, truncate, empty, no_usage, no_done, malformed, delay=SECONDS, late_head.
    """
    from random import Random

    import uvloop

    from .known import answers
    from .simulator import PROFILES, Simulator, serve

    if profile not in PROFILES:
        raise fail(f"--profile: {profile!r} is not one of {', '.join(PROFILES)}")
    told = {"answers": answers(Random(seed))} | ({"models": tuple(model)} if model else {})
    made = PROFILES[profile](**told)
    backend = Simulator(
        profile=made, capacity=capacity, queue=queue, seed=seed, host=host, port=port, key=key or None, keep=1
    )
    try:
        uvloop.run(serve(backend, lambda: typer.echo(_address(profile, backend, json))))
    except OSError as problem:
        why = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else problem.strerror
        raise fail(f"--port: cannot listen on {host}:{port}: {why}; choose another") from None


def _address(profile: str, backend: Any, as_json: bool) -> str:
    if as_json:
        import orjson

        told = {"url": backend.url, "profile": profile, "models": list(backend.model.models)}
        return orjson.dumps(told).decode()
    return f"{profile} backend at {backend.url} (models: {', '.join(backend.model.models)}). Ctrl-C stops it."


def demo(
    seconds: Annotated[float | None, typer.Option(min=1.0, help="How long; without it, until Ctrl-C.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")] = False,
) -> None:
    """Two simulated backends, the proxy before them, mixed traffic through it, and what was measured."""
    import orjson
    import uvloop
    from rich.console import Console

    from . import demo as play
    from .board import Board
    from .runner import interruptible
    from .scene import Scene

    scene = Scene(Console(stderr=json))

    async def main() -> Board:
        with interruptible() as stop:
            return await play.demo(seconds, scene, stop)

    try:
        board = uvloop.run(main())
    except play.DemoFailed as problem:
        raise fail(str(problem), 1) from None
    finally:
        scene.stop()
    if json:
        typer.echo(orjson.dumps(board.json()).decode())
    raise typer.Exit(0 if board.sound else 1)


def build(asked: str | None) -> typer.Typer:
    """The command line, with the room of the command that was asked for opened."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Measure OpenAI-compatible LLM backends, diffusion and autoregressive, by the same definitions.",
    )
    for name, (module, function, says) in COMMANDS.items():
        if name == asked:
            app.command(name)(getattr(import_module(module), function))
        else:
            app.command(name, help=says)(_closed)
    return app


def _closed() -> None:
    """A command that was not asked for: only its line in the list is ever used."""


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    asked = next((word for word in given if not word.startswith("-")), None)
    try:
        status = get_command(build(asked))(given, prog_name="manometer", standalone_mode=False)
    except typer.Abort:
        status = 130
    except _UsageError as problem:
        room = f" {asked}" if asked in COMMANDS else ""
        status = fail(f"{problem.format_message()} (see manometer{room} --help)").exit_code
    sys.exit(status or 0)


if __name__ == "__main__":
    main()
