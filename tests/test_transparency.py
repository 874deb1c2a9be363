"""The law of the byte path: the client's bytes are the backend's, minus exactly the event that the proxy asked for.

It holds for every slicing, every line end, with keep-alive comments, usage in other places, unfinished ends, and
whether the meter has learnt to pass over plain events or not.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.meter import Meter
from proxy.relay import Relay
from proxy.strip import Strip
from tests import wire


class Loop:
    """As much of an event loop as a relay needs to be made."""

    class Future:
        settled = False

        def done(self) -> bool:
            return self.settled

        def set_result(self, result: None) -> None:
            self.settled = True

    def create_future(self) -> Any:
        return self.Future()


class Taker:
    """A client that takes everything."""

    waiting = 0
    choked = False

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def write(self, data: bytes) -> None:
        assert data  # an empty chunk would end a chunked body
        self.got.append(data)


TEXT = st.text(max_size=12)
EVENTS = st.one_of(
    TEXT.map(wire.text),
    st.tuples(TEXT, st.integers(0, 9)).map(lambda pair: wire.text(pair[0], usage={"completion_tokens": pair[1]})),
    TEXT.map(lambda text: wire.text(text, usage=None)),
    st.just(wire.stop()),
    st.just(wire.DONE),
    st.sampled_from([b": ping\n\n", b"\n", b"event: x\ndata: y\n\n", b"data: {broken\n\n", b"retry: 5\n\n"]),
    st.just(wire.event({"error": {"message": "no"}})),
    st.just(wire.text('"prompt_tokens": 1')),
)
USAGE = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: wire.usage(*pair))
STREAM = st.lists(st.one_of(EVENTS.map(lambda e: (e, False)), USAGE.map(lambda e: (e, True))), max_size=12)
TAILS = st.sampled_from([b"", b"data: unfin", b": half a comm", b"data: {}\n", b"\xff\xfe"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def relayed(stream: bytes, cuts: list[int], injected: bool, early: int) -> bytes:
    """What a client gets of it, cut so; the first `early` reads come before the client's head is out."""
    meter = Meter()
    relay = Relay(Loop(), lambda: 0.0, meter, 0.0)  # type: ignore[arg-type]
    relay.on_head(0.0, 200, [(b"content-type", b"text/event-stream")])
    client = Taker()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        if number == early:
            relay.open(client, lambda: None, [Strip()] if injected else [])
        if start < stop:
            relay.on_chunk(float(number), stream[start:stop])
    relay.on_end(99.0)
    if len(edges) - 1 <= early:  # all came before the client's head was out
        return relay.whole([Strip()] if injected else [])
    return b"".join(client.got) + relay.rest()


@given(events=STREAM, tail=TAILS, end=ENDS, cuts=st.lists(st.integers(0, 1500), max_size=12), early=st.integers(0, 3))
def test_the_clients_bytes_are_the_backends_minus_the_event_that_was_asked_for(
    events: list[tuple[bytes, bool]], tail: bytes, end: bytes, cuts: list[int], early: int
) -> None:
    pieces = [(event.replace(b"\n", end), ours) for event, ours in events]
    stream = b"".join(event for event, _ in pieces) + tail.replace(b"\n", end)
    assert relayed(stream, cuts, False, early) == stream
    wanted = b"".join(event for event, ours in pieces if not ours) + tail.replace(b"\n", end)
    for cutting in (cuts, [], list(range(len(stream)))):
        assert squeezed(relayed(stream, cutting, True, early), end) == squeezed(wanted, end)


def squeezed(stream: bytes, end: bytes) -> bytes:
    """Blank lines beyond the one that ends an event mean nothing, and may go with the event that follows them."""
    while end * 3 in stream:
        stream = stream.replace(end * 3, end * 2)
    return stream.removeprefix(end) if not stream.startswith(end * 2) else stream.lstrip(end)


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=6), injected=st.booleans())
def test_bytes_that_are_no_stream_pass_as_they_are(data: bytes, cuts: list[int], injected: bool) -> None:
    assert relayed(data, cuts, injected, 1) == data
