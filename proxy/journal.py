"""One JSON line on standard error for each exchange: what it was and how it ended, no bodies, no secrets."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from .meter import Reading
from .recorder import Opening


class Journal:
    """A sink that writes lines."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr

    def opened(self, opening: Opening) -> None:
        pass

    def finished(self, reading: Reading) -> None:
        self.say("exchange", **_facts(reading))

    def say(self, event: str, **facts: Any) -> None:
        """Any other line, in the same shape."""
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | facts
        try:
            text = orjson.dumps(line).decode()
        except TypeError:  # lone surrogates in a client's model name
            text = json.dumps(line)
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError):
            pass  # whoever read our lines has gone: measuring goes on


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
