"""What is asked about models: one backend's own answer byte for byte, several merged; and preflights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy import models
from proxy.routes import BackendRow, RouteRow, Table
from tests.stage import Peer, ask, post, replies, settings, whole

LIST = b'{"object": "list",  "data": [{"id": "m", "max_tokens": 12345678901234567890}]}'


def listing(*ids: str, **more: Any) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": id, "object": "model"} | more for id in ids]}).encode()


async def get(gate: Any, path: str = "/v1/models", **options: Any) -> Any:
    return await ask(gate, post(path=path, method=options.pop("method", "GET"), **options), "GET")


async def test_one_backends_answer_crosses_byte_for_byte(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(LIST, x_extra="1", connection="x-hop", x_hop="1")))
    gate = await proxy(settings(back, key="backend-key"))
    for path in ("/v1/models", "/v1/models/", "/v1/models?a=b", "/v1/models/org%2Fname"):
        got = await get(gate, path, authorization="Bearer client-key")
        assert (got.status, got.body, got.clean) == (200, LIST, True)
        assert (got.header("content-type"), got.header("x-extra"), got.header("x-hop")) == (
            "application/json",
            "1",
            None,
        )
        assert (back.asked[-1].target, back.asked[-1].header("authorization")) == (path, "Bearer backend-key")
    assert not gate.records.openings


async def test_one_backends_aliases_are_listed_with_its_models(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(listing("m", context=8))))
    got = await get(await proxy(settings(back, aliases={"fast": "m"})))
    rows = {row["id"]: row for row in json.loads(got.body)["data"]}
    assert set(rows) == {"fast", "m"} and rows["fast"]["context"] == 8


async def test_its_faults_and_errors_cross_too(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(b'{"error":"no"}', 403)))
    got = await get(await proxy(settings(back)))
    assert (got.status, got.body) == (403, b'{"error":"no"}')
    got = await get(await proxy(settings("http://127.0.0.1:1/v1")))
    assert (got.status, got.error["code"]) == (502, "connect")


async def test_several_backends_are_merged_and_one_that_fails_is_listed_by_the_configuration(
    stage: Any, proxy: Any
) -> None:
    first = await stage(replies(whole(listing("a", "b", context=8))))
    gate = await proxy(settings(first, "http://127.0.0.1:1/v1", routes={"r": {"split": {"b0": 1.0}}}))
    got = await get(gate)
    rows = {row["id"]: row for row in json.loads(got.body)["data"]}
    assert list(rows) == ["r", "a", "b", "m1"]
    assert rows["a"]["context"] == 8
    assert (rows["a"]["owned_by"], rows["m1"]["owned_by"], rows["r"]["owned_by"]) == ("b0", "b1", "manometer")


async def test_a_model_of_its_own_is_asked_of_its_backend(stage: Any, proxy: Any) -> None:
    first, second = await stage(replies(whole(b"first"))), await stage(replies(whole(b"second")))
    gate = await proxy(settings(first, second))
    assert (await get(gate, "/v1/models/m1")).body == b"second"
    assert (await get(gate, "/v1/models/anything")).body == b"first"


async def test_a_key_is_needed_where_keys_are_needed(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(LIST)))
    gate = await proxy(settings(back, key="k", clients={"me": "right-key"}))
    assert (await get(gate)).status == 401
    assert (await get(gate, authorization="Bearer wrong")).status == 401
    assert (await get(gate, authorization="Bearer right-key")).body == LIST
    assert b"right-key" not in back.peers[0].raw


async def test_a_preflight_crosses_without_any_key(stage: Any, proxy: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(whole(b"", 204 + 46, access_control_allow_origin="*"))

    back = await stage(script)
    gate = await proxy(settings(back, key="backend-key", clients={"me": "right-key"}))
    got = await get(gate, "/v1/chat/completions", method="OPTIONS", origin="http://app")
    assert (got.status, got.header("access-control-allow-origin")) == (250, "*")
    assert back.asked[0].method == "OPTIONS"
    assert back.asked[0].header("authorization") is None
    assert not gate.records.openings


TABLE = Table(
    {
        "a": BackendRow(name="a", models=("m", "x"), aliases={"fast": "m"}),
        "b": BackendRow(name="b", models=("x",), takes_all=True),
    },
    {"r": RouteRow(name="r", split={"a": 1.0})},
)


@pytest.mark.parametrize(
    "lists, ids",
    [
        ({}, ["r", "fast", "m", "x"]),
        ({"b": [{"id": "more"}, {"id": "x", "n": 1}]}, ["r", "fast", "m", "x", "more"]),
        ({"a": [{"id": "hidden"}]}, ["r", "fast", "m", "x"]),
        ({"b": [None, 1, {}, {"id": 7}, {"id": None}, {"id": ["x"]}]}, ["r", "fast", "m", "x"]),
    ],
)
def test_a_merged_list_names_each_model_once(lists: dict[str, list[Any]], ids: list[str]) -> None:
    assert [row["id"] for row in models.merge(TABLE, lists)["data"]] == ids


def test_an_alias_shows_what_is_known_of_its_model() -> None:
    rows = models.merge(TABLE, {"a": [{"id": "m", "context": 8}]})["data"]
    assert [row.get("context") for row in rows if row["id"] in ("fast", "m")] == [8, 8]
