"""When the n-th request goes. Pure: times are seconds from the start of the run, chance is an argument.

Closed: so many clients, each sends its next request when its answer is in; the server sets the pace, and a
slow one is asked less. Open: requests go at their times whatever the server does, as traffic does; only
then does queueing show. An open schedule is unit gaps (constant 1, exponential, gamma) run through the
inverse of the cumulative rate, so that every kind of arrival can follow every ramp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

ARRIVALS = ("constant", "poisson", "gamma")


class Source(Protocol):
    """Where chance comes from: `random.Random(seed)` fits."""

    def expovariate(self, lambd: float, /) -> float: ...
    def gammavariate(self, alpha: float, beta: float, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Closed:
    """`concurrency` clients; they come in one by one within the first `ramp` seconds."""

    concurrency: int
    ramp: float = 0.0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {self.concurrency}")

    def entry(self, client: int) -> float:
        """When client 0, 1, ... sends its first request."""
        return self.ramp * client / self.concurrency

    def share(self, part: int, parts: int) -> list[int]:
        """The clients that process `part` of `parts` plays."""
        return list(range(part, self.concurrency, parts))


class Knot(NamedTuple):
    """A point of a piecewise linear rate."""

    at: float  # seconds
    rate: float  # requests per second


@dataclass(frozen=True, slots=True)
class Open:
    """Requests at times of their own; `knots` say how fast. Before the first and after the last the rate is level."""

    knots: tuple[Knot, ...]
    arrivals: str = "poisson"
    burstiness: float = 1.0  # of gamma: its shape; below 1 requests come in clusters, 1 is poisson

    def __post_init__(self) -> None:
        if self.arrivals not in ARRIVALS:
            raise ValueError(f"arrivals must be one of {', '.join(ARRIVALS)}, not {self.arrivals!r}")
        if not self.knots or any(not (k.rate >= 0 and math.isfinite(k.rate)) for k in self.knots):
            raise ValueError("a rate must be a number of requests per second, not below 0")
        if not any(k.rate for k in self.knots):
            raise ValueError("the rate is never above 0: nothing would be sent")
        if any(b.at <= a.at for a, b in zip(self.knots, self.knots[1:], strict=False)) or self.knots[0].at < 0:
            raise ValueError("the times of a ramp must rise")
        if not self.burstiness > 0:
            raise ValueError(f"burstiness must be above 0, not {self.burstiness}")

    @classmethod
    def at(cls, rate: float, arrivals: str = "poisson", burstiness: float = 1.0, ramp: float = 0.0) -> Open:
        """A level rate, reached in a straight line from 0 within `ramp` seconds."""
        knots = (Knot(0.0, 0.0), Knot(ramp, rate)) if ramp > 0 else (Knot(0.0, rate),)
        return cls(knots, arrivals, burstiness)

    def times(self, random: Source) -> Iterator[float]:
        """Ascending; endless unless the rate ends at 0."""
        return _follow(self._units(random), self.knots)

    def _units(self, random: Source) -> Iterator[float]:
        """Gaps of mean 1. Constant arrivals start at once."""
        if self.arrivals == "constant":
            yield 0.0
        while True:
            if self.arrivals == "constant":
                yield 1.0
            elif self.arrivals == "poisson":
                yield random.expovariate(1.0)
            else:
                yield random.gammavariate(self.burstiness, 1.0 / self.burstiness)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The times of real traffic, `pace` times as fast."""

    moments: tuple[float, ...]
    pace: float = 1.0

    def __post_init__(self) -> None:
        if not self.pace > 0:
            raise ValueError(f"pace must be above 0, not {self.pace}")

    def times(self, random: Source) -> Iterator[float]:
        first = min(self.moments, default=0.0)
        return ((moment - first) / self.pace for moment in sorted(self.moments))


def _follow(units: Iterable[float], knots: Sequence[Knot]) -> Iterator[float]:
    """The moments at which the area under the rate reaches the sums of `units`."""
    total = 0.0  # area wanted
    index, passed = -1, 0.0  # the segment at hand, and the area before it
    start, rate, slope, length = 0.0, knots[0].rate, 0.0, knots[0].at  # the level part before the first knot
    for unit in units:
        total += unit
        while total - passed > (area := (rate + slope * length / 2) * length):
            index, passed = index + 1, passed + area
            start, rate, slope, length = _segment(knots, index)
            if length == math.inf and rate == 0:
                return
        root = math.sqrt(max(0.0, rate * rate + 2 * slope * (total - passed)))
        yield start + (2 * (total - passed) / (rate + root) if rate + root else 0.0)


def _segment(knots: Sequence[Knot], index: int) -> tuple[float, float, float, float]:
    """Start, rate there, slope and length of the part after knot `index`."""
    here = knots[index]
    if index + 1 == len(knots):
        return here.at, here.rate, 0.0, math.inf
    following = knots[index + 1]
    length = following.at - here.at
    return here.at, here.rate, (following.rate - here.rate) / length, length


def dealt(times: Iterable[float], part: int, parts: int) -> Iterator[tuple[int, float]]:
    """The requests (number, time) that process `part` of `parts` sends: every `parts`-th."""
    return ((n, at) for n, at in enumerate(times) if n % parts == part)
