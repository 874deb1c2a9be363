"""Records between processes: what goes in comes out, for every slicing."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import wire
from proxy.meter import Attempt, Fault, Price, Reading
from proxy.recorder import Opening
from tests import wire as chat

OPENING = Opening(
    id="a" * 32,
    started_at=1796000000.25,
    api="chat",
    backend="mercury",
    decoding="diffusion",
    model="other",
    asked_model="\ud800 odd\u2028 name",
    route="assistant",
    client="team-a",
    streamed=True,
    mirror=True,
)
BARE = Opening(id="b", started_at=0.0, api="other")


def measured(**options: object) -> Reading:
    return chat.read(
        (1.0, chat.text("a")),
        (1.5, chat.text("bc") + chat.text("d")),
        (2.0, chat.stop() + chat.usage(5, 7) + chat.DONE),
        **options,  # type: ignore[arg-type]
    )


READINGS = {
    "a stream": measured(),
    "with its text": measured(keep_text=True),
    "of snapshots": chat.read(
        (1.0, chat.text("ab")), (2.0, chat.text("ac")), (3.0, chat.stop() + chat.DONE), replace=True
    ),
    "a failure": chat.read(b'{"error":{"message":"no","code":"x"}}', status=500, kind="application/json"),
    "lost": OPENING.lost(1796000001.0, "forwarder_died", "it died"),
    "nothing": chat.read(outcome="client_gone"),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_a_reading_comes_back_with_every_measurement(reading: Reading) -> None:
    from dataclasses import replace

    full = replace(
        reading,
        attempts=(Attempt("a", "unreachable", None, 0.5), Attempt("b", "ok", 200, 1.0)),
        cost=Decimal("0.00000123"),
        translated=("steps=8",),
        notes=("odd \ud800",),
    )
    for each in (reading, full):
        _, (back,) = wire.unpack(wire.pack([wire.flat_reading(each)], []))
        assert isinstance(back, Reading)
        assert back.detail() == each.detail()
        assert back == each or back.detail() == each.detail()


@pytest.mark.parametrize("opening", [OPENING, BARE])
def test_an_opening_comes_back(opening: Opening) -> None:
    assert wire.unpack(wire.pack([wire.flat_opening(opening)], [])) == ([], [opening])


def test_a_batch_keeps_its_order_and_says_what_was_dropped() -> None:
    rows = [wire.flat_opening(OPENING), wire.flat_reading(READINGS["a stream"]), wire.flat_opening(BARE)]
    dropped, records = wire.unpack(wire.pack(rows, ["x", "y"]))
    assert dropped == ["x", "y"]
    assert [type(record) for record in records] == [Opening, Reading, Opening]


@given(
    frames=st.lists(st.tuples(st.sampled_from([wire.SETTINGS, wire.READY, wire.BATCH, wire.DRAIN]), st.binary())),
    cuts=st.lists(st.integers(0, 300)),
)
def test_frames_are_cut_out_of_every_slicing(frames: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(wire.frame(kind, body) for kind, body in frames)
    reader = wire.Frames()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [frame for start, stop in pairwise(edges) for frame in reader.feed(stream[start:stop])]
    assert found == frames


def test_a_price_does_not_travel_but_the_cost_does() -> None:
    price = Price(model="m", input=Decimal(1), output=Decimal(2))
    reading = chat.Meter(received=0.0).finish(1.0, id="r", started_at=0.0, price=price)
    _, (back,) = wire.unpack(wire.pack([wire.flat_reading(reading)], []))
    assert isinstance(back, Reading)
    assert back.cost == reading.cost
    assert isinstance(back.fault, Fault | None)
