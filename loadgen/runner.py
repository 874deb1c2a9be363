"""Schedule, questions and a server -> readings. What is sent depends on the seed, not on how many processes send it.

1. The n-th request is the same in every run with the same seed; with several processes the k-th sends every
   so-manieth. They share a start time, not a lock.
2. Warm-up is handed over: its requests are the first of the same loop, on the same connections, and nobody
   waits for them to end. They are kept apart and are in no statistic.
3. A run always ends and always gives what it has. At the deadline, or when it is interrupted, what is under
   way is given up and read as `client_gone`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.meter import Reading
from proxy.meter.cost import Book, Price
from proxy.upstream import Header, Origin, Timeouts

from .client import Client, Query
from .schedule import Closed, Open, Recorded, dealt
from .strain import Strain

_BREATH = 0.05  # seconds that a client waits after a failure: a dead server is not hammered

Ask = Callable[[int], Query]  # the n-th question; must be picklable when several processes run
Told = Callable[[int, Reading, bool], None]  # number, reading, whether it is measured (not warm-up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server under load, and how to reach it. Plain data, so that it can be sent to another process."""

    url: str
    key: str | None = field(default=None, repr=False)
    headers: tuple[Header, ...] = field(default=(), repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    ca_file: Path | None = None
    client_cert: Path | None = None
    proxy: str | None = None
    verify: bool = True
    backend: str | None = None
    decoding: str | None = None
    prices: tuple[Price, ...] = ()
    keep_text: bool = False

    def client(self, lag: Callable[[float], float | None]) -> Client:
        origin = Origin.of(
            self.url, ca_file=self.ca_file, client_cert=self.client_cert, proxy=self.proxy, verify=self.verify
        )
        return Client(
            origin,
            key=self.key,
            headers=self.headers,
            timeouts=self.timeouts,
            keep_text=self.keep_text,
            backend=self.backend,
            decoding=self.decoding,
            prices=Book(self.prices) if self.prices else None,
            lag=lag,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much, how fast, how long. At least one of `requests`, `duration` and a recorded schedule bounds it."""

    schedule: Closed | Open | Recorded
    requests: int | None = None  # measured ones
    duration: float | None = None  # seconds in which measured requests start
    warmup: int = 0  # requests sent before, left out
    warmup_time: float = 0.0  # seconds at the start whose requests are left out
    patience: float = 30.0  # seconds after `duration` that answers may still take
    deadline: float | None = None  # seconds after which the run ends, whatever is under way
    seed: int = 0
    name: str = "load"  # request ids are NAME-SEED-NUMBER

    def __post_init__(self) -> None:
        if self.requests is None and self.duration is None and not isinstance(self.schedule, Recorded):
            raise ValueError("give the number of requests or the duration: else the run would not end")
        for name in ("requests", "duration", "deadline"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}")

    def numbers(self, part: int, parts: int) -> Iterator[int]:
        """The requests that process `part` of `parts` sends in a closed loop."""
        if self.requests is None:
            return itertools.count(part, parts)
        return iter(range(part, self.warmup + self.requests, parts))

    def times(self, part: int, parts: int) -> Iterator[tuple[int, float]]:
        """The same for an open loop, with their times."""
        assert not isinstance(self.schedule, Closed)
        last = None if self.requests is None else self.warmup + self.requests
        for n, at in dealt(self.schedule.times(random.Random(self.seed)), part, parts):
            if (last is not None and n >= last) or (self.ends is not None and at >= self.ends):
                return
            yield n, at

    @property
    def ends(self) -> float | None:
        """No request starts after so many seconds."""
        return None if self.duration is None else self.warmup_time + self.duration

    @property
    def limit(self) -> float | None:
        """The run is over after so many seconds."""
        limits = [self.deadline, None if self.ends is None else self.ends + self.patience]
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(slots=True)
class Run:
    """What came of a load. `readings` holds the measured exchanges in the order of their ends, with their numbers."""

    readings: list[tuple[int, Reading]] = field(default_factory=list)
    warmup: list[tuple[int, Reading]] = field(default_factory=list)
    connections: int = 0  # opened in all
    lag: float | None = None  # P99 of the event loop's delay, seconds; of the worst process
    cpu: float | None = None  # share of a core; of the busiest process
    interrupted: bool = False  # ended before the load was done

    @property
    def measured(self) -> list[Reading]:
        return [reading for _, reading in self.readings]

    def add(self, n: int, reading: Reading, measured: bool) -> None:
        (self.readings if measured else self.warmup).append((n, reading))

    def merge(self, other: Run) -> None:
        """Another process's part of the same run, its readings told already."""
        self.connections += other.connections
        self.lag = max((lag for lag in (self.lag, other.lag) if lag is not None), default=None)
        self.cpu = max((cpu for cpu in (self.cpu, other.cpu) if cpu is not None), default=None)
        self.interrupted = self.interrupted or other.interrupted


async def run(
    load: Load,
    target: Target,
    ask: Ask,
    *,
    told: Told | None = None,
    stop: asyncio.Event | None = None,
    processes: int = 1,
) -> Run:
    """Run `load` against `target` to its end, or until `stop` is set."""
    if processes > 1:
        from .workers import spread

        return await spread(load, target, ask, told=told, stop=stop, processes=processes)
    return await Part(load, target, ask, told, stop).run()


class Part:
    """One process's part of a run."""

    def __init__(
        self,
        load: Load,
        target: Target,
        ask: Ask,
        told: Told | None = None,
        stop: asyncio.Event | None = None,
        *,
        part: int = 0,
        parts: int = 1,
        start: float | None = None,
    ) -> None:
        self._load = load
        self._ask = ask
        self._told = told
        self._stop = stop or asyncio.Event()
        self._part, self._parts = part, parts
        self._strain = Strain()
        self._client = target.client(self._strain.worst)
        self._start = start
        self._over = asyncio.Event()  # nothing more is sent
        self._run = Run()

    async def run(self) -> Run:
        gc.freeze()  # what exists now is not looked at again while we measure: a full collection takes milliseconds
        self._strain.start()
        begin = self._start = time.monotonic() if self._start is None else self._start
        sending = asyncio.gather(*self._senders())
        stopped = asyncio.ensure_future(self._stop.wait())
        limit = self._load.limit
        timeout = None if limit is None else max(0.0, begin + limit - time.monotonic())
        try:
            await asyncio.wait((sending, stopped), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self._run.interrupted = True
                await self._give_up(sending)
            if not sending.cancelled():
                sending.result()
        finally:
            self._over.set()
            sending.cancel()
            stopped.cancel()
            await self._client.close()
            self._strain.stop()
            gc.unfreeze()
        self._run.connections = self._client.connects
        self._run.lag, self._run.cpu = self._strain.p99, self._strain.cpu
        return self._run

    async def _give_up(self, sending: asyncio.Future[list[None]]) -> None:
        """Stop sending; what is under way ends as it is. Who is only connecting gets a second to see it."""
        self._over.set()
        for _ in range(100):
            self._client.leave()
            await asyncio.wait((sending,), timeout=0.01)
            if sending.done():
                return
        sending.cancel()
        await asyncio.wait((sending,))

    def _senders(self) -> list[Coroutine[Any, Any, None]]:
        load = self._load
        if isinstance(load.schedule, Closed):
            numbers = load.numbers(self._part, self._parts)
            clients = load.schedule.share(self._part, self._parts)
            return [self._in_turn(load.schedule.entry(i), numbers) for i in clients]
        return [self._on_time(load.times(self._part, self._parts))]

    async def _in_turn(self, entry: float, numbers: Iterator[int]) -> None:
        """One client of a closed loop."""
        await self._until(entry)
        while not self._past() and (n := next(numbers, None)) is not None:
            reading = await self._one(n, None)
            if reading.outcome != "ok" and not self._over.is_set():
                await asyncio.sleep(_BREATH)

    async def _on_time(self, times: Iterator[tuple[int, float]]) -> None:
        """The open loop: starts requests at their times and waits for all of them at the end."""
        assert self._start is not None
        async with asyncio.TaskGroup() as flying:
            for n, at in times:
                await self._until(at)
                if self._over.is_set():
                    break
                flying.create_task(self._one(n, self._start + at))

    async def _one(self, n: int, intended: float | None) -> Reading:
        load = self._load
        assert self._start is not None
        # A timer may fire a hair early: without a warm-up time every request counts, the very first too.
        late = not load.warmup_time or time.monotonic() >= self._start + load.warmup_time
        measured = n >= load.warmup and late
        reading = await self._client.ask(self._ask(n), f"{load.name}-{load.seed}-{n}", intended)
        self._run.add(n, reading, measured)
        if self._told is not None:
            self._told(n, reading, measured)
        return reading

    async def _until(self, at: float) -> None:
        assert self._start is not None
        if (wait := self._start + at - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._over.wait()

    def _past(self) -> bool:
        assert self._start is not None
        ends = self._load.ends
        return self._over.is_set() or (ends is not None and time.monotonic() >= self._start + ends)


@contextmanager
def interruptible() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets, instead of ending the process: for `run(stop=...)`."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
