import pytest

from loadgen.analysis.span import over_time, steady, typical, whole
from proxy.meter.usage import NOTHING
from tests.readings import failure, stream


def test_the_whole_window_goes_from_the_first_start_to_the_last_end():
    window = whole([stream(start=0.0), stream(start=1.0, ttft=0.3), failure(start=2.0, done=0.5)])
    assert (window.start, window.end) == (0.0, 2.5)
    assert window.throughput == pytest.approx(128 / 2.5)


def test_tokens_of_failed_exchanges_are_not_throughput():
    window = whole([stream(start=0.0), stream(start=1.0, outcome="truncated")])
    assert window.tokens == 64


def test_the_steady_window_starts_when_all_clients_are_busy_and_ends_when_one_runs_dry():
    # two clients, three requests of one second each, the second client half a second late
    starts = (0.0, 1.0, 2.0, 0.5, 1.5, 2.5)
    readings = [stream(start=s, ttft=0.25, bursts=4, gap=0.25, size=10) for s in starts]  # arrivals at .25 .5 .75 1
    window = steady(readings, clients=2)
    assert (window.start, window.end) == (0.5, 3.0)
    # of the first the second half, of the last the first half
    assert window.tokens == pytest.approx(20 + 4 * 40 + 20)
    assert window.throughput == pytest.approx(80)  # two clients, 40 tokens a second each


def test_an_open_loop_is_steady_while_requests_start():
    window = steady([stream(start=s) for s in (0.0, 0.5, 2.0)], clients=None)
    assert (window.start, window.end) == (0.0, 2.0)


def test_clients_in_step_lose_nothing_at_the_edges():
    # four clients, all blocks at the same moments but for a hair
    readings = [
        stream(start=turn * 1.0 + client * 1e-6, ttft=1.0 - 1e-5, bursts=1, size=64)
        for turn in range(4)
        for client in range(4)
    ]
    assert steady(readings, clients=4).throughput == pytest.approx(4 * 64, rel=0.001)


def test_warm_up_fills_the_window_but_does_not_open_it():
    warm = [stream(start=s, ttft=0.25, bursts=4, gap=0.25, size=10) for s in (0.0, 0.5)]
    measured = [stream(start=s, ttft=0.25, bursts=4, gap=0.25, size=10) for s in (1.0, 1.5, 2.0, 2.5)]
    window = steady(measured, clients=2, before=warm)
    assert (window.start, window.end) == (1.0, 3.0)
    assert window.throughput == pytest.approx((20 + 3 * 40 + 20) / 2)


def test_a_steady_window_that_is_less_than_half_of_the_run_is_none():
    assert whole([]) is None
    assert steady([stream()], clients=1) is None
    assert steady([stream(start=0.0), stream(start=0.1)], clients=4) is None
    assert steady([stream(start=0.0), stream(start=0.3)], clients=2) is None


def test_estimated_tokens_are_shared_out_by_characters():
    window = whole([stream(tokens=NOTHING, usage_source="none")])
    assert window.tokens == 64  # 256 characters, four to a token


def test_tokens_over_time_add_up_to_the_tokens():
    readings = [stream(start=float(s)) for s in range(5)]
    bins = over_time(readings, 43)
    assert sum(bins) * whole(readings).seconds / 43 == pytest.approx(5 * 64)
    assert bins[0] == 0  # the silence before the first burst
    assert over_time([], 10) == []


def test_the_typical_exchange_is_the_one_with_the_median_duration():
    readings = [stream(ttft=t) for t in (0.9, 0.1, 0.5)] + [failure()]
    assert typical(readings).ttft == 0.5
    assert typical([failure()]) is None
