"""`manometer report`: draw reports again from what runs left, one by one or beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import folder, report
from .options import Refused


def redraw(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; by default report.html or compared.html.")
    ] = None,
    library: Annotated[
        bool, typer.Option("--charts/--no-charts", help="Put the chart library in, if installed.")
    ] = True,
) -> None:
    """Draw the report of a run again, or compare several runs."""
    try:
        documents = [folder.read(run) for run in runs]
        first = runs[0] if runs[0].is_dir() else runs[0].parent
        place = out or (first / "report.html" if len(runs) == 1 else first.parent / "compared.html")
        try:
            place.write_text(report.html(documents, library=library), "utf-8")
        except OSError as error:
            raise Refused(f"--out: {place} cannot be written ({error.strerror})") from None
    except Refused as refusal:
        typer.echo(f"manometer: {refusal}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"Report: {place}")
