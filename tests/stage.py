"""The world around the proxy's sockets, for tests: a backend that does what a script says, the proxy in this
process, and a client that sees every byte.

A script is a coroutine that holds one accepted connection: it waits for a request, sends bytes, cuts, resets,
stalls. So a test reads as what happened on the wire, and no time is in it that the test did not ask for.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

import httptools
from aiohttp import web

from proxy.app import make_runner
from proxy.gateway import Gateway
from proxy.meter import Reading
from proxy.recorder import Opening
from proxy.settings import Settings

HOST = "127.0.0.1"
LAST = b"0\r\n\r\n"  # the end of a chunked body


def head(status: int = 200, **headers: Any) -> bytes:
    """The head of an answer; `content_type="text/plain"` is Content-Type."""
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def whole(body: bytes = b"", status: int = 200, **headers: Any) -> bytes:
    """A whole answer of known length."""
    return head(status, **{"content_type": "application/json"} | headers, content_length=len(body)) + body


def events(**headers: Any) -> bytes:
    """The head of a chunked stream of events."""
    return head(**{"content_type": "text/event-stream", "transfer_encoding": "chunked"} | headers)


def piece(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class Asked:
    """A request as the backend got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Peer(asyncio.Protocol):
    """One connection at the backend."""

    def __init__(self, stage: Stage) -> None:
        self.gone = asyncio.Event()
        self.gone_at = 0.0
        self.raw = b""  # all that was read
        self._stage = stage
        self._waiting: asyncio.Queue[Asked] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._body = b""

    async def request(self) -> Asked:
        """The next request, whole."""
        return await self._waiting.get()

    def send(self, *data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(data))

    @property
    def unsent(self) -> int:
        """Bytes that the other side's and our kernel did not take."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def cut(self) -> None:
        """FIN, after what was sent."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """RST."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    # asyncio's and httptools' side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._stage.joined(self)

    def data_received(self, data: bytes) -> None:
        self.raw += data
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.gone_at = asyncio.get_running_loop().time()
        self.gone.set()

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", [], b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        asked = Asked(method, self._url.decode("latin-1"), self._headers, self._body)
        self._stage.asked.append(asked)
        self._waiting.put_nowait(asked)


Script = Callable[[Peer], Awaitable[None]]


def replies(*answers: bytes) -> Script:
    """One answer for each request of a connection; the last one for all that follow."""

    async def script(peer: Peer) -> None:
        number = 0
        while True:
            await peer.request()
            peer.send(answers[min(number, len(answers) - 1)])
            number += 1

    return script


class Stage:
    """A backend. Each connection runs the script; a script that fails fails the test."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.peers: list[Peer] = []
        self.asked: list[Asked] = []
        self.port = 0
        self._tls = tls
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), HOST, 0, ssl=self._tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{HOST}:{self.port}/v1"

    def joined(self, peer: Peer) -> None:
        self.peers.append(peer)
        self._tasks.append(asyncio.ensure_future(self.script(peer)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for peer in self.peers:
            if peer._transport is not None:
                peer._transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


class Records:
    """A sink that keeps everything, and holds started = outcomes + in flight at every call."""

    def __init__(self) -> None:
        self.openings: list[Opening] = []
        self.readings: list[Reading] = []
        self.open: dict[str, Opening] = {}
        self._changed = asyncio.Event()

    def opened(self, opening: Opening) -> None:
        assert opening.id not in self.open
        self.openings.append(opening)
        self.open[opening.id] = opening

    def finished(self, reading: Reading) -> None:
        del self.open[reading.id]  # exactly one reading for each opening
        self.readings.append(reading)
        assert len(self.openings) == len(self.readings) + len(self.open)
        self._changed.set()

    async def reading(self, number: int = 0) -> Reading:
        """The n-th reading, once it is there."""
        while len(self.readings) <= number:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 10)
        return self.readings[number]


class Proxy:
    """The OpenAI side in this process, with a sink that keeps everything."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self.records = Records()
        self.gate = Gateway(settings, self.records, **options)
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> Self:
        self._runner = make_runner(self.gate)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    @property
    def readings(self) -> list[Reading]:
        """Those of all exchanges that have ended by now."""
        self.gate.backlog.flush()
        return self.records.readings

    def connections(self) -> list[Any]:
        """The server's end of each client's connection."""
        assert self._runner is not None and self._runner.server is not None
        return list(self._runner.server.connections)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        assert not self.records.open  # nothing is left in flight


