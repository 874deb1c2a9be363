"""All that were asked for, one after the other: what it may cost, then what was found, for people or as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence

import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..settings import Settings
from .conduct import bill, check
from .findings import BAD, ODD, OK, Findings, Trial

_MARKS = {OK: ("✓", "green"), ODD: ("!", "yellow"), BAD: ("✗", "red")}


class UnknownBackend(ValueError):
    """A name that is not configured. One line."""


async def run(settings: Settings, names: Sequence[str], pairs: int, json: bool) -> bool:
    """Whether every backend can be used. Findings go to standard output, all else to standard error."""
    out, err = Console(), Console(stderr=True)
    for name in names:
        if name not in settings.backends:
            raise UnknownBackend(f"no backend is called {name!r}; there are: {', '.join(settings.backends)}")
    everything = []
    for name in dict.fromkeys(names) or settings.backends:
        found = await _one(settings, name, pairs, err)
        everything.append(found)
        if not json:
            out.print(table(found))
    if json:
        out.file.write(orjson.dumps({"backends": [found.json() for found in everything]}).decode() + "\n")
    return all(found.usable for found in everything)


async def _one(settings: Settings, name: str, pairs: int, err: Console) -> Findings:
    backend = settings.backends[name]
    dialect = settings.dialect(backend)
    price = backend.book.at(backend.named_models[0], time.time()) if backend.named_models else None
    err.print(Text(f"{name}: {bill(dialect, price, pairs).says}"))
    with err.status("") as status:
        return await check(name, backend, dialect, pairs, lambda what: status.update(Text(f"{name}: {what}")))


def table(found: Findings) -> Table:
    """What was found, in the order of asking. A backend's words are shown as text, never as markup."""
    title = Text(found.backend if found.usable else f"{found.backend} cannot be used")
    rows = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    for fact in found.facts:
        rows.add_row(_mark(fact.state), Text(fact.name), Text(fact.says))
    for trial in found.trials:
        rows.add_row(_mark(_state(trial)), Text(trial.name), Text(trial.says))
    return rows


def _state(trial: Trial) -> str:
    return OK if trial.effect and trial.effect.seen else ODD


def _mark(state: str) -> Text:
    sign, colour = _MARKS[state]
    return Text(sign, style=colour)
