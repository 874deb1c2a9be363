import random

import numpy as np
import pytest
from scipy import stats

from loadgen.analysis.interval import bootstrap, order_statistic, repeats, sign_test


@pytest.mark.parametrize("q", [50, 95])
def test_the_bootstrap_has_the_law_of_resampling_with_replacement(q):
    values = np.sort(np.random.default_rng(7).lognormal(size=120))
    resamples = np.random.default_rng(8).choice(values, size=(20_000, 120))
    expected = np.percentile(np.percentile(resamples, q, axis=1), [2.5, 97.5])
    found = bootstrap(values.tolist(), q, random.Random(1), resamples=20_000)
    assert found == pytest.approx(expected, rel=0.04)


def test_the_bootstrap_covers_the_true_median_about_as_often_as_it_says():
    hits = 0
    for seed in range(300):
        source = random.Random(seed)
        values = sorted(source.expovariate(1) for _ in range(60))
        low, high = bootstrap(values, 50, source, resamples=400)
        hits += low <= np.log(2) <= high
    assert 0.90 <= hits / 300 <= 0.99


def test_the_bootstrap_is_the_same_for_the_same_seed():
    values = [float(n) for n in range(50)]
    assert bootstrap(values, 95, random.Random(3)) == bootstrap(values, 95, random.Random(3))


def test_one_value_has_no_interval():
    assert bootstrap([1.0], 50, random.Random(1)) is None
    assert order_statistic([1.0], 50) is None


def test_the_smallest_sample_with_an_interval_is_six_for_the_median_and_59_for_p95():
    assert order_statistic(list(range(5)), 50) is None
    assert order_statistic(list(range(6)), 50) == (0, 5)
    assert order_statistic(list(range(58)), 95) is None
    low, high = order_statistic(list(range(59)), 95)
    assert high == 58 and low < 56


@pytest.mark.parametrize(("n", "q"), [(6, 50), (20, 50), (59, 95), (100, 95), (1000, 99), (1001, 50), (80, 5)])
def test_the_order_statistic_interval_covers_at_least_what_it_says_and_is_narrow(n, q):
    low, high = order_statistic(list(range(n)), q)
    law = stats.binom(n, q / 100)
    # the true value lies in [x[low], x[high]] when more than `low` and at most `high` values lie below it
    covered = law.cdf(high) - law.cdf(low)
    assert covered >= 0.95 - 1e-12 or (low, high) == (0, n - 1)
    narrower = law.cdf(high - 1) - law.cdf(low + 1)
    assert narrower < 0.95


def test_the_median_interval_is_the_one_of_the_textbook():
    # n = 20: the 6th and the 15th value, 95.9 %
    assert order_statistic(list(range(1, 21)), 50) == (6, 15)


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (8, 2), (10, 10), (40, 61), (0, 0)])
def test_the_sign_test_is_the_exact_binomial_test(wins, losses):
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 15])
def test_the_interval_of_repeats_is_student_s(n):
    values = np.random.default_rng(n).normal(100, 5, n)
    expected = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert repeats(values.tolist()) == pytest.approx(expected, rel=1e-4)
    assert repeats([1.0]) is None
