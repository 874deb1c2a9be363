"""Two backends, asked in pairs: the ratio, how sure it is, and what follows.

The same prompt goes to both within moments, in random order, so that whatever drifts (the network, the
neighbours, the time of day) touches both. What counts is each pair's own ratio b / a:

1. The estimate is the median ratio, the interval is that of an order statistic: no assumption about the
   shape of latencies, and one stalled answer cannot move it.
2. A failed answer is infinitely slow (`worst`). Its pair's ratio is then 0 or infinite, which a median
   takes. A pair of which both failed, or where the metric is not defined, says nothing: left out, counted.
3. Where the interval holds 1 the verdict is "undecided". More pairs narrow it; a wish does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

from proxy.meter.quantile import percentile

from .interval import CONFIDENCE, order_statistic, sign_test

FEWEST = 6  # the least number of pairs of which a 95 % interval of the median exists


@dataclass(frozen=True, slots=True)
class Ratio:
    """b / a of one metric, and what that says of b: better, worse or undecided."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    pairs: int
    left_out: int
    verdict: str

    def json(self) -> dict[str, Any]:
        numbers = {name: _finite(getattr(self, name)) for name in ("value", "low", "high")}
        rest = {"metric": self.metric, "pairs": self.pairs, "left_out": self.left_out, "verdict": self.verdict}
        return numbers | rest


@dataclass(frozen=True, slots=True)
class Decision:
    """For one scenario: which backend, and on what evidence."""

    scenario: str
    choice: str  # a backend's name, or "undecided"
    evidence: str


def ratio(metric: str, pairs: Iterable[tuple[float | None, float | None]], *, lower_is_better: bool) -> Ratio:
    """The median of b / a over pairs (a, b), with its distribution-free 95 % interval. None in a pair: not defined."""
    quotients: list[float] = []
    left_out = 0
    for a, b in pairs:
        quotient = _quotient(a, b)
        if quotient is None:
            left_out += 1
        else:
            quotients.append(quotient)
    quotients.sort()
    value = percentile(quotients, 50) if quotients else None
    found = order_statistic(quotients, 50) if len(quotients) >= FEWEST else None
    if found is None:
        return Ratio(metric, value, None, None, len(quotients), left_out, "undecided")
    verdict = _verdict(found.low, found.high, lower_is_better)
    return Ratio(metric, value, found.low, found.high, len(quotients), left_out, verdict)


def worst(lower_is_better: bool) -> float:
    """What a failed answer counts as in a pair."""
    return inf if lower_is_better else 0.0


def decide(scenario: str, names: tuple[str, str], speed: Ratio, quality: Iterable[tuple[bool, bool]]) -> Decision:
    """The faster backend, unless its answers pass significantly fewer checks; "undecided" when speed is.

    `quality`: for each prompt whether a's and b's answer passed. Only prompts where they differ count (sign test).
    """
    differing = [a for a, b in quality if a != b]
    a_only, b_only = sum(differing), len(differing) - sum(differing)
    sure = sign_test(a_only, b_only) < 1 - CONFIDENCE
    told = _told(names, speed)
    if speed.verdict == "undecided":
        return Decision(scenario, "undecided", told)
    faster = names[1] if speed.verdict == "better" else names[0]
    more_correct = names[0] if a_only > b_only else names[1]
    if not sure:
        return Decision(scenario, faster, told)
    told += f"; {more_correct} passes {max(a_only, b_only)} checks that the other fails, against {min(a_only, b_only)}"
    return Decision(scenario, faster if faster == more_correct else "undecided", told)


def _told(names: tuple[str, str], speed: Ratio) -> str:
    if speed.low is None or speed.high is None:
        return f"{speed.metric}: {speed.pairs} pairs are too few for an interval ({FEWEST} are needed)"
    quotient = f"{speed.metric} {names[1]} / {names[0]} = {_number(speed.value)}"
    return f"{quotient} [{_number(speed.low)}, {_number(speed.high)}], {speed.pairs} pairs"


def _verdict(low: float, high: float, lower_is_better: bool) -> str:
    if high < 1:
        return "better" if lower_is_better else "worse"
    if low > 1:
        return "worse" if lower_is_better else "better"
    return "undecided"


def _quotient(a: float | None, b: float | None) -> float | None:
    if a is None or b is None or (a == b and (a == 0 or isinf(a))):
        return None
    return inf if a == 0 else b / a


def _finite(value: float | None) -> float | None:
    return None if value is None or isinf(value) else value


def _number(value: float | None) -> str:
    return "∞" if value is None or isinf(value) else f"{value:.2f}"
