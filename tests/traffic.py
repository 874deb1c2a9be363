"""Readings whose numbers one can work out by hand, for the tests of whatever shows readings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from proxy.meter import Arrival, Arrivals, Attempt, Fault, Reading, Usage
from proxy.recorder import Opening
from proxy.window import Backend

NOW = 1_796_000_000.0
MERCURY = Backend("mercury", "diffusion")
AR = Backend("ar", "autoregressive")


def arrivals(steps: Sequence[tuple[float, int]]) -> Arrivals:
    """(seconds since received, characters of answer) for each arrival."""
    return Arrivals.of(*(Arrival(at, 1, size, 0, 0, False, None, None) for at, size in steps))


def reading(id: str, *, started_at: float = NOW, **facts: Any) -> Reading:
    """Mercury's usual: the head after 0.1 s, 4 bursts of 48 tokens from 0.5 s on, done after 1.0 s."""
    usual: dict[str, Any] = {
        "outcome": "ok",
        "api": "chat",
        "streamed": True,
        "path": "/v1/chat/completions",
        "backend": "mercury",
        "decoding": "diffusion",
        "model": "mercury-2.5",
        "asked_model": "mercury-2.5",
        "status": 200,
        "sent": 0.002,
        "head": 0.1,
        "ended": 0.999,
        "done": 1.0,
        "arrivals": arrivals([(0.5, 192), (0.6, 192), (0.7, 192), (0.8, 192)]),
        "data_events": 5,
        "done_seen": True,
        "finish_reasons": ("stop",),
        "choices": 1,
        "tokens": Usage(prompt=20, completion=192, total=212),
        "usage_source": "reported",
        "usage_final": True,
        "cost": Decimal("0.000148"),
    }
    return Reading(id=id, started_at=started_at, **usual | facts)


def plain(id: str, *, started_at: float = NOW, tokens: int = 100, **facts: Any) -> Reading:
    """The autoregressive side's usual: a token each 20 ms from 0.3 s on."""
    steps = [(0.3 + 0.02 * i, 4) for i in range(tokens)]
    usual: dict[str, Any] = {
        "backend": "ar",
        "decoding": "autoregressive",
        "model": "llama",
        "asked_model": "llama",
        "head": 0.25,
        "arrivals": arrivals(steps),
        "tokens": Usage(prompt=20, completion=tokens, total=20 + tokens),
        "ended": steps[-1][0] + 0.01,
        "done": steps[-1][0] + 0.02,
        "cost": Decimal("0.000200"),
    }
    return reading(id, started_at=started_at, **usual | facts)


def opening(id: str, *, started_at: float = NOW, backend: str | None = "mercury", **facts: Any) -> Opening:
    return Opening(id=id, started_at=started_at, api="chat", backend=backend, **facts)


def busy(seconds: int = 300, *, now: float = NOW, seed: int = 7) -> list[Reading]:
    """A mix as one might see it: both kinds of backend, some failures, one fallback, one client that left."""
    chance = random.Random(seed)
    found = []
    for second in range(seconds):
        for n in range(chance.choice((1, 2, 2, 3))):
            at = now - seconds + second + chance.random()
            make = _burst if chance.random() < 0.55 else _steady
            found.append(make(f"{second:04x}{n:02x}{chance.getrandbits(104):026x}", at, chance))
    return sorted((r for r in found if r.started_at + r.done <= now), key=lambda r: r.started_at + r.done)


def _burst(id: str, at: float, chance: random.Random) -> Reading:
    first = chance.lognormvariate(-0.75, 0.32)
    steps, time, size = [], first, 0
    for _ in range(chance.choice((3, 4, 5, 6))):
        size = chance.randint(180, 210)
        steps.append((time, size))
        time += chance.uniform(0.045, 0.075) + (0.62 if chance.random() < 0.03 else 0)
    facts = _facts(steps, chance, 0.04, Decimal("0.75"))
    return reading(id, started_at=at, **facts | _trouble(chance, steps, None))


def _steady(id: str, at: float, chance: random.Random) -> Reading:
    first = chance.lognormvariate(-1.25, 0.38)
    steps, time = [], first
    for _ in range(chance.randint(60, 190)):
        steps.append((time, chance.randint(2, 7)))
        time += chance.gauss(0.018, 0.002) + (0.9 if chance.random() < 0.0008 else 0)
    facts = _facts(steps, chance, first - 0.03, Decimal("2.40"))
    ar = {"backend": "ar", "decoding": "autoregressive", "model": "llama-3.1-8b", "asked_model": "llama-3.1-8b"}
    return reading(id, started_at=at, **ar | facts | _trouble(chance, steps, "mercury"))


def _facts(steps: list[tuple[float, int]], chance: random.Random, head: float, price: Decimal) -> dict[str, Any]:
    completion = max(1, sum(size for _, size in steps) // 4)
    prompt = chance.randint(30, 400)
    return {
        "head": head,
        "arrivals": arrivals(steps),
        "tokens": Usage(prompt=prompt, completion=completion, total=prompt + completion),
        "ended": steps[-1][0] + 0.004,
        "done": steps[-1][0] + 0.005,
        "cost": (prompt * price / 4 + completion * price) / 1_000_000,
        "data_events": len(steps) + 2,
    }


def _trouble(chance: random.Random, steps: list[tuple[float, int]], before: str | None) -> dict[str, Any]:
    fate = chance.random()
    nothing: dict[str, Any] = {"tokens": Usage(), "usage_source": "none", "cost": None, "finish_reasons": ()}
    if fate < 0.008:
        end = steps[len(steps) // 2][0]
        fault = Fault("truncated", "the connection was closed before the answer had ended")
        kept = arrivals(steps[: len(steps) // 2 + 1])
        return nothing | {"outcome": "truncated", "arrivals": kept, "ended": end, "done": end, "fault": fault}
    if fate < 0.014:
        fault = Fault("rate_limit_exceeded", "Too many requests: try again in 2 seconds", "429")
        none = {"arrivals": arrivals([]), "head": 0.03, "ended": 0.03, "done": 0.031}
        return nothing | none | {"outcome": "backend_error", "status": 429, "fault": fault}
    if fate < 0.018 and before is not None:
        tries = (Attempt(before, "unreachable", None, 0.05), Attempt("ar", "ok", 200, 1.0))
        return {"attempts": tries}
    return {"outcome": "client_gone", **nothing} if fate < 0.022 else {}
