import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from loadgen.analysis.scaling import Law, Point, fit, knee

LEVELS = (1, 2, 4, 8, 16, 32, 64)


def usl(n, rate, contention, crosstalk):
    return rate * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))


def points(rate, contention, crosstalk, noise=None):
    noise = noise if noise is not None else np.zeros(len(LEVELS))
    return [Point(n, float(usl(n, rate, contention, crosstalk) * (1 + e))) for n, e in zip(LEVELS, noise, strict=True)]


@settings(deadline=None)
@given(st.floats(1, 5000), st.floats(0, 0.9), st.floats(0.00001, 0.05))
def test_points_on_a_law_give_that_law_back(rate, contention, crosstalk):
    law = fit(points(rate, contention, crosstalk))
    assert law.rate == pytest.approx(rate, rel=1e-3)
    assert law.contention == pytest.approx(contention, abs=1e-3)
    assert law.crosstalk == pytest.approx(crosstalk, rel=2e-2, abs=1e-5)
    assert law.residual < 1e-4


@pytest.mark.parametrize("seed", range(12))
def test_noisy_points_give_the_least_squares_of_scipy(seed):
    noise = np.random.default_rng(seed).normal(0, 0.05, len(LEVELS))
    measured = points(100, 0.08, 0.0015, noise)
    n, x = (np.array(column, dtype=float) for column in zip(*measured, strict=True))
    best, _ = curve_fit(usl, n, x, p0=(100, 0.1, 0.001), bounds=([1e-9, 0, 0], [np.inf, 1e3, 1e3]))
    law = fit(measured)
    ours = np.sum((usl(n, law.rate, law.contention, law.crosstalk) - x) ** 2)
    theirs = np.sum((usl(n, *best) - x) ** 2)
    assert ours <= theirs * (1 + 1e-6)
    assert law.residual == pytest.approx(np.sqrt(ours / len(x)) / max(x))


def test_the_peak_is_where_the_curve_is_highest():
    law = Law(rate=100, contention=0.05, crosstalk=0.0025, residual=0)
    assert law.peak == pytest.approx((0.95 / 0.0025) ** 0.5)
    assert law.at(law.peak) > max(law.at(law.peak - 1), law.at(law.peak + 1))


def test_a_curve_that_only_flattens_has_no_peak():
    law = fit(points(100, 0.2, 0.0))
    assert law.peak is None or law.peak > 1000


def test_perfect_scaling_has_neither_contention_nor_crosstalk():
    law = fit(points(50, 0.0, 0.0))
    assert (law.contention, law.crosstalk) == pytest.approx((0, 0), abs=1e-6)
    assert law.rate == pytest.approx(50)


def test_the_knee_is_the_smallest_level_near_the_best():
    measured = [Point(1, 100.0), Point(2, 190.0), Point(4, 360.0), Point(8, 390.0), Point(16, 400.0), Point(32, 380.0)]
    found = knee(measured)
    assert (found.enough, found.best, found.resolved) == (8, 400.0, True)
    assert found.law is not None and 8 < found.law.peak < 32


def test_a_ladder_that_still_rises_says_that_its_knee_is_not_found():
    assert knee([Point(n, 100.0 * n) for n in (1, 2, 4, 8)]).resolved is False


def test_three_levels_are_too_few_for_a_law():
    assert knee([Point(n, 100.0 * n) for n in (1, 2, 4)]).law is None
    assert knee([]) is None


def test_repeats_of_a_level_are_taken_by_their_median():
    found = knee([Point(1, 100.0), Point(1, 10.0), Point(1, 102.0), Point(2, 104.0)])
    assert (found.enough, found.best) == (1, 104.0)


def test_levels_without_any_throughput_do_not_break_the_fit():
    found = knee([Point(1, 0.0), Point(2, 0.0), Point(4, 0.0), Point(8, 0.0)])
    assert found.law is None
    assert knee([Point(1, 0.0), Point(2, 10.0), Point(4, 20.0), Point(8, 0.0)]).best == 20
