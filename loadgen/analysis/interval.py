"""How sure one can be: 95 % intervals that assume nothing about the shape of latencies.

1. `bootstrap`: the percentile bootstrap, exact in law and cheap. The k-th order statistic of a resample
   of n values is x[⌊n·U⌋] with U the k-th order statistic of n uniform numbers, which is Beta(k, n-k+1).
   So a resample costs two Beta numbers instead of n draws and a sort.
2. `order_statistic`: two of the measured values that enclose the true quantile with at least the asked
   probability, by the binomial law. None when n is too small for that: an honest "not known".
3. `repeats`: of a few whole runs, Student's t interval of their mean: so few values allow nothing better.
4. `sign_test`: whether of two things that differ in n cases one wins more often than chance lets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma, log, sqrt
from typing import NamedTuple, Protocol

CONFIDENCE = 0.95


class Source(Protocol):
    """Where chance comes from: `random.Random(seed)` fits."""

    def betavariate(self, alpha: float, beta: float) -> float: ...


class Interval(NamedTuple):
    low: float
    high: float


def bootstrap(
    ordered: Sequence[float], q: float, source: Source, *, resamples: int = 2000, confidence: float = CONFIDENCE
) -> Interval | None:
    """The percentile bootstrap of the q-th percentile (0..100) of ascending values. None below two values."""
    n = len(ordered)
    if n < 2:
        return None
    place = (n - 1) * q / 100
    rank, share = int(place), place - int(place)
    estimates = sorted(_resampled(ordered, rank, share, source) for _ in range(resamples))
    tail = round((1 - confidence) / 2 * (resamples - 1))
    return Interval(estimates[tail], estimates[-1 - tail])


def _resampled(ordered: Sequence[float], rank: int, share: float, source: Source) -> float:
    n = len(ordered)
    lower = source.betavariate(rank + 1, n - rank)
    low = ordered[min(n - 1, int(lower * n))]
    if share == 0:
        return low
    upper = lower + (1 - lower) * source.betavariate(1, n - rank - 1)  # the next uniform number above it
    high = ordered[min(n - 1, int(upper * n))]
    return low if high == low else low + (high - low) * share


def order_statistic(ordered: Sequence[float], q: float, *, confidence: float = CONFIDENCE) -> Interval | None:
    """Values x[l], x[u] with P(x[l] <= the true q-th percentile <= x[u]) >= confidence: as narrow as equal tails allow.

    Where one tail cannot be cut off, the interval ends at that extreme and the other tail gets what is left.
    None where even the extremes are not sure enough (the median below n = 6, P95 below n = 59).
    """
    n, p, spare = len(ordered), q / 100, 1 - confidence
    if n < 2:
        return None
    above_all, below_all = p**n, (1 - p) ** n  # the true value lies beyond the largest, beyond the smallest
    if above_all + below_all > spare:
        return None
    chances = _binomial(n, p)  # of k values lying below the true percentile
    low = _cut(chances, spare / 2 if above_all <= spare / 2 else spare - above_all)
    high = _cut(chances[::-1], spare / 2 if below_all <= spare / 2 else spare - below_all)
    return Interval(ordered[max(0, low)], ordered[min(n - 1, n - 1 - high)])


def _cut(chances: Sequence[float], budget: float) -> int:
    """The index of the order statistic that cuts off as many of the first chances as fit into the budget."""
    total = 0.0
    for count, chance in enumerate(chances):
        total += chance
        if total > budget:
            return count - 1
    return len(chances) - 1


# 97.5 % points of Student's t for 1, 2, ... degrees of freedom
_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448)


def repeats(values: Sequence[float]) -> Interval | None:
    """mean ± t · s / √n: the 95 % interval of the mean of n repeats. None below two."""
    n = len(values)
    if n < 2:
        return None
    mean = sum(values) / n
    spread = sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    half = _T[min(n - 1, len(_T)) - 1] * spread / sqrt(n)
    return Interval(mean - half, mean + half)


def sign_test(wins: int, losses: int) -> float:
    """P of a split at least this uneven if both were equally likely (two-sided, exact). Ties are left out."""
    n = wins + losses
    if n == 0:
        return 1.0
    chances = _binomial(n, 0.5)
    return min(1.0, 2 * sum(chances[: min(wins, losses) + 1]))


def _binomial(n: int, p: float) -> list[float]:
    if not 0 < p < 1:
        raise ValueError("the share must lie between 0 and 1")
    whole = lgamma(n + 1)
    return [exp(whole - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log(1 - p)) for k in range(n + 1)]