def settings(*stages: Stage | str, **more: Any) -> Settings:
    """Backends b0, b1, … of these servers. `models=[...]` and other backend fields are for all of them."""
    backends: dict[str, Any] = {}
    fields = {name: more.pop(name) for name in list(more) if name not in Settings.model_fields}
    for number, stage in enumerate(stages):
        url = stage if isinstance(stage, str) else stage.url
        models = ["*"] if number == 0 else [f"m{number}"]
        backends[f"b{number}"] = {"url": url, "models": models} | fields
    listen = {"drain": 0.3} | more.pop("listen", {})
    return Settings(backends=backends, listen=listen, **more)


@dataclass(slots=True)
class Answer:
    """What a client got. `clean`: the message ended as HTTP says it must."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    clean: bool = False

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None

    @property
    def error(self) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], json.loads(self.body)["error"])


def post(
    doc: Any = None, path: str = "/v1/chat/completions", *, method: str = "POST", version: str = "1.1", **headers: Any
) -> bytes:
    """A request's bytes; `doc` is JSON, or bytes as they are."""
    body = doc if isinstance(doc, bytes) else b"" if doc is None else json.dumps(doc).encode()
    given = {"host": "proxy", "content_type": "application/json", "content_length": len(body)} | headers
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/{version}", *lines, "", ""]).encode() + body


def chat(stream: bool = False, model: str = "m", **more: Any) -> dict[str, Any]:
    """A chat request."""
    doc = {"model": model, "messages": [{"role": "user", "content": "hi"}]} | more
    return doc | {"stream": True} if stream else doc


class Client:
    """One client connection, to be used with `async with`."""

    def __init__(self, port: int, *, buffer: int | None = None) -> None:
        self._port = port
        self._buffer = buffer
        self._rest = b""

    async def __aenter__(self) -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        if self._buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (HOST, self._port))
        except BaseException:
            sock.close()
            raise
        self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=self._buffer or 65536)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.leave()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def leave(self) -> None:
        self.writer.transport.abort()

    async def until(self, text: bytes) -> bytes:
        """Reads until this was read."""
        seen = b""
        while text not in seen:
            data = await asyncio.wait_for(self.reader.read(65536), 10)
            assert data, f"the connection ended before {text!r}; after {seen[-200:]!r}"
            seen += data
        self._rest += seen
        return seen

    async def answer(self, method: str = "POST") -> Answer:
        """One whole answer, or as much as came of it."""
        answer = Answer()
        done: list[bool] = []

        class Notes:
            on_header = staticmethod(
                lambda name, value: answer.headers.append((name.decode("latin-1"), value.decode("latin-1")))
            )

            @staticmethod
            def on_headers_complete() -> None:
                answer.status = parser.get_status_code()
                if method == "HEAD":
                    done.append(True)

            @staticmethod
            def on_body(data: bytes) -> None:
                answer.body += data

            @staticmethod
            def on_message_complete() -> None:
                done.append(True)

        parser = httptools.HttpResponseParser(Notes())
        data, self._rest = self._rest, b""
        while not done:
            if data:
                parser.feed_data(data)
                if done:
                    break
            try:
                data = await asyncio.wait_for(self.reader.read(65536), 10)
            except ConnectionError:
                data = b""
            if not data:
                framed = answer.header("content-length") or answer.header("transfer-encoding")
                answer.clean = bool(answer.status) and not framed
                return answer
        answer.clean = True
        return answer

    async def ended(self) -> bool:
        """Whether the connection is closed by the other side, with nothing more to read."""
        try:
            return await asyncio.wait_for(self.reader.read(65536), 10) == b""
        except ConnectionError:
            return True


async def ask(proxy: Proxy, request: bytes, method: str = "POST") -> Answer:
    """One request on a connection of its own."""
    async with Client(proxy.port) as client:
        client.send(request)
        return await client.answer(method)


async def eventually(condition: Callable[[], object], patience: float = 10.0) -> None:
    """Waits until it holds; fails when it does not come to hold."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
