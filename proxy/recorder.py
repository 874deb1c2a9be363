"""Hands what happened to whoever keeps it: `opened` when an exchange starts, `finished` when it has ended.

Everything that shows a number is a `Sink`: the exporter, the ring behind the admin API, the live page.
In one process the sinks are called directly (`Fan`); forwarders send the same two calls over a socket
(`proxy.workers`). Every opening is followed by exactly one reading with its id, whatever happens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from .meter import Fault, Reading

log = logging.getLogger("manometer")


class Opening(NamedTuple):
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

    def lost(self, now: float, code: str, message: str) -> Reading:
        """The reading of an exchange whose measurements are lost. `now`: seconds since the epoch."""
        return Reading(
            id=self.id,
            started_at=self.started_at,
            outcome="internal",
            api=self.api,
            streamed=self.streamed,
            backend=self.backend,
            decoding=self.decoding,
            model=self.model,
            asked_model=self.asked_model,
            route=self.route,
            client=self.client,
            mirror=self.mirror,
            done=max(0.0, now - self.started_at),
            fault=Fault("internal", message, code),
            notes=("what was measured is lost",),
        )


class Sink(Protocol):
    """What keeps records. Neither call may block or raise."""

    def opened(self, opening: Opening) -> None: ...

    def finished(self, reading: Reading) -> None: ...


class Fan:
    """One sink that is several. One that fails, against its promise, takes nothing from the others."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = tuple(sinks)

    def opened(self, opening: Opening) -> None:
        for sink in self._sinks:
            try:
                sink.opened(opening)
            except Exception:
                log.exception("the opening of %s was not kept", opening.id)

    def finished(self, reading: Reading) -> None:
        for sink in self._sinks:
            try:
                sink.finished(reading)
            except Exception:
                log.exception("the reading of %s was not kept", reading.id)
