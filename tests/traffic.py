"""Readings whose numbers one can work out by hand, for the tests of whatever shows readings."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from proxy.meter import Arrival, Arrivals, Reading, Usage
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
