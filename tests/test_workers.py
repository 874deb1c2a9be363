"""The main process's end of its forwarders, and what holds when processes die under load.

`Worker` alone is held to what it does with records; then real processes are killed, seeded, while streams run:
started = sum of outcomes + in flight at every look, counters never go back, nobody else's stream breaks.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import random
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from proxy import wire, workers
from proxy.journal import Journal
from proxy.recorder import Opening
from proxy.workers import Crew, Worker
from tests import wire as sse
from tests.served import Manometer, Metrics
from tests.stage import LAST, Client, Peer, Records, Stage, chat, events, eventually, piece, post

Found = TypeVar("Found")

# -- one worker, without a process -----------------------------------------------------------------


def opening(id: str) -> Opening:
    return Opening(id=id, started_at=0.0, api="chat", backend="b")


def batch(*records: Any, dropped: list[str] | None = None) -> bytes:
    rows = [wire.flat_opening(r) if isinstance(r, Opening) else wire.flat_reading(r) for r in records]
    return wire.frame(wire.BATCH, wire.pack(rows, dropped or []))


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def counted() -> list[int]:
    return []


@pytest.fixture
async def worker(records: Records, counted: list[int]) -> Worker:
    return Worker(0, None, records, counted.append)  # type: ignore[arg-type]


async def test_records_reach_the_sink_in_any_slicing(worker: Worker, records: Records) -> None:
    reading = sse.Meter(received=0.0).finish(1.0, id="a", started_at=0.0)
    stream = wire.frame(wire.READY) + batch(opening("a"), opening("b")) + batch(reading)
    for byte in stream:
        worker.data_received(bytes([byte]))
    assert worker.ready.is_set()
    assert [each.id for each in records.openings] == ["a", "b"]
    assert [each.id for each in records.readings] == ["a"]


async def test_what_a_dead_forwarder_had_open_is_closed_as_internal(worker: Worker, records: Records) -> None:
    reading = sse.Meter(received=0.0).finish(1.0, id="a", started_at=0.0)
    worker.data_received(batch(opening("a"), opening("b"), reading))
    worker.connection_lost(None)
    assert [(r.id, r.outcome == "internal") for r in records.readings] == [("a", False), ("b", True)]
    assert records.readings[1].fault is not None
    assert records.readings[1].fault.code == "forwarder_died"
    assert not records.open
    assert not worker.ready.is_set()
    worker.connection_lost(None)  # again closes nothing twice
    assert len(records.readings) == 2


async def test_dropped_readings_are_counted_and_their_exchanges_closed(
    worker: Worker, records: Records, counted: list[int]
) -> None:
    worker.data_received(batch(opening("a")))
    worker.data_received(batch(opening("c"), dropped=["a", "b"]))
    assert sum(counted) == 2
    assert [(r.id, r.fault.code if r.fault else None) for r in records.readings] == [("a", "reading_dropped")]
    assert list(records.open) == ["c"]
    worker.connection_lost(None)


# -- the crew, without processes -------------------------------------------------------------------


class Hand(Worker):
    """A worker whose process takes until it is let go to start, and dies when it is told to."""

    def __init__(self) -> None:
        super().__init__(0, socket.socket(), Records(), print)
        self.may_start = asyncio.Event()
        self.told: list[tuple[bytes, bytes]] = []
        self.starts = 0
        self.fails = 0

    async def start(self, settings: Any) -> None:
        await self.may_start.wait()
        if self.fails:
            self.fails -= 1
            raise BlockingIOError(11, "no more processes")
        self.starts += 1
        self.gone = asyncio.get_running_loop().create_future()
        self.told.append((wire.SETTINGS, pickle.dumps(settings)))

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.told.append((kind, body))

    @property
    def orders(self) -> list[Any]:
        return [pickle.loads(body) if kind == wire.SETTINGS else kind for kind, body in self.told]


class Config:
    """As much of a configuration as a crew looks at."""

    class listen:  # noqa: N801
        drain = 0.1

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return str, (self.name,)


@pytest.fixture
async def hand() -> AsyncIterator[Hand]:
    made = Hand()
    yield made
    made.listener.close()


def crew(tmp: io.StringIO) -> Crew:
    return Crew(Config("old"), Records(), Journal(tmp), print)  # type: ignore[arg-type]


async def test_a_reload_while_a_forwarder_starts_reaches_it(hand: Hand) -> None:
    made = crew(io.StringIO())
    starting = asyncio.ensure_future(made._launch(hand))
    await asyncio.sleep(0)
    made.reload(Config("new"))  # type: ignore[arg-type]
    hand.may_start.set()
    await starting
    assert hand.orders == ["old", "new"]


async def test_a_forwarder_that_starts_while_all_ends_is_told_to_end(hand: Hand) -> None:
    made = crew(io.StringIO())
    starting = asyncio.ensure_future(made._launch(hand))
    await asyncio.sleep(0)
    await made.stop()
    hand.may_start.set()
    await starting
    assert hand.orders == ["old", wire.DRAIN]
    assert not await made._replaced(hand)  # and none starts after that
    assert hand.starts == 1


async def test_a_forwarder_that_cannot_start_is_tried_again_and_said(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = io.StringIO()
    made = crew(log)
    hand.fails = 2
    hand.may_start.set()
    pause = asyncio.sleep

    async def at_once(seconds: float) -> None:
        await pause(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    assert await made._replaced(hand)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("forwarder_not_started", "[Errno 11] no more processes")
    ] * 2


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_process_that_cannot_be_made_leaves_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*arguments: Any, **options: Any) -> None:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails)
    with socket.socket() as listener:
        before = open_files()
        with pytest.raises(BlockingIOError):
            await Worker(0, listener, Records(), print).start(Config("x"))  # type: ignore[arg-type]
        assert open_files() == before


# -- listening -------------------------------------------------------------------------------------


def test_every_forwarder_has_a_socket_of_its_own_on_one_port() -> None:
    sockets = workers.listeners("127.0.0.1:0", 3)
    try:
        assert len({sock.fileno() for sock in sockets}) == 3
        assert len({sock.getsockname() for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with SO_REUSEPORT"])
def test_a_port_in_use_is_noticed_even_if_its_user_would_share_it(shared: bool) -> None:
    with socket.socket() as other:
        if shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError):
            workers.listeners(f"127.0.0.1:{other.getsockname()[1]}", 2)


# -- processes that die under load -----------------------------------------------------------------

EVENTS = 12
CLIENTS = 16
KILLS = 16


async def slowly(peer: Peer) -> None:
    """A stream of about a quarter of a second."""
    while True:
        await peer.request()
        peer.send(events())
        for _ in range(EVENTS):
            peer.send(piece(sse.text("x")))
            await asyncio.sleep(0.02)
        peer.send(piece(sse.stop() + sse.usage(1, EVENTS) + sse.DONE), LAST)


class Load:
    """Clients that ask again and again, each on a new connection, until told to stop."""

    def __init__(self, port: int, clients: int) -> None:
        self.port = port
        self.running = True
        self.whole = 0
        self.broken: list[int] = []  # local ports of connections whose answer did not end
        self.open: set[int] = set()
        self.tasks = [asyncio.ensure_future(self.client()) for _ in range(clients)]

    async def client(self) -> None:
        while self.running:
            own = 0
            try:
                async with Client(self.port) as client:
                    own = client.writer.get_extra_info("sockname")[1]
                    self.open.add(own)
                    client.send(post(chat(stream=True), authorization="Bearer client-key"))
                    got = await client.answer()
            except OSError:  # nobody listens just now
                await asyncio.sleep(0.02)
                continue
            finally:
                self.open.discard(own)
            if got.clean and got.status == 200 and got.body.endswith(sse.DONE):
                self.whole += 1
            else:
                self.broken.append(own)

    async def stop(self) -> None:
        self.running = False
        await asyncio.wait_for(asyncio.gather(*self.tasks), 20)


def children(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def held_by(pid: int, port: int) -> set[int]:
    """The clients' ports of the connections to `port` that this process holds."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(fd.readlink().name.removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue  # closed in between
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        int(row[2].rpartition(":")[2], 16)
        for row in rows
        if row[9] in inodes and int(row[1].rpartition(":")[2], 16) == port
    }


