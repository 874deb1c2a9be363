"""The short way: what it learns, what it takes, and what it leaves to the long way."""

from __future__ import annotations

import pytest

from proxy.meter.grammar import read_event
from proxy.meter.plain import TRIES, Plain
from proxy.meter.sse import Event

BEFORE, AFTER = b'{"id":"c1","choices":[{"index":0,"delta":{"content":"', b'"},"finish_reason":null}]}'


def data(text: str | bytes) -> bytes:
    return BEFORE + (text.encode() if isinstance(text, str) else text) + AFTER


def learn(plain: Plain, data: bytes, name: bytes = b"", seen: int = 1) -> bool:
    return plain.learn(Event(name, data), read_event(data, name, replace=False), seen)


@pytest.fixture
def plain() -> Plain:
    plain = Plain()
    assert learn(plain, data("Hello"))
    plain.ready(True)
    return plain


def taken(plain: Plain, chunk: bytes) -> int:
    """As the meter does it."""
    return plain.match(chunk) if chunk.startswith(plain.before) else 0


@pytest.mark.parametrize(
    "text, characters", [("a", 1), (" of the", 7), ("日本。", 3), ("é", 1), ("😀", 1), ("{}:,[]'", 7)]
)
def test_another_text_in_the_same_event_is_counted_in_characters(plain: Plain, text: str, characters: int) -> None:
    chunk = b"data: " + data(text) + b"\n\n"
    assert taken(plain, chunk) == characters
    assert plain.text(chunk) == text
    assert plain.match_data(Event(b"", data(text))) == characters
    assert plain.text_of(data(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'"',
        b"\\n",
        b"\\u0041",
        b"\n",
        b"\r",
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        "\u2028".encode(),
        b'","refusal":"x',
    ],
    ids=repr,
)
def test_what_json_would_read_otherwise_is_left(plain: Plain, text: bytes) -> None:
    assert taken(plain, b"data: " + data(text) + b"\n\n") == 0
    assert plain.match_data(Event(b"", data(text))) == 0


@pytest.mark.parametrize(
    "chunk",
    [
        b"data: " + data("a") + b"\n\ndata: " + data("b") + b"\n\n",
        b"data: " + data("a") + b"\n",
        b"data: " + data("a") + b"\r\n\r\n",
        b"data:" + data("a") + b"\n\n",
        b"data: " + data("a"),
        b"data: " + BEFORE + b"half of a long text, cut in its middle " * 9,
        b"id: 1\ndata: " + data("a") + b"\n\n",
        b"data: " + data("a").replace(b"c1", b"c2") + b"\n\n",
        b"data: " + BEFORE[:-1] + AFTER + b"\n\n",  # the two ends share a quote: no text lies between
        b"",
    ],
)
def test_a_read_that_is_not_one_such_event_is_left(plain: Plain, chunk: bytes) -> None:
    assert taken(plain, chunk) == 0


def test_reasoning_is_learned_as_reasoning() -> None:
    plain = Plain()
    assert not plain.reasoning
    assert learn(plain, data("Think").replace(b"content", b"reasoning_content"))
    assert plain.reasoning
    assert plain.match_data(Event(b"", data("more").replace(b"content", b"reasoning_content"))) == 4
    assert learn(plain, data("Hi"))
    assert not plain.reasoning


def test_a_named_event_is_left(plain: Plain) -> None:
    assert plain.match_data(Event(b"error", data("a"))) == 0


def test_no_read_is_taken_whole_while_an_event_is_unfinished(plain: Plain) -> None:
    plain.ready(False)
    assert taken(plain, b"data: " + data("a") + b"\n\n") == 0
    for start in (b"", b"\xff\xff", b"\x00"):
        assert taken(plain, start + b"x" * 200 + AFTER + b"\n\n") == 0
    plain.ready(True)
    assert taken(plain, b"data: " + data("a") + b"\n\n") == 1


UNFIT = {
    "an end": BEFORE + b'a"},"finish_reason":"stop"}]}',
    "usage": BEFORE + b'a"}}],"usage":{"completion_tokens":1}}',
    "listed tokens": BEFORE + b'a"},"logprobs":{"content":[{}]}}]}',
    "an error": BEFORE + b'a"}}],"error":"x"}',
    "a warning": BEFORE + b'a"}}],"warning":"x"}',
    "text and reasoning": BEFORE + b'a","reasoning":"b"}}]}',
    "no text": data(""),
    "text that is escaped": data("\\n"),
    "text that also stands elsewhere": data("c1"),
    "two texts": BEFORE + b'a","refusal":"b"}}]}',
    "two texts that together stand elsewhere": BEFORE.replace(b"c1", b"ab") + b'a","refusal":"b"}}]}',
    "a snapshot": BEFORE + b'a"}}],"diffusion_meta":{"diffusion_content":true}}',
    "several lines": BEFORE + b'a"},\n"finish_reason":null}]}',
    "a lone surrogate": data("\\ud800"),
}


@pytest.mark.parametrize("event", UNFIT.values(), ids=UNFIT.keys())
def test_an_event_that_says_more_than_text_is_not_learned(event: bytes) -> None:
    plain = Plain()
    assert not learn(plain, event)
    plain.ready(True)
    assert taken(plain, b"data: " + event + b"\n\n") == 0


def test_a_named_event_is_not_learned() -> None:
    assert not learn(Plain(), data("a"), name=b"message")


def test_null_usage_is_part_of_the_envelope() -> None:
    assert learn(Plain(), BEFORE + b'a"}}],"usage":null}')


def test_learning_is_given_up_where_it_serves_nothing_and_taken_up_again_where_it_did() -> None:
    plain = Plain()
    numbered = [data("a").replace(b"c1", b"n%d" % number) for number in range(20)]
    assert [learn(plain, event, seen=i + 1) for i, event in enumerate(numbered)] == [True] * TRIES + [False] * (
        20 - TRIES
    )
    assert learn(plain, numbered[0], seen=100), "79 events went the short way since"


def test_the_short_way_can_be_shut() -> None:
    assert not learn(Plain(tries=0), data("a"))
