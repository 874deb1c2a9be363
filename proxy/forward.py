"""The life of one request, from its head to its reading.

    received -> body read -> planned -> for each leg: drafted, sent, answered -> passed to the client -> recorded

1. A plan is made whole, then followed. Another leg is tried only while the client has got nothing.
2. What ends here ends in `finally`: an opening is followed by one reading, whoever left or failed.
3. A client that leaves cancels this coroutine (aiohttp's handler_cancellation), and with it the backend's request.
4. After the client's head is sent, a backend's fault is told as an error event and a cut connection: never a clean end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from . import dialects, errors, headers, routes
from .body import Body, BodyError
from .dialects import ParameterError, Parameters
from .draft import Draft, Unsupported, draft
from .errors import Problem
from .gateway import Gateway, new_id
from .meter import MEASURED, Attempt, Fault, Meter, Price, Reading, api_of
from .recorder import Opening
from .relay import Filter, Relay
from .routes import Leg, Plan, Refusal
from .strip import Strip
from .upstream import Request, UpstreamFault

log = logging.getLogger("manometer")
_JSON_APIS = MEASURED | {"embeddings"}


class Refused(Exception):
    """The proxy answers by itself."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Exchange:
    """One request with its whole answer."""

    def __init__(self, gate: Gateway, request: web.Request) -> None:
        self.gate = gate
        self.request = request
        self.received = gate.clock()
        self.started_at = gate.wall()
        self.id = new_id()
        self.path, _, _ = request.raw_path.partition("?")
        self.api = api_of(self.path)
        self.headers = _Lookup(request.raw_headers)
        self.client: str | None = None
        self.body_wait = 0.0
        self.plan: Plan | None = None
        self.leg: Leg | None = None
        self.parameters = Parameters()
        self.draft = Draft(b"")
        self.relay: Relay | None = None
        self.attempts: list[Attempt] = []
        self.outcome: str | None = None
        self.problem: Problem | None = None
        self.done: float | None = None
        self.opened = False
        self._draining: asyncio.Task[None] | None = None
        self._writer: AbstractStreamWriter | None = None

    async def run(self) -> web.StreamResponse:
        """The response, sent or about to be."""
        try:
            raw = await self._read()
            body = self._parse(raw)
            plan = self._route(body)
            self.parameters = self._parameters(plan, body)
            return await self._conduct(plan, raw, body)
        except Refused as refused:
            self.outcome = "refused"
            return self._say(refused.problem)
        except (asyncio.CancelledError, ConnectionError):
            self.outcome = self.outcome or "client_gone"
            raise
        except Exception:
            log.exception("request %s failed", self.id)
            self.outcome = "internal"
            if self._writer is not None and self.request.transport is not None:
                self.request.transport.abort()
            return self._say(errors.internal(self.id))
        finally:
            self._finish()

    # before anything is sent

    async def _read(self) -> bytes:
        """The client's key is looked at first, then its body is read, once and bounded."""
        gate = self.gate
        if gate.draining:
            raise Refused(errors.draining())
        if not gate.open_to_all:
            key = headers.credential(self.request.raw_headers)
            self.client = gate.client(key) if key else None
            if self.client is None:
                raise Refused(errors.wrong_key() if key else errors.no_key())
        return await self._bounded(gate.settings.listen.body_limit)

    async def _bounded(self, limit: int) -> bytes:
        start = self.gate.clock()
        if (self.request.content_length or 0) > limit:
            raise Refused(errors.too_large(limit))
        chunks: list[bytes] = []
        size = 0
        while chunk := await self.request.content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise Refused(errors.too_large(limit))
        self.body_wait = self.gate.clock() - start
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _parse(self, raw: bytes) -> Body | None:
        if not raw or self.request.content_type.startswith(("multipart/", "audio/", "image/")):
            return None
        if self.api not in _JSON_APIS and not self.request.content_type.endswith("json"):
            return None
        try:
            return Body.read(raw)
        except BodyError as error:
            if self.gate.table.taker is not None and len(self.gate.table.backends) == 1:
                return None  # the one backend's own answer is the best one
            raise Refused(errors.bad_body(str(error))) from None

    def _route(self, body: Body | None) -> Plan:
        if not self.path.startswith("/v1"):
            raise Refused(
                Problem(404, "not_found", f"{self.path[:100]} is not served here: the base URL ends with /v1.")
            )
        ask = routes.Ask(
            path=self.path,
            model=_string(body, "model"),
            user=_string(body, "user"),
            client=self.client,
            headers=self.headers,
        )
        planned = routes.plan(self.gate.table, ask, self.gate.draw)
        if isinstance(planned, Refusal):
            raise Refused(Problem(planned.status, planned.code, planned.message, param=planned.param))
        self.plan = planned
        self.leg = planned.legs[0]
        self._open(_flag(body, "stream"))
        return planned

    def _open(self, streamed: bool) -> None:
        leg, plan = self.leg, self.plan
        self.opened = True
        self.gate.sink.opened(
            Opening(
                id=self.id,
                started_at=self.started_at,
                api=self.api,
                backend=leg.backend if leg else None,
                decoding=leg.decoding if leg else None,
                model=leg.label if leg else None,
                asked_model=plan.asked if plan else None,
                route=plan.route if plan else None,
                client=self.client,
                streamed=streamed,
            )
        )

    # the legs

    async def _conduct(self, plan: Plan, raw: bytes, body: Body | None) -> web.StreamResponse:
        legs = routes.awake(plan.legs, self.gate.resting, self.gate.wall())
        for leg, more in zip(legs, (*legs[1:], None), strict=True):
            self.leg = leg
            self.draft = self._draft(leg, raw, body)
            relay = await self._attempt(leg, more is not None)
            if more is None or not self._falls_back(leg, relay):
                break
            relay.abort()
        return await self._answer(relay)

    def _parameters(self, plan: Plan, body: Body | None) -> Parameters:
        try:
            return dialects.read(body, self.headers, plan.suffix, plan.diffusion)
        except ParameterError as error:
            raise Refused(Problem(400, "invalid_parameter", str(error), param=error.param)) from None

    def _draft(self, leg: Leg, raw: bytes, body: Body | None) -> Draft:
        backend, dialect = self.gate.settings.backends[leg.backend], self.gate.dialects[leg.backend]
        usage = dialect.include_usage if backend.usage is None else backend.usage == "inject"
        reject = backend.unsupported == "reject" or self.headers.get("x-manometer-strict") == "1"
        try:
            return draft(raw, body, leg, self.api, dialect, self.parameters, usage=usage, reject=reject)
        except Unsupported as error:
            raise Refused(Problem(400, "unsupported_parameter", f"backend {leg.backend}: {error}")) from None

    async def _attempt(self, leg: Leg, hesitate: bool) -> Relay:
        """Send to one backend and wait for its head; with another leg in reserve, for its first bytes."""
        gate, backend = self.gate, self.gate.settings.backends[leg.backend]
        meter = Meter(
            api=self.api,
            received=self.received,
            asked_stream=self.draft.asked_stream,
            replace=self.draft.replace,
            canvas=gate.dialects[leg.backend].canvas,
        )
        relay = self.relay = Relay(gate.loop, gate.pulse, meter, self.received)
        pool = gate.pools[leg.backend]
        passthrough = backend.passthrough and gate.open_to_all
        request = Request(
            self.request.method.encode(),
            pool.origin.target(self.request.raw_path),
            headers.to_backend(self.request.raw_headers, backend.secret, passthrough),
            self.draft.raw,
        )
        start = gate.clock()
        try:
            relay.call = await pool.send(request, relay)
            await (relay.first if hesitate else relay.head)
        except UpstreamFault as fault:
            relay.on_fault(gate.clock(), fault)
        outcome = relay.fault.outcome if relay.fault else "backend_error" if relay.status >= 400 else "ok"
        self.attempts.append(Attempt(leg.backend, outcome, relay.status or None, gate.clock() - start))
        return relay

    def _falls_back(self, leg: Leg, relay: Relay) -> bool:
        outcome = relay.fault.outcome if relay.fault else "ok"
        if relay.status in (429, 503):
            wall = self.gate.wall()
            if pause := routes.rest(_Lookup(relay.headers), wall):
                self.gate.resting[leg.backend] = wall + pause
        return routes.falls_back(outcome, relay.status or None)

    # the answer

    async def _answer(self, relay: Relay) -> web.StreamResponse:
        if relay.fault is not None and relay.status == 0:
            self.outcome = relay.fault.outcome
            return self._say(errors.of_fault(relay.fault.outcome, relay.fault.code, relay.fault.message))
        response = web.StreamResponse(status=relay.status)
        filters = self._filters(relay)
        framed = self._head(response, relay, bool(filters))
        self._writer = await response.prepare(self.request)
        transport = self.request.transport
        if transport is None:
            raise ConnectionResetError("the client left")
        socket = _Socket(self.request, transport) if framed else _ChunkedSocket(self.request, transport)
        relay.open(socket, self._choke, filters)
        await relay.end
        if relay.fault is not None:
            self._break(relay, socket)
            return response
        if rest := relay.rest():
            socket.write(rest)
        await response.write_eof()
        self.done = self.gate.clock()
        return response

    def _filters(self, relay: Relay) -> list[Filter]:
        """The usage event that we asked for stays here; a stream that we can't read passes as it is."""
        if self.draft.injected and relay.readable_stream:
            return [Strip()]
        return []

    def _head(self, response: web.StreamResponse, relay: Relay, changed: bool) -> bool:
        """Fill in the client's head. True: the body needs no chunks of ours."""
        length = False
        bodiless = self.request.method == "HEAD" or relay.status in (204, 304)
        for name, value in headers.to_client(relay.headers):
            if name.lower() == "content-length":
                if changed and not bodiless:
                    continue
                length = True
            response.headers.add(name, value)
        for name, value in self._own_headers().items():
            response.headers.setdefault(name, value)
        if length or bodiless:
            return True
        if self.request.version < (1, 1):
            response.force_close()
            return True
        response.enable_chunked_encoding()
        return False

    def _own_headers(self) -> dict[str, str]:
        own = {"x-manometer-id": self.id, "x-request-id": self.id}
        if self.leg is not None:
            own["x-manometer-backend"] = self.leg.backend
        if self.draft.translated:
            own["x-manometer-translated"] = "; ".join(self.draft.translated)
        if self.draft.dropped:
            own["x-manometer-dropped"] = "; ".join(self.draft.dropped)
        return own

    def _choke(self) -> None:
        """The client takes less than comes: the backend waits until it has caught up."""
        if self._draining is None and self.relay is not None and self.relay.call is not None:
            self.relay.call.pause()
            self._draining = self.gate.loop.create_task(self._drain(self.relay.call))

    async def _drain(self, call: Any) -> None:
        assert self._writer is not None
        try:
            await self._writer.drain()
        except ConnectionError:
            pass  # the client left; the cancellation of the handler is on its way
        finally:
            self._draining = None
        call.resume()

    def _break(self, relay: Relay, socket: _Socket) -> None:
        """The backend failed under way: say so in the stream, and cut."""
        fault = relay.fault
        assert fault is not None
        self.outcome = fault.outcome
        whole = relay.meter.between_events or relay.holds_back
        if relay.readable_stream and whole:  # into a half event, an error event would only melt
            socket.write(errors.stream_event(fault.message, fault.code))
            socket.close()
        else:
            socket.abort()

    def _say(self, problem: Problem) -> web.Response:
        """An answer of the proxy's own."""
        self.problem = problem
        return web.Response(
            status=problem.status,
            body=problem.body,
            headers=self._own_headers() | {"content-type": "application/json"},
        )

    # the end

    def _finish(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        if self.relay is not None:
            self.relay.abort()
        if not self.opened:
            self._open(False)
        self.gate.sink.finished(self._reading())

    def _reading(self) -> Reading:
        relay, gate = self.relay, self.gate
        meter = relay.meter if relay else Meter(api=self.api, received=self.received)
        at = (relay.delivered if relay else None) or self.done or gate.clock()
        fault = self._fault(relay)
        return meter.finish(
            at,
            id=self.id,
            started_at=self.started_at,
            ended=relay.ended if relay else None,
            outcome=self.outcome,
            fault=fault,
            price=self._price(),
            loop_lag=gate.pulse.worst(self.received),
            **self._facts(relay),
        )

    def _price(self) -> Price | None:
        """The one in force when the request came, by the name that the backend was sent."""
        if self.leg is None:
            return None
        return self.gate.settings.backends[self.leg.backend].book.at(self.leg.model, self.started_at)

    def _fault(self, relay: Relay | None) -> Fault | None:
        if relay is not None and relay.fault is not None:
            return Fault("upstream_error", relay.fault.message, relay.fault.code)
        if self.problem is not None:
            return Fault(self.problem.type, self.problem.message, self.problem.code)
        return None

    def _facts(self, relay: Relay | None) -> dict[str, Any]:
        """What the meter can't know."""
        leg, plan = self.leg, self.plan
        facts: dict[str, Any] = {
            "method": self.request.method,
            "path": self.path[:200],
            "client": self.client,
            "backend": leg.backend if leg else None,
            "decoding": leg.decoding if leg else None,
            "model": leg.label if leg else None,
            "sent_model": leg.model if leg else None,
            "asked_model": plan.asked if plan else None,
            "route": plan.route if plan else None,
            "body_wait": self.body_wait,
            "attempts": tuple(self.attempts),
            "translated": self.draft.translated,
            "dropped": self.draft.dropped,
            "stall_threshold": self.gate.settings.measure.stall,
        }
        if self.problem is not None:
            facts["status"] = self.problem.status
        if relay is not None and relay.call is not None:
            facts |= {"sent": relay.call.sent - self.received, "connect": relay.call.connect}
        return facts


class _Socket:
    """The client's side of an answer whose length is known, or that ends with its connection."""

    __slots__ = ("_protocol", "_transport")

    def __init__(self, request: web.Request, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._protocol = request.protocol

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        """Send what is written, then cut without an end."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def choked(self) -> bool:
        return self._protocol.writing_paused

    @property
    def empty(self) -> bool:
        return self._transport.get_write_buffer_size() == 0


class _ChunkedSocket(_Socket):
    """Each write is one chunk."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


class _Lookup(dict[str, str]):
    """Headers by lower-case name, made only when somebody asks."""

    def __init__(self, raw: Any) -> None:
        super().__init__((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw)


def _string(body: Body | None, key: str) -> str | None:
    value = body.get(key) if body else None
    return value if isinstance(value, str) else None


def _flag(body: Body | None, key: str) -> bool:
    return body is not None and body.get(key) is True
