"""What backends say of themselves, taken into the configuration."""

import json
from decimal import Decimal

from proxy.catalog import Catalog
from proxy.discovery import discover, learned
from proxy.settings import Backend, Settings
from tests.stage import replies, settings, whole

LIST = {
    "data": [
        {
            "id": "mercury-2.5",
            "pricing": {"prompt": "0.0000002", "completion": "0.00000075", "input_cache_reads": "0.00000002"},
        },
        {"id": "free", "pricing": {"prompt": "0", "completion": "0"}},
        {"id": "odd", "pricing": {"prompt": "n/a", "completion": "1"}},
        {"id": 7},
        "no model",
    ]
}


def backend(**more: object) -> Backend:
    return Backend.model_validate({"url": "http://127.0.0.1:1/v1"} | more)


def test_listed_models_join_the_configured_ones() -> None:
    assert learned(backend(models=["own"]), Catalog.of(LIST)).models == ("own", "mercury-2.5", "free", "odd")


def test_prices_per_token_become_prices_per_million() -> None:
    price = learned(backend(), Catalog.of(LIST)).book.at("mercury-2.5", 0.0)
    assert price is not None
    assert (price.input, price.cached_input, price.output) == (Decimal("0.2"), Decimal("0.02"), Decimal("0.75"))


def test_a_price_of_zero_is_a_price_and_nonsense_is_none() -> None:
    book = learned(backend(), Catalog.of(LIST)).book
    free = book.at("free", 0.0)
    assert free is not None and free.output == 0
    assert book.at("odd", 0.0) is None


def test_the_file_has_the_last_word_on_a_price() -> None:
    own = backend(prices=[{"model": "mercury-2.5", "input": "1", "output": "2"}])
    price = learned(own, Catalog.of(LIST)).book.at("mercury-2.5", 0.0)
    assert price is not None and price.output == 2


async def test_a_backend_is_asked_with_its_own_key_and_only_when_configured(stage) -> None:
    told = await stage(replies(whole(json.dumps(LIST).encode())))
    silent = await stage(replies(whole(b"{}")))
    base = settings(told, silent)
    backends = {
        "told": {"url": told.url, "key": "k1", "discover": True},
        "silent": {"url": silent.url, "key": "k2", "models": ["x"]},
    }
    found, faults = await discover(Settings(backends=backends, listen=base.listen))
    assert "mercury-2.5" in found.backends["told"].models
    assert found.backends["silent"].models == ("x",)
    assert faults == [] and silent.asked == []
    assert [(a.target, a.header("authorization")) for a in told.asked] == [("/v1/models", "Bearer k1")]


async def test_a_backend_that_does_not_tell_is_taken_as_configured_and_named(stage) -> None:
    wrong = await stage(replies(whole(b"nope", status=404)))
    backends = {
        "wrong": {"url": wrong.url, "models": ["x"], "discover": True},
        "gone": {"url": "http://127.0.0.1:1/v1", "discover": True},
    }
    found, faults = await discover(Settings(backends=backends))
    assert found.backends["wrong"].models == ("x",)
    assert faults[0] == "backends.wrong: discover: /models answered 404 and no list"
    assert faults[1].startswith("backends.gone: discover: cannot connect to 127.0.0.1:1")
