"""One attempt's sink: forward first, measure then; back-pressure; what waits until the client's side is open."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.meter import Meter
from proxy.relay import Relay
from proxy.strip import Strip
from proxy.upstream import UpstreamFault
from tests import wire
from tests.test_transparency import Loop

STREAM = [(b"Content-Type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]


class Client:
    """A client's socket. `log` is shared with the meter: it tells who was served first."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.got = b""
        self.waiting = 0
        self.choked = False

    def write(self, data: bytes) -> int:
        self.log.append("forwarded")
        self.got += data
        return self.waiting


class Noted(Meter):
    """A meter that says when it was asked, and fails when it is told to."""

    def __init__(self, log: list[str], fails: bool) -> None:
        super().__init__()
        self.log = log
        self.fails = fails

    def feed(self, *arguments: Any) -> None:
        self.log.append("measured")
        if self.fails:
            raise RuntimeError("a bug")
        super().feed(*arguments)


class Call:
    def __init__(self) -> None:
        self.outputs = 0
        self.aborted = 0

    def output(self) -> None:
        self.outputs += 1

    def abort(self) -> None:
        self.aborted += 1


class Stand:
    """A relay with everything around it."""

    def __init__(self, headers: list[tuple[bytes, bytes]] = STREAM, fails: bool = False) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.meter = Noted(self.log, fails)
        self.relay = Relay(Loop(), lambda: self.now, self.meter, 0.0)  # type: ignore[arg-type]
        self.relay.call = self.call = Call()  # type: ignore[assignment]
        self.client = Client(self.log)
        self.choked = 0
        self.relay.on_head(0.5, 200, headers)

    def choke(self) -> None:
        self.choked += 1

    def open(self, *filters: Any) -> None:
        self.relay.open(self.client, self.choke, filters)

    def reading(self) -> Any:
        return self.meter.finish(self.now, id="r", started_at=0.0, ended=self.relay.ended)


def test_bytes_are_forwarded_before_they_are_measured() -> None:
    stand = Stand()
    stand.open()
    stand.relay.on_chunk(1.0, wire.text("a"))
    stand.relay.on_chunk(2.0, wire.text("b"))
    assert stand.log == ["forwarded", "measured", "forwarded", "measured"]
    assert stand.client.got == wire.text("a") + wire.text("b")


def test_what_comes_before_the_clients_head_waits_with_its_own_time() -> None:
    stand = Stand()
    stand.relay.on_chunk(1.0, wire.text("a"))
    assert stand.client.got == b""
    assert stand.relay.first.done()
    stand.now = 5.0
    stand.open()
    stand.relay.on_chunk(6.0, wire.text("b"))
    assert stand.client.got == wire.text("a") + wire.text("b")
    assert list(stand.reading().arrivals.column("at")) == [1.0, 6.0]


def test_hold_runs_from_the_read_until_the_clients_socket_has_it() -> None:
    stand = Stand()
    stand.open()
    stand.now = 1.25
    stand.relay.on_chunk(1.0, wire.text("a"))
    stand.client.waiting = 100  # the socket is full
    stand.now = 2.0
    stand.relay.on_chunk(2.0, wire.text("b"))
    stand.client.waiting = 0
    stand.now = 4.5
    stand.relay.on_chunk(4.0, wire.text("c"))  # what waited is taken with what came after it
    reading = stand.reading()
    assert reading.hold_max == 2.5
    assert reading.hold_sum == 0.25 + 2.5 + 0.5


def test_a_choked_client_is_said_with_each_write_until_it_takes_more() -> None:
    stand = Stand()
    stand.open()
    stand.relay.on_chunk(1.0, wire.text("a"))
    stand.client.waiting, stand.client.choked = 70_000, True
    stand.relay.on_chunk(2.0, wire.text("b"))
    stand.client.choked = False
    stand.relay.on_chunk(3.0, wire.text("c"))
    assert stand.choked == 1


def test_the_first_output_is_told_to_the_backend_leg_once() -> None:
    stand = Stand()
    stand.open()
    stand.relay.on_chunk(1.0, b": ping\n\n")
    assert stand.call.outputs == 0
    for at in (2.0, 3.0):
        stand.relay.on_chunk(at, wire.text("a"))
    assert stand.call.outputs == 1


@pytest.mark.parametrize("headers", [JSON, [(b"content-type", b"audio/mpeg")], []])
def test_the_first_byte_of_any_other_body_counts_as_output_for_the_limits(headers: list[tuple[bytes, bytes]]) -> None:
    stand = Stand(headers)
    stand.open()
    stand.relay.on_chunk(1.0, b"{")
    assert stand.call.outputs == 1


def test_the_end_and_a_fault_settle_everything_that_is_waited_for() -> None:
    for fault in (None, UpstreamFault("truncated", "upstream_cut", "cut")):
        stand = Stand()
        if fault:
            stand.relay.on_fault(3.0, fault)
        else:
            stand.relay.on_end(3.0)
        assert stand.relay.head.done()
        assert stand.relay.first.done()
        assert stand.relay.end.done()
        assert (stand.relay.ended, stand.relay.fault) == (3.0, fault)


def test_an_answer_that_came_whole_is_changed_and_measured_as_one_that_streams() -> None:
    stand = Stand()
    stand.relay.on_chunk(1.0, wire.text("a") + wire.usage(1, 2)[:20])
    stand.relay.on_chunk(2.0, wire.usage(1, 2)[20:] + wire.DONE)
    stand.relay.on_end(2.0)
    assert stand.relay.whole([Strip()]) == wire.text("a") + wire.DONE
    reading = stand.reading()
    assert (reading.tokens.completion, list(reading.arrivals.column("at"))) == (2, [1.0])


def test_aborting_cancels_what_runs_and_only_that() -> None:
    stand = Stand()
    stand.relay.abort()
    assert stand.call.aborted == 1
    stand = Stand()
    stand.relay.on_end(1.0)
    stand.relay.abort()
    assert stand.call.aborted == 0


def test_delivered_is_when_the_apis_own_end_was_with_the_client() -> None:
    stand = Stand()
    stand.open()
    stand.now = 1.5
    stand.relay.on_chunk(1.0, wire.text("a") + wire.stop() + wire.DONE)
    stand.now = 9.0
    stand.relay.on_end(9.0)
    assert stand.relay.delivered == 1.5


def test_a_meter_that_fails_is_asked_no_more_and_takes_nothing_from_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stand = Stand(fails=True)
    stand.open()
    for at in (1.0, 2.0):
        stand.relay.on_chunk(at, wire.text("a"))
    assert stand.client.got == wire.text("a") * 2
    assert stand.log.count("measured") == 1
    assert stand.relay.blind
    assert "could not be read" in caplog.text
