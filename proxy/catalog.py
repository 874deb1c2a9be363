"""What a backend says of its models in `/models`: their names, and what they cost where it publishes that.

Inception and OpenRouter publish prices as text, per token. They are list prices of the moment: a price in the
configuration has a date and wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

from .meter.cost import MILLION, Price

_LIMIT = 1000  # models: each becomes a label
_CACHED = ("input_cache_reads", "input_cache_read")


@dataclass(frozen=True, slots=True)
class Catalog:
    """A backend's models, in its own order."""

    models: tuple[str, ...] = ()
    prices: tuple[Price, ...] = ()

    @classmethod
    def of(cls, doc: Any) -> Catalog:
        """From the parsed answer. What is no list of models is an empty catalog."""
        rows = list(islice(_rows(doc), _LIMIT))
        priced = (_price(str(row["id"]), row.get("pricing")) for row in rows)
        return cls(tuple(str(row["id"]) for row in rows), tuple(price for price in priced if price is not None))


def _rows(doc: Any) -> Iterator[Mapping[str, Any]]:
    data = doc.get("data") if isinstance(doc, Mapping) else doc
    for row in data if isinstance(data, list) else ():
        if isinstance(row, Mapping) and isinstance(row.get("id"), str) and row["id"]:
            yield row


def _price(model: str, pricing: Any) -> Price | None:
    """Per million tokens; None unless both sides have one. A cache price of 0 is the schema's default: none."""
    if not isinstance(pricing, Mapping):
        return None
    given, made = _amount(pricing.get("prompt")), _amount(pricing.get("completion"))
    if given is None or made is None:
        return None
    cached = next((amount for key in _CACHED if (amount := _amount(pricing.get(key)))), None)
    return Price(model=model, input=given, output=made, cached_input=cached)


def _amount(text: Any) -> Decimal | None:
    """The price of a million tokens, from that of one; None for anything that is no price."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        amount = Decimal(str(text)) * MILLION
    except InvalidOperation:
        return None
    return amount.normalize() + 0 if amount.is_finite() and amount >= 0 else None
