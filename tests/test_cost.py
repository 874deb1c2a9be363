"""Money: hand-computed, exact, and None where it is unknown."""

from __future__ import annotations

from decimal import Decimal

import pytest

from proxy.meter import Book, Price, Usage, cost

AR = Price(model="m-ar", input=Decimal("1.00"), cached_input=Decimal("0.10"), output=Decimal("4.00"))
DIFFUSION = Price(model="m-dif", input=Decimal("0.25"), cached_input=Decimal("0.025"), output=Decimal("1.00"))
FREE = Price(model="free", input=Decimal(0), output=Decimal(0))

BILLS = {
    # (20,000 - 16,000) x 1.00 + 16,000 x 0.10 + 1,000 x 4.00 = 4,000 + 1,600 + 4,000 per million
    "cached tokens at their own price": (AR, Usage(prompt=20_000, cached=16_000, completion=1_000), "0.0096"),
    # 400 x 0.25 + 600 x 0.025 + 200 x 1.00 = 100 + 15 + 200
    "reasoning is part of completion": (
        DIFFUSION,
        Usage(prompt=1000, cached=600, completion=200, reasoning=80),
        "0.000315",
    ),
    # 15,000 x 1.00 + 2,000 x 4.00
    "and not added to it": (AR, Usage(prompt=15_000, completion=2_000, reasoning=1_400), "0.023"),
    # 50 x 1.00 + 2 x 4.00
    "a cut stream costs what it told": (AR, Usage(prompt=50, completion=2), "0.000058"),
    "no cached price means the full one": (
        Price(model="m", input=Decimal("0.2"), output=Decimal("0.75")),
        Usage(prompt=10, cached=10, completion=0),
        "0.000002",
    ),
    "more cached than prompt is all of the prompt": (AR, Usage(prompt=10, cached=99, completion=0), "0.000001"),
    "a price of 0 is 0": (FREE, Usage(prompt=10, completion=10), "0"),
    # 0.1 + 0.2 is 0.3 in money
    "no binary fractions": (
        Price(model="m", input=Decimal("0.1"), output=Decimal("0.2")),
        Usage(prompt=1_000_000, completion=1_000_000),
        "0.3",
    ),
}


@pytest.mark.parametrize("price, tokens, amount", BILLS.values(), ids=BILLS.keys())
def test_the_bill_is_exact(price: Price, tokens: Usage, amount: str) -> None:
    assert cost(tokens, price) == Decimal(amount)


@pytest.mark.parametrize("tokens", [Usage(), Usage(prompt=10), Usage(completion=10), Usage(total=10)])
def test_unreported_tokens_have_no_cost(tokens: Usage) -> None:
    assert cost(tokens, AR) is None


def test_a_model_without_a_price_costs_none_not_0() -> None:
    assert cost(Usage(prompt=10, completion=10), None) is None


OLD = Price(model="m", start=100.0, input=Decimal(2), output=Decimal(2))
NEW = Price(model="m", start=200.0, input=Decimal(1), output=Decimal(1))
ANY = Price(model="*", start=150.0, input=Decimal(9), output=Decimal(9))


@pytest.mark.parametrize(
    "model, when, price",
    [
        ("m", 99.9, None),
        ("m", 100.0, OLD),
        ("m", 199.9, OLD),
        ("m", 200.0, NEW),
        ("m", 1e9, NEW),
        ("other", 149.9, None),
        ("other", 150.0, ANY),
        (None, 150.0, ANY),
    ],
)
def test_the_price_is_the_latest_that_has_started(model: str | None, when: float, price: Price | None) -> None:
    assert Book([NEW, ANY, OLD]).at(model, when) is price


def test_an_empty_book_prices_nothing() -> None:
    assert Book([]).at("m", 0.0) is None
