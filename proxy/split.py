"""Who goes to which side of a split.

Weighted rendezvous hashing: every side draws a score from the identity alone, scaled by its share, and the highest
wins. So an identity stays where it is, a side that goes moves only its own, and when shares change between two sides
only those move who have to. Who has no identity is split by chance, which is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import accumulate


def choose(shares: Mapping[str, float], identity: str | None, name: str, draw: Callable[[], float]) -> str:
    """The side; `name`: the split's own, so that the same people are not on the same side of every split."""
    sides = {side: share for side, share in shares.items() if share > 0}
    if len(sides) == 1:
        return next(iter(sides))
    if identity is not None:
        return max(sides, key=lambda side: score(f"{name}\0{side}\0{identity}", sides[side]))
    point = draw() * sum(sides.values())
    ends = zip(sides, accumulate(sides.values()), strict=True)
    return next((side for side, end in ends if point < end), next(reversed(sides)))


def score(key: str, share: float) -> float:
    """share / -ln(u), u from (0, 1) by a stable hash of `key`: the highest score wins in proportion to its share."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    u = ((int.from_bytes(digest, "big") >> 12) + 0.5) / (1 << 52)
    return -share / math.log(u)
