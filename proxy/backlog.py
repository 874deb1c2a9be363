"""What is left to do about exchanges that are over: done when the sockets have been served.

1. To make a reading takes a third of what an exchange costs, and nobody waits for it. When 64 streams end together,
   their clients' next requests would: so first those are read and sent on.
2. A few at a time, and the sockets are looked at in between. The more waits, the more are done: what waits is
   bounded by a few times what ends in one turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger("manometer")
PAUSE = 0.005  # seconds
_FEW = 2
_SHARE = 4  # of what waits, one in so many


class Backlog:
    """One for each event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: deque[Callable[[], object]] = deque()
        self._due: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._work)

    def add(self, work: Callable[[], object]) -> None:
        """To be done soon, in the order in which it came."""
        self._work.append(work)
        if self._due is None:
            self._due = self._loop.call_later(PAUSE, self._turn)

    def flush(self) -> None:
        """Do all of it now."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._do(len(self._work))

    def _turn(self) -> None:
        self._do(max(_FEW, len(self._work) // _SHARE))
        self._due = self._loop.call_soon(self._turn) if self._work else None

    def _do(self, most: int) -> None:
        for _ in range(min(most, len(self._work))):
            try:
                self._work.popleft()()
            except Exception:
                log.exception("the end of an exchange was not recorded")
