"""Streams whose every delta replaces the text so far, as diffusion models show their denoising.

For each position of the text it is kept when that character last changed. From this follow, exactly and
without keeping any earlier snapshot: when a share of the final answer was there for good, when its first
character was, and how many characters became final in which arrival.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress
from operator import ne

from .timeline import Settled

# Beyond this many characters a position-wise comparison would cost more than the measurement is worth.
LIMIT = 1 << 20


class Snapshots:
    """One choice's text as it is rewritten."""

    __slots__ = ("_changed", "shown", "text")

    def __init__(self) -> None:
        self.text = ""
        self.shown = 0  # characters of all snapshots
        self._changed = array("d")  # per position of the longest text so far: when it last changed

    def show(self, text: str, at: float) -> None:
        text = text[:LIMIT]
        before, self.text = self.text, text
        self.shown += len(text)
        changed = self._changed
        for position in compress(range(len(text)), map(ne, before, text)):
            changed[position] = at
        if len(text) > len(before):
            del changed[len(before) :]
            changed.extend([at]) if len(text) - len(before) == 1 else changed.extend([at] * (len(text) - len(before)))

    @property
    def changes(self) -> array[float]:
        """Per character of the final text: the time from which it did not change any more."""
        return self._changed[: len(self.text)]


def settled(choices: list[Snapshots]) -> Settled:
    """When 50, 90 and 100 % of the final text were there for good (its prefix), its first character, and the churn.

    churn = (sum of the snapshots' lengths - final length) / final length. With several choices: the
    slowest one's times. No answer: all None.
    """
    texts = [choice.changes for choice in choices if choice.text]
    if not texts:
        return Settled()
    t50, t90, t100 = (max(max(times[: _share(len(times), share)]) for times in texts) for share in (50, 90, 100))
    final = sum(map(len, texts))
    churn = (sum(choice.shown for choice in choices) - final) / final
    return Settled(t50, t90, t100, min(min(times) for times in texts), churn)


def _share(length: int, percent: int) -> int:
    """The smallest number of characters that is `percent` of them."""
    return -(-length * percent // 100)


def finals(choices: list[Snapshots], times: list[float]) -> list[int]:
    """Per arrival (their times, ascending): how many characters of the final text were final from then on."""
    counts = [0] * len(times)
    for choice in choices:
        for at in choice.changes:
            counts[min(bisect_left(times, at), len(times) - 1)] += 1
    return counts
