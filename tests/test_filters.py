"""Quirky servers' answers as clients know them: transcripts, and the same for every slicing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import BUILT_IN
from proxy.filters import Append, Envelope, Events, enveloped, needed

# -- Append --------------------------------------------------------------------------------------


def event(content: str | None = None, finish: str | None = None, snapshot: bool | None = None, **more: Any) -> bytes:
    delta = {} if content is None else {"content": content}
    doc: dict[str, Any] = {
        "id": "c1",
        "choices": [{"index": more.pop("index", 0), "delta": delta, "finish_reason": finish}],
    }
    if snapshot is not None:
        doc["diffusion_meta"] = {"diffusion_content": snapshot, "diffusion_progress": 0.5}
    return b"data: " + json.dumps(doc | more).encode() + b"\n\n"


USAGE = b'data: {"id":"c1","choices":[],"usage":{"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
MERCURY = (
    event("Thr sky qv blue lo", snapshot=True),
    event("The sky is blue lo", snapshot=True),
    event("The sky is blue.", snapshot=True),
    event("", finish="stop"),
    USAGE,
    DONE,
)


def through(stream: bytes, *cuts: int) -> bytes:
    append, out, start = Append(), b"", 0
    for cut in [*sorted(cuts), len(stream)]:
        out += append.feed(stream[start:cut])
        start = cut
    return out + append.finish()


def said(stream: bytes) -> list[Any]:
    """What a client makes of it: contents, finishes, usage, [DONE]."""
    heard: list[Any] = []
    for line in stream.decode().splitlines():
        if not line.startswith("data:"):
            continue
        if line == "data: [DONE]":
            heard.append("DONE")
            continue
        doc = json.loads(line[5:])
        heard += ["usage"] * bool(doc.get("usage"))
        for choice in doc["choices"]:
            heard += [choice["delta"][key] for key in choice["delta"] if key == "content"]
            heard += filter(None, [choice["finish_reason"]])
    return heard


def test_of_all_snapshots_the_last_becomes_the_one_delta() -> None:
    assert said(through(b"".join(MERCURY))) == ["", "The sky is blue.", "", "stop", "usage", "DONE"]


def test_the_role_goes_out_at_once_and_then_the_connection_is_kept_alive() -> None:
    append = Append()
    first = append.feed(MERCURY[0])
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert append.feed(MERCURY[1]) == b": denoising\n\n"


def test_no_event_is_marked_as_a_snapshot_any_more() -> None:
    assert b"diffusion_meta" not in through(b"".join(MERCURY[:4]))


def test_without_a_marker_the_request_counts() -> None:
    stream = event("dra") + event("draft") + event(finish="stop") + DONE
    assert said(through(stream)) == ["", "draft", "stop", "DONE"]


def test_a_snapshot_that_finishes_is_sent_with_its_finish() -> None:
    stream = event("dra", snapshot=True) + event("draft", finish="length", snapshot=True) + DONE
    assert said(through(stream)) == ["", "draft", "length", "DONE"]


def test_ordinary_text_after_snapshots_follows_them() -> None:
    stream = event("one", snapshot=True) + event(" two", snapshot=False) + event("one two!", snapshot=True) + DONE
    assert said(through(stream)) == ["", "one", " two", "!", "DONE"]


def test_tool_calls_beside_a_snapshot_are_not_lost() -> None:
    call = [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]
    doc = {
        "choices": [{"index": 0, "delta": {"content": "x", "tool_calls": call}}],
        "diffusion_meta": {"diffusion_content": True},
    }
    out = through(b"data: " + json.dumps(doc).encode() + b"\n\n" + DONE)
    assert json.dumps(call).replace(" ", "").encode() in out
    assert said(out) == ["", "x", "DONE"]


def test_choices_are_kept_apart() -> None:
    stream = event("a", snapshot=True) + event("b", snapshot=True, index=1) + event("a2", snapshot=True)
    stream += event(finish="stop", index=1) + event(finish="stop") + DONE
    assert said(through(stream)) == ["", "", "b", "stop", "a2", "stop", "DONE"]


def test_what_cannot_be_read_passes() -> None:
    assert through(b"data: {oops\n\n" + DONE) == b"data: {oops\n\n" + DONE


def test_a_stream_that_only_stops_gives_what_there_is() -> None:
    assert said(through(event("all", snapshot=True))) == ["", "all"]


@given(st.lists(st.integers(0, len(b"".join(MERCURY))), max_size=6))
def test_any_slicing_gives_the_same(cuts: list[int]) -> None:
    assert through(b"".join(MERCURY), *cuts) == through(b"".join(MERCURY))


@given(st.lists(st.text("ab 模\ud800\n", min_size=1, max_size=6), min_size=1, max_size=6))
def test_what_the_client_puts_together_is_the_last_snapshot(texts: list[str]) -> None:
    stream = b"".join(event(text, snapshot=True) for text in texts) + event(finish="stop") + DONE
    heard = [part for part in said(through(stream)) if part not in ("stop", "DONE")]
    assert "".join(heard) == texts[-1]


# -- Envelope ------------------------------------------------------------------------------------


def test_fastapi_detail_becomes_the_error_and_stays() -> None:
    raw = b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Not permitted"}]}'
    out = enveloped(422, raw)
    assert out.endswith(raw[1:])
    assert json.loads(out)["error"] == {
        "message": "stream_options: Not permitted",
        "type": "invalid_request_error",
        "param": "stream_options",
        "code": "extra_forbidden",
    }


@pytest.mark.parametrize(
    ("status", "raw", "message", "kind"),
    [
        (404, b'{"detail":"Model \'nope\' not found."}', "Model 'nope' not found.", "invalid_request_error"),
        (429, b'{"detail":"server busy"}', "server busy", "rate_limit_error"),
        (401, b'{"detail":"no key"}', "no key", "authentication_error"),
        (500, b"Internal Server Error", "Internal Server Error", "server_error"),
        (502, b"<html>Bad Gateway</html>", "The backend answered with status 502 and no OpenAI error.", "server_error"),
        (503, b"", "The backend answered with status 503 and no OpenAI error.", "server_error"),
        (400, b'{"object":"error","message":"bad","code":400}', "bad", "invalid_request_error"),
        (400, b"{}", "The backend gave no reason.", "invalid_request_error"),
    ],
)
def test_every_error_gets_a_message_and_a_type(status: int, raw: bytes, message: str, kind: str) -> None:
    error = json.loads(enveloped(status, raw))["error"]
    assert (error["message"], error["type"]) == (message, kind)


def test_plain_text_is_kept_as_the_original() -> None:
    assert json.loads(enveloped(500, b"oh\xff"))["error"]["original"] == "oh\ufffd"


@pytest.mark.parametrize("raw", [b'{"error":{"message":"x","code":400}}', b'{"error":"x"}'])
def test_an_error_that_has_the_shape_passes_byte_for_byte(raw: bytes) -> None:
    assert enveloped(400, raw) is raw


def test_an_error_that_came_in_pieces_is_read_at_its_end() -> None:
    envelope = Envelope(404)
    assert envelope.feed(b'{"detail":') == envelope.feed(b'"gone"}') == b""
    assert json.loads(envelope.finish())["error"]["message"] == "gone"


# -- Events --------------------------------------------------------------------------------------

OLLADA = {
    "id": "c1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 64},
}


@pytest.mark.parametrize(
    ("usage", "wanted"), [(False, ["hi", "stop", "DONE"]), (True, ["hi", "stop", "usage", "DONE"])]
)
def test_a_json_answer_becomes_a_stream(usage: bool, wanted: list[str]) -> None:
    events = Events(usage)
    assert events.feed(json.dumps(OLLADA).encode()) == b""
    out = events.finish()
    assert said(out) == wanted
    assert out.count(b'"object":"chat.completion.chunk"') == len(wanted) - 1


@pytest.mark.parametrize("raw", [b"oops", b"[1]", b'{"choices":null}'])
def test_a_body_that_is_no_answer_passes(raw: bytes) -> None:
    events = Events(True)
    events.feed(raw)
    assert events.finish() == raw


# -- needed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "status", "streamed", "append", "wanted"),
    [
        ("mercury", 200, True, True, [Append]),
        ("mercury", 200, True, False, []),
        ("mercury", 200, False, True, []),
        ("mercury", 400, False, True, []),
        ("openai", 500, False, False, []),
        ("dlmserve", 422, False, False, [Envelope]),
        ("dlmserve", 200, True, False, []),
        ("ollada", 200, False, False, [Events]),
        ("ollada", 409, False, False, [Envelope]),
    ],
)
def test_what_an_answer_needs_follows_from_the_table(
    dialect: str, status: int, streamed: bool, append: bool, wanted: list[type]
) -> None:
    found = needed(
        BUILT_IN[dialect], status=status, streamed=streamed, asked_stream=True, asked_usage=False, append=append
    )
    assert [type(part) for part in found] == wanted
