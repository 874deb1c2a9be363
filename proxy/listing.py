"""The readings of a running proxy, in a terminal: asked of its admin API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 120  # columns of a terminal that has room for costs and ids


class NoAnswer(Exception):
    """The proxy did not answer. One line."""


def show(admin: str, id: str | None, limit: int, as_json: bool) -> None:
    """Print the newest readings, or one. Raises NoAnswer."""
    path = f"/api/requests/{quote(id)}" if id else f"/api/requests?limit={limit}"
    doc = _get(f"http://{admin}{path}")
    if as_json:
        print(json.dumps(doc, ensure_ascii=False))
    elif id:
        _one(Console(), doc)
    else:
        _list(Console(), doc["requests"])


def _get(url: str) -> Any:
    try:
        with urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise NoAnswer(f"{url}: {_said(error)}") from None
    except (URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise NoAnswer(f"{url}: {why}: is `manometer serve` running, and is this its admin address?") from None


def _said(error: HTTPError) -> str:
    try:
        said = json.loads(error.read())["error"]
        return str(said.get("message", said) if isinstance(said, dict) else said)
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"


def _list(console: Console, rows: list[Mapping[str, Any]]) -> None:
    if not rows:
        return console.print("No requests yet.")
    wide = console.width >= _WIDE
    table = Table(caption="seconds, tokens, tokens per second; newest first", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("at", "backend", "model", "outcome"):
        table.add_column(column, no_wrap=True, min_width=8)
    for column in ("ttft", "e2e", "tokens", "rate", *(("cost", "id") if wide else ())):
        table.add_column(column, justify="right", no_wrap=True, min_width=6)
    for row in rows:
        table.add_row(
            datetime.fromtimestamp(row["started_at"]).strftime("%H:%M:%S"),
            Text(row["backend"] or "-"),
            Text(row["asked_model"] or "-"),
            Text(row["outcome"], style="" if row["outcome"] == "ok" else "red"),
            _number(row["ttft"], 3),
            _number(row["e2e"], 3),
            _number(row["tokens"]["completion"], 0),
            _number(row["e2e_rate"], 1),
            *([row["cost"] or "-", row["id"]] if wide else []),
        )
    console.print(table)
    return None


def _one(console: Console, row: Mapping[str, Any]) -> None:
    arrivals, row = row["arrivals"], {key: value for key, value in row.items() if key not in ("arrivals", "gaps")}
    facts = Table(show_header=False, box=None)
    for key, value in row.items():
        if value not in (None, [], {}):
            facts.add_row(key, Text(json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value))
    console.print(facts)
    if arrivals:
        table = Table(caption="seconds since the request was received")
        for column in ("at", "events", "answer", "reasoning", "tool", "burst", "hold"):
            table.add_column(column, justify="right")
        for each in arrivals:
            sizes = (str(each[name]) for name in ("events", "answer", "reasoning", "tool"))
            table.add_row(_number(each["at"], 4), *sizes, _number(each["burst"], 1), _number(each["hold"], 6))
        console.print(table)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
