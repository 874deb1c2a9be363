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


@app.command()
def check(
    backends: Annotated[list[str] | None, typer.Argument(help="Names of backends; default: all")] = None,
    config: ConfigOption = None,
    pairs: Annotated[
        int, typer.Option(min=0, max=10, help="Pairs of requests for each parameter; 0: don't try parameters")
    ] = 3,
    json: Annotated[bool, typer.Option("--json", help="Findings as JSON on standard output")] = False,
) -> None:
    """Ask each backend what it can do: key, address, models, stream, and whether parameters have an effect."""
    import asyncio

    from . import check as checking
    from .settings import ConfigError, load

    try:
        settings = load(config)
        usable = asyncio.run(checking.run(settings, backends or [], pairs, json))
    except (ConfigError, checking.UnknownBackend) as error:
        raise fail(str(error)) from None
    raise typer.Exit(0 if usable else 1)


@app.command()
def requests(
    id: Annotated[str | None, typer.Argument(help="Of one request: everything measured of it")] = None,
    admin: Annotated[
        str | None, typer.Option(help="The running proxy's admin address; default: the configuration's listen.admin")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first")] = 20,
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON on standard output")] = False,
) -> None:
    """List what a running proxy measured last, newest first; with an ID: one request, arrival by arrival."""
    from . import listing
    from .settings import ConfigError, load

    try:
        where = admin or load(config).listen.admin
        listing.show(where, id, limit, json)
    except (ConfigError, listing.NoAnswer) as error:
        raise fail(str(error)) from None


def main() -> None:
    app()


if __name__ == "__main__":
    main()
