"""Every dialect's rows, as requests before and after; and the law that nothing is lost without being named."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.body import Body
from proxy.dialects import BUILT_IN, DialectError, ParameterError, Parameters, Translation, read, resolve, translate
from proxy.dialects import conversion as convert
from proxy.dialects.document import tables
from proxy.settings import Settings

OPENAPI = Path(__file__).parent.parent.parent / "shared" / "wire" / "inception-openapi.json"


def translated(
    dialect: str,
    body: dict[str, Any],
    *,
    headers: dict[str, str] | None = None,
    suffix: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    api: str = "chat",
    reject: bool = False,
    fields: dict[str, Any] | None = None,
    custom: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], Translation]:
    read_body = Body.read(json.dumps(body).encode())
    row = resolve(dialect, custom or {}, fields or {})
    found = translate(read(read_body, headers, suffix, defaults), read_body, api, row, reject)
    return json.loads(found.apply(read_body)), found


# -- the four ways in ----------------------------------------------------------------------------


def asked(body: dict[str, Any], **ways: Any) -> Parameters:
    return read(Body.read(json.dumps(body).encode()), **ways)


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ({"diffusion": {"steps": 8, "width": 64}}, {}),
        ({"num_denoising_steps": 8, "parallel_tokens": 64}, {}),
        ({}, {"headers": {"x-diffusion-steps": "8", "x-diffusion-width": "64"}}),
        ({}, {"suffix": {"steps": "8", "width": "64"}}),
        ({}, {"defaults": {"steps": 8, "width": 64}}),
        ({"diffusion": {"steps": 8, "width": None}, "parallel_tokens": 64}, {"defaults": {"steps": 99}}),
    ],
)
def test_parameters_come_in_four_ways_and_from_the_route(body: dict[str, Any], ways: dict[str, Any]) -> None:
    assert asked(body, **ways).values == {"steps": 8, "width": 64}


def test_who_says_it_more_directly_wins_and_the_other_is_told() -> None:
    body = {"diffusion": {"steps": 1}, "num_denoising_steps": 2}
    ways = {"headers": {"x-diffusion-steps": "3"}, "suffix": {"steps": "4"}, "defaults": {"steps": 5}}
    found = asked(body, **ways)
    assert found.values == {"steps": 1} and found.overruled == ("steps",)
    assert asked({"num_denoising_steps": 2}, **ways).values == {"steps": 2}
    assert asked({}, **ways).values == {"steps": 3}
    assert asked({}, suffix={"steps": "4"}, defaults={"steps": 5}).values == {"steps": 4}
    body_translated, told = translated("tutorial", body)
    assert body_translated == {"num_denoising_steps": 1}
    assert told.dropped == ("steps (another value)",)


def test_a_default_that_the_client_overrides_is_not_called_lost() -> None:
    assert asked({"num_denoising_steps": 2}, defaults={"steps": 5}).overruled == ()


@pytest.mark.parametrize(
    ("body", "ways", "message"),
    [
        ({"diffusion": 8}, {}, 'diffusion: must be an object, such as {"steps": 8}'),
        ({"diffusion": {"steps": 0}}, {}, "diffusion.steps: must be a whole number from 1 on, not 0"),
        ({"diffusion": {"steps": True}}, {}, "diffusion.steps: must be a whole number from 1 on, not True"),
        ({"num_denoising_steps": "8"}, {}, "num_denoising_steps: must be a whole number from 1 on, not '8'"),
        ({"diffusion": {"threshold": 1.5}}, {}, "diffusion.threshold: must be a number from 0 to 1, not 1.5"),
        (
            {},
            {"headers": {"x-diffusion-steps": "abc"}},
            "x-diffusion-steps: must be a whole number from 1 on, not 'abc'",
        ),
        (
            {},
            {"headers": {"x-diffusion-steps": "nan"}},
            "x-diffusion-steps: must be a whole number from 1 on, not 'nan'",
        ),
        ({}, {"suffix": {"view": "x"}}, "model@view: must be one of append, snapshot, not 'x'"),
        ({"diffusion": {"extra": {"model": "x"}}}, {}, "without model, stream, diffusion"),
    ],
)
def test_an_impossible_value_names_its_place(body: dict[str, Any], ways: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        asked(body, **ways)
    assert message in str(refusal.value)


@pytest.mark.parametrize("way", [{"headers": {"x-diffusion-stpes": "8"}}, {"suffix": {"stpes": "8"}}])
def test_a_misspelt_parameter_is_refused_and_never_ignored(way: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="is no diffusion parameter; there are: steps,"):
        asked({}, **way)


# -- rows: dialect, before, after, translated, dropped -------------------------------------------

WORDS = {"num_denoising_steps": 8, "parallel_tokens": 64}  # the tutorial's
ROWS: list[tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...], tuple[str, ...]]] = [
    # The tutorial's words against every dialect.
    ("mercury", WORDS, {}, (), ("steps", "width")),
    ("tutorial", WORDS, WORDS, (), ()),
    ("dlmserve", WORDS, {"num_denoising_steps": 8}, (), ("width",)),
    ("dfastllm", WORDS, {}, (), ("steps", "width")),
    ("vllm", WORDS, {}, (), ("steps", "width")),
    ("ollada", WORDS, {"options": {"steps": 8}}, ("options.steps=8",), ("width",)),
    ("openai", WORDS, {}, (), ("steps", "width")),
    # Mercury: July 2026's published ranges.
    ("mercury", {"temperature": 0}, {"temperature": 0.5}, ("temperature=0.5 (from 0)",), ()),
    ("mercury", {"temperature": 0.7}, {"temperature": 0.7}, (), ()),
    ("mercury", {"max_tokens": 60000}, {"max_tokens": 50000}, ("max_tokens=50000 (from 60000)",), ()),
    ("mercury", {"diffusion": {"length": 60000}}, {"max_tokens": 50000}, ("max_tokens=50000 (from length=60000)",), ()),
    ("mercury", {"max_completion_tokens": 9}, {"max_tokens": 9}, ("max_tokens=9 (from max_completion_tokens)",), ()),
    ("mercury", {"stop": "x"}, {"stop": ["x"]}, ("stop (as a list)",), ()),
    ("mercury", {"stop": None, "user": None}, {}, (), ()),
    ("mercury", {"top_p": 1, "seed": 3, "n": 1}, {}, (), ("top_p", "seed", "n")),
    (
        "mercury",
        {"reasoning_effort": "minimal"},
        {"reasoning_effort": "instant"},
        ("reasoning_effort=instant (from minimal)",),
        (),
    ),
    ("mercury", {"reasoning_effort": "much"}, {}, (), ("reasoning_effort",)),
    ("mercury", {"diffusion": {"effort": "low"}}, {"reasoning_effort": "low"}, ("reasoning_effort=low",), ()),
    (
        "mercury",
        {"diffusion": {"effort": "max"}},
        {"reasoning_effort": "high"},
        ("reasoning_effort=high (from effort=max)",),
        (),
    ),
    (
        "mercury",
        {"tool_choice": {"type": "function"}},
        {"tool_choice": "required"},
        ("tool_choice=required (from an object)",),
        (),
    ),
    (
        "mercury",
        {"stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"stream_options": {"include_usage": True}},
        ("stream_options (only include_usage)",),
        (),
    ),
    ("mercury", {"extra_body": {"steps": 8}}, {"extra_body": {"steps": 8}}, (), ()),
    ("mercury", {"diffusion": {"extra": {"steps": 8}}}, {"steps": 8}, ("extra.steps",), ()),
    (
        "mercury",
        {"messages": [{"role": "developer", "content": "x", "name": "n"}, {"role": "user", "content": None}]},
        {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": None}]},
        ("messages (only role, content, tool_calls, tool_call_id)", "messages (developer as system)"),
        (),
    ),
    # dlmserve: unknown members are 422, uneven divisions 500.
    (
        "dlmserve",
        {"diffusion": {"steps": 1000}},
        {"num_denoising_steps": 512},
        ("num_denoising_steps=512 (from steps=1000)",),
        (),
    ),
    (
        "dlmserve",
        {"max_tokens": 50, "diffusion": {"steps": 7, "block": 32}},
        {"target_length": 64, "num_denoising_steps": 8, "block_length": 32},
        ("num_denoising_steps=8 (from steps=7)", "block_length=32", "target_length=64 (from max_tokens=50)"),
        (),
    ),
    (
        "dlmserve",
        {"max_tokens": 50, "block_length": 32},
        {"target_length": 64, "block_length": 32},
        ("target_length=64 (from max_tokens=50)",),
        (),
    ),
    (
        "dlmserve",
        {"max_tokens": 96, "block_length": 32},
        {"max_tokens": 96, "block_length": 32, "num_denoising_steps": 129},
        ("num_denoising_steps=129 (from steps=128)",),
        (),
    ),
    (
        "dlmserve",
        {"diffusion": {"width": 16}},
        {"num_denoising_steps": 8},
        ("num_denoising_steps=8 (from width=16)",),
        (),
    ),
    (
        "dlmserve",
        {"diffusion": {"steps_per_block": 4, "block": 32}},
        {"num_denoising_steps": 16, "block_length": 32},
        ("block_length=32", "num_denoising_steps=16 (from steps_per_block=4)"),
        (),
    ),
    (
        "dlmserve",
        {"diffusion": {"steps": 4, "block": 1, "length": 4000}},
        {"num_denoising_steps": 500, "block_length": 8, "target_length": 4000},
        ("num_denoising_steps=500 (from steps=4)", "block_length=8 (from block=1)", "target_length=4000"),
        (),
    ),
    (
        "dlmserve",
        {"stream": True, "stream_options": {"include_usage": True}, "stop": ["x"], "user": "u", "tools": []},
        {"stream": True},
        (),
        ("stream_options", "stop", "user", "tools"),
    ),
    (
        "dlmserve",
        {"max_completion_tokens": 64},
        {"max_tokens": 64},
        ("max_tokens=64 (from max_completion_tokens)",),
        (),
    ),
    ("dlmserve", {"diffusion": {"threshold": 0.9, "effort": "low"}}, {}, (), ("threshold", "effort")),
    (
        "dlmserve",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
        {"messages": [{"role": "user", "content": "ab"}]},
        ("messages (content as text)",),
        (),
    ),
    (
        "dlmserve",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "user", "content": ""}]},
        ("messages (without content that is no text)",),
        (),
    ),
    # dfastllm: steps are set at its start.
    ("dfastllm", {"diffusion": {"threshold": 0.9}}, {"confidence_threshold": 0.9}, ("confidence_threshold=0.9",), ()),
    (
        "dfastllm",
        {"diffusion": {"length": 20000}},
        {"max_tokens": 16384},
        ("max_tokens=16384 (from length=20000)",),
        (),
    ),
    (
        "dfastllm",
        {"user": "u", "max_completion_tokens": 5},
        {"user": "u", "max_tokens": 5},
        ("max_tokens=5 (from max_completion_tokens)",),
        (),
    ),
    # vLLM: steps are those of one canvas of 256 tokens.
    (
        "vllm",
        {"max_tokens": 600, "diffusion": {"steps": 96}},
        {"max_tokens": 600, "vllm_xargs": {"diffusion_max_steps": 32}},
        ("vllm_xargs.diffusion_max_steps=32 (from steps=96)",),
        (),
    ),
    (
        "vllm",
        {"diffusion": {"steps_per_block": 8, "block": 64}, "vllm_xargs": {"x": 1}},
        {"vllm_xargs": {"x": 1, "diffusion_max_steps": 8, "diffusion_canvas_length": 64}},
        ("vllm_xargs.diffusion_max_steps=8", "vllm_xargs.diffusion_canvas_length=64"),
        (),
    ),
    (
        "vllm",
        {"max_completion_tokens": 600, "diffusion": {"width": 8, "length": 512}},
        {"max_tokens": 512, "vllm_xargs": {"diffusion_max_steps": 32}},
        ("max_tokens=512", "vllm_xargs.diffusion_max_steps=32 (from width=8)"),
        ("max_completion_tokens",),
    ),
    (
        "vllm",
        {"diffusion": {"effort": "instant"}},
        {"reasoning_effort": "none"},
        ("reasoning_effort=none (from effort=instant)",),
        (),
    ),
    ("vllm", {"top_k": 3, "anything": 1}, {"top_k": 3, "anything": 1}, (), ()),
    # ollada: everything is in `options`.
    (
        "ollada",
        {"max_tokens": 64, "diffusion": {"steps": 8, "block": 32, "threshold": 0.5}},
        {"options": {"steps": 8, "block_length": 32, "threshold": 0.5, "gen_length": 64}},
        (
            "options.steps=8",
            "options.block_length=32",
            "options.threshold=0.5",
            "options.gen_length=64 (from max_tokens)",
        ),
        (),
    ),
    ("ollada", {"max_tokens": 64, "options": {"gen_length": 9}}, {"options": {"gen_length": 9}}, (), ("max_tokens",)),
    # Any other server: nothing is taken, nothing else is touched.
    ("openai", {"a": 1, "diffusion": {"effort": "low", "view": "append"}}, {"a": 1}, (), ("effort",)),
]


@pytest.mark.parametrize(("dialect", "before", "after", "told", "dropped"), ROWS)
def test_rows(
    dialect: str, before: dict[str, Any], after: dict[str, Any], told: tuple[str, ...], dropped: tuple[str, ...]
) -> None:
    body, found = translated(dialect, before)
    assert (body, found.translated, found.dropped) == (after, told, dropped)


@pytest.mark.parametrize("dialect", BUILT_IN)
def test_what_was_translated_needs_no_more_translation(dialect: str) -> None:
    for row in ROWS:
        if row[0] == dialect and "extra" not in str(row[1]):
            body, found = translated(dialect, row[2])
            assert (body, found.dropped) == (row[2], ())


@pytest.mark.parametrize(
    ("api", "before", "after"),
    [
        (
            "fim",
            {"prompt": "a", "suffix": "b", "max_tokens": 9000, "temperature": 0},
            {"prompt": "a", "suffix": "b", "max_tokens": 8192},
        ),
        ("edit", {"max_tokens": 9000, "temperature": 0, "stream": True}, {"max_tokens": 8192, "temperature": 0}),
        ("fim", {"prompt": "a", "diffusion": {"effort": "low", "view": "snapshot"}}, {"prompt": "a"}),
        ("embeddings", {"input": "a", "diffusion": {"steps": 8}}, {"input": "a"}),
    ],
)
def test_each_api_of_mercury_has_its_own_members(api: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    assert translated("mercury", before, api=api)[0] == after


# -- views ---------------------------------------------------------------------------------------


def test_a_view_of_append_asks_for_snapshots_and_for_their_conversion() -> None:
    body, found = translated("mercury", {"stream": True, "diffusion": {"view": "append"}})
    assert body == {"stream": True, "diffusing": True} and found.append
    assert found.translated == ("diffusing=true (from view=append)",)


def test_a_view_of_snapshot_asks_for_them_and_leaves_them() -> None:
    body, found = translated("mercury", {"stream": True, "diffusion": {"view": "snapshot"}})
    assert body == {"stream": True, "diffusing": True} and not found.append


def test_a_client_that_asks_for_snapshots_itself_gets_them_untouched() -> None:
    before = {"stream": True, "diffusing": True}
    body, found = translated("mercury", before, defaults={"view": "append"})
    assert body == before and found == Translation()


def test_where_there_are_no_snapshots_every_stream_is_append_already() -> None:
    assert translated("openai", {"stream": True, "diffusion": {"view": "append"}})[1].dropped == ()
    assert translated("openai", {"stream": True, "diffusion": {"view": "snapshot"}})[1].dropped == ("view",)


# -- policies ------------------------------------------------------------------------------------


def test_strict_refuses_what_would_be_dropped_or_clamped() -> None:
    refused = translated("mercury", WORDS, reject=True)[1].refused
    assert refused and refused.startswith(
        "the backend's dialect, mercury, cannot carry this: there is no field for steps;"
    )
    refused = translated("dlmserve", {"diffusion": {"steps": 1000}}, reject=True)[1].refused
    assert refused and "num_denoising_steps cannot be 1000, 512 at most" in refused


def test_strict_lets_pass_what_is_translated_rounded_or_not_diffusion() -> None:
    before = {"max_tokens": 50, "top_p": 1, "diffusion": {"steps": 7, "block": 32}}
    assert translated("dlmserve", before, reject=True)[1].refused is None


def test_without_a_json_body_nothing_can_be_carried() -> None:
    parameters = read(None, {"x-diffusion-steps": "8"})
    assert translate(parameters, None, "other", BUILT_IN["tutorial"]).dropped == ("steps",)
    assert translate(parameters, None, "other", BUILT_IN["tutorial"], reject=True).refused
    assert translate(read(None), None, "other", BUILT_IN["mercury"]) == Translation()


def test_a_route_default_gives_way_to_the_client_in_the_backends_own_words() -> None:
    body, found = translated("mercury", {"reasoning_effort": "high"}, defaults={"effort": "instant"})
    assert body == {"reasoning_effort": "high"} and found == Translation()


# -- users' own ----------------------------------------------------------------------------------


def test_a_backend_overrides_fields_of_its_dialect() -> None:
    body, found = translated("mercury", WORDS, fields={"steps": "num_denoising_steps", "effort": False})
    assert body == {"num_denoising_steps": 8} and found.dropped == ("width",)
    assert translated("mercury", {"diffusion": {"effort": "low"}}, fields={"effort": False})[1].dropped == ("effort",)


def test_a_dialect_may_be_data_alone() -> None:
    mine = {
        "like": "openai",
        "fields": {
            "steps": "opts.n",
            "width": {"path": "opts.w", "most": 32},
            "effort": {"path": "e", "words": ["low"]},
        },
        "refuses": ["user"],
        "renames": {"max_completion_tokens": "max_tokens"},
        "messages": {"roles": {"developer": "system"}},
        "include_usage": False,
    }
    before = {"diffusion": {"steps": 8, "width": 64, "effort": "low"}, "user": "u", "max_completion_tokens": 5}
    body, found = translated("mine", before, custom={"mine": mine})
    assert body == {"opts": {"n": 8, "w": 32}, "e": "low", "max_tokens": 5}
    assert found.translated[:2] == ("opts.n=8", "opts.w=32 (from width=64)") and found.dropped == ("user",)
    assert resolve("mine", {"mine": mine}, {}).include_usage is False


def test_steps_become_an_effort_only_where_the_configuration_says_how() -> None:
    mine = {"like": "mercury", "effort_from_steps": {"8": "instant", "32": "low", "64": "high"}}
    for steps, effort in ((1, "instant"), (8, "instant"), (9, "low"), (1000, "high")):
        body, found = translated("mine", {"num_denoising_steps": steps}, custom={"mine": mine})
        assert body == {"reasoning_effort": effort}
        assert found.translated == (f"reasoning_effort={effort} (from steps={steps})",)


def test_a_closed_list_of_members_leaves_the_rest_out() -> None:
    mine = {"accepts": ["model", "messages"]}
    assert translated("mine", {"model": "m", "x": 1}, custom={"mine": mine})[1].dropped == ("x",)


@pytest.mark.parametrize(
    ("name", "custom", "fields", "message"),
    [
        ("nope", {}, {}, "dialect: there is no 'nope'; there are: mercury, tutorial,"),
        ("openai", {}, {"stpes": "x"}, "fields.stpes: no such parameter; there are: steps,"),
        ("openai", {}, {"steps": 3}, "fields.steps: a table, not 3"),
        ("openai", {}, {"steps": "a..b"}, "fields.steps.path: names with a dot between"),
        ("openai", {}, {"steps": {"path": "a", "kind": "x"}}, "fields.steps.kind: one of int,"),
        ("openai", {}, {"steps": {"path": "a", "max": 3}}, "fields.steps.max: no such setting"),
        ("openai", {}, {"steps": {"path": "a", "least": 3, "most": 2}}, "fields.steps: least is 3 and most is 2"),
        ("openai", {}, {"steps": {"path": "a", "apis": ["x"]}}, "fields.steps.apis: some of chat,"),
        ("openai", {}, {"steps": "a", "width": "a.b"}, "fields: steps and width are in the same place, a"),
        ("m", {"m": {"like": "x"}}, {}, "dialects.m.like: one of mercury,"),
        ("m", {"m": {"nope": 1}}, {}, "dialects.m.nope: no such setting; there are: like, fields,"),
        ("m", {"m": {"even": 1}}, {}, "dialects.m.even: true or false, not 1"),
        ("m", {"m": {"length": 0}}, {}, "dialects.m.length: a whole number from 1 on, not 0"),
        ("m", {"m": {"effort_from_steps": {"x": "low"}}}, {}, 'write steps = "effort", such as 8 = "instant"'),
        ("m", {"m": {"messages": {"role": {}}}}, {}, "dialects.m.messages.role: no such setting"),
        ("m", {"m": {"refuses": "user"}}, {}, "dialects.m.refuses: a list of texts, not 'user'"),
    ],
)
def test_a_wrong_configuration_names_its_field(name: str, custom: Any, fields: Any, message: str) -> None:
    with pytest.raises(DialectError) as refusal:
        resolve(name, custom, fields)
    assert message in str(refusal.value)


# -- conversions ---------------------------------------------------------------------------------

SIZES = st.integers(1, 5000)


@given(SIZES, SIZES, SIZES)
def test_steps_to_steps_per_block_and_back_are_never_fewer(steps: int, length: int, block: int) -> None:
    per = convert.per_block(steps, length, block)
    assert convert.total(per, length, block) >= steps > convert.total(per - 1, length, block)


@given(SIZES, SIZES)
def test_width_times_steps_covers_the_answer(width: int, length: int) -> None:
    steps = convert.steps_of_width(width, length)
    assert steps * width >= length > (steps - 1) * width


@given(SIZES, st.integers(1, 600), st.integers(1, 600))
def test_even_steps_divide_and_are_the_nearest_that_may_be(steps: int, count: int, most: int) -> None:
    even = convert.even_steps(steps, count, most)
    if even is None:
        assert count > most
        return
    assert even % count == 0 and 1 <= even <= most
    others = [n for n in range(count, most + 1, count) if abs(n - steps) < abs(even - steps)]
    assert not others


# -- laws ----------------------------------------------------------------------------------------

NUMBERS = st.integers(1, 2000)
CANONICAL = st.fixed_dictionaries(
    {},
    optional={
        "steps": NUMBERS,
        "steps_per_block": NUMBERS,
        "width": NUMBERS,
        "block": NUMBERS,
        "length": NUMBERS,
        "threshold": st.floats(0, 1),
        "effort": st.sampled_from(["none", "instant", "minimal", "low", "medium", "high", "xhigh", "max"]),
        "view": st.sampled_from(["append", "snapshot"]),
    },
)
TEXT = st.text("ab模é\n", max_size=6)
PARTS = TEXT | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), min_size=1, max_size=2)
TOOL = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": st.just("f")}, optional={"strict": st.booleans(), "description": TEXT}
        ),
    }
)
CALL = st.fixed_dictionaries(
    {"id": st.just("c"), "type": st.just("function"), "function": st.just({"name": "f", "arguments": "{}"})}
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user"]), "content": PARTS}, optional={"name": st.just("n")}
    )
    | st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": PARTS | st.none()},
        optional={
            "refusal": st.none() | TEXT,
            "tool_calls": st.lists(CALL, min_size=1, max_size=2),
            "audio": st.none(),
        },
    )
    | st.fixed_dictionaries({"role": st.just("tool"), "content": PARTS, "tool_call_id": st.just("c")}),
    min_size=1,
    max_size=3,
)
COUNT = st.none() | st.integers(1, 100_000)
SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": COUNT,
    "max_completion_tokens": COUNT,
    "temperature": st.none() | st.floats(0, 2),
    "top_p": st.none() | st.floats(0, 1),
    "stop": st.none() | TEXT | st.lists(TEXT, max_size=3),
    "stream": st.none() | st.booleans(),
    "stream_options": st.none()
    | st.fixed_dictionaries({}, optional={"include_usage": st.booleans(), "include_obfuscation": st.booleans()}),
    "presence_penalty": st.none() | st.floats(-2, 2),
    "frequency_penalty": st.none() | st.floats(-2, 2),
    "seed": st.none() | st.integers(-(2**63), 2**63),
    "user": TEXT,
    "n": st.integers(1, 3),
    "logit_bias": st.none() | st.just({"1": -100}),
    "logprobs": st.booleans(),
    "metadata": st.just({"a": "b"}),
    "store": st.booleans(),
    "num_denoising_steps": NUMBERS,
    "parallel_tokens": NUMBERS,
    "diffusion": CANONICAL,
}
CHAT = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": MESSAGES},
    optional=SAMPLING
    | {
        "tools": st.lists(TOOL, max_size=2),
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "f"}}]),
        "reasoning_effort": st.none()
        | st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "max", "instant"]),
        "response_format": st.sampled_from(
            [{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "x"}}]
        ),
        "diffusing": st.booleans(),
        "realtime": st.booleans(),
        "extra_body": st.just({"a": 1}),
        "parallel_tool_calls": st.booleans(),
    },
)
FIM = st.fixed_dictionaries(
    {"model": st.just("m"), "prompt": TEXT},
    optional=SAMPLING
    | {"suffix": TEXT, "top_k": st.integers(-1, 5000), "repetition_penalty": st.floats(0, 2), "echo": st.booleans()},
)
EDIT = st.fixed_dictionaries(
    {
        "model": st.just("m"),
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}, optional={"name": TEXT}),
            min_size=1,
            max_size=1,
        ),
    },
    optional=SAMPLING,
)


def closed(schemas: dict[str, Any]) -> dict[str, Any]:
    """The published schemas, with every member that they do not list forbidden."""
    for schema in schemas.values():
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return schemas


@cache
def validator(schema: str) -> jsonschema.Draft202012Validator:
    components = {"schemas": closed(json.loads(OPENAPI.read_text())["components"]["schemas"])}
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": components})


@pytest.mark.skipif(not OPENAPI.is_file(), reason="Inception's API description is not here")
@pytest.mark.parametrize(
    ("api", "schema", "bodies"),
    [
        ("chat", "ChatCompletionRequest", CHAT),
        ("fim", "FIMCompletionRequest", FIM),
        ("edit", "EditCompletionRequest", EDIT),
    ],
    ids=["chat", "fim", "edit"],
)
@given(data=st.data())
def test_mercury_gets_nothing_that_its_published_schema_does_not_have(
    api: str, schema: str, bodies: st.SearchStrategy[dict[str, Any]], data: st.DataObject
) -> None:
    sent = translated("mercury", data.draw(bodies), api=api)[0]
    assert [error.message for error in validator(schema).iter_errors(sent)] == []


@given(st.sampled_from(list(BUILT_IN)), CHAT)
def test_no_parameter_is_lost_without_being_told(dialect: str, body: dict[str, Any]) -> None:
    sent, found = translated(dialect, body)
    for name, value in asked(body).values.items():
        row = BUILT_IN[dialect].fields.get(name)
        carried = row is not None and at(sent, row.path) == value
        rewritten = row is not None and any(line.startswith(f"{row.spelled}=") for line in found.translated)
        converted = any(f"(from {name}=" in line for line in found.translated)
        assert carried or rewritten or converted or name in found.dropped or (name, value) == ("view", "append")


@given(st.sampled_from(list(BUILT_IN)), CHAT)
def test_no_ordinary_member_is_changed_without_being_told(dialect: str, body: dict[str, Any]) -> None:
    sent, found = translated(dialect, body)
    told = " ".join((*found.translated, *found.dropped))
    for name, value in body.items():
        if value is not None and name not in ("diffusion", "num_denoising_steps", "parallel_tokens"):
            assert meant(sent.get(name)) == meant(value) or name in told


def meant(value: Any) -> Any:
    """A value without the nulls of its messages: they say nothing."""
    if not isinstance(value, list):
        return value
    return [{k: v for k, v in m.items() if v is not None} if isinstance(m, dict) else m for m in value]


def at(sent: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = sent
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


@given(CHAT)
def test_dlmserve_always_gets_whole_blocks_and_even_steps(body: dict[str, Any]) -> None:
    sent = translated("dlmserve", body)[0]
    length = sent.get("target_length") or sent.get("max_tokens") or 128
    block = sent.get("block_length") or length
    steps = sent.get("num_denoising_steps", 128)
    assert length % block == 0 and steps % (length // block) == 0 and 1 <= steps <= 512
    assert sent.keys() <= BUILT_IN["dlmserve"].standard["chat"].keys()


@given(st.sampled_from(list(BUILT_IN)), CHAT)
def test_what_is_told_fits_a_header(dialect: str, body: dict[str, Any]) -> None:
    _, found = translated(dialect, body | {"a;\nb\u2028" * 20: 1})
    for line in (*found.translated, *found.dropped):
        assert line.isascii() and line.isprintable() and ";" not in line and len(line) < 120


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted(
    {name for row in BUILT_IN.values() for members in row.standard.values() for name in members} | {"options"}
)
ODD = st.dictionaries(
    st.sampled_from(NAMES), JSON | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), JSON))
)


@given(
    st.sampled_from(list(BUILT_IN)), st.sampled_from(["chat", "fim", "edit", "completions", "other"]), ODD, CANONICAL
)
def test_no_body_is_too_odd_to_be_translated(
    dialect: str, api: str, body: dict[str, Any], canonical: dict[str, Any]
) -> None:
    body.pop("num_denoising_steps", None)  # refused when it is no number
    read_body = Body.read(json.dumps(body | {"diffusion": canonical}).encode())
    json.loads(translate(read(read_body), read_body, api, BUILT_IN[dialect]).apply(read_body))


@given(CHAT)
def test_an_open_dialect_leaves_a_request_without_parameters_byte_for_byte(body: dict[str, Any]) -> None:
    for name in ("diffusion", "num_denoising_steps", "parallel_tokens"):
        body.pop(name, None)
    raw = json.dumps(body, indent=1).encode()
    read_body = Body.read(raw)
    for dialect in ("openai", "tutorial", "vllm"):
        assert translate(read(read_body), read_body, "chat", BUILT_IN[dialect]).apply(read_body) == raw


# -- documentation -------------------------------------------------------------------------------


def test_the_documented_table_is_the_table() -> None:
    page = (Path(__file__).parent.parent / "docs" / "dialects.md").read_text()
    shown = page.partition("<!-- dialects -->\n")[2].partition("<!-- /dialects -->")[0]
    assert shown == tables(), "python -m proxy.dialects.document prints the table as it is now"


@pytest.mark.parametrize("page", ["dialects.md", "routing.md"])
def test_every_configuration_shown_can_be_used(page: str) -> None:
    text = (Path(__file__).parent.parent / "docs" / page).read_text()
    for block in re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL):
        tree = tomllib.loads(block)
        for name in ("mercury", "ar", "mine"):
            backend = tree.setdefault("backends", {}).setdefault(name, {})
            backend.setdefault("url", "http://127.0.0.1:1/v1")
        assert Settings(**tree)
