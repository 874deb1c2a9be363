"""One level of load against one backend, folded into what is reported of it.

1. Latencies and rates are of ok exchanges only. What failed is counted by outcome, has its tokens told
   apart, and makes the failure-adjusted percentiles infinite where it must.
2. In an open loop every latency is also given from the intended start: a server that is late makes the
   next request late, and from the actual start that would not show.
3. Tokens are the backend's own count. Where it sent none they are estimated by characters and the level
   says `estimated`; where only some answers carried a count the level says `mixed`.
4. A level that the client could not have measured is not valid, whatever its numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from proxy.meter.reading import Reading

from . import span
from .quantile import P99_NEEDS, Percentiles, percentile, percentiles


@dataclass(frozen=True, slots=True)
class Metric:
    """A measurement of one exchange, as reports speak of it."""

    name: str
    title: str
    unit: str
    lower_is_better: bool
    of: Callable[[Reading], float | None]


def lag(reading: Reading) -> float | None:
    """Schedule lag: actual - intended start, seconds. None in a closed loop."""
    return None if reading.intended is None else -reading.intended


def burst(reading: Reading) -> float | None:
    """Mean tokens per arrival. None when the tokens are unknown or nothing came."""
    bursts = reading.bursts
    return sum(bursts) / len(bursts) if bursts else None


def largest_gap(reading: Reading) -> float | None:
    """The longest time between two arrivals, seconds. None below two arrivals."""
    return max(reading.gaps, default=None)


def from_intended(seconds: Callable[[Reading], float | None]) -> Callable[[Reading], float | None]:
    """The same latency, from the moment the request should have been sent. None in a closed loop."""

    def late(reading: Reading) -> float | None:
        value, behind = seconds(reading), lag(reading)
        return None if value is None or behind is None else value + behind

    return late


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft", "first token", "s", True, lambda r: r.ttft),
        Metric("ttfa", "first answer", "s", True, lambda r: r.ttfa),
        Metric("e2e", "whole answer", "s", True, lambda r: r.e2e),
        Metric("t90", "90 % of the answer", "s", True, lambda r: r.stability.t90),
        Metric("decode_rate", "decode rate", "tokens/s", False, lambda r: r.decode_rate),
        Metric("e2e_rate", "whole-answer rate", "tokens/s", False, lambda r: r.e2e_rate),
        Metric("tpot", "time per output token", "s", True, lambda r: r.tpot),
        Metric("silence", "silence", "s", True, lambda r: r.silence),
        Metric("burst", "tokens per arrival", "tokens", False, burst),
        Metric("largest_gap", "longest gap", "s", True, largest_gap),
        Metric("connect", "connect", "s", True, lambda r: r.connect or None),
        Metric("ttft_intended", "first token, from schedule", "s", True, from_intended(lambda r: r.ttft)),
        Metric("e2e_intended", "whole answer, from schedule", "s", True, from_intended(lambda r: r.e2e)),
        Metric("lag", "schedule lag", "s", True, lag),
        Metric("price", "price of an answer", "money", True, lambda r: None if r.cost is None else float(r.cost)),
    )
}
LATENCIES = ("ttft", "e2e")  # those that a failure makes infinite


@dataclass(frozen=True, slots=True)
class Health:
    """How the load generator itself fared: above a limit the client was the bottleneck."""

    loop_lag: float | None = None  # P99 of its event loop's delay, seconds
    cpu: float | None = None  # its busiest process's share of one core
    LAG_LIMIT = 0.025
    CPU_LIMIT = 0.9

    def faults(self) -> list[str]:
        found = []
        if self.loop_lag is not None and self.loop_lag > self.LAG_LIMIT:
            found.append(f"the client was the bottleneck: its event loop was {self.loop_lag * 1000:.0f} ms late at P99")
        if self.cpu is not None and self.cpu > self.CPU_LIMIT:
            found.append(f"the client was the bottleneck: it used {self.cpu:.0%} of a core; try --processes")
        return found


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
    faults = [*health.faults(), *_late(readings)]
    return Level(
        backend=backend,
        concurrency=concurrency,
        rate=rate,
        outcomes=dict(Counter(r.outcome for r in readings)),
        metrics={name: percentiles(metric.of(r) for r in ok) for name, metric in METRICS.items()},
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
        warnings=(*faults, *_warnings(ok, failed, terms)),
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


def usage_source(ok: Sequence[Reading]) -> str:
    """reported, estimated (no answer carried a count), mixed, or none (there is nothing to count)."""
    sources = {"reported" if r.tokens.completion is not None else "estimated" for r in ok if r.arrivals or r.tokens}
    return "none" if not sources else sources.pop() if len(sources) == 1 else "mixed"


def token_price(ok: Sequence[Reading]) -> float | None:
    """Σ cost / Σ completion tokens · 10⁶, of priced exchanges. None without a price or tokens."""
    priced = [(r.cost, r.tokens.completion) for r in ok if r.cost is not None and r.tokens.completion]
    if not priced:
        return None
    return float(sum((cost for cost, _ in priced), Decimal(0)) / sum(tokens for _, tokens in priced) * 1_000_000)


def instance_price(per_hour: Decimal, throughput: float | None) -> float | None:
    """Instance price per hour / (throughput · 3600) · 10⁶. None without throughput."""
    return float(per_hour) / (throughput * 3600) * 1e6 if throughput else None


def _late(readings: Sequence[Reading]) -> list[str]:
    """An open loop that could not keep its own schedule did not send the load it names."""
    lags = sorted(value for value in map(lag, readings) if value is not None)
    behind = percentile(lags, 95) if lags else 0.0
    if behind <= Health.LAG_LIMIT:
        return []
    return [f"the client fell behind its schedule: {behind * 1000:.0f} ms at P95"]


def _warnings(ok: Sequence[Reading], failed: Sequence[Reading], terms: Terms) -> list[str]:
    found = []
    total = len(ok) + len(failed)
    if failed:
        found.append(
            f"{len(failed)} of {total} requests failed; latencies are of the others, see the failure-adjusted row"
        )
        found.extend(_reasons(failed))
    if 0 < len(ok) < P99_NEEDS:
        found.append(f"P99 of {len(ok)} values is hardly more than their maximum: it needs {P99_NEEDS}")
    source = usage_source(ok)
    if source == "estimated":
        found.append("no usage was reported: tokens are estimated by characters")
    elif source == "mixed":
        found.append("only some answers carried usage: the others' tokens are estimated by characters")
    single = sum(r.decode_rate_reason == "single_burst" for r in ok)
    if single:
        found.append(f"{single} of {len(ok)} answers came in one burst: their decode rate is not defined")
    perturbed = sum(r.perturbed for r in ok)
    if perturbed > len(ok) / 20:
        found.append(f"{perturbed} of {len(ok)} readings are perturbed: the client's event loop was over 5 ms late")
    told = sorted({r.warning for r in ok if r.warning})
    found.extend(f"the backend warns: {' '.join(text.split())[:120]}" for text in told[:3])
    return found + _lengths(ok, terms.max_tokens)


def _reasons(failed: Sequence[Reading]) -> list[str]:
    """The three commonest reasons, in the words of whoever gave them."""
    reasons = Counter(_reason(r) for r in failed)
    found = [f"{count} failed: {reason}" for reason, count in reasons.most_common(3)]
    if any(r.status == 429 for r in failed):
        found.append("the backend limits the rate (429): --otpm paces the load, or ask less at once")
    return found


def _reason(reading: Reading) -> str:
    told = [reading.outcome, str(reading.status) if reading.status and reading.status != 200 else ""]
    if reading.fault is not None:
        told.append(reading.fault.message or reading.fault.type)
    return " ".join(" ".join(told).split())[:160]


def _lengths(ok: Sequence[Reading], max_tokens: int | None) -> list[str]:
    """Throughputs compare only between answers of one length."""
    lengths = sorted(r.tokens.completion for r in ok if r.tokens.completion is not None)
    if not lengths or max_tokens is None:
        return []
    found = []
    over = sum(length > max_tokens for length in lengths)
    early = sum(length < 0.9 * max_tokens for length in lengths)
    if over:
        found.append(
            f"{over} of {len(lengths)} answers are longer than max_tokens = {max_tokens}: the server ignores it"
        )
    if early:
        span = f"{percentile(lengths, 10):.0f} to {percentile(lengths, 90):.0f}"
        found.append(
            f"{early} of {len(lengths)} answers end before max_tokens = {max_tokens} ({span} tokens): lengths drift"
        )
    return found
