"""The proxy's commands: serve, check, requests. `manometer` (loadgen.cli) mounts them; this module runs alone too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Manometer's measuring proxy.",
)
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The configuration file; default: MANOMETER_CONFIG, ./manometer.toml"),
]


def fail(message: str, status: int = 2) -> typer.Exit:
    """A user's error: its lines, and no stack trace."""
    for line in message.splitlines():
        typer.echo(f"manometer: {line}", err=True)
    return typer.Exit(status)


@app.callback()
def _several() -> None:
    """Commands stay named even when there is one."""


@app.command()
def serve(config: ConfigOption = None) -> None:
    """Run the proxy until it is told to stop (Ctrl-C, SIGTERM)."""
    import asyncio

    import uvloop

    from . import serve as main
    from .settings import ConfigError, load

    try:
        settings = load(config)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main.serve(settings, config))
    except (ConfigError, main.PortTaken) as error:
        raise fail(str(error)) from None


def main() -> None:
    app()


if __name__ == "__main__":
    main()
