"""A simulated backend: a small HTTP server that plays scripts, with slots, a queue and a shared machine.

1. A request with a slot shares the machine with the others (`work`), so the throughput of n clients is known
   by formula: `speedup(n)` times one client's. Tools that look for the capacity are held to it.
2. A request beyond the slots waits in line; beyond the line it gets 429 with Retry-After.
3. The true time of every write is in `log`: what a meter reads can be compared with what happened.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol
from urllib.parse import urlsplit

from . import envelope
from .connection import Asked, Connection, Stream, head_of
from .decoding import Autoregressive, Diffusion, Prices
from .demand import APIS, Demand, Refusal
from .prose import Source
from .script import Script, Sharing, Step, afflict, refusal
from .strict import Strict
from .work import Work

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
        stream = Stream(script, head_of(script, id), connection, self.log[id])
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


async def serve(backend: Simulator, started: Callable[[], None]) -> None:
    """Run `backend` until Ctrl-C or SIGTERM; `started` is called when it listens. Raises OSError if it cannot."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with backend:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        started()
        await stop.wait()
