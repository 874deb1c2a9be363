"""Taking out the usage event that the proxy asked for: that one, whole, and nothing else."""

from __future__ import annotations

import pytest

from proxy.strip import Strip, is_usage_only
from tests import wire

USAGE = wire.usage(5, 7)
STREAM = wire.text("a") + wire.text("b") + wire.stop() + USAGE + wire.DONE
WITHOUT = STREAM.replace(USAGE, b"")


def run(*chunks: bytes) -> tuple[bytes, int]:
    strip = Strip()
    out = b"".join(map(strip.feed, chunks)) + strip.finish()
    return out, strip.taken


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_usage_event_goes_whatever_the_slicing_and_the_line_ends(size: int, end: bytes) -> None:
    stream, wanted = STREAM.replace(b"\n", end), WITHOUT.replace(b"\n", end)
    assert run(*(stream[i : i + size] for i in range(0, len(stream), size))) == (wanted, 1)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b""])
def test_it_goes_as_the_very_last_event_too(end: bytes) -> None:
    usage = USAGE.rstrip(b"\n") + end
    assert run(wire.text("a"), usage) == (wire.text("a"), 1)
    assert run(wire.text("a") + usage[:-1], usage[-1:]) == (wire.text("a"), 1)


@pytest.mark.parametrize(
    "event",
    [
        wire.text("a", usage={"prompt_tokens": 1, "completion_tokens": 1}),
        wire.stop(usage={"prompt_tokens": 1, "completion_tokens": 1}),
        wire.text("a", usage=None),
        wire.chunk(usage=None),
        wire.text('{"choices":[],"usage":{"prompt_tokens":1}}'),
        b': {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":1}\n\n',
        b'data: {"usage":{"prompt_tokens":1}}\n\n',
        b'data: [{"choices":[],"usage":{"prompt_tokens":1}}]\n\n',
        b'event: x\ndata: "prompt_tokens"\n\n',
        wire.DONE,
        b": ping\n\n",
        b"\n\n\n",
        b'<html>"prompt_tokens"',
    ],
)
def test_what_is_not_that_event_stays_byte_for_byte(event: bytes) -> None:
    for chunks in ((event,), tuple(event[i : i + 1] for i in range(len(event)))):
        assert run(*chunks) == (event, 0)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
        b'data:{"choices": [ ], "usage": {"total_tokens" : 1}}\n\n',
        b'id: 7\nevent: message\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":1}}\n\n',
        b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":12345678901234567890}}\n\n',
    ],
)
def test_that_event_in_all_its_spellings(event: bytes) -> None:
    assert is_usage_only(event)
    assert run(wire.text("a") + event + wire.DONE) == (wire.text("a") + wire.DONE, 1)


def test_whole_reads_without_usage_pass_as_the_same_object() -> None:
    strip = Strip()
    chunk = wire.text("a") * 3
    assert strip.feed(chunk) is chunk


def test_only_an_unfinished_event_is_held_back() -> None:
    strip = Strip()
    assert strip.feed(wire.text("a") + b"data: {") == wire.text("a")
    assert strip.feed(b"}\n") == b""
    assert strip.feed(b"\n") == b"data: {}\n\n"


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 1}])
def test_a_large_event_is_not_held_back_and_nothing_of_it_is_lost(usage: dict[str, int] | None) -> None:
    canvas = wire.event({"usage": usage, "choices": [wire.say("x" * 300_000)]})
    strip = Strip()
    out = []
    for i in range(0, len(canvas), 1000):
        out.append(strip.feed(canvas[i : i + 1000]))
        assert len(strip._held) <= 66_000
    out.append(strip.feed(USAGE + wire.DONE))
    assert b"".join(out) + strip.finish() == canvas + wire.DONE
    assert strip.taken == 1


@pytest.mark.parametrize("size", [1, 2, 5, 10_000])
def test_a_stream_that_is_not_known_to_be_one_is_told_by_its_first_bytes(size: int) -> None:
    for start in (b"", b"\n\r\n", b"\xef\xbb\xbf"):
        strip = Strip(sure=False)
        stream = start + STREAM
        out = b"".join(strip.feed(stream[i : i + size]) for i in range(0, len(stream), size)) + strip.finish()
        assert (out, strip.taken) == (start + WITHOUT, 1)


@pytest.mark.parametrize(
    "body", [b'{"a": 1}\n{"b": 2}\n', b'  {"usage": {"prompt_tokens": 1}}', b"<html>", b"database\n"]
)
def test_what_is_no_stream_of_events_passes_at_once(body: bytes) -> None:
    strip = Strip(sure=False)
    assert b"".join(strip.feed(body[i : i + 1]) for i in range(len(body))) == body
    strip = Strip(sure=False)
    assert strip.feed(b"\n") == b"\n"  # an answer that is kept alive with blank lines
    assert strip.feed(body) == body
    assert strip.finish() == b""
    assert Strip(sure=False).feed(b"") == b""
