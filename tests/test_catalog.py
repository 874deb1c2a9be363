"""Models and prices as backends publish them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from proxy.catalog import Catalog
from proxy.meter.cost import Price


def test_prices_per_token_become_prices_per_million() -> None:
    pricing = {"prompt": "0.00000004", "completion": "0.00000015", "input_cache_reads": "0.000000004"}
    found = Catalog.of({"data": [{"id": "mercury-2.5", "pricing": pricing}]})
    price = Price(model="mercury-2.5", input=Decimal("0.04"), output=Decimal("0.15"), cached_input=Decimal("0.004"))
    assert found == Catalog(("mercury-2.5",), (price,))


def test_a_cache_price_of_zero_means_that_none_is_published() -> None:
    pricing = {"prompt": "0.000001", "completion": "0.000002", "input_cache_reads": "0"}
    assert Catalog.of({"data": [{"id": "m", "pricing": pricing}]}).prices[0].cached_input is None


def test_free_is_a_price() -> None:
    found = Catalog.of({"data": [{"id": "m", "pricing": {"prompt": "0", "completion": 0}}]})
    assert (found.prices[0].input, found.prices[0].output) == (0, 0)


@pytest.mark.parametrize(
    "pricing",
    [None, "free", {}, {"prompt": "1"}, {"prompt": "x", "completion": "1"}, {"prompt": "-1", "completion": "1"},
     {"prompt": "nan", "completion": "1"}, {"prompt": True, "completion": "1"}],
)  # fmt: skip
def test_what_is_no_price_is_none(pricing: Any) -> None:
    assert Catalog.of({"data": [{"id": "m", "pricing": pricing}]}) == Catalog(("m",))


@pytest.mark.parametrize("doc", [None, 1, {}, {"data": None}, {"data": [None, {}, {"id": 7}]}])
def test_what_is_no_list_is_empty(doc: Any) -> None:
    assert Catalog.of(doc) == Catalog()


def test_a_bare_list_is_read_as_well() -> None:
    assert Catalog.of([{"id": "a"}, {"id": "b"}]).models == ("a", "b")
