"""The admin side: /metrics, health, the readings as JSON, and the live page. Only ever GET.

1. It shows what the ring holds and has no numbers of its own.
2. Whatever takes time (rendering metrics, summing up, writing out a long reading) is done in a thread:
   where one process does everything, it must not hold up the streams.
3. It is for the operator, on loopback. A page elsewhere must not reach it through the operator's
   browser: no CORS, no framing, and a Host that is not loopback's own is turned away (DNS rebinding).
4. Model names and error texts come from strangers. They leave here as JSON only; the page writes them
   with textContent, and the content security policy lets nothing run that is not a file of ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiohttp import web
from yarl import URL

from .live import Live, Shared
from .meter import OUTCOMES
from .query import Invalid, query, span
from .ring import Ring, dump

PAGE = Path(__file__).parent / "page"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "manometer",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

Render = Callable[[str], tuple[str, bytes]]


def plotly() -> Path | None:
    """The chart library, where the extra `manometer[page]` is installed."""
    spec = find_spec("plotly")
    places = spec.submodule_search_locations if spec else None
    files = (Path(place) / "package_data" / "plotly.min.js" for place in places or ())
    return next((file for file in files if file.is_file()), None)


def make_admin(
    ring: Ring,
    render: Render,
    *,
    version: str,
    ready: Callable[[], Sequence[str]] = lambda: (),
    hosts: Collection[str] | None = LOOPBACK,
    charts: Callable[[], Path | None] = plotly,
    clock: Callable[[], float] = time.time,
    beat: float = 1.0,
) -> web.Application:
    """The admin application.

    `render(accept)` gives content type and body of /metrics; `ready()` the reasons for not being ready;
    `hosts` the names under which it may be asked (None: any, for a bind that is not loopback);
    `charts` finds plotly.min.js; `clock` is wall-clock time.
    """
    admin = Admin(ring, render, version, ready, charts(), clock, beat)
    app = web.Application(middlewares=[_errors, _hosts(hosts)])
    app[ADMIN] = admin
    app.on_response_prepare.append(_secure)
    app.on_shutdown.append(admin.live.stop)
    app.add_routes(
        [
            web.get("/metrics", admin.metrics),
            web.get("/healthz", admin.healthz),
            web.get("/readyz", admin.readyz),
            web.get("/api/requests", admin.requests),
            web.get("/api/requests/{id}", admin.request),
            web.get("/api/summary", admin.summary),
            web.get("/api/events", admin.events, allow_head=False),
            web.get("/", admin.page),
            web.get("/requests/{id}", admin.request_page),
            web.get("/page/{name}", admin.file),
        ]
    )
    return app


class Admin:
    """The handlers and what they read from."""

    def __init__(
        self,
        ring: Ring,
        render: Render,
        version: str,
        ready: Callable[[], Sequence[str]],
        charts: Path | None,
        clock: Callable[[], float],
        beat: float,
    ) -> None:
        self.ring = ring
        self.render = render
        self.version = version
        self.ready = ready
        self.clock = clock
        self.files = {file.name: file for file in PAGE.iterdir() if file.suffix in _TYPES}
        if charts is not None:
            self.files["plotly.min.js"] = charts
        self.shared = Shared(self._sum_up, time.monotonic, 0.75 * beat)
        self.live = Live(self.shared.get, beat=beat)

    async def metrics(self, request: web.Request) -> web.Response:
        content_type, body = await asyncio.to_thread(self.render, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(self, _: web.Request) -> web.Response:
        return _json({"status": "ok", "version": self.version})

    async def readyz(self, _: web.Request) -> web.Response:
        reasons = list(self.ready())
        return _json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def requests(self, request: web.Request) -> web.Response:
        asked = query(request.query, self.ring)
        entries = self.ring.newest()

        def body() -> dict[str, Any]:
            found = asked.select(entries)
            requests = [entry.summary() for entry in found.entries]
            return {"requests": requests, "matched": found.matched, "kept": len(entries), "next": found.next}

        return await _json_later(body)

    async def request(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if reading := self.ring.find(id):
            return await _json_later(reading.detail)
        if self.ring.is_open(id):
            return _error(404, "in_flight", "this request is still in flight; ask again when it has ended")
        return _error(404, "not_found", f"no request with this id is kept; the newest {len(self.ring)} are")

    async def summary(self, request: web.Request) -> web.Response:
        return web.Response(body=await self.shared.get(span(request.query)), content_type="application/json")

    async def events(self, request: web.Request) -> web.StreamResponse:
        seconds = span(request.query)
        if self.live.full:
            return _error(503, "too_many_pages", "too many live pages are open; close one, or poll /api/summary")
        return await self.live.stream(request, seconds)

    async def page(self, _: web.Request) -> web.StreamResponse:
        return _file(self.files["index.html"])

    async def request_page(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]
        known = self.ring.find(id) is not None or self.ring.is_open(id)
        return _file(self.files["request.html"], 200 if known else 404)

    async def file(self, request: web.Request) -> web.StreamResponse:
        file = self.files.get(request.match_info["name"])
        return _error(404, "not_found", "there is no such file") if file is None else _file(file)

    async def _sum_up(self, seconds: int) -> bytes:
        look = self.ring.look(self.clock(), seconds)
        more = {"version": self.version, "charts": "plotly.min.js" in self.files, "outcomes": OUTCOMES}
        return await asyncio.to_thread(lambda: dump(look.summary() | more))


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=dump(value), status=status, content_type="application/json")


async def _json_later(make: Callable[[], Any]) -> web.Response:
    return web.Response(body=await asyncio.to_thread(lambda: dump(make())), content_type="application/json")


def _error(status: int, code: str, message: str) -> web.Response:
    return _json({"error": {"code": code, "message": message}}, status)


def _file(path: Path, status: int = 200) -> web.FileResponse:
    headers = {"Cache-Control": "no-cache", "Content-Type": f"{_TYPES[path.suffix]}; charset=utf-8"}
    return web.FileResponse(path, status=status, headers=headers)


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except Invalid as error:
        return _error(400, "bad_query", str(error))
    except web.HTTPException as error:
        return _error(error.status, error.reason.lower().replace(" ", "_"), f"{error.status}: {error.reason}")
    return response


def _hosts(hosts: Collection[str] | None) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        if hosts is not None and _name(request.host) not in hosts:
            return _error(421, "wrong_host", f"asked as {request.host!r}; on loopback only {', '.join(sorted(hosts))}")
        response: web.StreamResponse = await handler(request)
        return response

    return middleware


def _name(host: str) -> str | None:
    try:
        return URL(f"http://{host}").host
    except ValueError:
        return None


ADMIN = web.AppKey("admin", Admin)


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
