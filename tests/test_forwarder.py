"""A forwarder's end of the link: records in batches, never more waiting than the bound, and orders."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from proxy import forwarder, wire
from proxy.forwarder import Link
from proxy.meter import Reading
from proxy.recorder import Opening
from tests import wire as chat


class Pipe:
    """The link's transport; `waiting` is what the main process has not taken."""

    def __init__(self) -> None:
        self.frames = wire.Frames()
        self.sent: list[tuple[bytes, bytes]] = []
        self.waiting = 0

    def write(self, data: bytes) -> None:
        self.sent += self.frames.feed(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    @property
    def batches(self) -> list[tuple[list[str], list[Any]]]:
        return [wire.unpack(body) for kind, body in self.sent if kind == wire.BATCH]


def opening(id: str) -> Opening:
    return Opening(id=id, started_at=0.0, api="chat")


def reading(id: str) -> Reading:
    return chat.Meter(received=0.0).finish(1.0, id=id, started_at=0.0)


@pytest.fixture
async def link() -> Link:
    made = Link(asyncio.get_running_loop())
    made.connection_made(Pipe())  # type: ignore[arg-type]
    return made


def pipe(link: Link) -> Pipe:
    return link._transport  # type: ignore[return-value]


async def test_records_go_in_batches_and_in_order(link: Link) -> None:
    link.opened(opening("a"))
    link.finished(reading("a"))
    link.opened(opening("b"))
    assert pipe(link).sent == []
    await asyncio.sleep(forwarder.BATCH * 2)
    (batch,) = pipe(link).batches
    assert batch[0] == []
    assert [(type(record), record.id) for record in batch[1]] == [(Opening, "a"), (Reading, "a"), (Opening, "b")]


async def test_nothing_to_say_sends_nothing(link: Link) -> None:
    link.flush()
    assert pipe(link).sent == []


async def test_what_would_pass_the_bound_is_dropped_and_said_once_there_is_room(link: Link) -> None:
    link.opened(opening("a"))
    link.flush()
    pipe(link).waiting = forwarder.BOUND + 1
    link.finished(reading("a"))  # its opening was sent: the main process must learn that it is over
    link.opened(opening("b"))
    link.finished(reading("b"))
    await asyncio.sleep(forwarder.BATCH * 3)
    assert len(pipe(link).batches) == 1
    pipe(link).waiting = 0
    await asyncio.sleep(forwarder.BATCH * 3)  # by itself: no later record is needed
    assert pipe(link).batches[1:] == [(["a", "b"], [])]
    link.finished(reading("c"))
    link.flush()
    assert pipe(link).batches[2][0] == []


async def test_without_a_main_process_nothing_gathers(link: Link) -> None:
    link.connection_lost(None)
    assert link.drain.done()
    for number in range(100):
        link.opened(opening(str(number)))
        link.finished(reading(str(number)))
    link.flush()
    assert not link._records
    assert not link._dropped
    assert link._later is None


async def test_orders_are_understood_in_any_slicing(link: Link) -> None:
    orders = wire.frame(wire.SETTINGS, pickle.dumps({"a": 1})) + wire.frame(wire.DRAIN)
    for byte in orders:
        link.data_received(bytes([byte]))
    assert link.settings.result() == {"a": 1}
    assert link.drain.done()
    link.data_received(wire.frame(wire.DRAIN))  # again changes nothing


async def test_later_settings_go_to_the_gateway(link: Link) -> None:
    seen = []

    class Gate:
        def reload(self, settings: Any) -> None:
            seen.append(settings)

    link.gate = Gate()  # type: ignore[assignment]
    link.data_received(wire.frame(wire.SETTINGS, pickle.dumps("new")))
    assert seen == ["new"]
    assert not link.settings.done()


async def test_a_configuration_that_cannot_be_used_here_ends_nothing(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    class Gate:
        def reload(self, settings: Any) -> None:
            raise ValueError("ca_file: gone")

    link.gate = Gate()  # type: ignore[assignment]
    link.data_received(wire.frame(wire.SETTINGS, pickle.dumps("new")))
    assert "the old one stays" in caplog.text
    assert not link.drain.done()
