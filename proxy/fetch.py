"""A whole answer at once, for the proxy's own questions to a backend: its models, a check."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from .upstream import Header, Pool, Request, UpstreamFault

LIMIT = 8 * 1024 * 1024


@dataclass(slots=True)
class Answer:
    """Status, head and body; `seconds` from sending to the end."""

    status: int = 0
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""
    seconds: float = 0.0


class _Collect:
    def __init__(self, done: asyncio.Future[None]) -> None:
        self.answer = Answer()
        self.done = done
        self._chunks: list[bytes] = []
        self._size = 0

    def on_head(self, at: float, status: int, headers: list[Header]) -> None:
        self.answer.status, self.answer.headers = status, headers

    def on_chunk(self, at: float, data: bytes) -> None:
        self._size += len(data)
        self._chunks.append(data)
        if self._size > LIMIT:
            self.on_fault(at, UpstreamFault("backend_error", "too_long", f"its answer is longer than {LIMIT} bytes"))

    def on_end(self, at: float) -> None:
        self.answer.body = b"".join(self._chunks)
        self.answer.seconds = at
        if not self.done.done():
            self.done.set_result(None)

    def on_fault(self, at: float, fault: UpstreamFault) -> None:
        if not self.done.done():
            self.done.set_exception(fault)


async def fetch(pool: Pool, request: Request) -> Answer:
    """Send and wait for the whole answer. Raises UpstreamFault."""
    sink = _Collect(asyncio.get_running_loop().create_future())
    call = await pool.send(request, sink)
    try:
        await sink.done
    finally:
        call.abort()  # of one that has ended: nothing
    sink.answer.seconds -= call.sent
    return sink.answer
