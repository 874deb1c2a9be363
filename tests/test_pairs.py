import pytest

from loadgen.bench import Measured
from loadgen.pairs import judged, paired, turns
from loadgen.quality import Score
from tests.readings import failure, stream


def side(readings, passed=()):
    return Measured(None, {}, list(enumerate(readings)), {n: Score(p) for n, p in enumerate(passed)})


def test_each_side_goes_first_in_half_of_the_pairs_in_a_drawn_order():
    order = turns(40, seed=3)
    assert sum(first == 0 for first, _ in order) == 20
    assert order == turns(40, seed=3) != turns(40, seed=4)
    assert order != sorted(order)


def test_pairs_are_of_the_same_question():
    a, b = side([stream(ttft=0.2) for _ in range(8)]), side([stream(ttft=0.4) for _ in range(8)])
    found = paired("ttft", a, b)
    assert (found.value, found.pairs, found.verdict) == (pytest.approx(2.0), 8, "worse")


def test_a_failure_counts_as_the_worst_and_an_undefined_rate_as_nothing():
    broken = side([failure() for _ in range(8)])
    assert paired("e2e", side([stream() for _ in range(8)]), broken).verdict == "worse"
    assert paired("e2e_rate", broken, side([stream() for _ in range(8)])).verdict == "better"
    single = paired("decode_rate", side([stream() for _ in range(8)]), side([stream(bursts=1) for _ in range(8)]))
    assert (single.pairs, single.left_out) == (0, 8)


def test_questions_that_only_one_side_was_asked_are_no_pair():
    assert paired("e2e", side([stream()] * 8), side([stream()] * 6)).pairs == 6


def test_checks_are_compared_only_where_both_have_one():
    a, b = side([], (True, False, None)), side([], (False, False, True, True))
    assert list(judged(a, b)) == [(True, False), (False, False)]
