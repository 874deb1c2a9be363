"""How late the event loop runs: the uncertainty of every time stamp.

1. A read is stamped when its callback runs. It may have lain in the kernel while the loop was busy with something
   else; for how long at most is told by a probe that should fire every 5 ms: what it is late, a read could be.
2. It rests while nothing is open: 200 wake-ups a second are not for nothing.
3. Who asks for the worst lag since a moment gets it from a list that keeps only records: each entry is larger
   than all that follow it.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable

PROBE = 0.005
_MEMORY = 3600.0


class Pulse:
    """One for each event loop."""

    __slots__ = ("_clock", "_due", "_lags", "_loop", "_open", "_probe", "_times")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._times: list[float] = []  # ascending
        self._lags: list[float] = []  # of the same moments, descending
        self._probe: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._open = 0

    def enter(self) -> None:
        """An exchange begins, whose stamps should be known for what they are."""
        self._open += 1
        if self._probe is None:
            self._arm(self._clock())

    def leave(self) -> None:
        """It has ended."""
        self._open -= 1

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None

    def _arm(self, now: float) -> None:
        self._due = now + PROBE
        self._probe = self._loop.call_later(PROBE, self._beat)

    def worst(self, since: float) -> float:
        """The largest lag noted at or after `since`, seconds; 0.0 if none was."""
        index = bisect_left(self._times, since)
        return self._lags[index] if index < len(self._lags) else 0.0

    def _beat(self) -> None:
        now = self._clock()
        self.note(now, max(0.0, now - self._due))
        self._probe = None
        if self._open:
            self._arm(now)

    def note(self, now: float, lag: float) -> None:
        """At `now` the loop was found to be late by `lag`."""
        lags, times = self._lags, self._times
        while lags and lags[-1] <= lag:
            lags.pop()
            times.pop()
        lags.append(lag)
        times.append(now)
        if times[0] < now - _MEMORY:
            del lags[0], times[0]
