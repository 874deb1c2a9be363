"""Percentiles of raw values. Never averaged, never from buckets, always with their n.

One definition everywhere: linear interpolation between order statistics (Hyndman and Fan's type 7,
numpy's default). A failed request has no latency, so it is not among the values; but leaving it out
flatters a server that fails when it is slow. `adjusted` therefore counts each failure as an infinite
latency: a percentile of it is infinite as soon as that share of the requests failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isinf
from typing import NamedTuple

P99_NEEDS = 100  # below this many values the 99th percentile is hardly more than the maximum


class Percentiles(NamedTuple):
    """Of n raw values, in their own unit. All None when n is 0."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    n: int

    def json(self) -> dict[str, float | int | None]:
        """JSON has no infinity: null stands for it, as it does for "no values" (then n is 0)."""
        return {k: None if isinstance(v, float) and isinf(v) else v for k, v in self._asdict().items()}


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-th percentile (0..100) of ascending values: x[i] + (x[i+1] - x[i]) · f, where i + f = (n-1) · q / 100."""
    if not ordered:
        raise ValueError("a percentile needs at least one value")
    place = (len(ordered) - 1) * q / 100
    index = int(place)
    share = place - index
    low = ordered[index]
    if share == 0 or ordered[index + 1] == low:  # also keeps infinity minus infinity away
        return low
    return low + (ordered[index + 1] - low) * share


def percentiles(values: Iterable[float | None], failures: int = 0) -> Percentiles:
    """P50, P90, P95 and P99 of the values that are defined, each failure counted as an infinite one."""
    ordered = sorted(value for value in values if value is not None) + [inf] * failures
    if not ordered:
        return Percentiles(None, None, None, None, 0)
    p50, p90, p95, p99 = (percentile(ordered, q) for q in (50, 90, 95, 99))
    return Percentiles(p50, p90, p95, p99, len(ordered))