class Books:
    """What /metrics said, look after look."""

    def __init__(self) -> None:
        self.before = {"requests_started_total": 0.0, "requests_total": 0.0, "tokens_total": 0.0}

    def look(self, metrics: Metrics) -> tuple[float, float]:
        """(ended, in flight), after what must hold has been held."""
        for name, value in self.before.items():
            assert metrics.sum(name) >= value, f"{name} went back"
            self.before[name] = metrics.sum(name)
        started, ended = metrics.sum("requests_started_total"), metrics.sum("requests_total")
        flying = metrics.sum("requests_in_flight")
        assert flying >= 0
        assert started == ended + flying
        assert metrics.sum("readings_dropped_total") == 0
        return ended, flying


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Manometer]:
    running = Manometer(tmp_path, workers=2)
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
async def back(served: Manometer) -> AsyncIterator[Stage]:
    """On the port that the configuration names."""
    stage = Stage(slowly)
    loop = asyncio.get_running_loop()
    stage._server = await loop.create_server(lambda: Peer(stage), "127.0.0.1", served.backend, backlog=1024)
    yield stage
    await stage.stop()


@pytest.fixture
async def load(served: Manometer, back: Stage) -> AsyncIterator[Load]:
    started = Load(int(served.url.rpartition(":")[2]), CLIENTS)
    yield started
    for task in started.tasks:
        task.cancel()
    await asyncio.gather(*started.tasks, return_exceptions=True)


