"""Documents of runs for tests of what draws them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from loadgen import document
from loadgen.analysis.level import Terms, level
from tests.readings import failure, stream

EVIL = "<script>alert('x')</script>"


def level_json(concurrency: int, throughput_of: int = 8, *, backend: str = "mercury", **facts: Any) -> dict[str, Any]:
    """A level whose n clients each get an answer after the other."""
    readings = [
        stream(start=1000.0 + i * 0.34 + c * 0.001, size=throughput_of, cost=Decimal("0.00005"))
        for c in range(concurrency)
        for i in range(10)
    ]
    terms = Terms(slos={"ttft": 0.5}, instances=(Decimal("2.5"), Decimal("4")))
    folded = level(readings, backend=backend, concurrency=concurrency, terms=terms)
    return document.measured(folded, readings, **facts)


def ladder(name: str = "climb", backend: str = "mercury", size: int = 8) -> dict[str, Any]:
    levels = [level_json(n, size, backend=backend) for n in (1, 2, 4, 8)]
    return document.document(
        "ladder",
        name,
        1_796_000_000.0,
        arguments={"url": "http://127.0.0.1:1/v1"},
        levels=levels,
        shown={backend: document.shown([stream(start=1000.0 + i, size=size) for i in range(20)])},
        verdict=f"{backend}: as measured",
        knees={backend: document.knee_of(levels)},
    )


def hostile() -> dict[str, Any]:
    """Everything that may come from outside says something evil."""
    readings = [*(stream(start=1000.0 + i, warning=EVIL) for i in range(3)), failure(start=1004.0)]
    one = document.measured(level(readings, backend=EVIL, concurrency=1), readings)
    cell = one | {"label": EVIL, "speed": 100.0, "quality": 0.5, "effect": EVIL, "chars": 3, "text": EVIL}
    ratio = {"scenario": EVIL, "metric": "e2e", "a": EVIL, "b": EVIL, "value": 1.0, "low": 0.5, "high": 2.0,
             "pairs": 6, "left_out": 0, "verdict": EVIL}  # fmt: skip
    return document.document(
        EVIL,
        EVIL,
        1_796_000_000.0,
        arguments={"header": EVIL},
        levels=[one],
        shown={EVIL: document.shown(readings)},
        verdict=EVIL,
        warnings=[EVIL],
        cells=[cell],
        front=[0],
        ratios=[ratio],
        decisions=[{"scenario": EVIL, "choice": EVIL, "evidence": EVIL}],
    )
