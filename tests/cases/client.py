"""A client over raw TCP that does what a case's `client_request` says and sees every byte.

Beside method, path, headers and body: repeat, concurrency, delay_ms, body_prefix, body_repeat, body_suffix,
chunked_body, expect_100, abort_after_ms, abort_after_text, pause_after_bytes, pause_ms, client_deadline_ms.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic as now
from typing import Any
from urllib.parse import urlsplit

from .text import header_values, parse_head, unescape

DEADLINE_MS = 12_000


@dataclass(slots=True)
class Answer:
    """What came back, and when."""

    started: float
    sent: bytes  # the request's body
    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    payload: bytearray = field(default_factory=bytearray)
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (time, bytes of payload so far)
    end: str = "error"  # clean, error, timeout, aborted
    ended: float = 0.0
    detail: str = ""
    framing_fault: str = ""
    aborted_at: float | None = None
    paused: tuple[float, int] | None = None  # (when it read on, bytes of payload by then)


class Left(Exception):
    """The client goes away in the middle, as the case says."""


async def send_request(base: str, request: dict[str, Any]) -> Answer:
    caller = Caller(base, request)
    answer = caller.answer
    try:
        await asyncio.wait_for(caller.run(), request.get("client_deadline_ms", DEADLINE_MS) / 1000)
    except Left:
        answer.end, answer.aborted_at = "aborted", now()
    except TimeoutError:
        answer.end, answer.detail = "timeout", "client deadline"
    except OSError as error:
        answer.end, answer.detail = "error", repr(error)
    finally:
        caller.close()
    answer.ended = now()
    return answer


class Caller:
    """One request on a connection of its own."""

    def __init__(self, base: str, request: dict[str, Any]) -> None:
        self._url = urlsplit(base)
        self._request = request
        body = unescape(request.get("body") or "") * request.get("body_repeat", 1)
        self._body = unescape(request.get("body_prefix") or "") + body + unescape(request.get("body_suffix") or "")
        self._until = unescape(request.get("abort_after_text") or "")
        self._buffer = bytearray()
        self._writer: asyncio.StreamWriter | None = None
        self.answer = Answer(now(), self._body)

    async def run(self) -> None:
        await self._connect()
        abort_ms = self._request.get("abort_after_ms")
        deadline = asyncio.timeout(abort_ms / 1000 if abort_ms else None)
        try:
            async with deadline:
                await self._ask()
                await self._read()
        except TimeoutError:
            raise Left if deadline.expired() else TimeoutError from None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def _connect(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        if self._request.get("pause_ms"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (self._url.hostname, self._url.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=65536)
        except OSError:
            sock.close()
            raise

    async def _ask(self) -> None:
        assert self._writer is not None
        chunked, method = self._request.get("chunked_body"), self._request.get("method", "POST")
        lines = [f"{method} {self._url.path.rstrip('/')}{self._request['path']} HTTP/1.1", f"Host: {self._url.netloc}"]
        lines += self._request.get("headers") or []
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self._body or method == "POST":
            lines.append(f"Content-Length: {len(self._body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if self._request.get("expect_100"):
            await asyncio.wait_for(self._head(), 1.5)
        size = 700 if chunked else 65536
        for start in range(0, len(self._body), size):
            piece = self._body[start : start + size]
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await self._writer.drain()
        self._writer.write(b"0\r\n\r\n" if chunked else b"")

    async def _read(self) -> None:
        answer = self.answer
        while answer.status is None:
            await self._head()
        length = self._framing()
        if answer.status in (204, 304):
            await asyncio.sleep(0.05)
            answer.framing_fault = "body bytes after a response that has none" if self._buffer else ""
        else:
            async for piece in self._chunks() if length == "chunked" else self._sized(length):
                await self._got(piece)
        answer.end = "clean"

    async def _head(self) -> None:
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        raw, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        self._buffer = bytearray(rest)
        first, headers = parse_head(raw)
        status = int(first.split(" ")[1])
        if status < 200:
            self.answer.interim.append(status)
        else:
            self.answer.status, self.answer.headers = status, headers

    def _framing(self) -> int | str | None:
        """The length of the body, `chunked`, or None: until the connection ends."""
        codings = header_values(self.answer.headers, "transfer-encoding")
        lengths = header_values(self.answer.headers, "content-length")
        if len(codings) + len(lengths) > 1 or (codings and codings[0].lower() != "chunked"):
            self.answer.framing_fault = f"Transfer-Encoding {codings}, Content-Length {lengths}"
        return "chunked" if codings else int(lengths[0]) if lengths else None

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := await self._chunk_size():
            while size > 0:
                piece = await self._take(size)
                size -= len(piece)
                yield piece
            await self._mark()
        await self._mark()

    async def _chunk_size(self) -> int:
        while b"\r\n" not in self._buffer:
            await self._more()
        line = bytes(self._buffer[:64]).partition(b"\r\n")[0]
        del self._buffer[: len(line) + 2]
        return int(line.split(b";")[0], 16)

    async def _mark(self) -> None:
        """The line end after a chunk."""
        while len(self._buffer) < 2:
            await self._more()
        del self._buffer[:2]

    async def _sized(self, length: int | str | None) -> AsyncIterator[bytes]:
        while length is None or len(self.answer.payload) < int(length):
            try:
                yield await self._take(65536 if length is None else int(length) - len(self.answer.payload))
            except ConnectionError:
                if length is None:
                    return
                raise

    async def _take(self, most: int) -> bytes:
        if not self._buffer:
            await self._more()
        piece = bytes(self._buffer[:most])
        del self._buffer[: len(piece)]
        return piece

    async def _more(self) -> None:
        data = await self._reader.read(65536)
        if not data:
            raise ConnectionError(f"closed after {len(self.answer.payload)} bytes of payload")
        self._buffer += data

    async def _got(self, piece: bytes) -> None:
        answer = self.answer
        answer.payload += piece
        answer.arrivals.append((now(), len(answer.payload)))
        if self._until and self._until in answer.payload:
            raise Left
        pause = self._request.get("pause_ms")
        if pause and answer.paused is None and len(answer.payload) >= self._request.get("pause_after_bytes", 1):
            await asyncio.sleep(pause / 1000)
            answer.paused = (now(), len(answer.payload))
