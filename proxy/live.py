"""Server-sent events for the live page: the whole summary, once a second, to each page that looks.

1. Every event is complete. A page that missed some, or that outlived a restart, needs no history.
2. An event each second is the heartbeat too: a page without one for some seconds says that it is stale.
3. Pages that ask for the same window in the same second share one summary, and it is made off the loop.
4. A page that does not read is dropped: what it missed would be out of date anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

_MOST = 32  # pages
_PATIENCE = 5.0  # seconds


class Live:
    """`state(span)` is the summary as JSON; `beat` is the time between events in seconds."""

    def __init__(self, state: Callable[[int], Awaitable[bytes]], *, beat: float = 1.0) -> None:
        self._state = state
        self._beat = beat
        self._stopping = asyncio.Event()
        self.watching = 0

    async def stop(self, _: web.Application) -> None:
        self._stopping.set()

    @property
    def full(self) -> bool:
        return self.watching >= _MOST

    async def stream(self, request: web.Request, span: int) -> web.StreamResponse:
        """Answers with events until the page leaves, falls behind, or the server stops."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        self.watching += 1
        try:
            await response.write(b"retry: 1000\n\n")
            while not self._stopping.is_set():
                frame = b"event: summary\ndata: " + await self._state(span) + b"\n\n"
                await asyncio.wait_for(response.write(frame), _PATIENCE)
                await self._pause()
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.watching -= 1
        return response

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._beat)
        except TimeoutError:
            pass


class Shared:
    """One result for all who ask within `hold` seconds; the first of them has it made."""

    def __init__(self, make: Callable[[int], Awaitable[bytes]], clock: Callable[[], float], hold: float) -> None:
        self._make = make
        self._clock = clock
        self._hold = hold
        self._made: dict[int, tuple[float, asyncio.Task[bytes]]] = {}

    async def get(self, span: int) -> bytes:
        at, task = self._made.get(span, (-self._hold, None))
        now = self._clock()
        if task is None or not 0 <= now - at < self._hold:
            task = asyncio.ensure_future(self._make(span))
            self._made[span] = (now, task)
        return await asyncio.shield(task)
