"""Handing records on: to all, in order, and whatever one of them does."""

from __future__ import annotations

import pytest

from proxy.meter import Reading
from proxy.recorder import Fan, Opening
from tests.stage import Records

OPENING = Opening(id="a", started_at=100.0, api="chat", backend="b", model="m", decoding="diffusion", streamed=True)


class Broken:
    def opened(self, opening: Opening) -> None:
        raise RuntimeError("full")

    def finished(self, reading: Reading) -> None:
        raise RuntimeError("full")


def test_a_fan_hands_on_to_all_even_past_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    first, last = Records(), Records()
    fan = Fan([first, Broken(), last])
    fan.opened(OPENING)
    fan.finished(OPENING.lost(101.5, "code", "why"))
    for records in (first, last):
        assert records.openings == [OPENING]
        assert [reading.id for reading in records.readings] == ["a"]
    assert "the reading of a was not kept" in caplog.text


def test_what_is_lost_keeps_what_was_known() -> None:
    reading = OPENING.lost(101.5, "forwarder_died", "it died")
    assert (reading.outcome, reading.backend, reading.model, reading.decoding) == ("internal", "b", "m", "diffusion")
    assert reading.fault is not None
    assert (reading.fault.code, reading.fault.message, reading.e2e) == ("forwarder_died", "it died", 1.5)
    assert reading.ttft is None
    assert OPENING.lost(99.0, "c", "m").e2e == 0.0  # clocks may step back
