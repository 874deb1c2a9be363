"""The OpenAI side as an aiohttp server: wiring and nothing else.

It is aiohttp's low-level server: every path leads to one handler, so there is nothing to route. A client's leaving
cancels the handler (handler_cancellation), also while a backend is silent; bodies are bounded where they are read
and are never decompressed on their way.
"""

from __future__ import annotations

from aiohttp import web

from . import models
from .forward import Forward
from .gateway import Gateway
from .mirror import Mirrors


class Runner(web.ServerRunner):
    """The server with its gateway: `setup` starts both, `cleanup` ends both."""

    def __init__(self, gate: Gateway) -> None:
        self._gate = gate
        self._mirrors = Mirrors()
        server = web.Server(
            self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=75.0, auto_decompress=False
        )
        self._drain = gate.settings.listen.drain
        super().__init__(server, shutdown_timeout=self._drain)

    async def setup(self) -> None:
        self._gate.start()
        await super().setup()

    async def cleanup(self) -> None:
        self._gate.deadline = self._gate.clock() + self._drain
        await super().cleanup()
        await self._mirrors.stop()
        await self._gate.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.protocol.writing_paused:  # a client that asks on without taking its answers waits
            await request.writer.drain()
        if models.is_plain(request):
            return await models.answer(self._gate, request)
        return await Forward(self._gate, self._mirrors, request).run()


def make_runner(gate: Gateway) -> Runner:
    """In a running event loop."""
    return Runner(gate)
