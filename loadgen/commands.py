"""The commands that load a server and look at what came of it; `cli` mounts them."""

from __future__ import annotations

import typer

from .compare import compare
from .ladder import ladder
from .load import load
from .redraw import redraw
from .replay import replay
from .sweep import sweep

app = typer.Typer()
app.command("load")(load)
app.command("ladder")(ladder)
app.command("sweep")(sweep)
app.command("compare")(compare)
app.command("replay")(replay)
app.command("report")(redraw)
