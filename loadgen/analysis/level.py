"""One level of load against one backend, folded into what is reported of it.

1. Latencies and rates are of ok exchanges only. What failed is counted by outcome, has its tokens told
   apart, and makes the failure-adjusted percentiles infinite where it must.
2. Tokens are the backend's own count. Where it sent none they are estimated by characters and the level
   says `estimated`; where only some answers carried a count the level says `mixed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from proxy.meter.quantile import Percentiles, percentiles
from proxy.meter.reading import Reading

from . import span
from .doubt import Health, late, usage_source, warnings
from .metric import LATENCIES, METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a level is judged by."""

    max_tokens: int | None = None
    slos: Mapping[str, float] = field(default_factory=dict)  # metric -> bound
    instances: Sequence[Decimal] = ()  # prices of an instance per hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The report of one level. Seconds, tokens per second, money per million completion tokens."""

    backend: str
    concurrency: int | None
    rate: float | None
    outcomes: dict[str, int]
    metrics: dict[str, Percentiles]
    adjusted: dict[str, Percentiles]
    wall: float
    throughput: float | None
    steady: float | None
    goodput: float | None
    goodput_share: float | None
    completion_tokens: float
    failed_tokens: float
    usage_source: str
    cost: Decimal | None
    cost_per_million: float | None
    instance_cost: dict[str, float | None]
    health: Health
    valid: bool
    warnings: tuple[str, ...]

    @property
    def ok(self) -> int:
        return self.outcomes.get("ok", 0)

    @property
    def failed(self) -> int:
        return sum(self.outcomes.values()) - self.ok

    def json(self) -> dict[str, Any]:
        """One object for --json and summary.json."""
        return {
            "backend": self.backend,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "ok": self.ok,
            "failed": self.failed,
            "outcomes": self.outcomes,
            **{name: found.json() for name, found in self.metrics.items()},
            "adjusted": {name: found.json() for name, found in self.adjusted.items()},
            "throughput": self.throughput,
            "steady_throughput": self.steady,
            "goodput": self.goodput,
            "goodput_share": self.goodput_share,
            "completion_tokens": round(self.completion_tokens),
            "failed_tokens": round(self.failed_tokens),
            "usage_source": self.usage_source,
            "cost": None if self.cost is None else float(self.cost),
            "cost_per_million": self.cost_per_million,
            "instance_cost_per_million": self.instance_cost,
            "wall": self.wall,
            "valid": self.valid,
            "warnings": list(self.warnings),
        }


def level(
    readings: Sequence[Reading],
    *,
    backend: str,
    concurrency: int | None = None,
    rate: float | None = None,
    terms: Terms | None = None,
    health: Health | None = None,
    before: Sequence[Reading] = (),
) -> Level:
    """Fold the measured readings of one level. `before`: its warm-up, which is in no statistic but fills the window."""
    terms, health = terms or Terms(), health or Health()
    ok = [r for r in readings if r.outcome == "ok"]
    failed = [r for r in readings if r.outcome != "ok"]
    whole, steady = span.whole(readings), span.steady(readings, concurrency, before)
    wall = whole.seconds if whole else 0.0
    throughput = whole.throughput if whole and ok else None
    good = [r for r in ok if meets(r, terms.slos)]
    costs = [r.cost for r in ok if r.cost is not None]
    tokens = sum(span.size(r) for r in ok)
    metrics = {name: percentiles(metric.of(r) for r in ok) for name, metric in METRICS.items()}
    faults = [*health.faults(metrics["ttft"].p50), *late(readings)]
    return Level(
        backend=backend,
        concurrency=concurrency,
        rate=rate,
        outcomes=dict(Counter(r.outcome for r in readings)),
        metrics=metrics,
        adjusted={name: percentiles((METRICS[name].of(r) for r in ok), len(failed)) for name in LATENCIES},
        wall=wall,
        throughput=throughput,
        steady=steady.throughput if steady and ok else None,
        goodput=len(good) / wall if terms.slos and wall else None,
        goodput_share=len(good) / len(readings) if terms.slos and readings else None,
        completion_tokens=tokens,
        failed_tokens=sum(span.size(r) for r in failed),
        usage_source=usage_source(ok),
        cost=sum(costs, Decimal(0)) if costs else None,
        cost_per_million=token_price(ok),
        instance_cost={format(price, "f"): instance_price(price, throughput) for price in terms.instances},
        health=health,
        valid=bool(ok) and not faults,
        warnings=(*faults, *warnings(ok, failed, terms.max_tokens)),
    )


def meets(reading: Reading, slos: Mapping[str, float]) -> bool:
    """Whether an exchange kept every objective: latencies at most, rates at least the bound.

    A metric that is not defined (the decode rate of a one-burst answer) does not meet its objective.
    """
    for name, bound in slos.items():
        value = METRICS[name].of(reading)
        if value is None or (value > bound if METRICS[name].lower_is_better else value < bound):
            return False
    return True


def token_price(ok: Sequence[Reading]) -> float | None:
    """Σ cost / Σ completion tokens · 10⁶, of priced exchanges. None without a price or tokens."""
    priced = [(r.cost, r.tokens.completion) for r in ok if r.cost is not None and r.tokens.completion]
    if not priced:
        return None
    return float(sum((cost for cost, _ in priced), Decimal(0)) / sum(tokens for _, tokens in priced) * 1_000_000)


def instance_price(per_hour: Decimal, throughput: float | None) -> float | None:
    """Instance price per hour / (throughput · 3600) · 10⁶. None without throughput."""
    return float(per_hour) / (throughput * 3600) * 1e6 if throughput else None
