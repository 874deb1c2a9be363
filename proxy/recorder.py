"""Hands what happened to whoever keeps it: `opened` when an exchange starts, `finished` when it has ended.

Everything that shows a number is a `Sink`: the exporter, the ring behind the admin API, the live page.
In one process the sinks are called directly (`Fan`); forwarders send the same two calls over a socket
(`proxy.workers`). Every opening is followed by exactly one reading with its id, whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .meter import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An exchange that has started. `backend`, `model`, `decoding` are the plan's: a fallback may change them."""

    id: str
    started_at: float  # wall clock, seconds since the epoch
    api: str
    backend: str | None = None  # None: refused before a backend was chosen
    decoding: str | None = None
    model: str | None = None  # a configured name, or "other"
    asked_model: str | None = None
    route: str | None = None
    client: str | None = None
    streamed: bool = False  # as asked
    mirror: bool = False


class Sink(Protocol):
    """What keeps records. Neither call may block or raise."""

    def opened(self, opening: Opening) -> None: ...

    def finished(self, reading: Reading) -> None: ...


class Fan:
    """One sink that is several."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = tuple(sinks)

    def opened(self, opening: Opening) -> None:
        for sink in self._sinks:
            sink.opened(opening)

    def finished(self, reading: Reading) -> None:
        for sink in self._sinks:
            sink.finished(reading)
