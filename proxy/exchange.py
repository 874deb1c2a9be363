"""One request's way to a backend and back to a reading: what forwarding to a client and mirroring share.

An opening is followed by exactly one reading. `end` stands in the `finally` of whoever conducts the exchange;
`finish` follows it, at once or when there is time.
"""

from __future__ import annotations

import logging
from typing import Any

from . import headers
from .draft import Draft, Unsupported, draft
from .errors import Problem
from .gateway import Gateway
from .meter import Attempt, Fault, Meter, Price, Reading
from .recorder import Opening
from .relay import Relay
from .routes import Leg
from .ticket import Refused, Ticket
from .upstream import Request, UpstreamFault

log = logging.getLogger("manometer")
_UNDRAFTED = Draft(b"")


class Exchange:
    """The state of one exchange under way."""

    mirror = False

    def __init__(self, gate: Gateway, ticket: Ticket) -> None:
        self.gate = gate
        self.ticket = ticket
        self._hold()
        self.id = ticket.id
        self.received = ticket.received
        self.started_at = ticket.started_at
        self.leg: Leg | None = None
        self.draft = _UNDRAFTED
        self.relay: Relay | None = None
        self.attempts: list[Attempt] = []
        self.outcome: str | None = None  # None: it is for the stream to say
        self.problem: Problem | None = None  # the proxy's own answer
        self.fault: Fault | None = None  # the proxy's own failure
        self.done: float | None = None  # when the client had the last byte
        self.loop_lag = 0.0
        self._opening: Opening | None = None
        gate.pulse.enter()

    def open(self, leg: Leg | None) -> None:
        """Tell that it has started. `leg` None: it was refused before a backend was chosen."""
        if self._opening is not None:
            return
        self._hold()
        self.leg = leg
        plan = self.ticket.plan
        self._opening = Opening(
            id=self.id,
            started_at=self.started_at,
            api=self.ticket.api,
            backend=leg.backend if leg else None,
            decoding=leg.decoding if leg else None,
            model=leg.label if leg else None,
            asked_model=plan.asked if plan else None,
            route=plan.route if plan else None,
            client=self.ticket.client,
            streamed=self.ticket.says("stream") is True,
            mirror=self.mirror,
        )
        self.gate.sink.opened(self._opening)

    def _hold(self) -> None:
        """What is in force when the plan was made stays so for this exchange: a reload is for later ones."""
        gate = self.gate
        self.settings, self.pools, self.dialects = gate.settings, gate.pools, gate.dialects

    async def attempt(self, leg: Leg, hesitate: bool = False) -> Relay:
        """Send to one backend and wait for its head (`hesitate`: for its first bytes). A fault is in the relay."""
        gate, ticket = self.gate, self.ticket
        self.leg = leg
        self.draft = self._drafted(leg)
        meter = Meter(
            api=ticket.api,
            received=self.received,
            asked_stream=self.draft.asked_stream,
            replace=self.draft.replace,
            canvas=self.dialects[leg.backend].canvas,
        )
        relay = self.relay = Relay(gate.loop, gate.clock, meter, self.received)
        start = gate.clock()
        try:
            relay.call = await self.pools[leg.backend].send(self._request(leg), relay)
            await (relay.first if hesitate else relay.head)
        except UpstreamFault as fault:
            relay.on_fault(gate.clock(), fault)
        outcome = relay.fault.outcome if relay.fault else "backend_error" if relay.status >= 400 else "ok"
        self.attempts.append(Attempt(leg.backend, outcome, relay.status or None, gate.clock() - start))
        return relay

    def _drafted(self, leg: Leg) -> Draft:
        backend, dialect = self.settings.backends[leg.backend], self.dialects[leg.backend]
        ticket = self.ticket
        usage = dialect.include_usage if backend.usage is None else backend.usage == "inject"
        reject = backend.unsupported == "reject" or ticket.headers.get("x-manometer-strict") == "1"
        try:
            return draft(
                ticket.raw, ticket.body, leg, ticket.api, dialect, ticket.parameters, usage=usage, reject=reject
            )
        except Unsupported as error:
            raise Refused(Problem(400, "unsupported_parameter", f"backend {leg.backend}: {error}")) from None

    def _request(self, leg: Leg) -> Request:
        ticket, backend = self.ticket, self.settings.backends[leg.backend]
        return Request(
            ticket.method.encode(),
            self.pools[leg.backend].origin.target(ticket.raw_path),
            headers.to_backend(ticket.raw_headers, backend.secret, backend.passthrough and not self.settings.clients),
            self.draft.raw,
        )

    def forget(self) -> None:
        """Let go of the request's bytes: they are sent, and nothing will be sent again."""
        self.ticket.forget()
        self.draft = self.draft._replace(raw=b"")
        if self.relay is not None and self.relay.call is not None:
            self.relay.call.forget()

    def end(self) -> None:
        """It is over: the backend's request is cancelled if it still runs, and no stamp is taken after this."""
        gate, relay = self.gate, self.relay
        if relay is not None:
            relay.abort()
        self.open(None)
        self.done = (relay.delivered if relay is not None else None) or self.done or gate.clock()
        self.loop_lag = gate.pulse.worst(self.received)
        gate.pulse.leave()

    def finish(self) -> Reading:
        """The reading. It goes to the sink."""
        assert self._opening is not None and self.done is not None
        try:
            if self.relay is not None and self.relay.blind:
                self.outcome = "internal"
            reading = self._reading(self.relay, self.done)
        except Exception:  # whatever a bug does here, what has started ends
            log.exception("request %s could not be measured", self.id)
            reading = self._opening.lost(
                self.started_at + self.done - self.received, "unmeasured", "measuring this exchange failed"
            )
        self.gate.sink.finished(reading)
        if self.relay is not None:
            self.relay.release()
        return reading

    def _reading(self, relay: Relay | None, done: float) -> Reading:
        ticket = self.ticket
        meter = relay.meter if relay else Meter(api=ticket.api, received=self.received)
        return meter.finish(
            done,
            id=self.id,
            started_at=self.started_at,
            ended=relay.ended if relay else None,
            outcome=self.outcome,
            fault=self._fault(relay),
            price=self._price(),
            loop_lag=self.loop_lag,
            **self._facts(relay),
        )

    def _price(self) -> Price | None:
        """The one in force when the request came, by the name that the backend was sent."""
        if self.leg is None:
            return None
        return self.settings.backends[self.leg.backend].book.at(self.leg.model, self.started_at)

    def _fault(self, relay: Relay | None) -> Fault | None:
        if relay is not None and relay.fault is not None:
            return Fault("upstream_error", relay.fault.message, relay.fault.code)
        if self.problem is not None:
            return Fault(self.problem.type, self.problem.message, self.problem.code)
        return self.fault

    def _facts(self, relay: Relay | None) -> dict[str, Any]:
        """What the meter can't know."""
        leg, ticket = self.leg, self.ticket
        facts: dict[str, Any] = {
            "method": ticket.method,
            "path": ticket.path[:200],
            "client": ticket.client,
            "body_wait": ticket.body_wait,
            "attempts": tuple(self.attempts),
            "mirror": self.mirror,
            "translated": self.draft.translated,
            "dropped": self.draft.dropped,
            "stall_threshold": self.settings.measure.stall,
        }
        if leg is not None:
            facts.update(backend=leg.backend, decoding=leg.decoding, model=leg.label, sent_model=leg.model)
        if ticket.plan is not None:
            facts.update(asked_model=ticket.plan.asked, route=ticket.plan.route)
        if self.problem is not None:
            facts["status"] = self.problem.status
        if relay is not None and relay.call is not None:
            facts.update(sent=relay.call.sent - self.received, connect=relay.call.connect)
        return facts
