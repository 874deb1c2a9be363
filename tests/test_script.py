"""A script played into a meter reads back as the plan's own numbers; knobs and faults change what they say."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import prose
from loadgen.decoding import Autoregressive, Diffusion
from loadgen.demand import Demand, Refusal
from loadgen.script import FAULTS, Script, Sharing, afflict
from loadgen.strict import Strict
from proxy.meter import Meter, Reading

CREATED = 1_764_500_000


def demand(api: str = "chat", simulate: str = "", **fields: Any) -> Demand:
    asked = {"model": "mercury-2.5", "stream": True, "stream_options": {"include_usage": True}}
    content = fields.pop("content", "What does a gauge show?")
    said = {"messages": [{"role": "user", "content": content}]} if api in ("chat", "edit") else {"prompt": content}
    return Demand.of(api, orjson.dumps(asked | said | fields), simulate)


def written(profile: Any, asked: Demand, seed: int = 0) -> Script:
    script = profile.write(asked, random.Random(f"{seed}:{asked.text}"), CREATED)
    return afflict(script, asked.faults)


def play(script: Script, asked: Demand, cuts: tuple[int, ...] = (), received: float = 100.0) -> Reading:
    replace = any(say.kind == "snapshot" for say in script.plan.says) if script.plan else False
    meter = Meter(api=asked.api, received=received, asked_stream=asked.stream, replace=replace, keep_text=True)
    meter.head(received + script.head, script.status, script.content_type, "")
    at = script.head
    for step in script.steps:
        at = step.at
        edges = sorted({0, len(step.data), *(cut % (len(step.data) + 1) for cut in cuts)})
        for start, end in itertools.pairwise(edges):
            meter.feed(step.data[start:end], received + at)
    outcome = {"cut": "truncated", "reset": "truncated", "hang": "timeout_idle"}.get(script.ending)
    return meter.finish(
        received + at, id="x", started_at=0.0, ended=received + at, outcome=outcome if script.steps else None
    )


def agrees(reading: Reading, script: Script, asked: Demand) -> None:
    plan = script.plan
    assert plan is not None
    bursts: dict[float, int] = {}
    for say in plan.says:
        bursts[say.at] = bursts.get(say.at, 0) + (len(say.text) if say.kind != "snapshot" else 0)
    assert reading.outcome == "ok"
    assert reading.ttft == pytest.approx(plan.ttft if asked.stream else plan.end)
    assert reading.e2e == pytest.approx(plan.end)
    assert reading.tokens.completion == plan.counts.completion
    assert reading.tokens.prompt == plan.counts.prompt
    assert reading.tokens.cached == plan.counts.cached
    assert reading.tokens.reasoning == plan.counts.reasoning
    assert reading.finish_reasons == (plan.finish,)
    assert reading.warning == plan.warning
    assert reading.answered_model == asked.model
    if plan.tool is None:
        assert reading.text == plan.text
    if asked.stream:
        assert reading.head == pytest.approx(plan.head)
        assert [a.at for a in reading.arrivals] == pytest.approx([say.at for say in plan.says])
        if plan.says[0].kind != "snapshot" and plan.tool is None:
            assert [a.answer + a.reasoning for a in reading.arrivals] == list(bursts.values())
    else:
        assert len(reading.arrivals) == 1


@settings(max_examples=120, deadline=None)
@given(
    profile=st.sampled_from([Diffusion(), Autoregressive()]),
    api=st.sampled_from(["chat", "completions", "fim", "edit"]),
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(0, 5000), max_size=4).map(tuple),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "stream": st.booleans(),
            "max_tokens": st.integers(4, 300),
            "steps": st.integers(1, 40),
            "width": st.sampled_from([8, 32, 64, 128]),
            "diffusing": st.booleans(),
            "temperature": st.sampled_from([0, 0.7]),
            "reasoning_effort": st.sampled_from(["instant", "low", "medium", "high"]),
            "response_format": st.just({"type": "json_object"}),
        },
    ),
)
def test_a_script_reads_back_as_its_own_numbers_whatever_the_slicing(
    profile: Any, api: str, seed: int, cuts: tuple[int, ...], fields: dict[str, Any]
) -> None:
    asked = demand(api, **fields)
    script = written(profile, asked, seed)
    agrees(play(script, asked, cuts), script, asked)


def test_the_same_seed_says_the_same_bytes_and_another_seed_others() -> None:
    asked = demand()
    assert written(Diffusion(), asked, 1) == written(Diffusion(), asked, 1)
    assert written(Diffusion(), asked, 1) != written(Diffusion(), asked, 2)


def test_a_block_comes_after_all_its_passes() -> None:
    profile = Diffusion(prefill=0.1, prompt_token_time=0.0, pass_time=0.01, position_time=0.0)
    asked = demand(steps=5, width=20, max_tokens=60, reasoning_effort="instant", ignore_eos=True)
    reading = play(written(profile, asked), asked)
    assert [a.at for a in reading.arrivals] == pytest.approx([0.15, 0.20, 0.25])
    assert reading.tokens.completion == 60
    assert reading.bursts is not None and sum(reading.bursts) == pytest.approx(60)
    assert reading.silence == pytest.approx(0.15 - 0.002)


def test_tokens_come_at_an_even_pace_after_a_prefill_by_the_length_of_the_prompt() -> None:
    profile = Autoregressive(prefill=0.1, prompt_token_time=0.001, token_time=0.02)
    short = demand(content="x" * 40, max_tokens=5, ignore_eos=True)
    long = demand(content="x" * 4000, max_tokens=5, ignore_eos=True)
    assert play(written(profile, short), short).ttft == pytest.approx(0.1 + 10 * 0.001)
    reading = play(written(profile, long), long)
    assert reading.ttft == pytest.approx(0.1 + 1000 * 0.001)
    assert reading.gaps == pytest.approx([0.02] * 4)
    assert reading.head == pytest.approx(profile.head)
    assert reading.decode_rate == pytest.approx(50, rel=0.6)  # tokens are shared out by characters


@pytest.mark.parametrize("field", ["num_denoising_steps", "steps"])
def test_fewer_steps_are_faster_and_visibly_worse(field: str) -> None:
    def run(steps: int) -> Reading:
        asked = demand(**{field: steps}, max_tokens=200, reasoning_effort="instant", ignore_eos=True)
        return play(written(Diffusion(), asked), asked)

    few, half, many = run(4), run(8), run(32)
    assert few.e2e < half.e2e < many.e2e
    clean = prose.split(many.text or "")

    def wrong(reading: Reading) -> float:
        mine = reading.text or ""
        kept = sum(token in mine for token in clean)
        return 1 - kept / len(clean)

    assert wrong(many) == 0
    assert few.text != half.text != many.text
    assert Diffusion().blemished(4, 64) > 0.2 > Diffusion().blemished(8, 64) > 0 == Diffusion().blemished(16, 64)


@pytest.mark.parametrize("field", ["parallel_tokens", "width"])
def test_a_wider_block_needs_fewer_bursts(field: str) -> None:
    counts = []
    for width in (32, 64, 128):
        asked = demand(**{field: width}, max_tokens=128, reasoning_effort="instant", ignore_eos=True)
        counts.append(len(play(written(Diffusion(), asked), asked).arrivals))
    assert counts == [4, 2, 1]


def test_effort_lengthens_the_silence_and_is_paid_as_reasoning() -> None:
    seen = []
    for effort in ("instant", "low", "medium", "high"):
        asked = demand(reasoning_effort=effort)
        reading = play(written(Diffusion(), asked), asked)
        seen.append((reading.ttft, reading.tokens.reasoning))
    assert [tokens for _, tokens in seen] == [0, 32, 96, 320]
    assert [ttft for ttft, _ in seen] == sorted(ttft or 0 for ttft, _ in seen)
    assert (seen[3][0] or 0) - (seen[0][0] or 0) == pytest.approx(5 * Diffusion().block_time(16, 64))


def test_diffusing_shows_whole_texts_that_settle() -> None:
    asked = demand(diffusing=True, steps=16, max_tokens=100, reasoning_effort="instant", ignore_eos=True)
    script = written(Diffusion(), asked)
    reading = play(script, asked)
    assert script.plan is not None
    assert reading.text == script.plan.text
    assert len(reading.arrivals) == 32  # 16 passes for each of two blocks
    assert all(arrival.replace for arrival in reading.arrivals)
    assert reading.stability.churn > 1
    assert reading.ttft is not None and reading.stability.t90 is not None
    assert reading.ttft < reading.stability.t90 <= script.plan.end
    frames = [orjson.loads(step.data[6:]) for step in script.steps if step.kind == "output"]
    assert [frame["diffusion_meta"]["diffusion_content"] for frame in frames] == [True] * 32
    progress = [frame["diffusion_meta"]["diffusion_progress"] for frame in frames]
    assert progress == sorted(progress) and progress[-1] == 1.0


@pytest.mark.parametrize("profile", [Diffusion(), Autoregressive()])
@pytest.mark.parametrize("stream", [True, False])
def test_max_tokens_ends_an_answer_with_length(profile: Any, stream: bool) -> None:
    asked = demand(max_tokens=20, stream=stream)
    reading = play(written(profile, asked), asked)
    assert reading.finish_reasons == ("length",)
    assert reading.tokens.completion == 20


def test_structured_output_is_json_that_fits_the_schema() -> None:
    schema = {
        "type": "object",
        "required": ["name", "tags", "size"],
        "properties": {
            "name": {"type": "string", "minLength": 3},
            "size": {"type": "integer", "minimum": 5, "maximum": 9},
            "kind": {"enum": ["pump", "valve"]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 3},
        },
        "$defs": {"tag": {"type": "object", "properties": {"on": {"type": "boolean"}}}},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "part", "schema": schema}}
    asked = demand(response_format=wanted)
    value = json.loads(play(written(Diffusion(), asked), asked).text or "")
    assert len(value["name"]) >= 3 and 5 <= value["size"] <= 9 and value["kind"] in ("pump", "valve")
    assert len(value["tags"]) == 3 and all(isinstance(tag["on"], bool) for tag in value["tags"])


@pytest.mark.parametrize("profile", [Diffusion(), Autoregressive()])
@pytest.mark.parametrize("stream", [True, False])
def test_a_required_tool_is_called_with_json(profile: Any, stream: bool) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    asked = demand(tools=tools, tool_choice="required", stream=stream)
    script = written(profile, asked)
    reading = play(script, asked)
    assert script.plan is not None and isinstance(json.loads(script.plan.text)["city"], str)
    assert reading.finish_reasons == ("tool_calls",)
    assert sum(arrival.tool for arrival in reading.arrivals) == len("weather") + len(script.plan.text)


def test_reasoning_is_shown_apart_when_an_autoregressive_model_is_asked_to_think() -> None:
    asked = demand(reasoning_effort="low")
    reading = play(written(Autoregressive(), asked), asked)
    assert reading.tokens.reasoning == 16
    assert reading.ttfa is not None and reading.ttft is not None
    assert reading.ttfa - reading.ttft == pytest.approx(16 * Autoregressive().token_time)


@pytest.mark.parametrize(("profile", "flat"), [(Diffusion(), True), (Autoregressive(), False)])
def test_usage_is_spelled_as_each_kind_of_backend_spells_it(profile: Any, flat: bool) -> None:
    system = {"role": "system", "content": "Be brief. " * 20}
    asked = demand(messages=[system, {"role": "user", "content": "hello"}], stream=False)
    usage = orjson.loads(written(profile, asked).steps[0].data)["usage"]
    assert ("cached_input_tokens" in usage) == flat
    assert ("prompt_tokens_details" in usage) != flat
    assert (usage["cached_input_tokens"] if flat else usage["prompt_tokens_details"]["cached_tokens"]) == 48


def test_usage_is_streamed_only_when_asked() -> None:
    asked = demand(stream_options=None)
    reading = play(written(Autoregressive(), asked), asked)
    assert (reading.outcome, reading.usage_source) == ("ok", "none")


def test_chinese_is_answered_in_chinese_and_code_with_code() -> None:
    chinese = demand(content="什么是压力计？")
    assert "。" in (play(written(Autoregressive(), chinese), chinese).text or "")
    code = demand(content="Write a Python function that searches a list.")
    compile(play(written(Autoregressive(), code), code).text or "", "answer", "exec")


def test_a_known_question_gets_its_answer() -> None:
    asked = demand(content="Capital of France?")
    profile = Diffusion(answers={"Capital of France?": "Paris"})
    assert play(written(profile, asked), asked).text == "Paris"


@pytest.mark.parametrize(
    ("fault", "outcome", "status"),
    [
        ("error=500", "backend_error", 500),
        ("error=429", "backend_error", 429),
        ("503", "backend_error", 503),
        ("cut=2", "truncated", 200),
        ("reset", "truncated", 200),
        ("stall=1", "timeout_idle", 200),
        ("error_event", "backend_error", 200),
        ("html", "bad_stream", 200),
        ("truncate", "truncated", 200),
        ("malformed=1", "bad_stream", 200),
        ("no_usage", "ok", 200),
        ("no_done", "ok", 200),
        ("delay=2", "ok", 200),
        ("late_head", "ok", 200),
    ],
)
@pytest.mark.parametrize("how", ["header", "model"])
def test_each_fault_reads_as_what_it_is(fault: str, outcome: str, status: int, how: str) -> None:
    asked = demand(simulate=fault) if how == "header" else demand(model=f"mercury-2.5#{fault}")
    script = written(Diffusion(), asked)
    reading = play(script, asked)
    assert (reading.outcome, reading.status) == (outcome, status)
    assert asked.model == "mercury-2.5"


def test_a_cut_keeps_as_many_outputs_as_it_says() -> None:
    for count in (0, 1, 2):
        asked = demand(simulate=f"cut={count}", max_tokens=300, ignore_eos=True)
        assert len(play(written(Diffusion(), asked), asked).arrivals) == count


def test_no_usage_takes_the_usage_out_of_a_json_answer_too() -> None:
    asked = demand(simulate="no_usage", stream=False)
    assert play(written(Diffusion(), asked), asked).usage_source == "none"


def test_an_empty_answer_reads_as_empty() -> None:
    asked = demand(simulate="empty,no_done")
    assert play(written(Diffusion(), asked), asked).outcome == "empty"


def test_a_fault_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(Refusal) as caught:
        written(Diffusion(), demand(simulate="explode"))
    assert caught.value.status == 400 and all(name in str(caught.value) for name in FAULTS)
    with pytest.raises(Refusal, match="cut cannot take"):
        written(Diffusion(), demand(simulate="cut=soon"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"steps": 0}, "steps"),
        ({"parallel_tokens": True}, "parallel_tokens"),
        ({"reasoning_effort": "none"}, "reasoning_effort"),
        ({"messages": []}, "messages"),
        ({"messages": ["hello"]}, "messages"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Refusal) as caught:
        written(Diffusion(), demand(**fields))
    assert caught.value.status == 400
    assert orjson.loads(caught.value.body)["error"]["param"] == named


def test_sharing_peaks_at_its_knee() -> None:
    sharing = Sharing(0.06, 0.002)
    best = max(range(1, 200), key=sharing.speedup)
    assert best in (int(sharing.knee), int(sharing.knee) + 1)
    assert sharing.slowdown(0) == sharing.slowdown(1) == 1.0


@given(st.text())
def test_tokens_joined_are_the_text(text: str) -> None:
    assert "".join(prose.split(text)) == text


# The strict server, against what was recorded from the real one.


def strict(**fields: Any) -> Demand:
    asked = {"model": "exact-llada", "messages": [{"role": "user", "content": "Tell me"}]}
    return Demand.of("chat", orjson.dumps(asked | fields))


@pytest.mark.parametrize(
    ("fields", "status", "body"),
    [
        (
            {"stream": True, "stream_options": {"include_usage": True}},
            422,
            '{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],'
            '"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}',
        ),
        (
            {"parallel_tokens": 8},
            422,
            '{"detail":[{"type":"extra_forbidden","loc":["body","parallel_tokens"],'
            '"msg":"Extra inputs are not permitted","input":8}]}',
        ),
        (
            {"num_denoising_steps": 1000},
            422,
            '{"detail":[{"type":"less_than_equal","loc":["body","num_denoising_steps"],'
            '"msg":"Input should be less than or equal to 512","input":1000,"ctx":{"le":512}}]}',
        ),
        ({"model": "nope"}, 404, "{\"detail\":\"Model 'nope' not found. This server hosts 'exact-llada'.\"}"),
        ({"max_tokens": 50, "block_length": 32}, 500, None),
        ({"tools": []}, 422, None),
    ],
)
def test_the_strict_server_refuses_as_recorded(fields: dict[str, Any], status: int, body: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        written(Strict(), strict(**fields))
    assert caught.value.status == status
    if body is not None:
        assert orjson.loads(caught.value.body) == orjson.loads(body)


def test_the_strict_server_says_everything_at_once_and_counts_its_canvas() -> None:
    asked = strict(max_tokens=128, num_denoising_steps=16, stream=True)
    reading = play(written(Strict(), asked), asked)
    assert reading.ttft == reading.e2e == pytest.approx(16 * Strict().step_time)
    assert (reading.outcome, reading.usage_source, len(reading.arrivals)) == ("ok", "none", 1)
    whole = strict(max_tokens=128, num_denoising_steps=16)
    assert play(written(Strict(), whole), whole).tokens.completion == 128


def test_more_steps_cost_the_strict_server_time_and_mend_its_text() -> None:
    texts = {}
    for steps in (4, 64):
        asked = strict(num_denoising_steps=steps)
        reading = play(written(Strict(), asked), asked)
        texts[steps] = reading.text
        assert reading.e2e == pytest.approx(steps * Strict().step_time)
    assert texts[4] != texts[64]
