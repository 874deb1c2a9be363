"""The OpenAI side as an aiohttp application: wiring and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from . import models
from .forward import Forward
from .gateway import Gateway
from .mirror import Mirrors

GATE = web.AppKey("gate", Gateway)
MIRRORS = web.AppKey("mirrors", Mirrors)


def make_app(gate: Gateway) -> web.Application:
    """Run it with handler_cancellation=True: a client's leaving must be noticed while a backend is silent."""
    app = web.Application(client_max_size=0)  # bodies are bounded where they are read
    app[GATE] = gate
    app[MIRRORS] = Mirrors()
    app.cleanup_ctx.append(_running)
    app.router.add_route("*", "/{path:.*}", _handle)
    return app


def make_runner(gate: Gateway) -> web.AppRunner:
    """The application with what it needs of its server."""
    return web.AppRunner(
        make_app(gate),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=gate.settings.listen.drain,
        keepalive_timeout=75.0,
    )


async def _running(app: web.Application) -> AsyncIterator[None]:
    app[GATE].start()
    yield
    await app[MIRRORS].stop()
    await app[GATE].stop()


async def _handle(request: web.Request) -> web.StreamResponse:
    gate = request.app[GATE]
    if models.is_plain(request):
        return await models.answer(gate, request)
    return await Forward(gate, request.app[MIRRORS], request).run()
