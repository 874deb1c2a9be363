"""All series by metric and labels, and no more of them than allowed.

1. Whatever is asked for exists from then on; asking is one look into a dictionary.
2. The number of lines in a scrape is capped. What would pass the cap is counted with its open labels set to
   `other` (and its closed ones kept), and the refusal is counted: totals stay right, only detail is lost.
3. There is no lock in here: whoever folds from one thread and scrapes from another has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from .metrics import CLOSED, SERIES_REFUSED, Metric
from .tally import Count, FrozenCount, FrozenTally, Tally

OTHER = "other"

Labels = tuple[str, ...]
Frozen = list[tuple[Metric, list[tuple[Labels, FrozenCount | FrozenTally]]]]


class Series:
    """The children of every metric. `limit` is the number of lines that they may be in a scrape."""

    def __init__(self, metrics: Iterable[Metric], limit: int) -> None:
        self._limit = limit
        self._lines = 0
        self._children: dict[Metric, dict[Labels, Any]] = {metric: {} for metric in metrics}

    def child(self, metric: Metric, labels: Labels) -> Any:
        """Its Count or Tally."""
        child = self._children[metric].get(labels)
        return self._make(metric, labels) if child is None else child

    def count(self, metric: Metric, labels: Labels, amount: float | Decimal = 1) -> Count:
        child: Count = self.child(metric, labels)
        child.value += amount  # type: ignore[operator]  # a series holds floats or Decimals, never both
        return child

    def frozen(self) -> Frozen:
        """A copy of everything, as it is now."""
        return [
            (metric, [(labels, child.frozen()) for labels, child in children.items()])
            for metric, children in self._children.items()
        ]

    def _make(self, metric: Metric, labels: Labels) -> Any:
        family = self._children[metric]
        if self._lines + metric.lines > self._limit:
            self._children[SERIES_REFUSED].setdefault((), Count()).value += 1
            labels = tuple(
                value if name in CLOSED else OTHER for name, value in zip(metric.labels, labels, strict=True)
            )
            if labels in family:
                return family[labels]
        self._lines += metric.lines
        family[labels] = Tally(metric.bounds) if metric.kind == "histogram" else Count()
        return family[labels]
