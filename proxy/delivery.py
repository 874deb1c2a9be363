"""The client's side of an answer: its head, and the socket that bytes go to at once.

1. Bytes are written to the server's transport directly: between the backend's socket and the client's stands no
   queue. So the framing is ours: one chunk for each write where the length is not known.
2. The head is ours too, and goes out with the first bytes, in one write: headers cross as the bytes that they were.
   The server (aiohttp) is handed `Sent`, which has nothing left to write.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import web

from . import headers
from .filters import Filter
from .relay import Relay

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


class Sent(web.StreamResponse):
    """For the server: an answer that is with the client already. Says only whether the connection lasts."""

    def __init__(self, lasting: bool) -> None:
        super().__init__()
        self._lasting = lasting

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing."""

    @property
    def keep_alive(self) -> bool:
        return self._lasting


class Socket:
    """A client that gets a body of known length, or one that ends with its connection."""

    __slots__ = ("_head", "_lasting", "_protocol", "_transport")

    def __init__(self, request: web.BaseRequest, transport: asyncio.Transport, head: bytes, lasting: bool) -> None:
        self._transport = transport
        self._protocol = request.protocol
        self._head = head  # not written yet
        self._lasting = lasting  # the connection may serve another request

    def write(self, data: bytes) -> int:
        """How many bytes have not been taken yet."""
        if self._head:
            data = self._head + data
            self._head = b""
        self._transport.write(data)
        return self._transport.get_write_buffer_size()

    def start(self) -> None:
        """The head does not wait for the body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def end(self, rest: bytes) -> Sent:
        """The body's last bytes. What it returns is for the server."""
        if rest:
            Socket.write(self, rest)
        self.start()
        return SENT if self._lasting else LAST

    def close(self) -> None:
        """Send what is written, then cut without an end."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def choked(self) -> bool:
        return self._protocol.writing_paused


class ChunkedSocket(Socket):
    """Each write is one chunk."""

    __slots__ = ()

    def write(self, data: bytes) -> int:
        if self._head:
            return super().write(b"%x\r\n%b\r\n" % (len(data), data))
        transport = self._transport
        transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return transport.get_write_buffer_size()

    def end(self, rest: bytes) -> Sent:
        if rest:
            self.write(rest)
        return super().end(b"0\r\n\r\n")


def socket(
    request: web.BaseRequest,
    relay: Relay,
    own: Mapping[str, str],
    changes: Sequence[Filter],
    now: float,
    length: int | None = None,
) -> Socket:
    """Where to write. `own`: our headers; `changes`: what will alter the body; `length`: of a body that is whole.

    `now`: wall-clock time. Raises ConnectionResetError if the client has left.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client left")
    bodiless = is_bodiless(request, relay)
    lines = _lines(relay, own, changes, now)
    if length is not None or (changes and not bodiless):
        lines.pop(b"content-length", None)
    if length is not None:
        lines[b"content-length"] = b"content-length: %d\r\n" % length
    old = request.version < (1, 1)
    chunked = not (old or bodiless or b"content-length" in lines)
    if chunked:
        lines[b"transfer-encoding"] = b"transfer-encoding: chunked\r\n"
    lasting = not old and request.keep_alive
    if not lasting:
        lines[b"connection"] = b"connection: close\r\n"
    status = f"HTTP/1.1 {relay.status} {_REASONS.get(relay.status, '')}\r\n".encode()
    head = b"".join((status, *lines.values(), b"\r\n"))
    return (ChunkedSocket if chunked else Socket)(request, transport, head, lasting)


def _lines(relay: Relay, own: Mapping[str, str], changes: Sequence[Filter], now: float) -> dict[bytes, bytes]:
    """Header lines by lower-case name: the backend's as they came, and what it did not say."""
    lines: dict[bytes, bytes] = {}
    for name, value in headers.crossing(relay.headers):
        lower, line = name.lower(), b"%b: %b\r\n" % (name, value)
        lines[lower] = lines[lower] + line if lower in lines else line
    for change in changes:
        if change.content_type is not None:
            lines[b"content-type"] = f"content-type: {change.content_type}\r\n".encode()
    for key, text in own.items():
        shown = text if text.isprintable() else _UNPRINTABLE.sub(" ", text)
        lines.setdefault(key.encode(), f"{key}: {shown}\r\n".encode())
    if b"date" not in lines:  # RFC 9110, 6.6.1
        lines[b"date"] = _date(int(now))
    return lines


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()


SENT, LAST = Sent(lasting=True), Sent(lasting=False)


def is_bodiless(request: web.BaseRequest, relay: Relay) -> bool:
    return request.method == "HEAD" or relay.status in (204, 304)
