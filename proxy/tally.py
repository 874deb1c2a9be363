"""What one series holds: a number, or the counts of a histogram's buckets, in plain Python.

1. Folding a reading happens for every request and touches about thirty of these, so an observation is one
   bisect and two additions. There is no lock in here: the exporter has one.
2. Per-arrival values come by the hundred. They are sorted once and the *bounds* are looked up in them.
3. `frozen` is a copy of everything, cheap enough to take while streams run; rendering works on the copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

_FEW = 8  # below this many values, looking up each value is cheaper than sorting them


class Mark(NamedTuple):
    """An exemplar: the request that was seen there, its value, and when (seconds since the epoch)."""

    id: str
    value: float
    at: float


class FrozenCount(NamedTuple):
    value: float
    mark: Mark | None


class FrozenTally(NamedTuple):
    counts: tuple[int, ...]  # of each bucket alone; the last is +Inf
    total: float
    marks: tuple[Mark | None, ...]


class Count:
    """A counter or a gauge. Money stays Decimal, so that the sum is the sum."""

    __slots__ = ("mark", "value")

    def __init__(self) -> None:
        self.value: int | float | Decimal = 0
        self.mark: Mark | None = None

    def frozen(self) -> FrozenCount:
        return FrozenCount(float(self.value), self.mark)


class Tally:
    """A histogram. A value belongs to the first bucket whose bound is not below it."""

    __slots__ = ("_bounds", "_counts", "_marks", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._marks: list[Mark | None] = [None] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float, id: str | None = None, at: float = 0.0) -> None:
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._total += value
        if id is not None:
            self._marks[bucket] = Mark(id, value, at)

    def add_all(self, values: Sequence[float]) -> None:
        """As `add` of each, without marks."""
        if len(values) < _FEW:
            for value in values:
                self.add(value)
            return
        ordered = sorted(values)
        below = 0
        for bucket, bound in enumerate(self._bounds):
            upto = bisect_right(ordered, bound, below)
            self._counts[bucket] += upto - below
            below = upto
        self._counts[-1] += len(ordered) - below
        self._total += sum(values)

    def frozen(self) -> FrozenTally:
        return FrozenTally(tuple(self._counts), self._total, tuple(self._marks))
