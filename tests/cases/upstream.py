"""A backend over raw TCP that does what a case's `upstream_script` says.

Steps:
  status, reason, headers, framing   the head; framing chunked (default; every send is one HTTP chunk), length
                                     (computed) or none (nothing added)
  send, repeat, each, raw            bytes (escapes of `text.unescape`); n times, at once or one by one (each)
  sleep_ms
  close: clean | truncate | reset    clean ends the message; truncate is a FIN without the end; reset is an RST
  wait_client_close_ms               wait for the peer to go away
  connection: n                      what follows is for the nth connection with a request, and for those after it
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from time import monotonic as now
from typing import Any

from .text import header_values, parse_head, unescape

HOST = "127.0.0.1"
Step = dict[str, Any]
Request = dict[str, Any]


class Peer:
    """One accepted connection: a pump keeps reading, so that a disconnect is seen at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.buffer = bytearray()
        self.gone_at: float | None = None
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self.task = asyncio.ensure_future(self._pump())

    async def _pump(self) -> None:
        with suppress(ConnectionError, OSError):
            while data := await self.reader.read(65536):
                self.buffer += data
                self._news.set()
        self.gone_at = now()
        self._gone.set()
        self._news.set()

    async def gone(self, seconds: float) -> bool:
        """Whether the peer went away within this time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), seconds)
        return self.gone_at is not None

    async def _more(self, size: int) -> None:
        """Until so much is there; raises ConnectionError when nothing more will come."""
        while len(self.buffer) < size:
            if self.gone_at is not None:
                raise ConnectionError("the peer left inside its request")
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 30)

    async def _until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            await self._more(len(self.buffer) + 1)
        head, _, rest = bytes(self.buffer).partition(mark)
        self.buffer = bytearray(rest)
        return head

    async def _take(self, size: int) -> bytes:
        await self._more(size)
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    async def request(self) -> Request:
        first, headers = parse_head(await self._until(b"\r\n\r\n"))
        method, target = first.split(" ")[:2]
        if any("100-continue" in value.lower() for value in header_values(headers, "expect")):
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if any("chunked" in value.lower() for value in header_values(headers, "transfer-encoding")):
            body = await self._chunked()
        else:
            body = await self._take(int((header_values(headers, "content-length") or ["0"])[0]))
        return {"method": method, "target": target, "headers": headers, "body": body, "at": now()}

    async def _chunked(self) -> bytes:
        body = b""
        while size := int((await self._until(b"\r\n")).partition(b";")[0], 16):
            body += (await self._take(size + 2))[:-2]
        await self._take(2)
        return body

    def close(self, reset: bool = False) -> None:
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.transport.abort()
        else:
            self.writer.close()


class Upstream:
    """Every connection that brings a request plays its script. What was asked and written when is kept."""

    def __init__(self, steps: list[Step], port: int) -> None:
        self.port = port
        self.requests: list[Request] = []
        self.responses: list[dict[str, Any]] = []
        self.disconnects: list[float] = []
        self.sent_log: list[tuple[float, int]] = []  # (time, bytes of payload that the kernel took)
        self.errors: list[str] = []
        self._scripts: dict[int, list[Step]] = {1: []}
        self._peers: list[Peer] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        number = 1
        for step in steps:
            number = step.get("connection", number)
            self._scripts.setdefault(number, []).append(step)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, self.port, limit=2**20, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for peer in self._peers:
            peer.close()
        tasks = [*self._tasks, *(peer.task for peer in self._peers)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.03)  # let the proxy notice that its pooled connections are gone

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 131072)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        self._peers.append(peer)
        try:
            await self._serve(peer)
        except asyncio.CancelledError:
            pass  # the case is over
        except OSError:
            self.disconnects.append(now())
        except Exception as error:  # a mistake in a script: shown with the case
            self.errors.append(repr(error))
        finally:
            self._tasks.discard(task)

    async def _serve(self, peer: Peer) -> None:
        try:
            request = await peer.request()
        except ConnectionError:
            return  # opened and never used
        self.requests.append(request)
        number = len(self.requests)
        await Play(self, peer, self._scripts.get(number) or self._scripts[max(self._scripts)]).run()


class Play:
    """One script on one connection."""

    def __init__(self, upstream: Upstream, peer: Peer, script: list[Step]) -> None:
        self._upstream = upstream
        self._peer = peer
        self._script = script
        self._framing: str | None = None
        self._response: dict[str, Any] = {"payload": bytearray(), "headers": [], "log": []}

    async def run(self) -> None:
        """A step is named by its key."""
        verbs = {
            "connection": None,
            "status": self._head,
            "send": self._send,
            "sleep_ms": self._sleep,
            "wait_client_close_ms": self._wait,
            "close": self._close,
        }
        for number, step in enumerate(self._script):
            verb = next(verbs[name] for name in verbs if name in step)
            if verb is not None and await verb(step, self._script[number + 1 :]):
                return

    async def _head(self, step: Step, later: list[Step]) -> None:
        headers = [tuple(line.split(": ", 1)) for line in step.get("headers") or []]
        self._response = {"payload": bytearray(), "headers": headers, "log": []}  # log: (time, bytes of payload)
        self._upstream.responses.append(self._response)
        self._framing = step.get("framing", "chunked")
        lines = [f"HTTP/1.1 {step['status']} {step.get('reason', 'OK')}", *map(": ".join, headers)]
        if self._framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        elif self._framing == "length":
            sent = [len(unescape(item["send"])) * item.get("repeat", 1) for item in later if "send" in item]
            lines.append(f"Content-Length: {sum(sent)}")
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _send(self, step: Step, _: list[Step]) -> None:
        data, repeat = unescape(step["send"]), step.get("repeat", 1)
        for piece in [data] * repeat if step.get("each") else [data * repeat]:
            if self._peer.gone_at is not None:
                break
            self._response["payload"] += piece
            size = len(self._response["payload"])
            framed = b"%x\r\n%b\r\n" % (len(piece), piece) if self._framing == "chunked" else piece
            self._response["log"].append((now(), size))
            await self._write(framed)
            self._upstream.sent_log.append((now(), size))

    async def _sleep(self, step: Step, _: list[Step]) -> bool:
        gone = await self._peer.gone(step["sleep_ms"] / 1000)
        return gone and self._left()

    async def _wait(self, step: Step, _: list[Step]) -> bool:
        gone = await self._peer.gone(step["wait_client_close_ms"] / 1000)
        return gone and self._left()

    async def _close(self, step: Step, _: list[Step]) -> bool:
        if step["close"] == "clean" and self._framing == "chunked":
            await self._write(b"0\r\n\r\n")
        self._peer.close(reset=step["close"] == "reset")
        return True

    async def _write(self, data: bytes) -> None:
        self._peer.writer.write(data)
        await self._peer.writer.drain()

    def _left(self) -> bool:
        self._upstream.disconnects.append(self._peer.gone_at or now())
        self._peer.close()
        return True
