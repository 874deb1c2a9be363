"""The backend leg: a keep-alive pool, and one request with its answer at a time on each connection.

1. It pushes. Each read is stamped in `data_received` and goes to the sink from there: no queue and no task
   switch lies between the socket and whoever measures, so the stamp is the time of the read.
2. A connection is used again only after a complete message, both ways, with nothing left over.
3. One retry, for one reason: a *reused* connection that died before any byte of the answer. It was most likely
   closed while it lay idle. A fresh connection's death is told, not repeated: the request may have been taken.
4. An answer's head is bounded, its body is not: who can't take more says `pause`, and reading stops.
5. Exactly one of `on_end` and `on_fault` ends an exchange, unless its owner aborted it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import httptools

from .origin import Origin

__all__ = ("Call", "Origin", "Pool", "Request", "Sink", "Timeouts", "UpstreamFault")

HEAD_LIMIT = 64 * 1024
Header = tuple[bytes, bytes]


class UpstreamFault(Exception):
    """What went wrong on the backend leg. `outcome` is the reading's, `code` is stable, `message` is one line."""

    def __init__(self, outcome: str, code: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.code = code
        self.message = message


class Sink(Protocol):
    """Who takes an answer. `at` is when the bytes were read."""

    def on_head(self, at: float, status: int, headers: list[Header]) -> None: ...

    def on_chunk(self, at: float, data: bytes) -> None: ...

    def on_end(self, at: float) -> None: ...

    def on_fault(self, at: float, fault: UpstreamFault) -> None: ...


class Request(NamedTuple):
    """What is sent. Host and Content-Length are added."""

    method: bytes
    target: bytes
    headers: Sequence[Header]
    body: bytes = b""

    def __repr__(self) -> str:
        """Without the headers, which hold keys, and the body, which holds prompts."""
        return f"Request({self.method!r}, {self.target!r})"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None: never. `first_output` runs from sending to the first output, `idle` between reads after it."""

    connect: float | None = 5.0
    first_output: float | None = 120.0
    idle: float | None = 120.0
    total: float | None = 600.0


class Call:
    """One request under way: the handle of its owner."""

    __slots__ = (
        "_connection",
        "_paused",
        "_pool",
        "_waiting",
        "connect",
        "gone",
        "last",
        "request",
        "sent",
        "sink",
    )

    def __init__(self, pool: Pool, request: Request, sink: Sink) -> None:
        self.request = request
        self.sink = sink
        self.sent = 0.0  # when the request started to be written
        self.connect = 0.0  # seconds that opening the connection took; 0.0: it was reused
        self.last = 0.0  # the latest read
        self._pool = pool
        self._connection: Connection | None = None
        self._waiting = True  # for the first output
        self._paused = False
        self.gone = False  # its owner gave it up

    def output(self) -> None:
        """The first output was seen: from now on `idle` counts instead of `first_output`."""
        self._waiting = False

    def forget(self) -> None:
        """The answer has begun: the request will not be sent again."""
        self.request = Request(self.request.method, self.request.target, ())

    def pause(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.read(False)

    def resume(self) -> None:
        self._paused = False
        self.last = self._pool.clock()
        if self._connection is not None:
            self._connection.read(True)

    def abort(self) -> None:
        """Give up: the connection is closed at once, and the sink hears nothing more."""
        self.gone = True
        connection = self._connection
        self._detach()
        if connection is not None:
            connection.close()

    def _attach(self, connection: Connection) -> None:
        self._connection = connection
        self._pool.watch(self)

    def _detach(self) -> None:
        self._connection = None
        self._pool.unwatch(self)

    def check(self, now: float) -> None:
        """Fail, if a limit has passed."""
        limits = self._pool.timeouts
        if self._waiting:
            start, outcome, limit = self.sent, "timeout_first_output", limits.first_output
        else:
            start, outcome, limit = self.last, "timeout_idle", None if self._paused else limits.idle
        if limit is None or now < start + limit:
            start, outcome, limit = self.sent, "timeout_total", limits.total
        if limit is None or now < start + limit:
            return
        words = outcome.removeprefix("timeout_").replace("_", " ")
        self._fail(
            UpstreamFault(outcome, outcome, f"the backend exceeded the {words} limit of {limit:g} s"), close=True
        )

    def _fail(self, fault: UpstreamFault, close: bool = False) -> None:
        connection = self._connection
        self._detach()
        if close and connection is not None:
            connection.close()
        self.sink.on_fault(self._pool.clock(), fault)


class Connection(asyncio.Protocol):
    """One connection: parses answers, pushes them to the sink of the call that it serves."""

    __slots__ = (
        "_call",
        "_chunks",
        "_complete",
        "_framed",
        "_head_bytes",
        "_head_in",
        "_head_read",
        "_headers",
        "_interim",
        "_lasting",
        "_parser",
        "_pool",
        "_status",
        "_transport",
        "began",
        "fresh",
        "idle_since",
    )

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._call: Call | None = None
        self._transport: asyncio.Transport | None = None
        self.fresh = True
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)  # one for all answers: after a whole one it starts anew
        self._reset()

    def _reset(self) -> None:
        self._headers: list[Header] = []
        self._chunks: list[bytes] = []
        self._status = 0
        self._head_bytes = self._head_read = 0  # of the headers that are whole, and of reads that ended in a head
        self._head_in = self._complete = self._interim = self._framed = self._lasting = False
        self.began = False  # any byte of the answer was read

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def start(self, call: Call) -> None:
        assert self._transport is not None
        self._reset()
        self._call = call
        request, transport = call.request, self._transport
        head = [request.method, b" ", request.target, b" HTTP/1.1\r\nhost: ", self._pool.origin.host_header, b"\r\n"]
        for name, value in request.headers:
            head += name, b": ", value, b"\r\n"
        if request.body or request.method not in _BODILESS:
            head.append(b"content-length: %d\r\n" % len(request.body))
        head.append(b"\r\n")
        call.sent = call.last = self._pool.clock()
        if len(request.body) < HEAD_LIMIT:
            transport.write(b"".join((*head, request.body)))
        else:
            transport.write(b"".join(head))
            transport.write(request.body)
        call._attach(self)

    def read(self, on: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self, why: UpstreamFault | None = None) -> None:
        """At once. Whom it serves hears `why`, if there is one."""
        call, self._call = self._call, None
        if self._transport is not None:
            self._transport.abort()
        if call is not None and why is not None:
            call._fail(why)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        at = self._pool.clock()
        call = self._call
        if call is None:  # nobody asked: what would come next could not be trusted
            return self.close()
        call.last = at
        self.began = True
        in_head = not self._head_in
        broken = ""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                broken = f"the backend's answer is no HTTP/1.1: {_line(error)}"
            self._framed = False  # bytes after the end: deliver the answer, drop the connection
        if in_head:
            if not self._head_in:
                self._head_read += len(data)
            if max(self._head_bytes, self._head_read) > HEAD_LIMIT:
                return self._break(True, call, f"the backend's head is longer than {HEAD_LIMIT} bytes")
            if not self._head_in:
                return self._break(True, call, broken) if broken else None
            call.sink.on_head(at, self._status, self._headers)
        if (chunks := self._chunks) and self._call is call:
            self._chunks = []
            call.sink.on_chunk(at, chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self._call is call:
            if broken:  # after what came before it
                self._break(False, call, broken)
            elif self._complete:
                self._end(at, call)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        pool, call = self._pool, self._call
        pool.forget(self)
        self._call = self._transport = None
        if call is None:
            return None
        if self._head_in and not self._framed and exc is None:
            return self._finish(pool.clock(), call)  # an answer without a length ends with its connection
        if self.began:
            if self._head_in:
                return call._fail(UpstreamFault("truncated", "upstream_cut", f"the backend cut its answer{_why(exc)}"))
        elif not self.fresh:
            return pool.again(call)
        return call._fail(
            UpstreamFault(
                "backend_error",
                "upstream_disconnected",
                f"the backend closed the connection without an answer{_why(exc)}",
            )
        )

    def _break(self, in_head: bool, call: Call, message: str) -> None:
        outcome, code = ("backend_error", "bad_upstream_response") if in_head else ("truncated", "upstream_framing")
        call._fail(UpstreamFault(outcome, code, message), close=True)

    def _end(self, at: float, call: Call) -> None:
        reusable = self._framed and self._lasting and self.usable and not call._paused
        transport = self._transport
        if reusable and transport is not None and transport.get_write_buffer_size() == 0:
            self._call = None
            self._pool.keep(self)
        else:
            self.close()
        self._finish(at, call)

    @staticmethod
    def _finish(at: float, call: Call) -> None:
        call._detach()
        call.sink.on_end(at)

    # httptools' side: only notes, nothing that could raise

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if 100 <= self._parser.get_status_code() < 200:
            self._interim = True
            return
        self._head_in = True
        self._framed = any(name.lower() in _FRAMING for name, _ in self._headers)
        call = self._call
        status = self._status = self._parser.get_status_code()  # here: a second answer in this read has its own
        if status in (204, 304) or (call is not None and call.request.method == b"HEAD"):
            self._complete = True
            self._framed = status in (204, 304)

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._chunks.append(body)

    def on_message_begin(self) -> None:
        if self._complete:
            self._framed = False  # a second answer nobody asked for

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self._headers.clear()
        else:
            self._complete = True
            self._lasting = self._parser.should_keep_alive()  # the parser forgets, once the message is over


_FRAMING = (b"content-length", b"transfer-encoding")
_BODILESS = (b"GET", b"HEAD", b"DELETE", b"OPTIONS")


class Pool:
    """One backend's connections. No cap on streams in flight: who limits load is the caller's business."""

    def __init__(
        self,
        origin: Origin,
        timeouts: Timeouts | None = None,
        *,
        keep: int = 256,
        keep_for: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin = origin
        self.timeouts = timeouts or Timeouts()
        self.clock = clock
        self._keep = keep
        self._keep_for = keep_for
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._retries: dict[asyncio.Task[None], Call] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._calls: set[Call] = set()  # under way
        self._guard: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """Connections that are open now, idle ones included."""
        return len(self._all)

    async def send(self, request: Request, sink: Sink) -> Call:
        """Write a request on an idle connection, or on a new one. Raises UpstreamFault if none can be had."""
        call = Call(self, request, sink)
        connection = self._take()
        if connection is None:
            connection = await self._open(call)
        connection.start(call)
        return call

    async def close(self) -> None:
        self._closed = True
        for timer in (self._sweeper, self._guard):
            if timer is not None:
                timer.cancel()
        closing = UpstreamFault("internal", "closing", "the connections to the backend are being closed")
        for task, call in list(self._retries.items()):
            if task.cancel() and not call.gone:
                call._fail(closing)
        for connection in list(self._all):
            connection.close(closing)
        await asyncio.sleep(0)  # let the transports tell

    def watch(self, call: Call) -> None:
        """Hold the call to its limits. One timer looks at all calls: one for each would cost more than it is worth."""
        self._calls.add(call)
        if self._guard is None:
            self._look_later()

    def unwatch(self, call: Call) -> None:
        self._calls.discard(call)

    def _look_later(self) -> None:
        limits = [limit for limit in (self.timeouts.first_output, self.timeouts.idle, self.timeouts.total) if limit]
        if limits:
            every = min(max(min(limits) / 8, 0.005), 1.0)
            self._guard = asyncio.get_running_loop().call_later(every, self._look)

    def _look(self) -> None:
        self._guard = None
        now = self.clock()
        for call in list(self._calls):
            call.check(now)
        if self._calls:
            self._look_later()

    def retire(self) -> None:
        """No new requests will come: idle connections close now, the others when their streams end."""
        self._closed = True
        for connection in list(self._idle):
            connection.close()

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                connection.fresh = False
                return connection
        return None

    async def _open(self, call: Call) -> Connection:
        start = self.clock()
        try:
            async with asyncio.timeout(self.timeouts.connect):
                connection = cast(Connection, await self.origin.connect(lambda: Connection(self)))
            if not connection.usable:
                raise ConnectionResetError("it closed the connection at once")
        except TimeoutError as error:
            raise UpstreamFault(
                "timeout_connect", "timeout_connect", self._unreached("not within the connect limit")
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise UpstreamFault(
                "unreachable", "tls", self._unreached(f"its certificate: {error.verify_message}")
            ) from error
        except ssl.SSLError as error:
            raise UpstreamFault("unreachable", "tls", self._unreached(f"TLS: {error.reason or error}")) from error
        except socket.gaierror as error:
            raise UpstreamFault("unreachable", "dns", self._unreached("its name is not known")) from error
        except OSError as error:
            raise UpstreamFault(
                "unreachable", "connect", self._unreached(os.strerror(error.errno) if error.errno else _line(error))
            ) from error
        call.connect = self.clock() - start
        self._all.add(connection)
        return connection

    def _unreached(self, why: str) -> str:
        return f"cannot connect to {self.origin.host}:{self.origin.port}: {why}"

    def keep(self, connection: Connection) -> None:
        """A connection is free again."""
        if self._closed or len(self._idle) >= self._keep:
            return connection.close()
        connection.idle_since = self.clock()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._keep_for, self._sweep)
        return None

    def _sweep(self) -> None:
        """Close what has been idle too long. The list is ordered: the longest idle stands first."""
        self._sweeper = None
        limit = self.clock() - self._keep_for
        for connection in [c for c in self._idle if c.idle_since <= limit]:
            connection.close()
        self._idle = [c for c in self._idle if c.idle_since > limit and c.usable]
        if self._idle and not self._closed:
            self._sweeper = asyncio.get_running_loop().call_later(self._keep_for, self._sweep)

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def again(self, call: Call) -> None:
        """The one retry: on a fresh connection."""
        call._detach()
        task = asyncio.get_running_loop().create_task(self._retry(call))
        self._retries[task] = call
        task.add_done_callback(self._retries.pop)

    async def _retry(self, call: Call) -> None:
        try:
            connection = await self._open(call)
        except UpstreamFault as fault:
            return None if call.gone else call._fail(fault)
        if call.gone:
            return connection.close()
        return connection.start(call)


def _why(exc: Exception | None) -> str:
    return f" ({_line(exc)})" if exc is not None else ""


def _line(error: object) -> str:
    return " ".join(str(error).split())[:200]
