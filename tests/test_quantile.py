from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.meter.quantile import percentile, percentiles

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(VALUES, st.floats(0, 100))
def test_a_percentile_is_the_one_of_numpy(values, q):
    assert percentile(sorted(values), q) == pytest.approx(float(np.percentile(values, q)), rel=1e-12, abs=1e-300)


def test_a_percentile_interpolates_between_two_order_statistics():
    assert percentile([15, 20, 35, 40, 50], 40) == 29
    assert percentile([7], 99) == 7


def test_a_percentile_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


def test_undefined_values_are_left_out_and_n_says_so():
    found = percentiles([1.0, None, 3.0, None])
    assert (found.p50, found.n) == (2.0, 2)


def test_without_any_value_everything_is_none_and_n_is_zero():
    assert percentiles([None]).json() == {"p50": None, "p90": None, "p95": None, "p99": None, "n": 0}


def test_a_failure_counts_as_an_infinite_latency():
    found = percentiles([0.1] * 90, failures=10)
    assert found.n == 100
    assert found.p50 == 0.1
    assert found.p90 == inf  # one tenth failed, and the interpolation touches the first failure
    assert found.json()["p99"] is None


def test_all_failures_leave_no_finite_percentile():
    assert percentiles([], failures=3).p50 == inf
