"""What a forwarder holds, and what a reload changes of it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.gateway import Gateway, new_id, table, timeouts
from proxy.settings import Limits, Settings
from proxy.upstream import Timeouts
from tests.stage import Records

A, B = {"url": "http://a/v1"}, {"url": "http://b/v1"}


def settings(**facts: Any) -> Settings:
    return Settings(**{"backends": {"a": A, "b": B}} | facts)


@pytest.fixture
async def gate() -> Any:
    made = Gateway(settings(clients={"me": "key-1"}), Records())
    made.start()
    yield made
    await made.stop()


async def test_a_reload_keeps_the_pools_of_backends_that_did_not_change(gate: Gateway) -> None:
    before = dict(gate.pools)
    gate.reload(settings(backends={"a": A, "b": B | {"timeouts": {"idle": 1}}, "c": A}))
    assert gate.pools["a"] is before["a"]
    assert gate.pools["b"] is not before["b"]
    assert list(gate.pools) == ["a", "b", "c"]
    assert gate.pools["b"].timeouts.idle == 1
    assert list(before) == ["a", "b"]  # what exchanges under way hold is not touched


async def test_a_reload_changes_who_may_call(gate: Gateway) -> None:
    assert (gate.client("key-1"), gate.client("key-2")) == ("me", None)
    gate.reload(settings(clients={"you": "key-2"}))
    assert (gate.client("key-1"), gate.client("key-2")) == (None, "you")
    assert not gate.open_to_all
    gate.reload(settings())
    assert gate.open_to_all


async def test_keys_that_no_header_should_hold_are_nobodys(gate: Gateway) -> None:
    for key in ("", "\udcff", "é", "key-1 ", "KEY-1"):
        assert gate.client(key) is None


async def test_no_key_is_kept_in_the_clear(gate: Gateway) -> None:
    assert "key-1" not in repr(gate)
    assert "key-1" not in repr(gate._keys)


def test_the_table_says_what_the_configuration_says() -> None:
    found = table(
        settings(
            backends={
                "a": A | {"models": ["m", "*"], "aliases": {"fast": "m"}},
                "b": B | {"dialect": "mercury", "models": ["x"]},
            },
            routes={
                "r": {
                    "split": {"a": 0.5, "b": 0.5},
                    "mirror": {"to": "b", "share": 0.25},
                    "fallback": ["b/x"],
                    "diffusion": {"steps": 4},
                }
            },
        )
    )
    assert found.taker is found.backends["a"]
    assert (found.backends["a"].models, found.backends["a"].aliases) == (("m",), {"fast": "m"})
    assert (found.backends["b"].decoding, found.backends["b"].takes_all) == ("diffusion", False)
    route = found.routes["r"]
    assert (route.mirror, route.mirror_share, route.fallback, route.diffusion) == ("b", 0.25, ("b/x",), {"steps": 4})


def test_0_in_the_configuration_is_no_limit() -> None:
    assert timeouts(Limits(connect=0, first_output=0, idle=0, total=0)) == Timeouts(None, None, None, None)
    assert timeouts(Limits()) == Timeouts(5.0, 120.0, 120.0, 600.0)


def test_ids_are_fit_for_exemplars_and_differ() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(id) for id in ids} == {32}
    assert all(int(id, 16) >= 0 for id in ids)


async def test_a_configuration_that_cannot_be_used_here_changes_nothing(gate: Gateway, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    new = settings(backends={"c": {"url": "https://c/v1", "ca_file": tmp_path / "ca.pem"}})
    travelled = pickle.loads(pickle.dumps(new))  # as forwarders get it
    (tmp_path / "ca.pem").unlink()
    before = gate.settings, gate.pools, gate.table
    with pytest.raises(ValueError, match=r"ca\.pem"):
        gate.reload(travelled)
    assert (gate.settings, gate.pools, gate.table) == before
    assert gate.client("key-1") == "me"
