"""Schedules: how many, how even, how they follow a ramp, and how processes share them."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.schedule import ARRIVALS, Closed, Knot, Open, Recorded, dealt


def first(schedule: Open | Recorded, count: int, seed: int = 7) -> list[float]:
    return list(itertools.islice(schedule.times(random.Random(seed)), count))


def test_constant_arrivals_start_at_once_and_are_even() -> None:
    assert first(Open.at(4, "constant"), 5) == pytest.approx([0, 0.25, 0.5, 0.75, 1.0])


@pytest.mark.parametrize("arrivals", ["poisson", "gamma"])
def test_random_arrivals_have_the_rate_that_was_asked(arrivals: str) -> None:
    times = first(Open.at(50, arrivals, burstiness=0.5), 20_000)
    assert len(times) / times[-1] == pytest.approx(50, rel=0.05)
    assert times == sorted(times)


def test_gamma_below_one_clusters_and_above_one_evens_out() -> None:
    def spread(burstiness: float) -> float:
        times = first(Open.at(10, "gamma", burstiness), 5000)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        return statistics.stdev(gaps) / statistics.mean(gaps)

    assert spread(0.25) == pytest.approx(2.0, rel=0.1)  # 1 / sqrt(shape)
    assert spread(1.0) == pytest.approx(1.0, rel=0.1)
    assert spread(4.0) == pytest.approx(0.5, rel=0.1)


def test_a_seed_repeats_itself_and_another_does_not() -> None:
    schedule = Open.at(10)
    assert first(schedule, 9, seed=1) == first(schedule, 9, seed=1) != first(schedule, 9, seed=2)


def test_a_ramp_sends_the_area_under_its_rate() -> None:
    times = first(Open.at(20, "constant", ramp=10), 301)
    within = sum(at <= 10 for at in times)
    assert within == 101  # 20 * 10 / 2 requests, and the first at 0
    assert times[300] == pytest.approx(10 + 200 / 20)
    early, late = times[20] - times[19], times[90] - times[89]
    assert early > 1.9 * late


def test_a_schedule_in_pieces_follows_each_of_them() -> None:
    schedule = Open((Knot(2, 1), Knot(3, 1), Knot(4, 5), Knot(6, 5), Knot(7, 0)), "constant")
    times = list(schedule.times(random.Random(0)))
    # 1/s for three seconds, up to 5/s, two seconds of 5/s, down to nothing: 3 + 3 + 10 + 2.5
    assert len(times) == 19
    assert times[:4] == pytest.approx([0, 1, 2, 3])
    assert sum(4 < at <= 6 for at in times) == 10
    assert times[-1] <= 7


@given(
    rates=st.lists(st.floats(0, 50), min_size=2, max_size=5).filter(lambda rates: sum(rates) > 1),
    arrivals=st.sampled_from(ARRIVALS),
    seed=st.integers(0, 99),
)
def test_times_never_fall_whatever_the_ramp(rates: list[float], arrivals: str, seed: int) -> None:
    schedule = Open(tuple(Knot(float(i), rate) for i, rate in enumerate(rates)), arrivals)
    times = first(schedule, 200, seed)
    assert all(0 <= a <= b for a, b in itertools.pairwise(times))


def test_recorded_times_start_at_zero_and_may_run_faster() -> None:
    assert first(Recorded((105.0, 101.0, 103.0)), 9) == [0, 2, 4]
    assert first(Recorded((105.0, 101.0, 103.0), pace=2), 9) == [0, 1, 2]


@given(parts=st.integers(1, 5), count=st.integers(0, 40))
def test_processes_together_send_each_request_once(parts: int, count: int) -> None:
    times = [i / 10 for i in range(count)]
    sent = sorted(itertools.chain.from_iterable(dealt(times, part, parts) for part in range(parts)))
    assert sent == list(enumerate(times))


def test_clients_of_a_closed_loop_come_in_one_by_one_and_are_shared_out() -> None:
    schedule = Closed(4, ramp=2)
    assert [schedule.entry(client) for client in range(4)] == [0, 0.5, 1.0, 1.5]
    assert schedule.share(0, 3) + schedule.share(1, 3) + schedule.share(2, 3) == [0, 3, 1, 2]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Closed(0), "concurrency must be at least 1"),
        (lambda: Open.at(-1), "not below 0"),
        (lambda: Open.at(0), "never above 0"),
        (lambda: Open.at(1, "uniform"), "constant, poisson, gamma"),
        (lambda: Open.at(1, "gamma", 0), "burstiness must be above 0"),
        (lambda: Open((Knot(1, 1), Knot(1, 2))), "must rise"),
        (lambda: Recorded((1.0,), pace=0), "pace must be above 0"),
    ],
)
def test_a_schedule_that_cannot_be_says_why(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]
