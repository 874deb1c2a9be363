"""Whether a parameter does anything: pairs of the same request with little and with much of it, measured in turn.

ratio = exp(mean of ln(much / little)) over the pairs, with the 95 % interval of Student's t on the logarithms.
Pairs are interleaved, so that a server that warms up or slows down does so to both sides. "Seen" needs both: an
interval that leaves out 1, and a ratio that somebody would notice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOTICEABLE = 1.1
PLAIN = 3.0  # a ratio that needs no second look

# Student's t, two-sided 95 %, by degrees of freedom; beyond the table its last value is a little too wide.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@dataclass(frozen=True, slots=True)
class Effect:
    """The ratio of much to little, and its interval; both None without two good pairs."""

    pairs: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def seen(self) -> bool | None:
        """None: cannot be said."""
        if self.ratio is None or self.low is None or self.high is None:
            return None
        return not self.low <= 1 <= self.high and max(self.ratio, 1 / self.ratio) >= NOTICEABLE

    @property
    def doubtful(self) -> bool:
        """Seen, and yet so small that chance may have done it: one trial in twenty would show some effect."""
        return bool(self.seen) and self.ratio is not None and max(self.ratio, 1 / self.ratio) < PLAIN

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Effect:
        """From (little, much) of each pair."""
        logs = [math.log(much / little) for little, much in pairs if little > 0 and much > 0]
        n = len(logs)
        if n < 2:
            return cls(n)
        mean = sum(logs) / n
        variance = sum((x - mean) ** 2 for x in logs) / (n - 1)
        margin = _T[min(n - 2, len(_T) - 1)] * math.sqrt(variance / n)
        return cls(n, math.exp(mean), math.exp(mean - margin), math.exp(mean + margin))


def turns(pairs: int) -> list[tuple[int, int]]:
    """The order of sides (0 little, 1 much), pair by pair: AB BA AB, so that neither always comes first."""
    return [(0, 1) if pair % 2 == 0 else (1, 0) for pair in range(pairs)]
