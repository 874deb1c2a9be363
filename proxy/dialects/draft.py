"""A translation being made: what is set, what goes, and what is told about it.

What is told names members, numbers and the dialect's own words; of a client's own names a short, printable form.
Never the client's text: stop sequences and user names are nobody's business in a header or a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..body import Body, Path
from .row import Field


@dataclass(slots=True)
class Draft:
    """The changes so far."""

    body: Body
    set: dict[Path, Any] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    translated: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # why a strict client is refused

    def said(self, path: tuple[str, ...]) -> Any:
        """What the client's body says there."""
        value: Any = self.body.members
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def put(self, row: Field, value: Any, source: str, own: bool = False) -> None:
        """Set a field to what it can hold of the value, which comes from `source`: `steps=8`, or a member's name.

        `own`: it is this field's own parameter, and need not be named again unless the value had to change.
        """
        held = row.hold(value)
        if held is None:  # a word that the backend does not have
            self.dropped.append(source.partition("=")[0])
            self.faults.append(f"{row.spelled} has no {source}")
            return
        there = self.said(row.path)
        if there == held and type(there) is type(held):
            if row.path[0] in self.remove:
                self.remove.remove(row.path[0])
            return
        self.set[row.path] = held
        origin = "" if own and held == value else f" (from {source})"
        self.translated.append(f"{row.spelled}={spell(held)}{origin}")

    def leave_out(self, name: str) -> None:
        """A member that the backend does not take. null said nothing, so nothing is lost with it."""
        self.remove.append(name)
        if self.body.get(name) is not None:
            self.dropped.append(printable(name))


def spell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else printable(str(value))


def printable(text: str) -> str:
    """Somebody's own name for something, fit for a header and a log."""
    shown = text if text.isascii() and text.isprintable() else ascii(text)
    return (shown if len(shown) <= 40 else shown[:37] + "...").replace(";", ",")
