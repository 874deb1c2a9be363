"""The machine that simulated requests share: one clock for all of them, in seconds of work.

Work passes at 1 / slowdown(n) of real time while n requests run, so every deadline is absolute in work
seconds, whoever comes and goes meanwhile. All are kept in one heap behind one timer: nothing sleeps, so
nothing drifts, and a stream costs no task.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol

from .script import Sharing

_EARLY = 0.0005  # timers tick in milliseconds: nearer than half a tick is due


class Player(Protocol):
    """Who has something to do at its time."""

    def proceed(self) -> None: ...


class Work:
    """The shared machine: calls players when their work is done, in work seconds."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._done = 0.0  # work seconds that had passed at `_since`
        self._since = time.monotonic()
        self._running = 0
        self._pace = 1.0
        self._due: list[tuple[float, int, Player]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0
        self._ticking = False

    def now(self) -> float:
        return self._done + (time.monotonic() - self._since) * self._pace

    def run(self, change: int) -> None:
        """So many requests more, or fewer, share the machine from now on."""
        self._done, self._since = self.now(), time.monotonic()
        self._running += change
        self._pace = 1.0 / self._sharing.slowdown(self._running)
        self._arm(anew=True)

    def call(self, at: float, player: Player) -> None:
        heapq.heappush(self._due, (at, next(self._order), player))
        self._arm()

    def _arm(self, anew: bool = False) -> None:
        if not self._due or self._ticking:
            return
        first = self._due[0][0]
        if self._timer is not None:
            if not anew and first >= self._armed:
                return
            self._timer.cancel()
        self._armed = first
        delay = max(0.0, (first - self.now()) / self._pace)
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._ticking = True  # what is called sets deadlines of its own; the timer is armed once, for all of them
        due, edge = self._due, self.now() + _EARLY * self._pace
        try:
            while due and due[0][0] <= edge:
                heapq.heappop(due)[2].proceed()
        finally:
            self._ticking = False
            self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()
