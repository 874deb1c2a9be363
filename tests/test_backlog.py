"""What nobody waits for: later, in order, between the turns of the loop, and all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.backlog import Backlog


class Loop:
    """An event loop as far as it is needed, turned by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, what: Callable[[], None]) -> Any:
        self.due.append(what)
        return self

    def call_later(self, seconds: float, what: Callable[[], None]) -> Any:
        assert seconds > 0
        return self.call_soon(what)

    def cancel(self) -> None:
        self.due.clear()

    def turn(self) -> None:
        due, self.due = self.due, []
        for what in due:
            what()


def backlog() -> tuple[Backlog, Loop]:
    loop = Loop()
    return Backlog(loop), loop  # type: ignore[arg-type]


def test_nothing_is_done_where_it_is_said_and_all_of_it_later_in_order() -> None:
    waiting, loop = backlog()
    done: list[int] = []
    for number in range(20):
        waiting.add(lambda number=number: done.append(number))  # type: ignore[misc]
    assert (done, len(waiting), len(loop.due)) == ([], 20, 1)
    loop.turn()
    assert 0 < len(done) < 20  # the sockets are looked at in between
    while loop.due:
        loop.turn()
    assert done == list(range(20))


def test_what_waits_is_bounded_however_much_ends_in_each_turn() -> None:
    waiting, loop = backlog()
    most = 0
    for _ in range(200):
        for _ in range(64):
            waiting.add(lambda: None)
        loop.turn()
        most = max(most, len(waiting))
    assert most <= 4 * 64


def test_all_of_it_at_once_when_the_end_comes() -> None:
    waiting, loop = backlog()
    done: list[int] = []
    for number in range(20):
        waiting.add(lambda number=number: done.append(number))  # type: ignore[misc]
    waiting.flush()
    assert (done, loop.due) == (list(range(20)), [])
    waiting.add(lambda: done.append(20))
    loop.turn()
    assert done[-1] == 20


def test_one_that_fails_takes_none_along(caplog: pytest.LogCaptureFixture) -> None:
    waiting, loop = backlog()
    done: list[int] = []
    waiting.add(lambda: 1 // 0)
    waiting.add(lambda: done.append(1))
    loop.turn()
    assert done == [1]
    assert "was not recorded" in caplog.text


async def test_a_real_loop_does_it_by_itself() -> None:
    done = asyncio.Event()
    Backlog(asyncio.get_running_loop()).add(done.set)
    await asyncio.wait_for(done.wait(), 10)
