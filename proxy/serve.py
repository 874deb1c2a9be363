"""The main process: sinks, admin side, forwarders, signals. What `manometer serve` runs."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from . import garbage, routes, settings, workers
from .admin import LOOPBACK, make_admin
from .discovery import discover
from .exporter import Exporter, Pair, Priced, render
from .gateway import table
from .journal import Journal
from .recorder import Fan
from .ring import Ring
from .settings import Settings, address, is_loopback
from .window import Backend


def release() -> str:
    """The version that is installed."""
    try:
        return version("manometer")
    except PackageNotFoundError:
        return "unknown"


class PortTaken(OSError):
    """An address can't be bound. One line."""


class Main:
    """Everything but the streams."""

    def __init__(self, config: Settings, path: Path | None = None, journal: Journal | None = None) -> None:
        self.config = config
        self.path = path
        self.journal = journal or Journal()
        self.journal.exchanges = config.measure.journal
        self.registry = CollectorRegistry()
        self.exporter = Exporter(
            self.registry,
            pairs(config),
            prices=prices(config, time.time()),
            series_limit=config.measure.series,
            build=(release(), python_version()),
            instances={
                name: (backend.instance_per_hour, "USD")
                for name, backend in config.backends.items()
                if backend.instance_per_hour
            },
            memory=self._memory,
        )
        self.ring = Ring(rows(config), since=time.time(), keep=config.measure.readings)
        sink = Fan((self.exporter, self.ring, self.journal))
        self.crew = workers.Crew(config, sink, self.journal, partial(self.exporter.dropped, "link"))
        self.stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Bind both addresses, start the forwarders. Raises PortTaken."""
        listen = self.config.listen
        listening = _bind("listen.address", listen.address, listen.workers)
        (admin,) = _bind("listen.admin", listen.admin, 1)
        host, _ = address(listen.admin)
        app = make_admin(
            self.ring,
            partial(render, self.registry),
            version=release(),
            ready=self.crew.problems,
            hosts=LOOPBACK if is_loopback(host) else None,
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, admin).start()
        await self.crew.start(listening)
        self.exporter.reloaded(time.time())
        up = await self.crew.ready()
        self.journal.say(
            "listening" if up else "not_ready",
            address=_where(listening[0]),
            admin=_where(admin),
            backends=list(self.config.backends),
            workers=listen.workers,
        )

    async def stop(self) -> None:
        await self.crew.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        self.journal.say("stopped")

    async def reload(self) -> None:
        """Read the configuration again; one that can't be used changes nothing."""
        read = workers.reread(self.path, self.config, self.journal, settings.load)
        if read is self.config:
            return
        self.config = await _discovered(read, self.journal)
        self.crew.reload(self.config)
        self.journal.exchanges = self.config.measure.journal
        self.exporter.configure(pairs(self.config), prices(self.config, time.time()))
        self.ring.configure(rows(self.config))
        self.exporter.reloaded(time.time())
        self.journal.say("reloaded", backends=list(self.config.backends))

    def _memory(self) -> Mapping[str, int]:
        """Resident bytes of each process, where the system tells."""
        pids = {"main": os.getpid()} | self.crew.pids()
        return {name: size for name, pid in pids.items() if (size := _resident(pid))}


def pairs(config: Settings) -> list[Pair]:
    """Every (backend, model, decoding) that a reading can have."""
    configured = table(config)
    return [
        (name, label, row.decoding)
        for name, row in configured.backends.items()
        for label in routes.labels(configured, name)
    ]


def prices(config: Settings, now: float) -> list[Priced]:
    """(backend, model, currency) of every pair that has a price now."""
    priced = ((name, model, config.backends[name].book.at(model, now)) for name, model, _ in pairs(config))
    return [(name, model, price.currency) for name, model, price in priced if price is not None]


def rows(config: Settings) -> list[Backend]:
    return [Backend(name, backend.kind, backend.instance_per_hour) for name, backend in config.backends.items()]


def _bind(field: str, where: str, number: int) -> list[Any]:
    try:
        return workers.listeners(where, number)
    except OSError as error:
        why = (
            "is in use: stop what uses it or choose another"
            if error.errno == errno.EADDRINUSE
            else f"can't be bound: {error.strerror}"
        )
        raise PortTaken(f"{field}: {where} {why}") from None


def _where(sock: Any) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


async def serve(config: Settings, path: Path | None) -> None:
    """Until SIGTERM or SIGINT. Raises PortTaken."""
    loop = asyncio.get_running_loop()
    journal = Journal(soon=loop.call_soon)
    main = Main(await _discovered(config, journal), path, journal)
    reloads = asyncio.Queue[None]()
    workers.on_signals(loop, main.stopping.set, lambda: reloads.put_nowait(None))
    reloading = asyncio.create_task(_reload(main, reloads))
    await main.start()
    garbage.quiet()
    try:
        await main.stopping.wait()
    finally:
        reloading.cancel()
        await main.stop()


async def _reload(main: Main, reloads: asyncio.Queue[None]) -> None:
    """One at a time, in the order of the signals."""
    while True:
        await reloads.get()
        await main.reload()


async def _discovered(config: Settings, journal: Journal) -> Settings:
    config, silent = await discover(config)
    for line in silent:
        journal.say("not_discovered", reason=line)
    return config
