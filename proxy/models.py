"""What is asked about models, and CORS preflights: passed on or merged, and never counted as exchanges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from . import errors, headers, routes
from .fetch import Answer, fetch
from .gateway import Gateway
from .meter import grammar
from .ticket import Refused, caller
from .upstream import Request, UpstreamFault

_OURS = {"server": "manometer"}
_PATIENCE = 3.0  # for a backend's list: what does not answer by then is listed by the configuration alone


def is_plain(request: web.BaseRequest) -> bool:
    """Whether this is a question about models, or a preflight: no exchange with a model."""
    return request.method == "OPTIONS" or (
        request.method in ("GET", "HEAD") and "/models" in request.raw_path.partition("?")[0]
    )


async def answer(gate: Gateway, request: web.BaseRequest) -> web.StreamResponse:
    """A preflight needs no key, and gets none. One backend's own answer goes on byte for byte; several are merged."""
    path = request.raw_path.partition("?")[0]
    if not routes.served(path):
        return _say(errors.not_served(path))
    if request.method != "OPTIONS":
        try:
            caller(gate, request.raw_headers)
        except Refused as refused:
            return _say(refused.problem)
    table = gate.table
    if path.rstrip("/") != "/v1/models" or request.method == "OPTIONS":
        return await _pass(gate, request, _owner(gate, request))
    if len(table.backends) == 1 and table.taker is not None and not (table.routes or table.taker.aliases):
        return await _pass(gate, request, table.taker.name)
    lists = await asyncio.gather(*(_models(gate, request, name) for name in table.backends))
    merged = merge(table, dict(zip(table.backends, lists, strict=True)))
    return web.Response(body=orjson.dumps(merged), headers=_OURS, content_type="application/json")


def merge(table: routes.Table, lists: Mapping[str, list[Any]]) -> dict[str, Any]:
    """One list: the routes, what backends are configured to serve, and what they list themselves; a name once."""
    rows: dict[str, Any] = {name: _row(name, "manometer") for name in table.routes}
    for name, row in table.backends.items():
        theirs = {
            model["id"]: model
            for model in lists.get(name, ())
            if isinstance(model, dict) and isinstance(model.get("id"), str)
        }
        for public in (*row.aliases, *row.models):
            known = theirs.get(row.aliases.get(public, public), {})
            rows.setdefault(public, {**known, **_row(public, name)})
        if row is table.taker:
            for public, known in theirs.items():
                rows.setdefault(public, {**known, **_row(public, name)})
    return {"object": "list", "data": list(rows.values())}


def _row(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _owner(gate: Gateway, request: web.BaseRequest) -> str:
    ask = routes.Ask(path=request.raw_path.partition("?")[0])
    plan = routes.plan(gate.table, ask, gate.draw)
    return next(iter(gate.table.backends)) if isinstance(plan, routes.Refusal) else plan.legs[0].backend


async def _pass(gate: Gateway, request: web.BaseRequest, name: str) -> web.StreamResponse:
    try:
        got = await _fetch(gate, request, name, request.raw_path)
    except UpstreamFault as fault:
        return _say(errors.of_fault(fault.outcome, fault.code, fault.message))
    response = web.Response(status=got.status, body=got.body)
    response.headers.popall("Content-Type", None)
    for header, value in headers.to_client(got.headers):
        if header.lower() != "content-length":
            response.headers.add(header, value)
    response.headers["x-manometer-backend"] = name
    return response


async def _models(gate: Gateway, request: web.BaseRequest, name: str) -> list[Any]:
    try:
        async with asyncio.timeout(_PATIENCE):
            got = await _fetch(gate, request, name, "/v1/models")
        doc = grammar.loads(got.body) if got.status == 200 else None
    except (UpstreamFault, TimeoutError, grammar.Unreadable):
        return []
    data = doc.get("data") if isinstance(doc, dict) else None
    return data if isinstance(data, list) else []


async def _fetch(gate: Gateway, request: web.BaseRequest, name: str, path: str) -> Answer:
    backend, pool = gate.settings.backends[name], gate.pools[name]
    keyless = request.method == "OPTIONS"
    passthrough = backend.passthrough and gate.open_to_all and not keyless
    head = headers.to_backend(request.raw_headers, None if keyless else backend.secret, passthrough)
    return await fetch(pool, Request(request.method.encode(), pool.origin.target(path), head))


def _say(problem: errors.Problem) -> web.Response:
    return web.Response(status=problem.status, body=problem.body, headers=_OURS, content_type="application/json")
