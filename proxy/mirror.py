"""Shadow copies: a sample of a route's requests goes to another backend as well, measured and shown to nobody.

1. A copy starts after the client's answer has started, as a task of its own: it can't delay or fail it.
2. It is bounded in number (what is over is not queued but left out, and counted) and in cost for each hour.
3. All copies together are read no faster than a few models write: a backend that floods would take the time that
   clients' streams need.
4. Its reading is marked `mirror`, so that no number of the clients' traffic holds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from copy import copy
from decimal import Decimal

from .exchange import Exchange
from .gateway import Gateway, new_id
from .routes import Leg
from .ticket import Refused, Ticket

log = logging.getLogger("manometer")
_HOUR = 3600.0
_RATE = 2 * 1024 * 1024  # bytes a second, of all copies: eight streams of 1,000 tokens a second
_BURST = 512 * 1024  # bytes that may come at once


class Sink:
    """The client of all copies: reads nothing, and says when more comes than it should."""

    __slots__ = ("_at", "_clock", "_level")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._level = 0.0

    def write(self, data: bytes) -> int:
        now = self._clock()
        self._level = max(0.0, self._level - (now - self._at) * _RATE) + len(data)
        self._at = now
        return self.waiting

    @property
    def waiting(self) -> int:
        """Bytes over what may come."""
        return max(0, int(self._level - _BURST))

    @property
    def choked(self) -> bool:
        return self.waiting > 0

    @property
    def pause(self) -> float:
        """Seconds until it may go on."""
        return self.waiting / _RATE


class Shadow(Exchange):
    """One copy."""

    mirror = True

    def __init__(self, gate: Gateway, ticket: Ticket, sink: Sink) -> None:
        super().__init__(gate, ticket)
        self.id = new_id()
        self._sink = sink
        self.received = gate.clock()
        self.started_at = gate.wall()

    async def run(self, leg: Leg) -> Decimal:
        """What it cost, as far as known."""
        self.open(leg)
        try:
            relay = await self.attempt(leg)
            if relay.fault is None:
                relay.open(self._sink, self._slow_down)
                await relay.end
            if relay.fault is not None:
                self.outcome = relay.fault.outcome
        except Refused as refused:
            self.outcome, self.problem = "refused", refused.problem
        except asyncio.CancelledError:
            self.outcome = "client_gone"
            raise
        except Exception:
            log.exception("mirrored request %s failed", self.id)
            self.outcome = "internal"
        finally:
            self.end()
            reading = self.finish()
        return reading.cost or Decimal(0)

    def _slow_down(self) -> None:
        if self.relay is not None and self.relay.call is not None:
            self.relay.call.pause()
            self.gate.loop.call_later(self._sink.pause, self.relay.call.resume)


class Mirrors:
    """All copies under way, by route."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._spent: dict[str, deque[tuple[float, Decimal]]] = {}
        self._sink: Sink | None = None
        self.left_out = 0

    def start(self, gate: Gateway, ticket: Ticket) -> None:
        """Copy this request, if its plan says so and the route's bounds allow."""
        plan = ticket.plan
        if plan is None or plan.mirror is None or plan.route is None:
            return
        limits = gate.settings.routes[plan.route].mirror if plan.route in gate.settings.routes else None
        if limits is None:
            return
        busy = sum(route == plan.route for route in self._tasks.values())
        over = limits.max_cost_per_hour is not None and self._cost(plan.route, gate.clock()) >= limits.max_cost_per_hour
        if busy >= limits.max_in_flight or over:
            self.left_out += 1
            return
        task = gate.loop.create_task(self._run(gate, copy(ticket), plan.route, plan.mirror))
        self._tasks[task] = plan.route
        task.add_done_callback(self._tasks.pop)

    async def _run(self, gate: Gateway, ticket: Ticket, route: str, leg: Leg) -> None:
        self._sink = self._sink or Sink(gate.clock)
        cost = await Shadow(gate, ticket, self._sink).run(leg)
        if cost:
            self._spent.setdefault(route, deque()).append((gate.clock(), cost))

    def _cost(self, route: str, now: float) -> Decimal:
        spent = self._spent.get(route, deque())
        while spent and spent[0][0] < now - _HOUR:
            spent.popleft()
        return sum((cost for _, cost in spent), Decimal(0))

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
