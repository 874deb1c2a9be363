import random
from math import inf

import pytest

from loadgen.analysis.pairing import decide, ratio, worst


def simulated(seed, true_ratio, pairs):
    """Pairs of latencies with a shared drift, heavy noise and a stall now and then."""
    source = random.Random(seed)
    for n in range(pairs):
        drift = 1 + 0.5 * n / pairs
        a, b = (0.5 * drift * source.lognormvariate(0, 0.2) * (8 if source.random() < 0.03 else 1) for _ in "ab")
        yield a, b * true_ratio


@pytest.mark.parametrize("true_ratio", [0.25, 0.9, 1.0, 2.0])
def test_a_known_ratio_lies_in_the_interval_in_at_least_90_of_100_runs(true_ratio):
    found = [ratio("e2e", simulated(seed, true_ratio, 40), lower_is_better=True) for seed in range(100)]
    assert sum(r.low <= true_ratio <= r.high for r in found) >= 90


def test_equal_backends_are_called_different_in_few_of_100_runs():
    found = [ratio("e2e", simulated(seed, 1.0, 40), lower_is_better=True).verdict for seed in range(100)]
    assert found.count("undecided") >= 90


def test_a_clear_difference_gets_its_verdict_by_the_metric_s_direction():
    assert ratio("e2e", simulated(1, 0.5, 40), lower_is_better=True).verdict == "better"
    assert ratio("e2e", simulated(1, 2.0, 40), lower_is_better=True).verdict == "worse"
    assert ratio("decode_rate", simulated(1, 2.0, 40), lower_is_better=False).verdict == "better"


def test_five_pairs_are_too_few_for_a_verdict():
    found = ratio("e2e", [(1.0, 0.1)] * 5, lower_is_better=True)
    assert (found.value, found.low, found.verdict) == (0.1, None, "undecided")


def test_failures_of_one_side_count_against_it():
    late = worst(lower_is_better=True)
    found = ratio("e2e", [(1.0, late)] * 9 + [(1.0, 1.0)], lower_is_better=True)
    assert (found.verdict, found.value) == ("worse", inf)
    assert found.json()["value"] is None
    slow = worst(lower_is_better=False)
    assert ratio("e2e_rate", [(slow, 10.0)] * 8, lower_is_better=False).verdict == "better"


def test_a_pair_of_failures_or_of_undefined_values_says_nothing():
    found = ratio("e2e", [(inf, inf), (None, 1.0), (1.0, None), *[(1.0, 1.0)] * 6], lower_is_better=True)
    assert (found.pairs, found.left_out) == (6, 3)


def test_the_faster_backend_is_chosen_and_the_evidence_is_told():
    speed = ratio("e2e", [(2.0, 1.0)] * 10, lower_is_better=True)
    decision = decide("batch generation", ("ar", "mercury"), speed, [(True, True)] * 10)
    assert decision.choice == "mercury"
    assert decision.evidence == "e2e mercury / ar = 0.50 [0.50, 0.50], 10 pairs"


def test_an_interval_around_one_is_undecided():
    speed = ratio("e2e", [(1.0, 0.9), (1.0, 1.1)] * 10, lower_is_better=True)
    assert decide("code", ("a", "b"), speed, []).choice == "undecided"


def test_speed_bought_with_wrong_answers_is_undecided():
    speed = ratio("e2e", [(2.0, 1.0)] * 10, lower_is_better=True)
    decision = decide("code", ("ar", "mercury"), speed, [(True, False)] * 9 + [(False, True)])
    assert decision.choice == "undecided"
    assert "ar passes 9 checks that the other fails, against 1" in decision.evidence


def test_a_backend_that_is_faster_and_more_correct_is_chosen():
    speed = ratio("e2e", [(2.0, 1.0)] * 10, lower_is_better=True)
    assert decide("code", ("ar", "mercury"), speed, [(False, True)] * 9).choice == "mercury"


def test_too_few_pairs_say_so_in_the_evidence():
    speed = ratio("e2e", [(2.0, 1.0)] * 3, lower_is_better=True)
    assert decide("code", ("a", "b"), speed, []).evidence == "e2e: 3 pairs are too few for an interval (6 are needed)"
