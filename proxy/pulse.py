"""The event loop watched from inside: when writes were taken by the sockets, and how late the loop ran.

1. uvloop hands writes to the kernel at the end of an iteration. One callback at the start of the next stamps
   all that was written in between: one clock reading for each iteration, not for each chunk.
2. A read is stamped when its callback runs. It may have lain in the kernel while the loop was busy; how long
   at most is the lag: the uncertainty of every stamp. It is taken from a probe that should fire every 10 ms,
   and from how long each iteration that forwarded something took.
3. Who asks for the worst lag since a moment gets it from a list that keeps only records: each entry is larger
   than all that follow it.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

PROBE = 0.01
_MEMORY = 3600.0


class Writer(Protocol):
    """Who has handed bytes to a socket, and wants to know when they were taken."""

    def flushed(self, now: float) -> None: ...


class Pulse:
    """One for each event loop."""

    __slots__ = ("_clock", "_due", "_lags", "_loop", "_pending", "_probe", "_since", "_times")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._pending: list[Writer] = []
        self._since = 0.0
        self._times: list[float] = []  # ascending
        self._lags: list[float] = []  # of the same moments, descending
        self._probe: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        self._due = self._clock() + PROBE
        self._probe = self._loop.call_later(PROBE, self._beat)

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.cancel()

    def wrote(self, writer: Writer, at: float) -> None:
        """`writer` wrote what was read at `at`; its `flushed` is called when this iteration's writes are out."""
        if not self._pending:
            self._since = at
            self._loop.call_soon(self._flush)
        self._pending.append(writer)

    def worst(self, since: float) -> float:
        """The largest lag noted at or after `since`, seconds; 0.0 if none was."""
        index = bisect_left(self._times, since)
        return self._lags[index] if index < len(self._lags) else 0.0

    def _flush(self) -> None:
        now = self._clock()
        pending, self._pending = self._pending, []
        self._note(now, now - self._since)
        for writer in pending:
            writer.flushed(now)

    def _beat(self) -> None:
        now = self._clock()
        self._note(now, max(0.0, now - self._due))
        self._due = now + PROBE
        self._probe = self._loop.call_later(PROBE, self._beat)

    def _note(self, now: float, lag: float) -> None:
        lags, times = self._lags, self._times
        while lags and lags[-1] <= lag:
            lags.pop()
            times.pop()
        lags.append(lag)
        times.append(now)
        if times[0] < now - _MEMORY:
            del lags[0], times[0]
