"""What the last minute says: one row per backend, computed from raw values, never from buckets.

1. A finished exchange leaves a `Sample`: the few numbers that the rows need. Samples are small, so a
   window can hold far more exchanges than the ring holds readings.
2. Everything here is a function of samples and of the time it is told. An undefined number is None.
3. Latencies are those of streamed answers. A JSON answer has one arrival, at its end: its ttft is its
   e2e, and mixing the two says nothing about either.
4. Rates are over the seconds that the samples really cover, which the answer states.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from .meter import Reading
from .meter.quantile import percentiles
from .metrics import LATENCY  # so that the page and Grafana draw the same shape

NOT_FAILED = frozenset({"ok", "client_gone"})  # a client that leaves is no fault of a backend


class Backend(NamedTuple):
    """What the page must know of a configured backend. It has a row from the start, traffic or not."""

    name: str
    decoding: str | None = None
    instance_per_hour: Decimal = Decimal(0)
    currency: str = "USD"


class Sample(NamedTuple):
    """One finished exchange, as far as the rows need it."""

    at: float  # wall clock, when it was done
    backend: str | None
    decoding: str | None
    outcome: str
    ttft: float | None  # of streamed answers only
    silence: float | None  # likewise
    e2e: float
    arrivals: int
    completion: int | None
    rate: float | None
    cost: Decimal | None
    currency: str

    @classmethod
    def of(cls, reading: Reading) -> Sample:
        streamed = reading.streamed
        return cls(
            reading.started_at + reading.done,
            reading.backend,
            reading.decoding,
            reading.outcome,
            reading.ttft if streamed else None,
            reading.silence if streamed else None,
            reading.e2e,
            len(reading.arrivals) if streamed else 0,
            reading.tokens.completion,
            reading.e2e_rate,
            reading.cost,
            reading.currency,
        )


def row(backend: Backend, samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """One backend's numbers over `seconds`; its samples are those of the window."""
    outcomes = Counter(s.outcome for s in samples)
    errors = sum(n for outcome, n in outcomes.items() if outcome not in NOT_FAILED)
    ok = [s for s in samples if s.outcome == "ok"]
    counted = [s for s in ok if s.completion is not None]
    completion = sum(s.completion or 0 for s in counted)
    streamed = [s for s in counted if s.arrivals]
    return {
        "name": backend.name,
        "decoding": backend.decoding,
        "n": len(samples),
        "rate": _over(len(samples), seconds),
        "errors": errors,
        "error_share": _over(errors, len(samples)),
        "outcomes": dict(sorted(outcomes.items())),
        "ttft": _spread(s.ttft for s in samples),
        "silence_share": silence_share(samples),
        "completion": completion,
        "throughput": _over(completion, seconds),
        "e2e_rate": _spread(s.rate for s in ok),
        "tokens_per_burst": _over(sum(s.completion or 0 for s in streamed), sum(s.arrivals for s in streamed)),
        "usage_unknown": len(ok) - len(counted),
        "costs": costs(backend, samples, seconds),
        "unpriced": sum(s.cost is None for s in ok),
    }


def silence_share(samples: Iterable[Sample]) -> float | None:
    """Time between the head and the first output, as a share of the whole: sum of silences / sum of e2e.

    Over streamed answers that had output. None without any.
    """
    heard = [s for s in samples if s.silence is not None]
    return _over(sum(s.silence or 0.0 for s in heard), sum(s.e2e for s in heard))


def costs(backend: Backend, samples: Iterable[Sample], seconds: float) -> list[dict[str, Any]]:
    """Cost per hour and per million completion tokens, for each currency that was charged.

    per_hour = sum of costs / seconds * 3600 + the instance's price per hour.
    per_million = (sum of costs + instance price * seconds / 3600) / completion tokens * 10^6; None without tokens.
    """
    spent: defaultdict[str, Decimal] = defaultdict(Decimal)
    tokens: Counter[str] = Counter()
    for s in samples:
        currency = backend.currency if s.cost is None else s.currency
        if s.cost is not None:
            spent[currency] += s.cost
        if s.cost is not None or backend.instance_per_hour:
            tokens[currency] += s.completion or 0
    if backend.instance_per_hour:
        spent[backend.currency] += backend.instance_per_hour * Decimal(seconds) / 3600
    return [
        {
            "currency": currency,
            "per_hour": _over(float(total) * 3600, seconds),
            "per_million": _over(float(total) * 1e6, tokens[currency]),
        }
        for currency, total in sorted(spent.items())
    ]


def distribution(samples: Iterable[Sample]) -> dict[str, Any]:
    """How the ttft of each decoding is spread: the share of its exchanges per bucket, and the n behind it.

    Bucket i holds bounds[i-1] < ttft <= bounds[i]; one more at the end holds what is above the last bound.
    """
    counts: dict[str, list[int]] = {}
    for s in samples:
        if s.ttft is not None and s.decoding is not None:
            bucket = counts.setdefault(s.decoding, [0] * (len(LATENCY) + 1))
            bucket[bisect_left(LATENCY, s.ttft)] += 1
    return {
        "bounds": LATENCY,
        "decodings": {
            name: {"n": sum(bucket), "shares": [n / sum(bucket) for n in bucket]}
            for name, bucket in sorted(counts.items())
        },
    }


class Series:
    """Completion tokens by the second in which they arrived, for each backend.

    A token is known to be one when its exchange has ended (that is when usage comes), so the newest
    seconds still grow. Only ok exchanges with reported usage count, as in the throughput.
    """

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._seconds: dict[str, dict[int, float]] = {}

    def add(self, reading: Reading) -> None:
        bursts = reading.bursts
        if reading.outcome != "ok" or reading.backend is None or bursts is None:
            return
        seconds = self._seconds.setdefault(reading.backend, {})
        for second, size in by_second(reading.started_at, reading.arrivals.column("at"), bursts):
            seconds[second] = seconds.get(second, 0.0) + size
        if len(seconds) > 2 * self._horizon:
            for second in sorted(seconds)[: -self._horizon]:
                del seconds[second]

    def copy(self) -> dict[str, dict[int, float]]:
        return {name: dict(seconds) for name, seconds in self._seconds.items()}


def by_second(start: float, times: Sequence[float], sizes: Sequence[float]) -> Iterator[tuple[int, float]]:
    """The sizes added up for each second of the clock; `times` ascend, seconds after `start`."""
    first = 0
    while first < len(times):
        second = int(start + times[first])
        last = bisect_left(times, second + 1 - start, first + 1)
        yield second, sum(sizes[first:last])
        first = last


def tokens(seconds: Mapping[str, Mapping[int, float]], now: float, span: int) -> dict[str, Any]:
    """The last `span` whole seconds before `now`: values[i] are the tokens of second start + i."""
    start = int(now) - span
    return {
        "start": start,
        "backends": {
            name: [round(found.get(second, 0.0), 3) for second in range(start, start + span)]
            for name, found in sorted(seconds.items())
        },
    }


def _spread(values: Iterable[float | None]) -> dict[str, Any]:
    found = percentiles(values)
    return {"n": found.n, "p50": found.p50, "p95": found.p95}


def _over(amount: float, base: float) -> float | None:
    return amount / base if base else None
