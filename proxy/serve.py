"""The main process: sinks, admin side, forwarders, signals. What `manometer serve` runs."""

from __future__ import annotations

import asyncio
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

from . import routes, settings, workers
from .admin import LOOPBACK, make_admin
from .exporter import Exporter, Pair, render
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
        self.registry = CollectorRegistry()
        self.exporter = Exporter(
            self.registry,
            pairs(config),
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

    def reload(self) -> None:
        before = self.config
        self.config = workers.reread(self.path, before, self.journal, settings.load)
        if self.config is before:
            return
        self.crew.reload(self.config)
        self.exporter.configure(pairs(self.config))
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


def rows(config: Settings) -> list[Backend]:
    return [Backend(name, backend.kind, backend.instance_per_hour) for name, backend in config.backends.items()]


def _bind(field: str, where: str, number: int) -> list[Any]:
    try:
        return workers.listeners(where, number)
    except OSError as error:
        why = (
            "is in use: stop what uses it or choose another"
            if error.errno == 98
            else f"can't be bound: {error.strerror}"
        )
        raise PortTaken(f"{field}: {where} {why}") from None


def _where(sock: Any) -> str:
    host, port = sock.getsockname()[:2]
    return f"{host}:{port}"


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


async def serve(config: Settings, path: Path | None) -> None:
    """Until SIGTERM or SIGINT. Raises PortTaken."""
    main = Main(config, path)
    workers.on_signals(asyncio.get_running_loop(), main.stopping.set, main.reload)
    await main.start()
    try:
        await main.stopping.wait()
    finally:
        await main.stop()
