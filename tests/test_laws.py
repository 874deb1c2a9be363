"""The laws of the meter: slicing, the short way, conservation. Streams are made of what backends send, and worse."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy import wire as link
from proxy.meter import Meter, Reading
from proxy.meter.plain import Plain
from tests import wire

# Texts: mostly plain, some with what JSON must escape, what Python does not print, what is no whole character.
NASTY = st.text(st.sampled_from('ab é光\u2028\u00a0\u200b"\\\n\t\x00\x7f😀\ud83d\ude00{}:,'), max_size=6)
TEXTS = st.one_of(st.sampled_from(["Hello", " world", "光。", "stop", "content", "m"]), NASTY)


def template(content: str, ids: int = 1, tail: str = "") -> bytes:
    """A chat chunk whose text is put in as it is, escaped or not."""
    made = f'data: {{"id":"c{ids}","model":"m","choices":[{{"index":0,"delta":{{"content":"{content}"}}}}]{tail}}}'
    return made.encode("utf-8", "surrogatepass") + b"\n\n"


@st.composite
def events(draw: st.DrawFn) -> bytes:
    content = draw(TEXTS)
    escaped = json.dumps(content)[1:-1]
    index = draw(st.integers(0, 1))
    kinds: list[bytes] = [
        template(escaped),
        template(escaped),
        template(json.dumps(content, ensure_ascii=False)[1:-1]),
        template(content),  # raw: quotes, line ends and all
        template(escaped, ids=draw(st.integers(1, 3))),
        template(escaped).replace(b"\n\n", b"\r\n\r\n"),
        template(escaped).replace(b"data: ", b"data:"),
        template(escaped, tail=',"usage":null'),
        template(escaped).replace(b"content", b"reasoning"),
        template(escaped).replace(b"content", b"reasoning"),
        template(escaped, tail=f',"usage":{{"completion_tokens":{draw(st.integers(0, 9))}}}'),
        template(escaped).replace(b'"m"', b'"other"'),
        template("\0").replace(b"\0", draw(st.binary(max_size=4))),
        wire.chunk(wire.say(content, index=index, finish=draw(st.sampled_from([None, "stop", "length", "error"])))),
        wire.chunk(wire.say(content), wire.say("two", index=1)),
        wire.chunk(wire.say(role="assistant", content="")),
        wire.chunk(wire.say(reasoning_content=content)),
        wire.chunk(wire.say(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": content}}])),
        wire.chunk(wire.say(content) | {"logprobs": {"content": [{"token": "x"}] * draw(st.integers(0, 3))}}),
        wire.chunk(wire.say(content), diffusion_meta={"diffusion_content": draw(st.booleans())}),
        wire.usage(5, draw(st.integers(0, 40))),
        wire.event({"error": {"message": content, "type": "server_error", "code": 7}}),
        wire.event({"type": "response.output_text.delta", "delta": content}, "response.output_text.delta"),
        wire.event({"type": "response.completed", "response": {"status": "completed", "usage": {"output_tokens": 3}}}),
        wire.event([content]),
        b": " + escaped.encode() + b"\n\n",
        b"event: ping\n\n",
        b"event: error\ndata: " + escaped.encode() + b"\n\n",
        b"id: 1\nretry: 2\n",
        b"data:\n\n",
        b"data: {\ndata: }\n\n",
        b"data: {broken\n\n",
        b"\r",
        b"\n",
        draw(st.binary(max_size=5)),
    ]
    return draw(st.sampled_from(kinds))


ENDS = st.sampled_from([b"", wire.stop(), wire.stop() + wire.DONE, wire.DONE, b"data: [DONE]", b'data: {"a'])
STREAMS = st.builds(
    lambda start, parts, end: start + b"".join(parts) + end,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\n"]),
    st.lists(events(), max_size=12),
    ENDS,
)
KINDS = st.sampled_from(["text/event-stream", "text/event-stream; charset=utf-8", "", "application/json"])


def measure(reads: list[tuple[float, bytes]], kind: str = "text/event-stream", **options: Any) -> Reading:
    return wire.read(*reads, kind=kind, keep_text=True, **options)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


def apart_from_cutting(reading: Reading) -> tuple[Any, ...]:
    """What must not depend on the reads: everything but how output is grouped into arrivals."""
    columns = ("events", "answer", "reasoning", "tool")
    sums = [sum(reading.arrivals.column(name)) for name in columns]
    first = reading.arrivals[0].at if reading.arrivals else None
    return replace(reading, arrivals=reading.arrivals.of()), sums, first, any(reading.arrivals.column("replace"))


@given(stream=STREAMS, places=st.lists(st.integers(0, 5000), max_size=8), kind=KINDS, asked=st.booleans())
@example(stream=b"\xef\xbb\xbfdata: [DONE]", places=[1, 2, 4], kind="", asked=True)
def test_slicing_changes_nothing_but_the_grouping(stream: bytes, places: list[int], kind: str, asked: bool) -> None:
    """All reads have one time here, so that times are no excuse."""
    options = {"replace": asked, "limit": 600}
    whole = apart_from_cutting(measure([(1.0, stream)], kind, **options))
    sliced = apart_from_cutting(measure([(1.0, read) for read in cut(stream, places)], kind, **options))
    assert sliced == whole
    single = [(1.0, stream[i : i + 1]) for i in range(len(stream))]
    assert apart_from_cutting(measure(single, kind, **options)) == whole


@given(stream=STREAMS, places=st.lists(st.integers(0, 5000), max_size=8), level=st.sampled_from([0, 9]))
def test_slicing_changes_nothing_under_compression_either(stream: bytes, places: list[int], level: int) -> None:
    packed = gzip.compress(stream, level)
    plain = apart_from_cutting(measure([(1.0, stream)]))
    assert apart_from_cutting(measure([(1.0, read) for read in cut(packed, places)], coding="gzip")) == plain
    single = [(1.0, packed[i : i + 1]) for i in range(len(packed))]
    assert apart_from_cutting(measure(single, coding="gzip")) == plain


@given(stream=STREAMS, more=STREAMS, places=st.lists(st.integers(0, 5000), max_size=4))
def test_what_follows_the_end_is_not_counted(stream: bytes, more: bytes, places: list[int]) -> None:
    ended = b"".join(wire.text(word) for word in ("a", "b")) + wire.stop() + wire.usage(3, 2) + wire.DONE
    reading = measure([(1.0, ended)])
    assert measure([(1.0, ended + more)]) == reading
    assert measure([(1.0, ended), *((2.0, read) for read in cut(more, places))]) == reading


READS = st.lists(
    st.one_of(events(), st.lists(events(), min_size=1, max_size=3).map(b"".join), st.binary(max_size=3)), max_size=25
)


@given(reads=READS, places=st.lists(st.integers(0, 5000), max_size=3), asked=st.booleans())
@example(reads=[template("a"), template("b").replace(b'"m"', b'"n"'), template("c")], places=[], asked=False)
@example(
    reads=[template("a"), template("b"), template('x"}}],"model":"z","choices":[{"delta":{"content":"y')],
    places=[],
    asked=False,
)
@example(
    reads=[template("a"), template("x" * 300)[:-100], template("x" * 300)[-100:], template("b")], places=[], asked=False
)
@example(reads=[template("a"), template("b") + b"\r", b"\n" + template("c"), template("d")], places=[], asked=False)
def test_the_short_way_and_the_long_way_read_the_same(reads: list[bytes], places: list[int], asked: bool) -> None:
    """Each read of its own time; some reads end in the middle of an event."""
    pieces = [piece for read in reads for piece in (cut(read, places) if len(read) % 5 == 0 else [read])]
    timed = [(float(i), piece) for i, piece in enumerate(pieces)]
    long = measure(timed, replace=asked, plain=Plain(tries=0), cap=16, hold=0.25)
    assert measure(timed, replace=asked, cap=16, hold=0.25) == long
    assert {arrival.hold for arrival in long.arrivals} <= {0.25}


class Counting(Plain):
    """Counts the events that went the short way."""

    short = 0

    def match(self, chunk: bytes) -> int:
        size = super().match(chunk)
        self.short += bool(size)
        return size


def short(reads: list[bytes], coding: str = "") -> int:
    plain = Counting()
    wire.read(*reads, plain=plain, coding=coding)
    return plain.short


def test_plain_events_go_the_short_way() -> None:
    """All but the first, whose stamp is the ttft, and the second, which teaches what they look like."""
    words = ["The", " sky", " is", " blue", "。", " é"] * 20
    assert short([template(word) for word in words]) == 118
    assert short([template(word, tail=',"usage":null') for word in words]) == 118
    assert short([wire.event({"choices": [{"index": 0, "text": word}]}) for word in words]) == 118
    assert short([wire.chunk(wire.say(reasoning_content=word)) for word in words]) == 118


def test_a_stream_whose_envelope_changes_slowly_is_learned_again() -> None:
    """`created` is the second of the chunk with some servers."""
    assert short([template("word", ids=second) for second in range(20) for _ in range(30)]) == 20 * 29 - 1


def test_a_stream_whose_events_share_nothing_is_not_learned_for_ever() -> None:
    learned: list[int] = []

    class Watched(Plain):
        def learn(self, *args: Any) -> bool:
            learned.append(super().learn(*args))
            return learned[-1]

    wire.read(*(template("word", ids=number) for number in range(200)), plain=Watched())
    assert sum(learned) == 4


@st.composite
def timed_streams(draw: st.DrawFn) -> tuple[Reading, int]:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=60))
    completion = draw(st.integers(0, 5000))
    at = 0.0
    reads = []
    for size in sizes:
        at += draw(st.integers(0, 3_000_000)) / 1e6  # a clock has a resolution
        key = draw(st.sampled_from(["content", "content", "reasoning_content"]))
        reads.append((at, wire.chunk(wire.say(**{key: "x" * size}))))
    thought = draw(st.one_of(st.none(), st.integers(0, 6000)))
    details = {} if thought is None else {"completion_tokens_details": {"reasoning_tokens": thought}}
    reads.append((at, wire.stop() + wire.usage(3, completion, **details) + wire.DONE))
    return wire.read(*reads, end=at + 1.0, cap=draw(st.sampled_from([8, 16, 4096]))), completion


@given(timed_streams())
def test_what_is_shared_out_adds_up(case: tuple[Reading, int]) -> None:
    reading, completion = case
    times = reading.arrivals.column("at")
    assert sum(reading.gaps) == pytest.approx(times[-1] - times[0])
    assert reading.generation == times[-1] - times[0]
    assert reading.bursts is not None
    assert sum(reading.bursts) == pytest.approx(completion)
    assert len(reading.bursts) == len(reading.arrivals) == len(reading.gaps) + 1
    if reading.decode_rate is not None and reading.generation:
        assert reading.decode_rate * reading.generation == pytest.approx(completion - reading.bursts[0], abs=1e-6)


@given(timed_streams())
def test_times_keep_their_order(case: tuple[Reading, int]) -> None:
    reading, _ = case
    stable = reading.stability
    if stable.t50 is not None and stable.t90 is not None and stable.t100 is not None:
        assert reading.ttft is not None and reading.ttfa is not None and stable.first_stable is not None
        order = [0.0, reading.ttft, reading.ttfa, stable.t50, stable.t90, stable.t100, reading.e2e]
        assert order == sorted(order)
        assert stable.first_stable == reading.ttfa
    assert all(gap >= 0 for gap in reading.gaps)
    assert sum(reading.stalls) <= sum(reading.gaps) + 1e-9


@given(STREAMS)
def test_what_a_reading_says_is_json_without_nan(stream: bytes) -> None:
    reading = measure([(1.0, stream)])
    told = json.dumps([reading.detail(), reading.text], allow_nan=False, ensure_ascii=False)
    assert json.loads(told.encode())[0]["id"] == "r"


@given(STREAMS)
def test_a_reading_that_crossed_a_process_boundary_says_the_same(stream: bytes) -> None:
    reading = measure([(1.0, stream)])
    _, (copy,) = link.unpack(link.pack([link.flat_reading(reading)], 0))
    assert copy == reading
    assert copy.detail() == reading.detail()


@given(st.lists(st.tuples(st.floats(0, 10), st.binary(max_size=60)), max_size=6), st.integers(100, 599), KINDS)
def test_nothing_that_comes_may_raise(reads: list[tuple[float, bytes]], status: int, kind: str) -> None:
    for api in ("chat", "responses", "embeddings", "other"):
        for coding in ("", "gzip", "deflate", "br"):
            assert wire.read(*reads, status=status, kind=kind, coding=coding, api=api).outcome


def test_a_meter_holds_no_more_than_its_cap() -> None:
    meter = Meter(cap=100)
    meter.head(0.0, 200, "text/event-stream")
    for number in range(10_000):
        meter.feed(wire.text("word"), number * 0.01)
        assert len(meter.arrivals) <= 100
