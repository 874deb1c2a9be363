"""The client's side of an answer: its head, and the socket that bytes go to at once.

Bytes are written to the server's transport directly: between the backend's socket and the client's stands no
queue. So the framing is ours: one chunk for each write where the length is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiohttp import web

from . import headers
from .filters import Filter
from .relay import Relay


class Socket:
    """A client that gets a body of known length, or one that ends with its connection."""

    __slots__ = ("_protocol", "_transport")

    def __init__(self, request: web.BaseRequest, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._protocol = request.protocol

    def write(self, data: bytes) -> int:
        """How many bytes have not been taken yet."""
        self._transport.write(data)
        return self._transport.get_write_buffer_size()

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
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return self._transport.get_write_buffer_size()


def fill(
    response: web.StreamResponse,
    request: web.BaseRequest,
    relay: Relay,
    own: Mapping[str, str],
    changes: Sequence[Filter],
) -> bool:
    """Give the response the client's head. True: the length is known. `changes`: what will alter the body."""
    bodiless = is_bodiless(request, relay)
    framed = bodiless
    for name, value in headers.to_client(relay.headers):
        if name.lower() == "content-length":
            if changes and not bodiless:
                continue
            framed = True
        response.headers.add(name, value)
    for change in changes:
        if change.content_type is not None:
            response.headers["content-type"] = change.content_type
    for name, value in own.items():
        response.headers.setdefault(name, value)
    return framed


def is_bodiless(request: web.BaseRequest, relay: Relay) -> bool:
    return request.method == "HEAD" or relay.status in (204, 304)


def frame(response: web.StreamResponse, request: web.BaseRequest) -> None:
    """Of an answer whose length nobody knows: in chunks, or, to an old client, up to the connection's end."""
    if request.version < (1, 1):
        response.force_close()
    else:
        response.enable_chunked_encoding()


def socket(request: web.BaseRequest, response: web.StreamResponse) -> Socket:
    """Where to write, after the head was sent. Raises ConnectionResetError if the client has left."""
    if request.transport is None or request.transport.is_closing():
        raise ConnectionResetError("the client left")
    return (ChunkedSocket if response.chunked else Socket)(request, request.transport)
