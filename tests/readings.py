"""Readings for tests of what folds them: a stream of equal bursts, a failure."""

from __future__ import annotations

from typing import Any

from proxy.meter.reading import Arrival, Arrivals, Reading
from proxy.meter.usage import Usage


def stream(
    *, start: float = 1000.0, ttft: float = 0.2, bursts: int = 8, size: int = 8, gap: float = 0.02, **facts: Any
) -> Reading:
    """An answer of `bursts` bursts of `size` tokens, four characters each."""
    rows = [Arrival(ttft + i * gap, 1, size * 4, 0, 0, False, None, None) for i in range(bursts)]
    given = {
        "id": f"{start}",
        "started_at": start,
        "outcome": "ok",
        "api": "chat",
        "streamed": True,
        "status": 200,
        "sent": 0.0,
        "head": ttft / 2,
        "done": ttft + (bursts - 1) * gap,
        "arrivals": Arrivals.of(*rows),
        "data_events": bursts + 2,
        "finish_reasons": ("stop",),
        "tokens": Usage(prompt=10, completion=bursts * size, total=10 + bursts * size),
        "usage_source": "reported",
    }
    return Reading(**given | facts)


def failure(*, start: float = 1000.0, outcome: str = "backend_error", done: float = 0.1, **facts: Any) -> Reading:
    given = {"id": f"{start}", "started_at": start, "outcome": outcome, "api": "chat", "streamed": False, "done": done}
    return Reading(**given | facts)
