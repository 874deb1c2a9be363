"""Token counts: every spelling, one merge rule, and nothing that was not reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.meter.usage import NAMES, NOTHING, Usage, count, read

SPELLINGS: dict[str, tuple[dict[str, Any], Usage]] = {
    "OpenAI chat": (
        {
            "prompt_tokens": 20,
            "completion_tokens": 10,
            "total_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 7},
        },
        Usage(prompt=20, completion=10, total=30, cached=16, cache_write=2, reasoning=7),
    ),
    "OpenAI responses": (
        {
            "input_tokens": 20,
            "output_tokens": 10,
            "total_tokens": 30,
            "input_tokens_details": {"cached_tokens": 16},
            "output_tokens_details": {"reasoning_tokens": 7},
        },
        Usage(prompt=20, completion=10, total=30, cached=16, reasoning=7),
    ),
    "Mercury, flat": (
        {
            "prompt_tokens": 12,
            "completion_tokens": 8,
            "total_tokens": 20,
            "reasoning_tokens": 0,
            "cached_input_tokens": 4,
        },
        Usage(prompt=12, completion=8, total=20, cached=4, reasoning=0),
    ),
    "DeepSeek's cache": (
        {"prompt_tokens": 12, "completion_tokens": 8, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 8},
        Usage(prompt=12, completion=8, cached=4),
    ),
    "details alone": ({"prompt_tokens_details": {"cached_tokens": 0}}, Usage(cached=0)),
    "null details": ({"prompt_tokens": 1, "prompt_tokens_details": None}, Usage(prompt=1)),
    "whole numbers as floats": ({"completion_tokens": 3.0}, Usage(completion=3)),
}


@pytest.mark.parametrize("report, usage", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_every_spelling_is_read(report: dict[str, Any], usage: Usage) -> None:
    assert read(report) == usage


@pytest.mark.parametrize("report", [None, {}, [], "12", 7, {"queue_time": 0.1}, {"prompt_tokens": None}])
def test_what_holds_no_count_is_no_report(report: Any) -> None:
    assert read(report) is None


@pytest.mark.parametrize("value", [True, False, -1, 1.5, float("nan"), float("inf"), "7", None, [1], 1 << 53])
def test_what_is_no_count_is_not_reported(value: Any) -> None:
    assert count(value) is None


@pytest.mark.parametrize("value, number", [(0, 0), (7, 7), (7.0, 7), ((1 << 53) - 1, (1 << 53) - 1)])
def test_a_count_is_a_whole_number(value: Any, number: int) -> None:
    assert count(value) == number


def test_reported_means_that_a_total_of_some_kind_was() -> None:
    assert not NOTHING
    assert not Usage(cached=0)
    assert Usage(prompt=0) and Usage(completion=0) and Usage(total=0)


COUNTS = st.one_of(st.none(), st.integers(0, 5))
USAGES = st.builds(Usage, *(COUNTS for _ in NAMES))


@given(USAGES, USAGES, USAGES)
def test_merging_does_not_depend_on_the_grouping(a: Usage, b: Usage, c: Usage) -> None:
    assert a.merge(b).merge(c) == a.merge(b.merge(c))


@given(USAGES)
def test_nothing_changes_nothing_and_the_same_again_changes_nothing(usage: Usage) -> None:
    assert usage.merge(NOTHING) == NOTHING.merge(usage) == usage.merge(usage) == usage


@given(USAGES, USAGES)
def test_no_count_is_ever_made_up(a: Usage, b: Usage) -> None:
    """Each merged count is one of the two, and the later one unless that is missing or a placeholder."""
    for name in NAMES:
        old, new, merged = (getattr(usage, name) for usage in (a, b, a.merge(b)))
        assert merged == (old if new is None or (new == 0 and old) else new)


def test_running_totals_are_not_added_up() -> None:
    totals = [Usage(prompt=20, completion=number, total=20 + number) for number in (0, 1, 3, 4, 4)]
    merged = NOTHING
    for usage in totals:
        merged = merged.merge(usage)
    assert merged == Usage(prompt=20, completion=4, total=24)
