"""`manometer sweep`: a grid of settings, each asked the same questions: what do they change, and what do they cost?

1. Requests say `x-manometer-strict: 1`: a proxy then refuses a parameter that the backend cannot take, instead of
   dropping it. A cell whose requests were all refused says why.
2. A setting that changes nothing says so: `no effect seen` (see `cell`).
3. Speed is never shown without quality: every answer is checked, and what no other cell beats in both is marked.
4. Every cell is written as it ends. `--resume` goes on where a sweep stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from . import blind, document
from .bench import Bench, say, start
from .cell import FIELDS, Cell, cell_of, grid, labels, mark
from .folder import Folder
from .options import Options, Refused, command, numbers
from .plan import Ask, limits, paced

_PANEL = "The grid (commas between values)"
_STRICT = ((b"x-manometer-strict", b"1"),)


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL)


@command
def sweep(
    options: Options,
    steps: Annotated[str, _option("--steps", help="Denoising steps: 4,8,16,32.")] = "",
    width: Annotated[str, _option("--width", help="Tokens decided at once: 32,64,128.")] = "",
    effort: Annotated[str, _option("--effort", help="Reasoning efforts: instant,low,medium,high.")] = "",
    max_tokens: Annotated[str, _option("--max-tokens", help="Lengths.")] = "256",
    concurrency: Annotated[str, _option("--concurrency", "-c", help="Levels.")] = "1",
    requests: Annotated[int, _option("--requests", "-n", help="Questions for each cell, the same for all.")] = 8,
    resume: Annotated[Path | None, typer.Option(help="A sweep's folder: do the cells it does not hold yet.")] = None,
    read: Annotated[Path | None, typer.Option(help="A sweep's folder: make a page to read its answers blind.")] = None,
    votes: Annotated[Path | None, typer.Option(help="With --read: the file that the page saved; counts it.")] = None,
) -> int:
    """Try every combination of settings on the same questions: speed beside quality."""
    if read is not None:
        return blind.tally(read, votes) if votes is not None else blind.write(read)
    cells = grid(
        steps=numbers("--steps", steps),
        width=numbers("--width", width),
        effort=_words(effort),
        max_tokens=numbers("--max-tokens", max_tokens),
        concurrency=numbers("--concurrency", concurrency) or [1],
    )
    if requests < 1:
        raise Refused("--requests must be at least 1")
    own = {"steps": steps, "width": width, "effort": effort, "max_tokens": max_tokens,
           "concurrency": concurrency, "requests": requests}  # fmt: skip
    done = finished(resume, fingerprint(own, options)) if resume is not None else []

    async def body(bench: Bench) -> str:
        model = await bench.identify(bench.target(), options.model)
        bench.warnings += limits(options, model, options.url)
        kept = {json.dumps(cell["settings"]): cell for cell in done}
        found: list[Cell] = []
        bench.more["cells"] = found
        for settings, label in zip(cells, labels(cells), strict=True):
            if bench.stop.is_set():
                break
            if cell := kept.get(json.dumps(settings)):
                bench.levels.append(cell | {"label": label})
            else:
                cell = await _measure(bench, model, settings, label, requests)
            found.append(cell)
            save(bench, own, found)
        mark(found)
        bench.more["front"] = document.front(found)
        save(bench, own, found)
        return verdict(model, found, bench.more["front"])

    bench = start("sweep", options, own, body, place=Folder(resume) if resume is not None else None)
    say(bench)
    return bench.status()


async def _measure(bench: Bench, model: str, settings: dict[str, Any], label: str, requests: int) -> Cell:
    fields = {FIELDS[knob]: value for knob, value in settings.items() if knob in FIELDS and value is not None}
    ask = Ask(bench.work(), bench.question(model, max_tokens=settings["max_tokens"], **fields), _STRICT)
    target = bench.target(keep_text=True, name=label)
    schedule = paced(bench.options, settings["concurrency"])
    measured = await bench.measure(
        target, ask, schedule, requests=requests, warmup=0, score=True, title=label, scenario="sweep"
    )
    return cell_of(settings, label, measured, ask)


def save(bench: Bench, own: Mapping[str, Any], cells: Sequence[Cell]) -> None:
    """sweep.json, whole or not at all."""
    if bench.place is None:
        return
    kept = {"arguments": fingerprint(own, bench.options), "cells": document.plain(list(cells))}
    part = bench.place.path / ".sweep.json.part"
    part.write_text(json.dumps(kept, ensure_ascii=False, indent=1), "utf-8")
    part.replace(bench.place.path / "sweep.json")


def fingerprint(own: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """What must be the same for cells to be comparable: all that shapes a request, but not the grid."""
    told = options.told()
    shaping = ("url", "model", "backend", "prompts", "language", "temperature", "extra", "stream", "usage", "seed")
    return {"requests": own["requests"]} | {name: told[name] for name in shaping}


def finished(path: Path, wanted: Mapping[str, Any]) -> list[Cell]:
    """The cells of a sweep that is resumed. Cells in which everything failed are tried again."""
    try:
        kept = json.loads((path / "sweep.json").read_text("utf-8"))
        cells, given = kept["cells"], kept["arguments"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise Refused(f"--resume: {path} holds no readable sweep.json ({error})") from None
    for name, value in document.plain(wanted).items():
        if given.get(name) != value:
            raise Refused(f"--resume: {path} was run with {name} = {given.get(name)!r}, not {value!r}: do not mix them")
    return [cell for cell in cells if cell["ok"]]


def verdict(model: str, cells: Sequence[Cell], front: Sequence[int]) -> str:
    """The one line to read."""
    working = [cell for cell in cells if cell["ok"]]
    if not working:
        return f"{model}: no setting worked ({cells[0]['effect'] if cells else 'none was tried'})"
    told = f"{model}: {len(working)} of {len(cells)} settings worked"
    quick = max(working, key=lambda cell: cell["speed"] or 0)
    told += f"; fastest {quick['label']} ({quick['speed'] or 0:,.0f} tokens/s"
    told += f", {quick['quality']:.0%} of checks passed)" if quick["quality"] is not None else ")"
    best = cells[front[-1]] if front else quick
    if best is not quick:
        told += f"; best answers {best['label']} ({best['quality']:.0%}, {best['speed']:,.0f} tokens/s)"
    idle = sum(cell["effect"].startswith("no effect") for cell in cells)
    return told + (f"; {idle} with a setting that had no effect" if idle else "")


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
