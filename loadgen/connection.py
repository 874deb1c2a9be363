"""The simulated backend's side of a connection: requests in, scripts played out.

It speaks HTTP/1.1 over a bare protocol, not over a framework: the time of every write is known and logged,
and a connection can be cut inside an event or reset, as real ones are.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from .script import Script
from .work import Work

_CLOGGED = 256 * 1024  # bytes that a slow reader may leave unread before it is made to wait


@dataclass(slots=True)
class Asked:
    """One request as it came, for tests: bodies and headers are kept as they were on the wire."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    at: float  # when the last byte was read
    gone: float | None = None  # when the client left before the answer had ended
    script: Script | None = None


class Owner(Protocol):
    """The simulator, as its connections see it."""

    def joined(self, connection: Connection) -> None: ...
    def parted(self, connection: Connection) -> None: ...
    def answer(self, asked: Asked, connection: Connection) -> None: ...
    def release(self, stream: Stream) -> None: ...


class Stream:
    """One answer on its way: plays a script into a connection."""

    __slots__ = ("_connection", "_head", "_log", "_next", "_script", "_start", "_work", "over", "works")

    def __init__(self, script: Script, head: bytes, connection: Connection, log: list[tuple[float, bytes]]) -> None:
        self._script = script
        self._head: bytes | None = head
        self._connection = connection
        self._log = log
        self._next = 0
        self.works = False  # it holds a slot
        self.over = False

    def start(self, work: Work) -> None:
        self._work = work
        self._start = work.now()
        work.call(self._start + self._script.head, self)

    def proceed(self) -> None:
        """Writes everything that has the same time, then asks to be called for what comes next."""
        if self.over:
            return
        if self._connection.clogged:
            self._work.call(self._work.now() + 0.005, self)
            return
        if self._script.ending == "drop":
            self._connection.finish("cut")
            return
        steps, first = self._script.steps, self._next
        at = steps[first].at if first < len(steps) else self._script.head
        if self._head is not None:
            at = self._script.head
        while self._next < len(steps) and steps[self._next].at <= at:
            self._next += 1
        data = b"".join(step.data for step in steps[first : self._next])
        ended = self._next == len(steps)
        self._write(data, last=ended and self._script.ending == "clean")
        if not ended:
            self._work.call(self._start + steps[self._next].at, self)
        elif self._script.ending != "hang":
            self._connection.finish(self._script.ending)

    def _write(self, data: bytes, last: bool) -> None:
        head, self._head = self._head or b"", None
        if self._script.streamed:
            framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            framed += b"0\r\n\r\n" if last else b""
        else:
            framed = data
        self._log.append((time.monotonic(), data))
        self._connection.write(head + framed)


class Connection(asyncio.Protocol):
    """One client's connection: reads requests, answers them one after another."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._waiting: deque[tuple[Asked, bool]] = deque()
        self._current: Asked | None = None
        self._keep = True
        self.stream: Stream | None = None

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.parted(self)
        if self._current is not None:
            self._current.gone = time.monotonic()
            self._release()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    # httptools calls these

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", [], []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        asked = Asked(method, self._target.decode("latin-1"), self._headers, b"".join(self._body), time.monotonic())
        self._waiting.append((asked, self._parser.should_keep_alive()))
        self._answer()

    # the simulator and its streams call these

    @property
    def clogged(self) -> bool:
        return self._transport.get_write_buffer_size() > _CLOGGED

    def _answer(self) -> None:
        if self._current is None and self._waiting:
            self._current, self._keep = self._waiting.popleft()
            self._owner.answer(self._current, self)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def finish(self, ending: str) -> None:
        self._release()
        if ending == "reset":
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        elif ending == "cut" or not self._keep:
            self._transport.close()
        else:
            self._answer()

    def _release(self) -> None:
        self._current = None
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.over = True
            self._owner.release(stream)

    def abort(self) -> None:
        self._transport.abort()


def head_of(script: Script, id: str) -> bytes:
    """The head of an answer."""
    lines = [
        f"HTTP/1.1 {script.status} {_reason(script.status)}",
        f"content-type: {script.content_type}",
        f"x-request-id: {id}",
        *(f"{name}: {value}" for name, value in script.headers),
    ]
    if script.streamed:
        lines += ["cache-control: no-cache", "transfer-encoding: chunked"]
    else:
        whole = sum(len(step.data) for step in script.steps)
        # A body that will be cut promises more than it gives.
        lines.append(f"content-length: {whole * 2 + 1 if script.ending != 'clean' else whole}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Simulated"
