"""The request as a backend gets it: only what must change has changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.body import Body
from proxy.dialects import BUILT_IN, Parameters, read
from proxy.draft import Draft, Unsupported, draft
from proxy.routes import Leg

OPENAI, MERCURY = BUILT_IN["openai"], BUILT_IN["mercury"]
ODD = (
    b'{ "model" : "m", "seed": 12345678901234567890123, "a": 1, "a": 2, "x": "\\ud800", "stream": true,\n'
    b'  "messages":[{"role":"user","content":"\xc3\xa9"}] }'
)


def drafted(raw: bytes, model: str | None = "m", api: str = "chat", **options: Any) -> Draft:
    options = {"usage": True, "reject": False} | options
    leg = Leg("b", model, "m", options.pop("decoding", "autoregressive"))
    return draft(
        raw,
        Body.read(raw),
        leg,
        api,
        options.pop("dialect", OPENAI),
        options.pop("parameters", Parameters()),
        **options,
    )


def test_what_is_no_json_goes_on_as_it_is() -> None:
    leg = Leg("b", "m", "m", "autoregressive")
    assert draft(b"\x00multipart", None, leg, "other", OPENAI, Parameters(), usage=True, reject=False) == Draft(
        b"\x00multipart"
    )


def test_nothing_to_change_is_the_same_object() -> None:
    raw = b'{"model":"m","messages":[]}'
    assert drafted(raw).raw is raw
    assert drafted(ODD, usage=False).raw is ODD


def test_usage_is_asked_for_by_adding_one_member() -> None:
    made = drafted(ODD)
    assert made.injected
    assert made.asked_stream
    assert made.raw == ODD.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, {"include_usage": True}),
        ({"chunk_size": 5}, {"chunk_size": 5, "include_usage": True}),
        ({"include_usage": None}, {"include_usage": True}),
        (None, {"include_usage": True}),
        ("odd", {"include_usage": True}),
    ],
)
def test_stream_options_that_do_not_ask_get_the_question_added(options: Any, wanted: Any) -> None:
    made = drafted(json.dumps({"model": "m", "stream": True, "stream_options": options}).encode())
    assert made.injected
    assert json.loads(made.raw)["stream_options"] == wanted


@pytest.mark.parametrize("asks", [True, False])
def test_a_client_that_said_what_it_wants_is_not_overruled(asks: bool) -> None:
    raw = json.dumps({"model": "m", "stream": True, "stream_options": {"include_usage": asks}}).encode()
    made = drafted(raw)
    assert made.raw is raw
    assert not made.injected


@pytest.mark.parametrize(
    "change",
    [{"stream": False}, {"stream": "true"}, {"stream": 1}, {"stream": None}],
)
def test_usage_is_asked_for_in_streams_only(change: dict[str, Any]) -> None:
    raw = json.dumps({"model": "m"} | change).encode()
    assert drafted(raw).raw is raw


@pytest.mark.parametrize("api, injected", [("chat", True), ("completions", True), ("fim", True), ("responses", False)])
def test_usage_is_asked_for_where_the_api_knows_the_question(api: str, injected: bool) -> None:
    assert drafted(b'{"model":"m","stream":true}', api=api).injected is injected


def test_an_alias_becomes_the_backends_name_and_nothing_else_changes() -> None:
    made = drafted(ODD, model="org/real", usage=False)
    assert made.raw == ODD.replace(b'"m"', b'"org/real"', 1)


def test_a_leg_without_a_model_leaves_the_body_alone() -> None:
    assert drafted(b'{"input":"x"}', model=None, api="embeddings").raw == b'{"input":"x"}'


def test_parameters_become_the_dialects_own_fields() -> None:
    raw = b'{"model":"m","diffusion":{"steps":8},"messages":[]}'
    parameters = read(Body.read(raw), {}, {}, {})
    made = drafted(raw, dialect=MERCURY, parameters=parameters)
    doc = json.loads(made.raw)
    assert "diffusion" not in doc
    assert made.translated or made.dropped


def test_what_a_backend_cannot_take_is_refused_where_that_is_asked_for() -> None:
    raw = b'{"model":"m","diffusion":{"steps":8},"messages":[]}'
    parameters = read(Body.read(raw), {}, {}, {})
    with pytest.raises(Unsupported, match="steps"):
        drafted(raw, parameters=parameters, reject=True)
    made = drafted(raw, parameters=parameters)
    assert "steps" in " ".join(made.dropped)


@pytest.mark.parametrize("value, replace", [(True, True), (False, False), ("true", False)])
def test_a_request_for_snapshots_is_noted(value: Any, replace: bool) -> None:
    raw = json.dumps({"model": "m", "stream": True, "diffusing": value}).encode()
    assert drafted(raw, dialect=MERCURY, decoding="diffusion").replace is replace
    assert not drafted(raw, dialect=MERCURY, decoding="autoregressive").replace


def test_parameters_that_no_body_can_carry_are_told_or_refused() -> None:
    leg = Leg("b", "m", "m", "autoregressive")
    parameters = read(None, {"x-diffusion-steps": "8"})
    assert draft(b"RIFF", None, leg, "other", MERCURY, parameters, usage=True, reject=False).dropped == ("steps",)
    with pytest.raises(Unsupported, match="JSON"):
        draft(b"RIFF", None, leg, "other", MERCURY, parameters, usage=True, reject=True)
