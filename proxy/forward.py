"""The life of one request, from its head to its reading.

    ticket: received, body read, planned  ->  for each leg: drafted, sent, answered  ->  delivered  ->  recorded

1. A plan is made whole, then followed. Another leg is tried only while the client has got nothing.
2. What starts here ends in `finally`: an opening is followed by one reading, whoever left or failed.
3. A client that leaves cancels this coroutine (aiohttp's handler_cancellation), and with it the backend's request.
4. After the client's head is sent, a backend's fault is told as an error event and a cut connection: never as a
   clean end, and never with a `[DONE]` that the backend did not send.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from . import delivery, errors, filters, headers, routes
from .delivery import Socket
from .errors import Problem
from .exchange import Exchange
from .filters import Filter
from .gateway import Gateway
from .meter import Fault
from .mirror import Mirrors
from .relay import Relay
from .routes import Leg, Plan
from .strip import Strip
from .ticket import Refused, Ticket
from .upstream import Call

log = logging.getLogger("manometer")
_TICK = 0.01  # the loop's timers may fire this early


class Forward(Exchange):
    """One request whose answer goes to its client."""

    def __init__(self, gate: Gateway, mirrors: Mirrors, request: web.BaseRequest) -> None:
        super().__init__(gate, Ticket(gate, request))
        self.mirrors = mirrors
        self.request = request
        self._socket: Socket | None = None  # once the answer is the client's
        self._draining: asyncio.Task[None] | None = None

    async def run(self) -> web.StreamResponse:
        """The response: already sent, or one that the server has yet to send."""
        try:
            plan = await self.ticket.admit(self.gate, self.request)
            self.open(plan.legs[0])
            return await self._answer(await self._conduct(plan))
        except Refused as refused:
            self.outcome = "refused"
            return self._say(refused.problem)
        except (asyncio.CancelledError, ConnectionError):
            if self.gate.clock() > self.gate.deadline - _TICK:  # cut by us, not by the client
                self.outcome, self.fault = "internal", Fault("internal", errors.draining().message, "shutting_down")
            self.outcome = self.outcome or "client_gone"
            raise
        except Exception:
            log.exception("request %s failed", self.id)
            self.outcome = "internal"
            if self._socket is not None and self.request.transport is not None:
                self.request.transport.abort()
            return self._say(errors.internal(self.id))
        finally:
            if self._draining is not None:
                self._draining.cancel()
            self.end()
            self.gate.backlog.add(self.finish)
            self._socket = None

    async def _conduct(self, plan: Plan) -> Relay:
        """The legs in order, until one has an answer for the client."""
        legs = routes.awake(plan.legs, self.gate.resting, self.gate.wall())
        for leg in legs[:-1]:
            relay = await self.attempt(leg, hesitate=True)
            if not self._falls_back(leg, relay):
                return relay
            relay.abort()
        return await self.attempt(legs[-1])

    def _falls_back(self, leg: Leg, relay: Relay) -> bool:
        if relay.status in (429, 503):
            wall = self.gate.wall()
            if pause := routes.rest(headers.by_name(relay.headers), wall):
                self.gate.resting[leg.backend] = wall + pause
        return routes.falls_back(relay.fault.outcome if relay.fault else "ok", relay.status or None)

    async def _answer(self, relay: Relay) -> web.StreamResponse:
        if relay.fault is not None and relay.status == 0:
            self.outcome = relay.fault.outcome
            return self._say(errors.of_fault(relay.fault.outcome, relay.fault.code, relay.fault.message))
        changes = self._filters(relay)
        if relay.end.done() and relay.fault is None and not delivery.is_bodiless(self.request, relay):
            return self._deliver_whole(relay, changes)
        return await self._deliver(relay, changes)

    def _deliver_whole(self, relay: Relay, changes: list[Filter]) -> web.StreamResponse:
        """An answer that is here already: one write."""
        body = relay.whole(changes)
        socket = self._socket = self._client(relay, changes, len(body))
        self.mirrors.start(self.gate, self.ticket)
        sent = socket.end(body)
        self.done = self.gate.clock()
        return sent

    async def _deliver(self, relay: Relay, changes: list[Filter]) -> web.StreamResponse:
        """An answer that is still coming: each read at once, the first with the head."""
        socket = self._socket = self._client(relay, changes)
        relay.open(socket, self._choke, changes)
        socket.start()
        self.mirrors.start(self.gate, self.ticket)
        self.forget()  # a long prompt need not be kept as long as its answer streams
        await relay.end
        if relay.fault is not None:
            self._break(relay, socket)
            return delivery.LAST
        sent = socket.end(relay.rest())
        self.done = self.gate.clock()
        return sent

    def _client(self, relay: Relay, changes: list[Filter], length: int | None = None) -> Socket:
        return delivery.socket(self.request, relay, self._own_headers(), changes, self.gate.wall(), length)

    def _filters(self, relay: Relay) -> list[Filter]:
        """What has to be changed in this answer. One that we can't read passes as it is."""
        assert self.leg is not None
        if not relay.meter.readable:
            return []
        # Without a content type that says so, only its bytes will tell whether it is a stream.
        strip: list[Filter] = [Strip(relay.readable_stream)] if self.draft.injected and relay.status < 300 else []
        options = self.ticket.says("stream_options")
        return strip + filters.needed(
            self.dialects[self.leg.backend],
            status=relay.status,
            streamed=relay.readable_stream,
            asked_stream=self.draft.asked_stream,
            asked_usage=isinstance(options, dict) and options.get("include_usage") is True,
            append=self.draft.append,
        )

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

    async def _drain(self, call: Call) -> None:
        try:
            await self.request.writer.drain()
        except ConnectionError:
            pass  # the client left; the cancellation of the handler is on its way
        finally:
            self._draining = None
        call.resume()

    def _break(self, relay: Relay, socket: Socket) -> None:
        """The backend failed under way: say so in the stream, and cut."""
        assert relay.fault is not None
        self.outcome = relay.fault.outcome
        whole = relay.meter.between_events or relay.holds_back
        if relay.readable_stream and whole:  # into half an event, an error event would only melt
            socket.write(errors.stream_event(relay.fault.message, relay.fault.code))
            socket.close()
        else:
            socket.abort()

    def _say(self, problem: Problem) -> web.Response:
        """An answer of the proxy's own."""
        self.problem = problem
        return web.Response(
            status=problem.status,
            body=problem.body,
            headers=self._own_headers() | {"content-type": "application/json", "server": "manometer"},
        )
