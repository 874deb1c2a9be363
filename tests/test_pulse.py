"""The event loop watched from inside, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from proxy.pulse import PROBE, Pulse


class Loop:
    """Runs what is due when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> Loop:
        assert delay == PROBE
        self.waiting.append(callback)
        return self

    def cancel(self) -> None:
        self.waiting.clear()


def test_a_late_probe_tells_the_lag() -> None:
    loop, now = Loop(), [10.0]
    pulse = Pulse(loop, lambda: now[0])  # type: ignore[arg-type]
    pulse.enter()
    for late in (0.0, 0.2, 0.01):
        now[0] += PROBE + late
        loop.waiting.pop()()
    assert round(pulse.worst(10.0), 9) == 0.2
    assert round(pulse.worst(now[0]), 9) == 0.01
    assert pulse.worst(now[0] + 1) == 0.0
    pulse.stop()
    assert not loop.waiting


def test_a_probe_that_is_early_is_no_negative_lag() -> None:
    loop, now = Loop(), [10.0]
    pulse = Pulse(loop, lambda: now[0])  # type: ignore[arg-type]
    pulse.enter()
    now[0] += PROBE / 2
    loop.waiting.pop()()
    assert pulse.worst(0.0) == 0.0


def test_the_probe_rests_while_nothing_is_open() -> None:
    loop, now = Loop(), [10.0]
    pulse = Pulse(loop, lambda: now[0])  # type: ignore[arg-type]
    assert not loop.waiting
    pulse.enter()
    pulse.enter()
    assert len(loop.waiting) == 1
    pulse.leave()
    loop.waiting.pop()()
    assert len(loop.waiting) == 1  # one is open still
    pulse.leave()
    loop.waiting.pop()()
    assert not loop.waiting
    now[0] += 60
    pulse.enter()
    now[0] += PROBE
    loop.waiting.pop()()
    assert pulse.worst(0.0) == 0.0  # a rest is no lag


@given(
    steps=st.lists(st.tuples(st.floats(0.001, 100), st.floats(0, 1)), max_size=60),
    since=st.floats(0, 6000),
)
def test_the_worst_since_any_moment_is_that_of_a_full_list(steps: list[tuple[float, float]], since: float) -> None:
    pulse = Pulse(Loop(), lambda: 0.0)  # type: ignore[arg-type]
    seen: list[tuple[float, float]] = []
    now = 0.0
    for wait, lag in steps:
        now += wait
        seen.append((now, lag))
        pulse.note(now, lag)
    if since >= now - 3000:
        assert pulse.worst(since) == max((lag for at, lag in seen if at >= since), default=0.0)
