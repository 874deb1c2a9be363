"""How the load generator itself fares: how late its event loop runs, and how much of a core it uses.

A client that is late reads late, and would blame the server for it. Every reading carries the largest
delay of the loop during its exchange, and a run whose client was strained is not called valid.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable

PROBE = 0.01  # seconds between two looks at the clock


class Strain:
    """Watches the running loop between `start` and `stop`."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._samples = array("d")
        self._times: list[float] = []  # moments, ascending, and the lags noted then, descending:
        self._lags: list[float] = []  # only those that no later one exceeds, so the worst since a moment is a look-up
        self._probe: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._began = (0.0, 0.0)
        self._ended: tuple[float, float] | None = None

    def start(self) -> None:
        self._began = self._clock(), self._cpu()
        self._next()

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        self._ended = self._clock(), self._cpu()

    def worst(self, since: float) -> float:
        """The largest delay noted at or after `since`, seconds; 0.0 if none was."""
        index = bisect_left(self._times, since)
        return self._lags[index] if index < len(self._lags) else 0.0

    @property
    def p99(self) -> float | None:
        """99 % of the looks were less late than this, seconds. None before the first."""
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] if ordered else None

    @property
    def cpu(self) -> float | None:
        """CPU time / wall time of this process: its share of one core. None before the start."""
        wall, used = (a - b for a, b in zip(self._ended or (self._clock(), self._cpu()), self._began, strict=True))
        return used / wall if wall > 0 else None

    def _next(self) -> None:
        self._due = self._clock() + PROBE
        self._probe = asyncio.get_running_loop().call_later(PROBE, self._look)

    def _look(self) -> None:
        now = self._clock()
        self._note(now, max(0.0, now - self._due))
        self._next()

    def _note(self, now: float, lag: float) -> None:
        self._samples.append(lag)
        while self._lags and self._lags[-1] <= lag:
            self._lags.pop()
            self._times.pop()
        self._lags.append(lag)
        self._times.append(now)
