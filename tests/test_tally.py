from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from proxy.tally import Count, Mark, Tally

BOUNDS = (0.125, 0.5, 1.0)
values = st.lists(st.sampled_from((0.0, 0.0625, 0.125, 0.25, 0.5, 0.75, 1.0, 2.0)), max_size=40)


def test_a_value_on_a_bound_belongs_to_that_bucket_and_one_above_all_bounds_to_the_last() -> None:
    tally = Tally(BOUNDS)
    for value in (0.125, 0.126, 0.5, 1.0, 7.0):
        tally.add(value)
    assert tally.frozen().counts == (1, 2, 1, 1)
    assert tally.frozen().total == 0.125 + 0.126 + 0.5 + 1.0 + 7.0


@given(values)
def test_many_values_at_once_count_as_each_of_them(many: list[float]) -> None:
    together, apart = Tally(BOUNDS), Tally(BOUNDS)
    together.add_all(many)
    for value in many:
        apart.add(value)
    assert together.frozen() == apart.frozen()  # these values add up exactly in any order


@given(values)
def test_no_value_is_lost(many: list[float]) -> None:
    tally = Tally(BOUNDS)
    tally.add_all(many)
    assert sum(tally.frozen().counts) == len(many)


def test_each_bucket_remembers_the_last_request_that_fell_into_it() -> None:
    tally = Tally(BOUNDS)
    tally.add(0.2, "a", 10.0)
    tally.add(0.3, "b", 11.0)
    tally.add(0.9, "c", 12.0)
    tally.add(0.4)  # has no id: leaves the mark alone
    assert tally.frozen().marks == (None, Mark("b", 0.3, 11.0), Mark("c", 0.9, 12.0), None)


def test_a_frozen_copy_does_not_change() -> None:
    tally, count = Tally(BOUNDS), Count()
    before = tally.frozen(), count.frozen()
    tally.add(0.2)
    count.value += 1
    assert before == (Tally(BOUNDS).frozen(), Count().frozen())


def test_money_is_summed_without_rounding() -> None:
    count = Count()
    for _ in range(10):
        count.value += Decimal("0.1")  # type: ignore[operator]
    assert count.value == Decimal("1.0")
