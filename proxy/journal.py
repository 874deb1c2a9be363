"""One JSON line on standard error for each exchange: what it was and how it ended, no bodies, no secrets.

Lines of exchanges may be gathered (`soon` is told when there are some) and written together, because readings come
in batches and a write for each costs more than all else here. Any other line is written at once, after those.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from .meter import Reading
from .recorder import Opening


class Journal:
    """A sink that writes lines."""

    def __init__(self, out: TextIO | None = None, soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._out = out or sys.stderr
        self._soon = soon
        self.exchanges = True  # whether each is a line
        self._lines: list[str] = []

    def opened(self, opening: Opening) -> None:
        pass

    def finished(self, reading: Reading) -> None:
        if not self.exchanges:
            return
        if not self._lines and self._soon is not None:
            self._soon(self.flush)
        self._lines.append(_line("exchange", _facts(reading)))
        if self._soon is None:
            self.flush()

    def say(self, event: str, **facts: Any) -> None:
        """Any other line, in the same shape."""
        self._lines.append(_line(event, facts))
        self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        lines, self._lines = self._lines, []
        try:
            self._out.write("".join(lines))
            self._out.flush()
        except (OSError, ValueError):
            pass  # whoever read our lines has gone: measuring goes on


def _line(event: str, facts: dict[str, Any]) -> str:
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | facts
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE).decode()
    except TypeError:  # lone surrogates in a client's model name
        return json.dumps(line) + "\n"


def _facts(reading: Reading) -> dict[str, Any]:
    ms = _milliseconds
    return {
        "id": reading.id,
        "outcome": reading.outcome,
        "status": reading.status,
        "backend": reading.backend,
        "model": reading.asked_model,
        "api": reading.api,
        "streamed": reading.streamed,
        "client": reading.client,
        "ttft_ms": ms(reading.ttft),
        "e2e_ms": ms(reading.e2e),
        "completion_tokens": reading.tokens.completion,
        "cost": None if reading.cost is None else format(reading.cost, "f"),
        "fault": reading.fault.code or reading.fault.type if reading.fault else None,
        "notes": list(reading.notes),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
