"""What a request says, to a plan: rows of requests, and the laws of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routes import (
    Ask,
    BackendRow,
    Leg,
    Plan,
    Refusal,
    RouteRow,
    Table,
    awake,
    falls_back,
    labels,
    plan,
    rest,
)

MERCURY = BackendRow(name="mercury", models=("mercury-2.5", "mercury-edit"), decoding="diffusion", dialect="mercury")
AR = BackendRow(name="ar", models=("gpt-small",), aliases={"fast": "gpt-small"})
ANY = BackendRow(name="any", takes_all=True)
ASSISTANT = RouteRow(
    name="assistant",
    split={"mercury": 0.9, "ar": 0.1},
    mirror="any/shadow",
    mirror_share=0.05,
    fallback=("ar", "mercury/mercury-edit"),
    diffusion={"steps": 8},
)
TABLE = Table({"mercury": MERCURY, "ar": AR}, {"assistant": ASSISTANT})
OPEN = Table({"mercury": MERCURY, "ar": AR, "any": ANY}, {"assistant": ASSISTANT})
ALONE = Table({"ar": AR})


def draws(*numbers: float) -> Callable[[], float]:
    left: Iterator[float] = iter(numbers)
    return lambda: next(left)


def planned(table: Table, ask: Ask, *numbers: float) -> Plan:
    found = plan(table, ask, draws(*numbers))
    assert isinstance(found, Plan), found
    return found


def first(table: Table, ask: Ask, *numbers: float) -> tuple[str, str | None, str]:
    leg = planned(table, ask, *numbers).legs[0]
    return leg.backend, leg.model, leg.label


# -- names ---------------------------------------------------------------------------------------

NAMES = [
    (
        "a listed model goes to the backend that lists it",
        TABLE,
        "mercury-2.5",
        ("mercury", "mercury-2.5", "mercury-2.5"),
    ),
    ("an alias is sent as the backend's own name", TABLE, "fast", ("ar", "gpt-small", "gpt-small")),
    ("what nobody lists goes to the backend that takes all", OPEN, "llama-9", ("any", "llama-9", "other")),
    ("a single backend takes all", ALONE, "llama-9", ("ar", "llama-9", "other")),
    ("no model at all is fine where one takes all", ALONE, None, ("ar", None, "other")),
    (
        "diffusion parameters come off the name",
        TABLE,
        "mercury-2.5@steps=8,width=64",
        ("mercury", "mercury-2.5", "mercury-2.5"),
    ),
    ("an @ that holds no parameters is part of the name", OPEN, "llama@v1", ("any", "llama@v1", "other")),
]


@pytest.mark.parametrize(("table", "model", "wanted"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_names(table: Table, model: str | None, wanted: tuple[str, str | None, str]) -> None:
    assert first(table, Ask(model=model)) == wanted


def test_parameters_in_the_name_are_handed_on_as_text() -> None:
    found = planned(TABLE, Ask(model="mercury-2.5@steps=8,width=64"))
    assert found.suffix == {"steps": "8", "width": "64"}
    assert found.asked == "mercury-2.5@steps=8,width=64"


def test_a_listed_name_is_never_taken_apart() -> None:
    table = Table({"a": BackendRow(name="a", models=("m@steps=8",)), "b": BackendRow(name="b", takes_all=True)})
    assert first(table, Ask(model="m@steps=8")) == ("a", "m@steps=8", "m@steps=8")


def test_the_model_may_stand_in_the_path() -> None:
    assert first(OPEN, Ask(path="/v1/models/gpt-small")) == ("ar", "gpt-small", "gpt-small")
    assert first(OPEN, Ask(path="/v1/models/org%2Fllama")) == ("any", "org/llama", "other")


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    refusal = plan(TABLE, Ask(model="gpt-9"), draws())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code, refusal.param) == (404, "model_not_found", "model")
    assert refusal.message == "no model 'gpt-9'; there are: assistant, mercury-2.5, mercury-edit, fast, gpt-small"


def test_no_model_and_nobody_who_takes_all_is_refused() -> None:
    refusal = plan(TABLE, Ask(path="/v1/audio/speech"), draws())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (404, "no_backend")
    assert "x-manometer-backend" in refusal.message


@pytest.mark.parametrize("model", ["m" * 257, "m\ud800", "m\nx"])
def test_a_name_that_nothing_could_store_is_refused(model: str) -> None:
    refusal = plan(TABLE, Ask(model=model), draws())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "invalid_model")
    found = planned(ALONE, Ask(model=model))  # who takes all names gets it as it is
    assert found.legs[0].model is None and found.asked is not None
    assert len(found.asked.encode()) <= 256


# -- forcing -------------------------------------------------------------------------------------


def test_a_header_forces_the_backend_and_takes_its_first_model() -> None:
    found = planned(TABLE, Ask(model="assistant", headers={"x-manometer-backend": "mercury"}))
    assert found.legs == (Leg("mercury", "mercury-2.5", "mercury-2.5", "diffusion"),)
    assert found.mirror is None and found.route == "assistant" and found.diffusion == {"steps": 8}


def test_a_forced_backend_that_takes_all_gets_the_name_as_it_is() -> None:
    assert first(OPEN, Ask(model="gpt-small", headers={"x-manometer-backend": "any"})) == ("any", "gpt-small", "other")


def test_forcing_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    refusal = plan(TABLE, Ask(model="fast", headers={"x-manometer-backend": "nope"}), draws())
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (404, "backend_not_found")
    assert refusal.message.endswith("no backend 'nope'; there are: mercury, ar")


# -- routes --------------------------------------------------------------------------------------


def test_a_route_plans_its_fallbacks_in_order_and_asks_nobody_twice() -> None:
    found = planned(OPEN, Ask(model="assistant"), 0.95, 0.9)
    assert found.legs == (
        Leg("ar", "gpt-small", "gpt-small", "autoregressive"),
        Leg("mercury", "mercury-edit", "mercury-edit", "diffusion"),
    )
    assert found.route == "assistant" and found.diffusion == {"steps": 8} and found.mirror is None


def test_a_share_of_a_route_is_mirrored() -> None:
    found = planned(OPEN, Ask(model="assistant"), 0.0, 0.049)
    assert found.mirror == Leg("any", "shadow", "shadow", "autoregressive")
    assert planned(OPEN, Ask(model="assistant"), 0.0, 0.05).mirror is None


def test_nothing_is_mirrored_to_where_it_goes_anyway() -> None:
    route = RouteRow(name="r", split={"ar": 1}, mirror="ar", mirror_share=1)
    assert planned(Table({"ar": AR}, {"r": route}), Ask(model="r"), 0.0).mirror is None


@pytest.mark.parametrize(
    ("sticky", "ask"),
    [
        ("user", Ask(model="r", user="u")),
        ("session", Ask(model="r", headers={"x-session-id": "u"})),
        ("header:X-Tenant", Ask(model="r", headers={"x-tenant": "u"})),
        ("key", Ask(model="r", client="u")),
        ("key", Ask(model="r", headers={"authorization": "u"})),
    ],
)
def test_the_same_identity_stays_whatever_the_draw(sticky: str, ask: Ask) -> None:
    table = Table(OPEN.backends, {"r": RouteRow(name="r", split={"mercury": 0.5, "ar": 0.5}, sticky=sticky)})
    assert len({first(table, ask, draw) for draw in (0.0, 0.3, 0.6, 0.99)}) == 1


@pytest.mark.parametrize("sticky", ["user", "session", "header:x-tenant", "key", "none"])
def test_without_an_identity_the_draw_decides(sticky: str) -> None:
    table = Table(OPEN.backends, {"r": RouteRow(name="r", split={"mercury": 0.5, "ar": 0.5}, sticky=sticky)})
    assert [first(table, Ask(model="r"), draw)[0] for draw in (0.0, 0.49, 0.5, 0.99)] == [
        "mercury",
        "mercury",
        "ar",
        "ar",
    ]


# -- laws of a -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status", "wanted"),
    [
        ("unreachable", None, True),
        ("timeout_connect", None, True),
        ("timeout_first_output", 200, True),
        ("backend_error", None, True),
        ("backend_error", 429, True),
        ("backend_error", 500, True),
        ("backend_error", 503, True),
        ("backend_error", 408, True),
        ("backend_error", 400, False),
        ("backend_error", 401, False),
        ("backend_error", 404, False),
        ("client_gone", None, False),
        ("timeout_idle", 200, False),
        ("timeout_total", 200, False),
        ("truncated", None, True),
        ("truncated", 200, True),
    ],
)
def test_what_falls_back(outcome: str, status: int | None, wanted: bool) -> None:
    assert falls_back(outcome, status) is wanted


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 00:00:10 GMT"}, 10.0),
        ({"retry-after": "Sun, 29 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after-ms": "nan"}, 0.0),
        ({"retry-after": "999999"}, 3600.0),
    ],
)
def test_how_long_a_backend_wants_to_rest(headers: dict[str, str], seconds: float) -> None:
    assert rest(headers, now=1795996800.0) == seconds


def test_a_resting_backend_is_passed_over_unless_all_rest() -> None:
    legs = planned(OPEN, Ask(model="assistant"), 0.0, 0.9).legs
    assert [leg.backend for leg in awake(legs, {"mercury": 5.0}, now=4.0)] == ["ar"]
    assert awake(legs, {"mercury": 5.0}, now=5.0) == legs
    assert awake(legs, {"mercury": 5.0, "ar": 5.0}, now=4.0) == legs


# -- the table -----------------------------------------------------------------------------------


def test_every_label_is_known_before_the_first_request() -> None:
    assert labels(OPEN, "mercury") == ("mercury-2.5", "mercury-edit", "other")
    assert labels(OPEN, "any") == ("shadow", "other")


@given(st.sampled_from(["assistant", "fast", "mercury-2.5", "nobody", "x@steps=1"]), st.floats(0, 1, exclude_max=True))
def test_every_leg_has_a_known_label(model: str, draw: float) -> None:
    found = planned(OPEN, Ask(model=model), draw, draw)
    for leg in (*found.legs, *([found.mirror] if found.mirror else [])):
        assert leg.label in labels(OPEN, leg.backend)
