"""One attempt at one backend: takes what the backend leg pushes, sends it on, and holds the meter to it.

The order of `on_chunk` is the idea of the whole proxy: the read was stamped where it was read; now its bytes
go to the client's socket; only then are they parsed. Until the client's side is open (its head is sent from a
coroutine, one loop iteration later) chunks wait in a list, with their stamps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .filters import Filter
from .meter import Meter
from .upstream import Call, Header, UpstreamFault

log = logging.getLogger("manometer")
_UNKNOWN = float("nan")


class Client(Protocol):
    """The client's side, once its head is sent."""

    def write(self, data: bytes) -> int:
        """How many bytes its socket has not taken yet."""
        ...

    @property
    def choked(self) -> bool:
        """Whether they are above the high-water mark."""
        ...


class Relay:
    """The sink of one attempt. `head` and `end` are futures for the coroutine that conducts it."""

    __slots__ = (
        "_choke",
        "_client",
        "_clock",
        "_filters",
        "_late",
        "_waiting",
        "blind",
        "call",
        "chunks",
        "delivered",
        "end",
        "ended",
        "fault",
        "first",
        "head",
        "headers",
        "meter",
        "outputs",
        "received",
        "status",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], meter: Meter, received: float
    ) -> None:
        self.meter = meter
        self.received = received
        self.status = 0
        self.headers: list[Header] = []
        self.head: asyncio.Future[None] = loop.create_future()
        self.first: asyncio.Future[None] = loop.create_future()  # the first bytes of the body, or the end
        self.end: asyncio.Future[None] = loop.create_future()
        self.fault: UpstreamFault | None = None
        self.ended: float | None = None  # when the backend's stream ended
        self.delivered: float | None = None  # when the API's own end was with the client
        self.call: Call | None = None
        self.chunks: list[tuple[float, bytes]] = []  # that wait for the client's side
        self.outputs = False
        self.blind = False  # the meter failed
        self._clock = clock
        self._client: Client | None = None
        self._choke: Callable[[], None] | None = None
        self._filters: Sequence[Filter] = ()
        self._waiting = 0  # bytes that the client's socket has not taken
        self._late = False  # arrivals whose hold is not known yet

    def open(self, client: Client, choke: Callable[[], None], filters: Sequence[Filter] = ()) -> None:
        """The client's side is open: what has waited goes out, and from now on each read at once.

        `choke` is called when the client takes less than comes; it pauses the backend and resumes it later.
        """
        self._client = client
        self._choke = choke
        self._filters = filters
        chunks, self.chunks = self.chunks, []
        for at, data in chunks:
            self.on_chunk(at, data)

    # the backend leg's side

    def on_head(self, at: float, status: int, headers: list[Header]) -> None:
        self.status = status
        self.headers = headers
        kind = coding = ""
        for name, value in headers:
            lower = name.lower()
            if lower == b"content-type":
                kind = value.decode("latin-1")
            elif lower == b"content-encoding":
                coding = value.decode("latin-1")
        self.meter.head(at, status, kind, coding)
        _settle(self.head)

    def on_chunk(self, at: float, data: bytes) -> None:
        """The path of every byte: written in one piece, because calls are what it costs."""
        client = self._client
        if client is None:
            self.chunks.append((at, data))
            return _settle(self.first)
        out = data
        for part in self._filters:
            out = part.feed(out)
        if out:
            self._waiting = client.write(out)  # reaches the kernel in this call, unless the socket is full
        until = self._clock()
        if self._waiting or self._late:
            until = self._behind(client, until)
        if not self.blind:
            try:
                self.meter.feed(data, at, until)
            except Exception:
                self._failed()
            if self.meter.terminal_at is not None:
                self._terminated(until)
        if not self.outputs:
            self._first_output()
        return None

    def on_end(self, at: float) -> None:
        self.ended = at
        self._over()

    def on_fault(self, at: float, fault: UpstreamFault) -> None:
        self.ended = at
        self.fault = fault
        self._over()

    def _over(self) -> None:
        for future in (self.head, self.first, self.end):
            _settle(future)

    def _behind(self, client: Client, until: float) -> float:
        """The socket has not taken all, or had not before. When it has what comes now: `until`, or nobody knows yet."""
        if not self._waiting:
            self._caught_up(until)
            return until
        self._late = True
        if client.choked and self._choke is not None:
            self._choke()
        return _UNKNOWN

    def _failed(self) -> None:
        """No bug of the meter may break a stream: its bytes are with the client already."""
        log.exception("an answer could not be read")
        self.blind = True

    def _terminated(self, until: float) -> None:
        """The API's own end is with the client."""
        if self.delivered is None and until == until:
            self.delivered = until

    def _first_output(self) -> None:
        # A body that is no stream of events is output from its first byte on, as far as time limits go.
        if self.meter.output or not self.meter.streamed:
            self.outputs = True
            if self.call is not None:
                self.call.output()

    def _caught_up(self, until: float) -> None:
        """The client's socket has all that was written: what it had not before was taken with this."""
        self._late = False
        arrivals = self.meter.arrivals
        for index, hold in enumerate(arrivals.column("hold")):
            if hold != hold:
                arrivals.held(index, until - self.received)

    def whole(self, filters: Sequence[Filter]) -> bytes:
        """The body, changed as it must be, of an answer that has come whole before the client's side was open."""
        self._filters = filters
        out = []
        for at, data in self.chunks:
            part: bytes = data
            for change in filters:
                part = change.feed(part)
            out.append(part)
            try:
                if not self.blind:
                    self.meter.feed(data, at)
            except Exception:
                self._failed()
        self.chunks = []
        out.append(self.rest())
        return b"".join(out)

    def abort(self) -> None:
        """Cancel the backend's request, if it still runs. Nothing more is pushed."""
        if self.call is not None and self.ended is None:
            self.call.abort()
        self._client = None

    def release(self) -> None:
        """Let go of everybody else. What ended is freed at once: a cycle would wait for the collector."""
        self.abort()
        self.call = None
        self._choke = None
        self._filters = ()

    @property
    def readable_stream(self) -> bool:
        """Whether the answer is a stream of events that we can read."""
        return self.meter.streamed and self.meter.readable

    @property
    def holds_back(self) -> bool:
        """Whether unfinished events are held here, so that the client has only whole ones."""
        return bool(self._filters)

    def rest(self) -> bytes:
        """What the filters still hold when the stream has ended."""
        out = b""
        for part in self._filters:
            out = part.feed(out) + part.finish() if out else part.finish()
        return out


def _settle(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