async def off_loop(ask: Callable[..., Found], *arguments: object) -> Found:
    return await asyncio.get_running_loop().run_in_executor(None, ask, *arguments)


async def metrics(served: Manometer) -> Metrics:
    return await off_loop(served.metrics)


async def once(ask: Callable[[], Awaitable[Found]], holds: Callable[[Found], object]) -> Found:
    """What was found, as soon as it holds."""
    async with asyncio.timeout(20):
        while True:
            if holds(found := await ask()):
                return found
            await asyncio.sleep(0.02)


async def ready(served: Manometer) -> None:
    def look() -> bool:
        try:
            return "ready" in served.get("/readyz")
        except OSError:
            return False

    await once(lambda: off_loop(look), bool)


async def test_forwarders_killed_under_load_lose_only_what_they_held(served: Manometer, load: Load) -> None:
    chance = random.Random(20)
    books = Books()
    killed = 0
    while killed < KILLS:
        await asyncio.sleep(chance.uniform(0.02, 0.2))
        known = len(load.broken)
        victims = chance.sample(children(served.process.pid), chance.choice((1, 2, 2)))
        for victim in victims:
            os.kill(victim, signal.SIGSTOP)  # what it holds stays as it is while we look
        doomed = set().union(*(held_by(victim, load.port) for victim in victims))
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        killed += len(victims)
        await eventually(lambda victims=victims: not any(map(alive, victims)))
        books.look(await metrics(served))
        await ready(served)
        books.look(await metrics(served))
        await eventually(lambda doomed=doomed: not doomed & load.open)
        assert set(load.broken[known:]) <= doomed, "a stream of another forwarder broke"
    await load.stop()
    assert load.broken
    assert load.whole > 0

    async def look() -> tuple[float, float]:
        return books.look(await metrics(served))

    ended, flying = await once(look, lambda found: found[1] == 0)
    found = await metrics(served)
    assert flying == 0
    # What a forwarder had not yet told when it died is lost with it; nobody else's is, and nothing counts twice.
    assert load.whole - KILLS * CLIENTS <= found.sum("requests_total", outcome="ok") <= load.whole
    assert 0 < found.sum("requests_total", outcome="internal") <= len(load.broken) + KILLS * CLIENTS
    assert ended == sum(
        found.sum("requests_total", outcome=outcome) for outcome in ("ok", "internal", "client_gone", "unreachable")
    )
    assert len(served.said("forwarder_died")) == killed


@pytest.mark.parametrize("round_", range(4))
async def test_when_the_main_process_dies_streams_end_and_forwarders_go(
    served: Manometer, load: Load, round_: int
) -> None:
    chance = random.Random(round_)
    forwarders = children(served.process.pid)
    await asyncio.sleep(chance.uniform(0.1, 0.6))
    served.process.kill()
    served.process.wait()
    load.running = False
    running = len(load.open)
    assert running > 0
    await load.stop()
    assert [own for own in load.broken if own in load.open] == []
    assert len(load.broken) <= running  # those that came too late are told so; none hangs
    await eventually(lambda: not any(map(alive, forwarders)))
    with pytest.raises(OSError):
        async with Client(load.port):
            pass


async def test_two_workers_share_one_metrics_and_one_list(served: Manometer, load: Load) -> None:
    books = Books()
    busy: set[int] = set()
    for _ in range(10):
        await asyncio.sleep(0.1)
        books.look(await metrics(served))
        busy |= {pid for pid in children(served.process.pid) if held_by(pid, load.port)}
    await load.stop()
    assert busy == set(children(served.process.pid))
    assert not load.broken

    found = await once(lambda: metrics(served), lambda found: found.sum("requests_total") >= load.whole)
    books.look(found)
    assert found.sum("requests_total", outcome="ok") == load.whole
    assert found.sum("tokens_total", type="completion") == load.whole * EVENTS
    rows = json.loads(await off_loop(served.get, "/api/requests?limit=1000"))
    assert len(rows["requests"]) == load.whole
    names = {sample.labels["process"] for sample in found.samples if sample.name == "manometer_memory_bytes"}
    assert names == {"main", "forwarder-0", "forwarder-1"}
