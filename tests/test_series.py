from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.metrics import SERIES_REFUSED, Metric
from proxy.series import Series

SPENT = Metric("spent_total", "counter", "", ("backend", "outcome"))
TOOK = Metric("took_seconds", "histogram", "", ("backend", "outcome"), (0.5, 1.0))


def make(limit: int) -> Series:
    return Series((SPENT, TOOK, SERIES_REFUSED), limit)


def values(series: Series, metric: Metric) -> dict[tuple[str, ...], Any]:
    return {labels: child for each, children in series.frozen() for labels, child in children if each is metric}


def test_a_series_is_made_once() -> None:
    series = make(100)
    assert series.child(TOOK, ("a", "ok")) is series.child(TOOK, ("a", "ok"))
    assert series.child(TOOK, ("a", "ok")) is not series.child(TOOK, ("b", "ok"))


def test_a_histogram_takes_a_line_for_each_bucket_and_three_more() -> None:
    series = make(TOOK.lines)
    assert TOOK.lines == 5  # 0.5, 1.0, +Inf, sum, count
    series.child(TOOK, ("a", "ok")).add(0.7)
    series.child(TOOK, ("b", "ok")).add(0.7)
    assert values(series, TOOK)["a", "ok"].counts == (0, 1, 0)
    assert ("b", "ok") not in values(series, TOOK)


def test_above_the_cap_open_labels_become_other_and_closed_ones_stay() -> None:
    series = make(1)
    for backend in ("a", "b", "c"):
        series.count(SPENT, (backend, "ok"))
        series.count(SPENT, (backend, "refused"))
    assert {labels: child.value for labels, child in values(series, SPENT).items()} == {
        ("a", "ok"): 1,
        ("other", "refused"): 3,
        ("other", "ok"): 2,
    }
    assert values(series, SERIES_REFUSED)[()].value == 5


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(("ok", "empty"))), max_size=60), st.integers(0, 9)
)
def test_whatever_the_cap_nothing_is_lost(spent: list[tuple[str, str]], limit: int) -> None:
    series = make(limit)
    for labels in spent:
        series.count(SPENT, labels, Decimal("0.1"))
    kept = values(series, SPENT)
    assert round(sum(child.value for child in kept.values()), 6) == round(len(spent) * 0.1, 6)
    for outcome in ("ok", "empty"):
        told = sum(child.value for labels, child in kept.items() if labels[1] == outcome)
        assert round(told, 6) == round(0.1 * sum(1 for labels in spent if labels[1] == outcome), 6)
    assert len(kept) <= limit + 2
