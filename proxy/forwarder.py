"""A forwarder: the process that holds the streams. It measures and hands records on; it shows and stores nothing.

It is started by the main process (`proxy.workers`) with two inherited sockets: the listening one and a link.
Over the link come the configuration, new ones, and the word to drain; records go back in batches. Nothing
ever waits for the link: if the main process is slow, records gather up to a bound and are then counted as
dropped; if it is gone, the forwarder finishes its streams and ends.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import socket
import sys
from typing import Any, cast

import uvloop
from aiohttp import web

from . import garbage, wire
from .app import make_runner
from .gateway import Gateway
from .meter import Reading
from .recorder import Opening

log = logging.getLogger("manometer")
BATCH = 0.05  # seconds that a record may wait for others
BOUND = 16 * 1024 * 1024  # bytes that may wait for the main process


class Link(asyncio.Protocol):
    """The forwarder's end: a sink for records, a source of orders."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.settings: asyncio.Future[Any] = loop.create_future()
        self.drain: asyncio.Future[None] = loop.create_future()
        self.gate: Gateway | None = None
        self._loop = loop
        self._frames = wire.Frames()
        self._records: list[tuple[Any, ...]] = []
        self._dropped: list[str] = []  # ids of readings: the main process must not wait for them
        self._later: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    # a sink

    def opened(self, opening: Opening) -> None:
        if not self._full:  # else its reading will do
            self._add(wire.flat_opening(opening))

    def finished(self, reading: Reading) -> None:
        if not self._full:
            self._add(wire.flat_reading(reading))
        elif self._transport is not None:
            self._dropped.append(reading.id)
            self._flush_later()

    @property
    def _full(self) -> bool:
        return self._transport is None or self._transport.get_write_buffer_size() > BOUND

    def _add(self, record: tuple[Any, ...]) -> None:
        self._records.append(record)
        self._flush_later()

    def _flush_later(self) -> None:
        if self._later is None and self._transport is not None:
            self._later = self._loop.call_later(BATCH, self.flush)

    def flush(self) -> None:
        """Send what has gathered; a main process that is behind is looked at again later."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._full:
            return self._flush_later()
        if self._transport is not None and (self._records or self._dropped):
            self._transport.write(wire.frame(wire.BATCH, wire.pack(self._records, self._dropped)))
            self._records, self._dropped = [], []
        return None

    def ready(self) -> None:
        if self._transport is not None:
            self._transport.write(wire.frame(wire.READY))

    # orders

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for kind, body in self._frames.feed(data):
            if kind == wire.DRAIN:
                self._stop()
            elif kind == wire.SETTINGS:
                settings = pickle.loads(body)  # from our own parent, over a private socket pair
                if self.gate is not None:
                    self._reload(self.gate, settings)
                elif not self.settings.done():
                    self.settings.set_result(settings)

    def _reload(self, gate: Gateway, settings: Any) -> None:
        """The main process has checked it; what fails here all the same must not take the streams along."""
        try:
            gate.reload(settings)
        except Exception:
            log.exception("the new configuration can't be used here: the old one stays")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._stop()

    def _stop(self) -> None:
        if not self.drain.done():
            self.drain.set_result(None)


async def run(listener: socket.socket, link_socket: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: Link(loop), sock=link_socket)
    done, _ = await asyncio.wait((link.settings, link.drain), return_when=asyncio.FIRST_COMPLETED)
    if link.settings not in done:
        return
    gate = link.gate = Gateway(link.settings.result(), link)
    runner = make_runner(gate)
    await runner.setup()
    site = web.SockSite(runner, listener, backlog=4096)
    await site.start()
    garbage.quiet()
    link.ready()
    await link.drain
    await site.stop()  # no new connections; requests on open ones are answered with 503
    gate.draining = True
    await runner.cleanup()
    link.flush()
    await asyncio.sleep(0.05)


def main() -> None:
    listener, link = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the main process is told, and tells us
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(listener, link))


if __name__ == "__main__":
    main()
