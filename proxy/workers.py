"""The main process and its forwarders: one address, one /metrics, one page, however many there are.

1. Forwarders hold the streams, the main process holds everything that shows them. Rendering metrics or a
   page can't delay a stream, because it happens elsewhere.
2. Each forwarder has a listening socket of its own on the same port (SO_REUSEPORT): the kernel spreads
   connections evenly, which one shared queue does not. The main process made the sockets and keeps them: when
   a forwarder dies, what waits in its queue is taken by its successor, and none is refused.
3. A forwarder that dies takes its own exchanges along and nothing else. The main process knows which were
   open and closes them as `internal`, so that started = sum of outcomes + in flight stays true.
4. SIGTERM drains, SIGHUP reloads: a bad file changes nothing and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from . import wire
from .journal import Journal
from .meter import Reading
from .recorder import Opening, Sink
from .settings import ConfigError, Settings, address

_GRACE = 5.0  # beyond the drain limit, before a forwarder is killed
_QUICK = 2.0  # a forwarder that died younger than this is replaced after a pause
_LINK_BUFFER = 1 << 20


class Worker(asyncio.Protocol):
    """The main process's end of one forwarder."""

    def __init__(self, number: int, listener: socket.socket, sink: Sink, dropped: Callable[[int], None]) -> None:
        self.number = number
        self.listener = listener
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.gone: asyncio.Future[None] | None = None
        self.started = 0.0
        self._sink = sink
        self._dropped = dropped
        self._open: dict[str, Opening] = {}
        self._frames = wire.Frames()
        self._transport: asyncio.Transport | None = None

    async def start(self, settings: Settings) -> None:
        """Start the process, and give it its sockets and the configuration."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LINK_BUFFER)
        try:
            with theirs:
                fds = (self.listener.fileno(), theirs.fileno())
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "proxy.forwarder", *map(str, fds), pass_fds=fds, start_new_session=True
                )
        except BaseException:
            ours.close()
            raise
        self.started = time.monotonic()
        self.gone = loop.create_future()
        self._frames = wire.Frames()
        await loop.create_connection(lambda: self, sock=ours)
        self.send(wire.SETTINGS, pickle.dumps(settings))

    def send(self, kind: bytes, body: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(wire.frame(kind, body))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for kind, body in self._frames.feed(data):
            if kind == wire.READY:
                self.ready.set()
            elif kind == wire.BATCH:
                dropped, records = wire.unpack(body)
                for record in records:
                    self._take(record)
                self._miss(dropped)

    def _take(self, record: Opening | Reading) -> None:
        if isinstance(record, Opening):
            self._open[record.id] = record
            self._sink.opened(record)
        else:
            self._open.pop(record.id, None)
            self._sink.finished(record)

    def _miss(self, dropped: list[str]) -> None:
        """Readings that will not come: counted, and their exchanges are over all the same."""
        for id in dropped:
            self._dropped(1)
            if opening := self._open.pop(id, None):
                why = "its reading was dropped: the main process was too far behind"
                self._sink.finished(opening.lost(time.time(), "reading_dropped", why))

    def connection_lost(self, exc: Exception | None) -> None:
        """The forwarder is gone: what it had open has ended, and nobody else will say so."""
        self._transport = None
        self.ready.clear()
        lost, self._open = self._open, {}
        for opening in lost.values():
            self._sink.finished(
                opening.lost(time.time(), "forwarder_died", "the forwarder that held this exchange died")
            )
        if self.gone is not None and not self.gone.done():
            self.gone.set_result(None)


class Crew:
    """All forwarders, kept at their number."""

    def __init__(self, settings: Settings, sink: Sink, journal: Journal, dropped: Callable[[int], None]) -> None:
        self.settings = settings
        self._sink = sink
        self._journal = journal
        self._dropped = dropped
        self._workers: list[Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._ending = False

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        self._workers = [Worker(n, listener, self._sink, self._dropped) for n, listener in enumerate(listeners)]
        for worker in self._workers:
            await self._launch(worker)
            self._keepers.append(asyncio.create_task(self._keep(worker)))

    async def _keep(self, worker: Worker) -> None:
        """Replace a forwarder that dies, at once the first time."""
        while True:
            assert worker.gone is not None and worker.process is not None
            await worker.gone
            with contextlib.suppress(ProcessLookupError):
                if not self._ending:
                    worker.process.kill()  # without its link it is of no use
            status = await worker.process.wait()
            if self._ending:
                return
            self._journal.say("forwarder_died", number=worker.number, status=status)
            if time.monotonic() - worker.started < _QUICK:
                await asyncio.sleep(0.5)
            if not await self._replaced(worker):
                return

    async def _replaced(self, worker: Worker) -> bool:
        """Whether it runs again; False: there is no need any more."""
        while not self._ending:
            try:
                await self._launch(worker)
                return True
            except OSError as error:  # no more processes or files just now
                self._journal.say("forwarder_not_started", number=worker.number, reason=str(error))
            await asyncio.sleep(1.0)
        return False

    async def _launch(self, worker: Worker) -> None:
        """Start it. What was ordered while it started is told as soon as it can hear."""
        settings = self.settings
        await worker.start(settings)
        if self.settings is not settings:
            worker.send(wire.SETTINGS, pickle.dumps(self.settings))
        if self._ending:
            worker.send(wire.DRAIN)

    def reload(self, settings: Settings) -> None:
        self.settings = settings
        body = pickle.dumps(settings)
        for worker in self._workers:
            worker.send(wire.SETTINGS, body)

    def problems(self) -> list[str]:
        """Why requests can't be taken now; empty when they can."""
        if self._ending:
            return ["shutting down"]
        down = [str(worker.number) for worker in self._workers if not worker.ready.is_set()]
        return [f"forwarder {', '.join(down)} is not up"] if down else []

    def pids(self) -> dict[str, int]:
        return {
            f"forwarder-{worker.number}": worker.process.pid
            for worker in self._workers
            if worker.process is not None and worker.process.returncode is None
        }

    async def ready(self, patience: float = 30.0) -> bool:
        """Whether all forwarders came up in time."""
        try:
            async with asyncio.timeout(patience):
                await asyncio.gather(*(worker.ready.wait() for worker in self._workers))
        except TimeoutError:
            pass
        return not self.problems()

    async def stop(self) -> None:
        """Drain: no new connections, streams may end, then the processes do."""
        self._ending = True
        for worker in self._workers:
            worker.send(wire.DRAIN)
            worker.listener.close()  # ours: as long as it is open, the kernel takes connections for nobody
        limit = self.settings.listen.drain + _GRACE
        _, late = await asyncio.wait(self._keepers, timeout=limit) if self._keepers else (None, set())
        for worker in self._workers:
            if late and worker.process is not None and worker.process.returncode is None:
                worker.process.kill()
        if late:
            await asyncio.wait(late, timeout=_GRACE)


def listeners(text: str, number: int) -> list[socket.socket]:
    """One listening socket for each forwarder, all on the same address. Raises OSError if it is taken."""
    host, port = address(text)
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, proto, _, where = infos[0]
    with socket.socket(family, kind, proto) as probe:  # without SO_REUSEPORT: a port in use must be noticed
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)
        where = probe.getsockname() if port == 0 else where
    sockets = []
    for _ in range(number):
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(where)
        sock.listen(4096)
        sock.setblocking(False)
        sockets.append(sock)
    return sockets


def on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)


def reread(path: Path | None, current: Settings, journal: Journal, load: Callable[[Path | None], Settings]) -> Settings:
    """The new configuration, or the current one when the new one can't be used."""
    try:
        settings = load(path)
    except ConfigError as error:
        journal.say("reload_refused", reason=str(error))
        return current
    moved = [
        name
        for name in ("address", "admin", "workers")
        if getattr(settings.listen, name) != getattr(current.listen, name)
    ]
    if moved:
        journal.say("reload_partial", reason=f"listen.{', listen.'.join(moved)} need a restart")
    return settings
