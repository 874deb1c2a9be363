"""What an event or a body says, per API; nothing that a backend sends may raise anything but Unreadable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.meter import Fault, Usage
from proxy.meter.grammar import Delta, Unreadable, api_of, fault_of, label, loads, read_body, read_event, wellformed


def event(doc: Any, name: bytes = b"", replace: bool = False) -> Delta:
    return read_event(json.dumps(doc).encode(), name, replace)


def body(doc: Any, api: str = "chat") -> Delta:
    return read_body(json.dumps(doc).encode(), api)


def delta(**members: Any) -> Delta:
    return event({"choices": [{"index": 0, "delta": members}]})


@pytest.mark.parametrize(
    "path, api",
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/chat/completions/", "chat"),
        ("/openai/deployments/x/chat/completions", "chat"),
        ("/v1/completions", "completions"),
        ("/v1/fim/completions", "fim"),
        ("/v1/edit/completions", "edit"),
        ("/v1/apply/completions", "edit"),
        ("/v1/responses", "responses"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/models", "models"),
        ("/v1/chat/completions/models", "models"),
        ("/v1/audio/transcriptions", "other"),
        ("/", "other"),
    ],
)
def test_a_path_belongs_to_an_api(path: str, api: str) -> None:
    assert api_of(path) == api


OUTPUT = {
    "content": (delta(content="a b"), "a b", "", ""),
    "content of line ends": (delta(content="\n\n"), "\n\n", "", ""),
    "content in parts": (delta(content=[{"type": "text", "text": "a"}, {"text": "b"}, 7]), "ab", "", ""),
    "a refusal": (delta(content=None, refusal="no"), "no", "", ""),
    "reasoning, one spelling": (delta(content="", reasoning_content="hm"), "", "hm", ""),
    "reasoning, the other": (delta(reasoning="hm"), "", "hm", ""),
    "reasoning in both spellings counts once": (delta(reasoning="hm", reasoning_content="hm"), "", "hm", ""),
    "arguments": (delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}]), "", "", '{"a"'),
    "two calls": (
        delta(tool_calls=[{"index": 0, "function": {"arguments": "a"}}, {"index": 1, "function": {"arguments": "b"}}]),
        "",
        "",
        "ab",
    ),
    "a custom tool's input": (delta(tool_calls=[{"index": 0, "custom": {"name": None, "input": "x"}}]), "", "", "x"),
    "the old function call": (delta(function_call={"arguments": "a"}), "", "", "a"),
    "one call in both spellings counts once": (
        delta(function_call={"arguments": "a"}, tool_calls=[{"index": 0, "function": {"arguments": "a"}}]),
        "",
        "",
        "a",
    ),
    "text completions": (event({"choices": [{"index": 0, "text": "x"}]}), "x", "", ""),
    "a message where a delta should be": (event({"choices": [{"message": {"content": "x"}}]}), "x", "", ""),
    "two choices in one event": (
        event({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}),
        "ab",
        "",
        "",
    ),
    "responses text": (event({"type": "response.output_text.delta", "delta": "x"}), "x", "", ""),
    "responses, the type only in the event's name": (event({"delta": "x"}, b"response.output_text.delta"), "x", "", ""),
    "responses refusal": (event({"type": "response.refusal.delta", "delta": "x"}), "x", "", ""),
    "responses reasoning": (event({"type": "response.reasoning_summary_text.delta", "delta": "x"}), "", "x", ""),
    "responses arguments": (event({"type": "response.function_call_arguments.delta", "delta": "x"}), "", "", "x"),
    "responses custom input": (event({"type": "response.custom_tool_call_input.delta", "delta": "x"}), "", "", "x"),
    "responses call": (
        event({"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}}),
        "",
        "",
        "f",
    ),
}


@pytest.mark.parametrize("said, answer, reasoning, tool", OUTPUT.values(), ids=OUTPUT.keys())
def test_output(said: Delta, answer: str, reasoning: str, tool: str) -> None:
    assert (said.answer, said.reasoning, said.tool) == (answer, reasoning, tool)
    assert said.is_output


NO_OUTPUT = {
    "role only": delta(role="assistant", content=""),
    "null content": delta(content=None, refusal=None, tool_calls=None),
    "an empty delta": delta(),
    "no delta": event({"choices": [{"index": 0}]}),
    "usage": event({"choices": [], "usage": {"prompt_tokens": 1}}),
    "content filter results": event({"choices": [], "prompt_filter_results": [{}], "model": ""}),
    "a reasoning summary": event({"choices": [], "reasoning_summary": {"content": "thought", "status": "complete"}}),
    "empty arguments": delta(tool_calls=[{"index": 0, "function": {"arguments": ""}}]),
    "the text once more, whole": event({"type": "response.output_text.done", "text": "all of it"}),
    "a message item": event({"type": "response.output_item.added", "item": {"type": "message", "name": "x"}}),
    "an unknown event": event({"type": "response.shell_call_started", "delta": "x"}),
    "keep-alives": read_event(b"", b"", False),
    "a named keep-alive": read_event(b"2026-11-30", b"ping", False),
    "wrong types": event({"choices": [{"index": "x", "delta": {"content": 7, "tool_calls": {}}, "finish_reason": 1}]}),
    "choices that are none": event({"choices": {"delta": {"content": "x"}}}),
}


@pytest.mark.parametrize("said", NO_OUTPUT.values(), ids=NO_OUTPUT.keys())
def test_no_output(said: Delta) -> None:
    assert not said.is_output
    assert said.fault is None


def test_the_name_of_a_call_is_kept_apart_because_some_repeat_it() -> None:
    said = delta(tool_calls=[{"index": 2, "function": {"name": "get_weather", "arguments": ""}}])
    assert said.names == {(0, 2): "get_weather"}


@pytest.mark.parametrize(
    "choice, tokens",
    [
        ({"logprobs": {"content": [{"token": "a"}, {"token": "b"}]}}, 2),
        ({"logprobs": {"content": None, "refusal": [{"token": "a"}]}}, 1),
        ({"logprobs": {"tokens": ["a", "b", "c"]}}, 3),
        ({"token_ids": [1, 2, 3, 4]}, 4),
        ({"token_ids": [1, 2], "logprobs": {"content": [{}]}}, 2),
        ({"logprobs": {"content": []}}, None),
        ({"token_ids": []}, None),
        ({"token_ids": [], "logprobs": {"content": []}}, None),
        ({"logprobs": None, "token_ids": None}, None),
        ({"logprobs": 7}, None),
        ({}, None),
    ],
)
def test_tokens_that_are_listed_are_counted(choice: dict[str, Any], tokens: int | None) -> None:
    assert event({"choices": [{"index": 0, "delta": {"content": "ab"}} | choice]}).tokens == tokens


FRAME = {"choices": [{"index": 1, "delta": {"content": "whole"}}]}


@pytest.mark.parametrize(
    "marker, asked, replaces",
    [
        (True, False, True),
        (False, True, False),
        (None, True, True),
        (None, False, False),
    ],
)
def test_the_marker_decides_whether_text_replaces_else_the_request(
    marker: bool | None, asked: bool, replaces: bool
) -> None:
    meta = {} if marker is None else {"diffusion_meta": {"diffusion_content": marker}}
    said = event(FRAME | meta, replace=asked)
    assert (said.snapshots, said.answer) == (({1: "whole"}, "") if replaces else ({}, "whole"))


def test_what_an_event_says_beside_its_output() -> None:
    said = event(
        {
            "model": "mercury-2.5",
            "warning": "temperature was reset to 0.75",
            "choices": [{"index": 0, "finish_reason": "stop"}, {"index": 1, "finish_reason": "length"}],
            "x_groq": {"usage": {"prompt_tokens": 23, "completion_tokens": 19}},
        }
    )
    assert (said.model, said.warning) == ("mercury-2.5", "temperature was reset to 0.75")
    assert said.finishes == {0: "stop", 1: "length"}
    assert said.choices == {0, 1}
    assert said.usage == Usage(prompt=23, completion=19)


@pytest.mark.parametrize("data", [b"[DONE]", b"[DONE] ", b"[DONE]\n"])
def test_done_is_the_end(data: bytes) -> None:
    assert read_event(data, b"", False) == Delta(terminal=True)


RESPONSE = {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 2}}
USAGE = Usage(prompt=3, completion=2)


def test_a_response_ends_with_an_event_of_its_own() -> None:
    said = event({"type": "response.completed", "response": RESPONSE | {"status": "completed"}})
    assert (said.terminal, said.usage, said.finishes, said.fault) == (True, USAGE, {0: "completed"}, None)
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    said = event({"type": "response.incomplete", "response": RESPONSE | details})
    assert (said.terminal, said.usage, said.finishes) == (True, USAGE, {0: "max_output_tokens"})
    failed = {"status": "failed", "error": {"code": "server_error", "message": "boom"}}
    said = event({"type": "response.failed", "response": RESPONSE | failed})
    assert (said.terminal, said.fault) == (True, Fault("error", "boom", "server_error"))
    assert event({"type": "response.failed"}).fault == Fault("response_failed")
    said = event({"type": "response.created", "response": {"status": "in_progress", "model": "m", "error": None}})
    assert said == Delta(model="m", choices={0})


ERRORS = {
    "OpenAI": (
        event({"error": {"message": "overloaded", "type": "server_error", "param": None, "code": "busy"}}),
        Fault("server_error", "overloaded", "busy"),
    ),
    "a numeric code": (event({"error": {"message": "m", "code": 502}}), Fault("error", "m", "502")),
    "a string": (event({"error": "boom"}), Fault("error", "boom")),
    "vLLM": (
        event({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}),
        Fault("BadRequestError", "m", "400"),
    ),
    "responses": (event({"type": "error", "code": "busy", "message": "m"}), Fault("error", "m", "busy")),
    "event: error": (event({"message": "m"}, b"error"), Fault("error", "m")),
    "event: error with an envelope": (event({"error": {"type": "t"}}, b"error"), Fault("t")),
    "event: error with plain text": (read_event(b"out of memory", b"error", False), Fault("error", "out of memory")),
    "a finish_reason": (event({"choices": [{"finish_reason": "error"}]}), Fault("finish_reason_error")),
    "in a body": (body({"error": {"message": "m", "type": "t"}}), Fault("t", "m")),
}


@pytest.mark.parametrize("said, fault", ERRORS.values(), ids=ERRORS.keys())
def test_errors(said: Delta, fault: Fault) -> None:
    assert said.fault == fault


BODIES = {
    "chat": (
        body(
            {"choices": [{"index": 0, "message": {"content": "a", "reasoning_content": "b"}, "finish_reason": "stop"}]}
        ),
        ("a", "b", ""),
    ),
    "completions and FIM": (body({"choices": [{"text": "a", "finish_reason": "stop"}]}, "fim"), ("a", "", "")),
    "edit": (body({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, "edit"), ("a", "", "")),
    "responses": (
        body(
            {
                "status": "completed",
                "output": [
                    {"type": "reasoning", "content": [{"text": "b"}], "summary": [{"text": "not twice"}]},
                    {"type": "reasoning", "summary": [{"text": "c"}]},
                    {"type": "message", "content": [{"type": "output_text", "text": "a"}, {"refusal": "no"}]},
                    {"type": "function_call", "name": "f", "arguments": "{}"},
                ],
            },
            "responses",
        ),
        ("ano", "bc", "f{}"),
    ),
}


@pytest.mark.parametrize("said, texts", BODIES.values(), ids=BODIES.keys())
def test_whole_bodies(said: Delta, texts: tuple[str, str, str]) -> None:
    assert (said.answer, said.reasoning, said.tool) == texts
    assert said.terminal and said.finishes[0] in ("stop", "completed")


@pytest.mark.parametrize(
    "answer, fault",
    [
        (b'{"error":{"message":"no such model","type":"x","code":"nope"}}', Fault("x", "no such model", "nope")),
        (b'{"detail":"server busy"}', Fault("error", "server busy")),
        (b'{"detail":[{"msg":"Extra inputs"}]}', Fault("error", '[{"msg": "Extra inputs"}]')),
        (b'{"object":"error","message":"m","type":"t"}', Fault("t", "m")),
        (b"<html>502 Bad Gateway</html>", None),
        (b"[]", None),
        (b"", None),
    ],
)
def test_what_a_refusal_says_of_itself(answer: bytes, fault: Fault | None) -> None:
    assert fault_of(answer) == fault


@pytest.mark.parametrize("data", [b"{", b"[]", b'"x"', b"7", b"null", b"\xff", b"{'a': 1}", b"[" * 100_000])
def test_what_is_no_json_object_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_event(data, b"", False)
    with pytest.raises(Unreadable):
        read_body(data, "chat")


def test_json_is_read_leniently() -> None:
    assert str(loads(b'{"logprob": -Infinity, "x": NaN}')) == "{'logprob': -inf, 'x': nan}"
    assert loads(b'{"seed": 123456789012345678901234567890}')["seed"] == pytest.approx(1.2345678901234568e29)
    assert loads(b'"\\ud800"') == "\ud800"


def test_a_backends_words_are_clipped_and_well_formed() -> None:
    assert label("x" * 501) == "x" * 499 + "…"
    assert wellformed("\ud83d\ude00 \ud800") == "😀 \ufffd"
    long = event(
        {"error": {"message": "m" * 10_000, "type": "t" * 10_000, "code": "c" * 10_000}, "model": "x" * 10_000}
    )
    assert long.fault is not None and long.model is not None
    assert [len(part or "") for part in (*long.fault, long.model)] == [200, 500, 200, 200]


MEMBERS = st.sampled_from(
    (
        *("choices", "delta", "message", "content", "usage", "error", "type", "tool_calls", "function", "index"),
        *(
            "response",
            "output",
            "item",
            "logprobs",
            "token_ids",
            "finish_reason",
            "status",
            "summary",
            "text",
            "object",
        ),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=4),
    max_leaves=12,
)
DOCS = st.dictionaries(MEMBERS, JSON, max_size=4)


@given(DOCS, st.sampled_from([b"", b"error", b"response.completed", b"\xff"]), st.booleans())
def test_no_document_raises(doc: dict[str, Any], name: bytes, replace: bool) -> None:
    data = json.dumps(doc).encode()
    read_event(data, name, replace)
    fault_of(data)
    for api in ("chat", "responses", "fim"):
        read_body(data, api)
