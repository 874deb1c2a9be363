"""What an exchange cost: reported tokens times the price in force when it was received.

Money is Decimal from the configuration file to the report; prices are per million tokens. A model
without a price costs None (it is counted as unpriced), which is not 0: a price of 0 must be written down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from .usage import Usage

MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One row of the price book. `model` may be `*`: any model of the backend that has no row of its own."""

    model: str
    start: float = 0.0  # in force from this time on, seconds since the epoch
    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None  # None: cached tokens cost as much as others
    currency: str = "USD"


class Book:
    """A backend's prices by model and time."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._rows: dict[str, list[Price]] = {}
        for price in sorted(prices, key=lambda row: row.start, reverse=True):
            self._rows.setdefault(price.model, []).append(price)

    def at(self, model: str | None, when: float) -> Price | None:
        """The price of `model` in force at `when` (epoch seconds): the latest that has started. None: unpriced."""
        for rows in (self._rows.get(model or ""), self._rows.get("*")):
            for price in rows or ():
                if price.start <= when:
                    return price
        return None


def cost(tokens: Usage, price: Price | None) -> Decimal | None:
    """(prompt - cached) * input + cached * cached_input + completion * output, per million.

    Reasoning is part of completion and cached is part of prompt, so neither is added again. None without
    a price, and when prompt or completion tokens were not reported.
    """
    if price is None or tokens.prompt is None or tokens.completion is None:
        return None
    cached = min(tokens.cached or 0, tokens.prompt)
    cached_price = price.input if price.cached_input is None else price.cached_input
    amount = (tokens.prompt - cached) * price.input + cached * cached_price + tokens.completion * price.output
    return amount / MILLION
