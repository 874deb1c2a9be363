"""What is known of a request before anything is sent: who asks, what for, and where it will go.

The client's key is looked at first; then the body is read, once and bounded; then the plan is made, whole.
Whatever can't go on is `Refused`, with the answer that the client gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from . import dialects, errors, headers, routes
from .body import Body, BodyError
from .dialects import ParameterError, Parameters
from .errors import Problem
from .gateway import Gateway, new_id
from .meter import MEASURED, api_of
from .routes import Plan, Refusal

_JSON_APIS = MEASURED | {"embeddings"}
_NO_JSON = ("multipart/", "audio/", "image/")


class Refused(Exception):
    """The proxy answers by itself."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def caller(gate: Gateway, raw_headers: Iterable[headers.Header]) -> str | None:
    """The client whose key is shown; None where everybody may call. Raises Refused."""
    if gate.open_to_all:
        return None
    key = headers.credential(raw_headers)
    client = gate.client(key) if key else None
    if client is None:
        raise Refused(errors.wrong_key() if key else errors.no_key())
    return client


class Ticket:
    """One request as it came. `admit` fills in the rest."""

    __slots__ = (
        "api",
        "body",
        "body_wait",
        "client",
        "headers",
        "id",
        "method",
        "parameters",
        "path",
        "plan",
        "raw",
        "raw_headers",
        "raw_path",
        "received",
        "started_at",
    )

    def __init__(self, gate: Gateway, request: web.BaseRequest) -> None:
        self.received = gate.clock()
        self.started_at = gate.wall()
        self.id = new_id()
        self.method = request.method
        self.raw_path = request.raw_path
        self.path = self.raw_path.partition("?")[0]
        self.api = api_of(self.path)
        self.raw_headers = request.raw_headers
        self.headers = headers.by_name(request.raw_headers)
        self.client: str | None = None
        self.raw = b""
        self.body: Body | None = None  # None: no JSON
        self.body_wait = 0.0
        self.plan: Plan | None = None
        self.parameters = Parameters()

    async def admit(self, gate: Gateway, request: web.BaseRequest) -> Plan:
        """The plan for it. Raises Refused."""
        if gate.draining:
            raise Refused(errors.draining())
        self.client = caller(gate, self.raw_headers)
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if "origin" in self.headers and gate.open_to_all and self.method == "POST" and "json" not in content_type:
            raise Refused(errors.unasked())  # any page in a browser may send this: it would spend the backend's key
        self.raw = await self._read(gate, request)
        self.body = self._parse(gate, content_type)
        self.plan = plan = self._route(gate)
        try:
            self.parameters = dialects.read(self.body, self.headers, plan.suffix, plan.diffusion)
        except ParameterError as error:
            raise Refused(Problem(400, "invalid_parameter", str(error), param=error.param)) from None
        return plan

    def forget(self) -> None:
        """Let go of the body."""
        self.raw = b""
        self.body = None

    def says(self, member: str) -> Any:
        """A member of the JSON body; None without one."""
        return self.body.get(member) if self.body is not None else None

    async def _read(self, gate: Gateway, request: web.BaseRequest) -> bytes:
        limit = gate.settings.listen.body_limit
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise Refused(errors.too_large(limit))
        if self.headers.get("expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        content = request.content
        if content.is_eof():  # it came with the head: there is nothing to wait for
            raw = content.read_nowait()
            if len(raw) > limit:
                raise Refused(errors.too_large(limit))
            return raw
        start = gate.clock()
        chunks: list[bytes] = []
        size = 0
        while chunk := await content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise Refused(errors.too_large(limit))
        self.body_wait = gate.clock() - start
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _parse(self, gate: Gateway, content_type: str) -> Body | None:
        if not self.raw or content_type.startswith(_NO_JSON):
            return None
        if self.api not in _JSON_APIS and not content_type.endswith("json"):
            return None
        try:
            return Body.read(self.raw)
        except BodyError as error:
            if len(gate.table.backends) == 1 and gate.table.taker is not None:
                return None  # the one backend's own answer is the best one
            raise Refused(errors.bad_body(str(error))) from None

    def _route(self, gate: Gateway) -> Plan:
        if not routes.served(self.path):
            raise Refused(errors.not_served(self.path))
        model, user = self.says("model"), self.says("user")
        if isinstance(model, str) and (ready := gate.plans.get(model)) and routes.FORCE not in self.headers:
            return ready
        ask = routes.Ask(
            path=self.path,
            model=model if isinstance(model, str) else None,
            user=user if isinstance(user, str) else None,
            client=self.client,
            headers=self.headers,
        )
        plan = routes.plan(gate.table, ask, gate.draw)
        if isinstance(plan, Refusal):
            raise Refused(Problem(plan.status, plan.code, plan.message, param=plan.param))
        return plan
