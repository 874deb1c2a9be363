"""A simulated backend: a small HTTP server that plays scripts, with slots, a queue and a shared machine.

1. One clock for all streams. Work passes at 1 / slowdown(n) of real time while n requests run, so every
   deadline is absolute in work seconds, kept in one heap behind one timer. Nothing sleeps, so nothing
   drifts; a stream costs no task. Throughput at n is then known by formula: n / slowdown(n) of a lone one's.
2. It speaks HTTP/1.1 over a bare protocol, not over a framework: the time of every write is known and
   logged, and a connection can be cut inside an event or reset, as real ones are.
3. A request beyond the slots waits in line; beyond the line it gets 429 with Retry-After.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import signal
import socket
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from . import envelope
from .decoding import Autoregressive, Diffusion, Prices
from .demand import APIS, Demand, Refusal
from .prose import Source
from .script import Script, Sharing, Step, afflict, refusal
from .strict import Strict

_EARLY = 0.0005  # timers tick in milliseconds: nearer than half a tick is due
_CLOGGED = 256 * 1024  # bytes that a slow reader may leave unread before it is made to wait
_REMEMBERED = 256  # scripts: the same request gets the same answer, so it is written once
_SMALL = 16 * 1024  # bytes of a request that is worth remembering


class Profile(Protocol):
    """What the backend is: `Diffusion`, `Autoregressive` or `Strict`."""

    @property
    def models(self) -> tuple[str, ...]: ...
    @property
    def prices(self) -> Prices: ...
    @property
    def sharing(self) -> Sharing: ...
    def write(self, demand: Demand, random: Source, created: int) -> Script: ...
    def busy(self) -> Refusal: ...
    def unreadable(self, problem: Refusal, raw: bytes) -> Refusal: ...


PROFILES = {"diffusion": Diffusion, "autoregressive": Autoregressive, "strict": Strict}


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


class Work:
    """The shared machine: calls streams when their work is done, in work seconds."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._done = 0.0  # work seconds that had passed at `_since`
        self._since = time.monotonic()
        self._running = 0
        self._pace = 1.0
        self._due: list[tuple[float, int, Stream]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0
        self._ticking = False

    def now(self) -> float:
        return self._done + (time.monotonic() - self._since) * self._pace

    def run(self, change: int) -> None:
        """So many requests more, or fewer, share the machine from now on."""
        self._done, self._since = self.now(), time.monotonic()
        self._running += change
        self._pace = 1.0 / self._sharing.slowdown(self._running)
        self._arm(anew=True)

    def call(self, at: float, stream: Stream) -> None:
        heapq.heappush(self._due, (at, next(self._order), stream))
        self._arm()

    def _arm(self, anew: bool = False) -> None:
        if not self._due or self._ticking:
            return
        first = self._due[0][0]
        if self._timer is not None:
            if not anew and first >= self._armed:
                return
            self._timer.cancel()
        self._armed = first
        delay = max(0.0, (first - self.now()) / self._pace)
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._ticking = True
        due, edge = self._due, self.now() + _EARLY * self._pace
        while due and due[0][0] <= edge:
            heapq.heappop(due)[2].proceed()
        self._ticking = False
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()


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

    def __init__(self, owner: Simulator) -> None:
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


@dataclass(slots=True)
class Simulator:
    """A backend on a free loopback port. `async with Simulator(profile="diffusion") as backend: backend.url`.

    `log` holds for each request id (the answer's `x-request-id`) the true time, in monotonic seconds, and the
    bytes of every write of its body; the first goes with the head and may be empty. `asked` holds the requests.
    Both forget the oldest beyond `keep`.
    """

    profile: str | Profile = "diffusion"
    capacity: int = 32  # requests that run at once
    queue: int = 64  # requests that may wait for a slot
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    keep: int = 1024
    key: str | None = None  # the bearer key that requests must carry
    log: OrderedDict[str, list[tuple[float, bytes]]] = field(default_factory=OrderedDict)
    asked: OrderedDict[str, Asked] = field(default_factory=OrderedDict)
    connections: set[Connection] = field(default_factory=set)
    accepted: int = 0  # connections ever
    running: int = 0
    most_running: int = 0
    _line: deque[Stream] = field(default_factory=deque)
    _scripts: OrderedDict[tuple[str, bytes, str], Script] = field(default_factory=OrderedDict)
    _empty: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _work: Work | None = None
    _count: int = 0
    _created: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.profile, str):
            if self.profile not in PROFILES:
                raise ValueError(f"profile: {self.profile!r} is not one of {', '.join(PROFILES)}")
            self.profile = PROFILES[self.profile]()

    @property
    def model(self) -> Profile:
        assert not isinstance(self.profile, str)
        return self.profile

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"http://{self.host}:{self.port}/v1"

    async def start(self) -> Simulator:
        loop = asyncio.get_running_loop()
        self._work = Work(self.model.sharing)
        self._created = int(time.time())
        self._empty.set()
        self._server = await loop.create_server(lambda: Connection(self), self.host, self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()
        await self._empty.wait()  # aborted connections close in the loop's next turn
        self._works.close()
        self._server = None

    async def __aenter__(self) -> Simulator:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def speedup(self, concurrency: int) -> float:
        """Throughput with so many clients at once, as a multiple of one client's: the known truth of this backend."""
        return self.model.sharing.speedup(min(concurrency, self.capacity))

    def joined(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.accepted += 1
        self._empty.clear()

    def parted(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def answer(self, asked: Asked, connection: Connection) -> None:
        """Called by a connection with a whole request: gives it a slot, a place in line, or an error."""
        id = self._remember(asked)
        script = self._script(asked)
        if script.plan is not None and self.running >= self.capacity and len(self._line) >= self.queue:
            script = refusal(self.model.busy(), retry_after=None if isinstance(self.model, Strict) else "1")
        asked.script = script
        stream = Stream(script, _head(script, id, asked.method), connection, self.log[id])
        connection.stream = stream
        if script.plan is None:  # an error, a list of models: no work
            stream.start(self._works)
        elif self.running < self.capacity:
            self._run(stream)
        else:
            self._line.append(stream)

    @property
    def _works(self) -> Work:
        assert self._work is not None
        return self._work

    def _run(self, stream: Stream) -> None:
        stream.works = True
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self._works.run(1)
        stream.start(self._works)

    def release(self, stream: Stream) -> None:
        """Called by a connection whose answer is over, or whose client has left."""
        if stream in self._line:
            self._line.remove(stream)
        elif stream.works:
            self.running -= 1
            self._works.run(-1)
            if self._line:
                self._run(self._line.popleft())

    def _remember(self, asked: Asked) -> str:
        self._count += 1
        given = next((value.decode("latin-1") for name, value in asked.headers if name == b"x-request-id"), "")
        id = given if given and given not in self.log else f"sim-{self._count}"
        self.log[id], self.asked[id] = [], asked
        while len(self.log) > max(1, self.keep):
            self.log.popitem(last=False)
            self.asked.popitem(last=False)
        return id

    def _script(self, asked: Asked) -> Script:
        headers = dict(asked.headers)
        simulate = headers.get(b"x-simulate", b"").decode("latin-1")
        path = urlsplit(asked.path).path
        key = (path, asked.body, simulate)
        try:
            if self.key is not None and headers.get(b"authorization") != b"Bearer " + self.key.encode():
                raise Refusal.of(401, "Incorrect API key provided", "invalid_api_key")
            if asked.method == "GET":
                return self._list(path)
            if (script := self._scripts.get(key)) is None:
                script = self._write(path, asked.body, simulate)
                if len(asked.body) <= _SMALL:
                    self._scripts[key] = script
                if len(self._scripts) > _REMEMBERED:
                    self._scripts.popitem(last=False)
            return script
        except Refusal as problem:
            return refusal(problem)

    def _write(self, path: str, body: bytes, simulate: str) -> Script:
        if path not in APIS:
            raise Refusal.of(404, f"this backend has no {path[:200]}", "not_found")
        try:
            demand = Demand.of(APIS[path], body, simulate)
        except Refusal as problem:
            raise self.model.unreadable(problem, body) from None
        chance = random.Random(f"{self.seed}:{demand.text}")
        return afflict(self.model.write(demand, chance, self._created), demand.faults)

    def _list(self, path: str) -> Script:
        if path == "/health":
            body: bytes = b'{"status":"ok"}'
        elif path.endswith("/models"):
            prices = self.model.prices
            rows = ((name, _per_token(prices[name]) if name in prices else None) for name in self.model.models)
            body = envelope.models(rows, self._created)
        else:
            raise Refusal.of(404, f"this backend has no {path[:200]}", "not_found")
        return Script(steps=(Step(0.0, body, "body"),))


def _per_token(prices: tuple[str, str, str]) -> dict[str, str]:
    names = ("prompt", "input_cache_reads", "completion")
    return {name: format(Decimal(price) / 1_000_000, "f") for name, price in zip(names, prices, strict=True)}


def _head(script: Script, id: str, method: str) -> bytes:
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


async def serve(backend: Simulator, started: Callable[[], None]) -> None:
    """Run `backend` until Ctrl-C or SIGTERM; `started` is called when it listens. Raises OSError if it cannot."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with backend:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        started()
        await stop.wait()
