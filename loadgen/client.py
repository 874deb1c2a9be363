"""One request, read with the proxy's own meter: a `Query` goes out, a `Reading` comes back, whatever happens.

1. `received` is when the request's first byte is handed to the socket: opening the connection is told apart
   (`connect`), and in an open loop so is the delay behind the schedule (`intended`).
2. An answer is read to its end, beyond `[DONE]`, so that its connection can be used again; a server that
   does not end it is given a second, and the reading ends at `[DONE]` all the same.
3. Nothing lies between the socket and the meter but two method calls: what a client costs is its error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.meter import Fault, Meter, Reading
from proxy.meter.cost import Book, cost
from proxy.meter.grammar import api_of
from proxy.upstream import Call, Header, Origin, Pool, Request, Timeouts, UpstreamFault

_DRAIN = 1.0  # seconds for a stream to end after [DONE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked once."""

    body: bytes
    model: str | None = None
    path: str = "/v1/chat/completions"
    stream: bool = True
    replace: bool = False  # `diffusing` was asked: each text replaces the one before
    headers: tuple[Header, ...] = ()
    method: str = "POST"


def _nothing(since: float) -> float | None:
    return None


class Client:
    """Asks one server. Its pool keeps every connection that was ever needed at once."""

    def __init__(
        self,
        url: str | Origin,
        *,
        key: str | None = None,
        headers: Sequence[Header] = (),
        timeouts: Timeouts | None = None,
        keep: int = 4096,
        keep_text: bool = False,
        backend: str | None = None,
        decoding: str | None = None,
        prices: Book | None = None,
        lag: Callable[[float], float | None] = _nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin = Origin.of(url) if isinstance(url, str) else url
        self.pool = Pool(self.origin, timeouts, keep=keep, clock=clock)
        self.connects = 0  # connections opened
        self.clock = clock
        self.wall = time.time() - clock()  # one offset for a whole run: spans between readings stay monotonic
        self.keep_text = keep_text
        self.facts: dict[str, Any] = {"backend": backend, "decoding": decoding}
        self.prices = prices
        self.lag = lag
        self._live: set[Exchange] = set()
        own = [(b"authorization", b"Bearer " + key.encode())] if key else []
        self._headers: list[Header] = [
            *own,
            (b"accept", b"text/event-stream, application/json"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"manometer"),
            *headers,
        ]

    @property
    def live(self) -> int:
        """Exchanges under way."""
        return len(self._live)

    async def ask(self, query: Query, id: str, intended: float | None = None) -> Reading:
        """Sends `query` and reads the whole answer. `intended`: when it should have gone, on the same clock."""
        content = [(b"content-type", b"application/json")] if query.body else []
        request = Request(
            query.method.encode(),
            self.origin.target(query.path),
            [*self._headers, *content, (b"x-request-id", id.encode()), *query.headers],
            query.body,
        )
        exchange = Exchange(self, query, id, intended)
        self._live.add(exchange)
        try:
            return await exchange.run(request)
        finally:
            self._live.discard(exchange)

    def leave(self) -> None:
        """Give up everything under way: those readings end now, as `client_gone`."""
        for exchange in list(self._live):
            exchange.leave()

    async def close(self) -> None:
        self.leave()
        await self.pool.close()


class Exchange:
    """One request under way: the sink that its answer is pushed to."""

    __slots__ = (
        "_call",
        "_client",
        "_drain",
        "_ended",
        "_id",
        "_intended",
        "_meter",
        "_query",
        "_received",
        "_seen",
    )

    def __init__(self, client: Client, query: Query, id: str, intended: float | None) -> None:
        self._client = client
        self._query = query
        self._id = id
        self._intended = intended
        self._call: Call | None = None
        self._drain: asyncio.TimerHandle | None = None
        self._seen = False  # the first output
        self._ended: asyncio.Future[Reading] = asyncio.get_running_loop().create_future()

    def _start(self, received: float) -> None:
        query = self._query
        self._received = received
        self._meter = Meter(
            api=api_of(query.path),
            received=received,
            asked_stream=query.stream,
            replace=query.replace,
            keep_text=self._client.keep_text,
        )

    async def run(self, request: Request) -> Reading:
        try:
            call = await self._client.pool.send(request, self)
        except UpstreamFault as fault:
            self._fail(Fault(fault.code, fault.message), fault.outcome)
            return self._ended.result()
        if self._ended.done():  # left while it was connecting
            call.abort()
            return self._ended.result()
        self._call = call
        self._client.connects += call.connect > 0.0
        self._start(call.sent)
        try:
            return await self._ended
        finally:
            if not self._ended.done() or self._ended.cancelled():
                call.abort()

    def leave(self) -> None:
        if self._call is None:
            return self._fail(None, "client_gone")
        self._call.abort()
        return self._finish(self._client.clock(), "client_gone", None)

    def _fail(self, fault: Fault | None, outcome: str) -> None:
        """It ends before anything was sent."""
        now = self._client.clock()
        self._start(now)
        self._finish(now, outcome, fault)

    # what the backend leg calls

    def on_head(self, at: float, status: int, headers: list[Header]) -> None:
        told = {name.lower(): value for name, value in headers}
        kind, coding = (told.get(name, b"").decode("latin-1") for name in (b"content-type", b"content-encoding"))
        # The proxy's own id comes first: by it a reading of ours and the proxy's of the same exchange are joined.
        given = told.get(b"x-manometer-id") or told.get(b"x-request-id")
        self._id = given.decode("latin-1") if given else self._id
        self._meter.head(at, status, kind, coding)

    def on_chunk(self, at: float, data: bytes) -> None:
        self._meter.feed(data, at)
        if self._meter.terminal_at is not None and self._drain is None:
            self._drain = asyncio.get_running_loop().call_later(_DRAIN, self._drained)
        elif not self._seen and self._call is not None and self._meter.output:
            self._seen = True
            self._call.output()

    def _drained(self) -> None:
        if self._call is not None:
            self._call.abort()
        self._finish(self._client.clock(), None, None)

    def on_end(self, at: float) -> None:
        self._finish(at, None, None)

    def on_fault(self, at: float, fault: UpstreamFault) -> None:
        self._finish(at, fault.outcome, Fault(fault.code, fault.message))

    def _finish(self, at: float, outcome: str | None, fault: Fault | None) -> None:
        if self._ended.done():
            return
        if self._drain is not None:
            self._drain.cancel()
        meter, call, query, client = self._meter, self._call, self._query, self._client
        end = at if meter.terminal_at is None else meter.terminal_at
        reading = meter.finish(
            end,
            id=self._id,
            started_at=client.wall + self._received,
            ended=end,
            outcome=outcome,
            fault=fault,
            method=query.method,
            path=query.path,
            asked_model=query.model,
            sent_model=query.model,
            model=query.model,
            sent=0.0 if call is not None else None,
            connect=call.connect if call is not None else None,
            intended=None if self._intended is None else min(0.0, self._intended - self._received),
            loop_lag=client.lag(self._received),
            **client.facts,
        )
        if client.prices is not None:
            price = client.prices.at(query.model, reading.started_at)
            reading = replace(reading, cost=cost(reading.tokens, price))
        self._ended.set_result(reading)
