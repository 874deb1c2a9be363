from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.meter import Usage
from proxy.metrics import LATENCY
from proxy.window import Backend, Sample, Series, costs, distribution, silence_share, tokens
from tests.traffic import NOW, arrivals, plain, reading


def samples(*readings):
    return [Sample.of(each) for each in readings]


def test_the_distribution_is_of_shares_with_the_bound_inside():
    samples = [
        Sample.of(reading(str(i), head=0.0, arrivals=arrivals([(at, 1)]))) for i, at in enumerate((0.25, 0.26, 61))
    ]
    found = distribution(samples)["decodings"]["diffusion"]
    assert found["n"] == 3
    shares = dict(zip([*LATENCY, "more"], found["shares"], strict=True))
    assert {bound: share for bound, share in shares.items() if share} == pytest.approx(
        {0.25: 1 / 3, 0.3: 1 / 3, "more": 1 / 3}
    )


def test_there_is_no_silence_share_without_a_stream():
    assert silence_share(samples(reading("a", streamed=False))) is None
    assert silence_share([]) is None


def test_silences_are_added_up_before_they_are_divided():
    long = reading("a", head=0.0, arrivals=arrivals([(3.0, 1)]), done=4.0)
    assert silence_share(samples(long, plain("b", tokens=1, head=0.3, done=1.0))) == pytest.approx(3.0 / 5.0)


def test_each_currency_has_a_line_of_its_own():
    both = samples(reading("a", cost=Decimal("0.01")), reading("b", cost=Decimal("0.02"), currency="EUR"))
    assert [(c["currency"], c["per_hour"], c["per_million"]) for c in costs(Backend("x"), both, 60)] == [
        ("EUR", pytest.approx(0.02 * 60), pytest.approx(0.02 / 192 * 1e6)),
        ("USD", pytest.approx(0.01 * 60), pytest.approx(0.01 / 192 * 1e6)),
    ]


def test_tokens_without_a_price_do_not_make_the_others_cheaper():
    mixed = samples(reading("a", cost=Decimal("0.01")), reading("b", cost=None))
    assert costs(Backend("x"), mixed, 60)[0]["per_million"] == pytest.approx(0.01 / 192 * 1e6)


def test_a_cost_without_tokens_has_no_price_per_million():
    (cost,) = costs(Backend("x"), samples(reading("a", tokens=Usage())), 60)
    assert cost["per_million"] is None


@given(st.lists(st.floats(0, 500), min_size=1, max_size=40).map(sorted), st.integers(1, 5000))
def test_no_token_is_lost_between_the_seconds(times, completion):
    series = Series(900)
    series.add(reading("a", arrivals=arrivals([(at, 3) for at in times]), tokens=Usage(completion=completion)))
    found = tokens(series.copy(), NOW + 600, 900)["backends"]["mercury"]
    assert sum(found) == pytest.approx(completion, abs=0.001 * len(times))


@pytest.mark.parametrize("facts", [{"outcome": "truncated"}, {"backend": None}, {"tokens": Usage()}])
def test_what_the_throughput_leaves_out_the_series_does_too(facts):
    series = Series(900)
    series.add(reading("a", **facts))
    assert series.copy() == {}
