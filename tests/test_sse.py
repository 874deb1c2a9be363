"""The parser: events are the same for every slicing, and nothing is scanned twice."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.meter.sse import Event, Parser, encode, looks_like_events

# Each is tried whole, byte by byte and with trailing data.
STREAMS = {
    "one event": (b"data: a\n\n", [Event(b"", b"a")]),
    "a missing space": (b"data:a\n\n", [Event(b"", b"a")]),
    "only one space belongs to the syntax": (b"data:  a\n\n", [Event(b"", b" a")]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event(b"", b"a"), Event(b"", b"b")]),
    "bare CR": (b"data: a\r\rdata: b\r\r", [Event(b"", b"a"), Event(b"", b"b")]),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\r\n", [Event(b"", b"a"), Event(b"", b"b")]),
    "several data lines are joined by line feeds": (b"data: {\ndata:  1\ndata: }\n\n", [Event(b"", b"{\n 1\n}")]),
    "the same with CRLF": (b"data: {\r\ndata:  1\r\ndata: }\r\n\r\n", [Event(b"", b"{\n 1\n}")]),
    "comments and other fields are no data": (b": hi\nid: 7\nretry: 3\ndata: a\n\n: bye\n\n", [Event(b"", b"a")]),
    "a name belongs to one event": (
        b"event: x\ndata: a\n\ndata: b\n\n",
        [Event(b"x", b"a"), Event(b"", b"b")],
    ),
    "a name without data is no event": (b"event: ping\n\ndata: a\n\n", [Event(b"", b"a")]),
    "an empty data field is an event": (b"data:\n\ndata\n\n", [Event(b"", b""), Event(b"", b"")]),
    "a byte-order mark is skipped once": (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [Event(b"", b"a")]),
    "U+2028 and U+0085 are text": ("data: a\u2028b\u0085c\n\n".encode(), [Event(b"", "a\u2028b\u0085c".encode())]),
    "more blank lines end nothing": (b"\n\n\ndata: a\n\n\n\n", [Event(b"", b"a")]),
}


@pytest.mark.parametrize("stream, events", STREAMS.values(), ids=STREAMS.keys())
def test_a_stream_is_read_whole_byte_by_byte_and_with_trailing_data(stream: bytes, events: list[Event]) -> None:
    assert Parser().feed(stream) == events
    parser = Parser()
    assert [e for i in range(len(stream)) for e in parser.feed(stream[i : i + 1])] == events
    parser = Parser()
    assert parser.feed(stream + b"data: unfinished") == events
    assert parser.rest == b"unfinished"


PIECES = st.sampled_from(
    (
        *(b"data: ", b"data:", b"data", b"event: ", b": ", b"id: 1", b"x", b"{}", b'"', b" ", b"longer text"),
        *(b"\n", b"\n\n", b"\r\n", b"\r", b"\r\n\r\n", b"\xef\xbb\xbf", "\u2028é".encode(), b"\xff"),
    )
)
STREAM = st.lists(PIECES, max_size=40).map(b"".join)


def parse(stream: bytes, cuts: list[int], limit: int) -> tuple[list[Event], bool, bool, bytes]:
    parser = Parser(limit)
    edges = [0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    events = [e for start, stop in pairwise(edges) for e in parser.feed(stream[start:stop])]
    return events, parser.overflown, parser.foreign and not parser.overflown, parser.rest


@given(stream=STREAM, cuts=st.lists(st.integers(0, 200)), limit=st.sampled_from([8, 20, 1000]))
def test_every_slicing_gives_the_same_events_and_the_same_rest(stream: bytes, cuts: list[int], limit: int) -> None:
    whole = parse(stream, [], limit)
    assert parse(stream, cuts, limit) == whole
    assert parse(stream, list(range(len(stream))), limit) == whole


@given(st.lists(st.binary().filter(lambda data: b"\r" not in data)))
def test_what_is_encoded_is_parsed_back(texts: list[bytes]) -> None:
    assert [event.data for event in Parser().feed(b"".join(map(encode, texts)))] == texts


def test_an_event_over_the_limit_ends_the_reading_but_takes_nothing_from_before() -> None:
    parser = Parser(limit=30)
    assert parser.feed(b"data: a\n\ndata: " + b"x" * 40) == [Event(b"", b"a")]
    assert parser.overflown
    assert parser.feed(b"\n\ndata: b\n\n") == []


def test_the_limit_is_that_of_one_event_not_of_the_stream() -> None:
    parser = Parser(limit=30)
    assert len(parser.feed(b"data: a\n\n" * 100)) == 100
    assert parser.feed(b": keep-alive\n" * 100) == []
    assert not parser.overflown


def test_many_data_lines_of_one_event_count_together() -> None:
    parser = Parser(limit=30)
    parser.feed(b"data: 12345\n" * 3)
    assert parser.overflown


def test_an_unfinished_line_is_kept_in_the_pieces_it_came_in() -> None:
    """Nothing is joined, and so nothing scanned again, until the end of the line has come."""
    parser = Parser()
    pieces = [b"data: " + b"x" * 64, *(bytes([65 + i % 26]) * 64 for i in range(1000))]
    for piece in pieces:
        assert parser.feed(piece) == []
    assert len(parser._pieces) == len(pieces)
    assert all(kept is piece for kept, piece in zip(parser._pieces, pieces, strict=True))
    assert parser.feed(b"\n\n") == [Event(b"", b"".join(pieces)[6:])]
    assert parser.idle


def test_idle_says_that_nothing_is_held() -> None:
    parser = Parser()
    assert not parser.idle  # a byte-order mark may still come
    for chunk, idle in [
        (b"data: a\n\n", True),
        (b"data: ", False),
        (b"b\n", False),
        (b"\n", True),
        (b"event: x\n", False),
        (b"\n", True),
        (b"data: c\r\n\r", False),
        (b"\n: comment\n", True),
    ]:
        parser.feed(chunk)
        assert parser.idle is idle, chunk


@pytest.mark.parametrize("page", [b"<!doctype html>", b'{"error": "x"}', b'{"error": "x"}\n', b"\n\nJust a moment\n"])
def test_a_page_or_a_json_body_is_foreign(page: bytes) -> None:
    parser = Parser()
    assert parser.feed(page) == []
    assert parser.foreign


@pytest.mark.parametrize("stream", [b"", b": hi\n\n", b"data: a\n\n", b"dat", b"retry: 1\n", b"id\n"])
def test_a_stream_of_events_is_not(stream: bytes) -> None:
    parser = Parser()
    parser.feed(stream)
    assert not parser.foreign


@pytest.mark.parametrize(
    "start, verdict",
    [
        (b"", None),
        (b"\xef\xbb", None),
        (b"\xef\xbb\xbf", None),
        (b"\n\r\n\n", None),
        (b"da", None),
        (b"data", None),
        (b"data:", True),
        (b"\xef\xbb\xbfdata: x", True),
        (b"\n\nevent: x", True),
        (b": comment", True),
        (b"data\n", True),
        (b"database", False),
        (b"{", False),
        (b'\n  {"a": 1}', False),
        (b"<html>", False),
    ],
)
def test_the_first_bytes_tell_events_from_anything_else_as_soon_as_they_can(start: bytes, verdict: bool | None) -> None:
    assert looks_like_events(start) is verdict
