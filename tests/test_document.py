import json
from math import inf, nan

import pytest

from loadgen import document
from tests.documents import ladder, level_json
from tests.readings import stream


def test_a_document_is_json_and_keeps_the_verdict_first_in_mind():
    told = json.loads(json.dumps(document.plain(ladder()), allow_nan=False))
    assert (told["verdict"], told["valid"], told["schema"]) == ("mercury: as measured", True, 1)


def test_a_run_that_was_broken_off_or_not_valid_says_so_before_its_verdict():
    given = {"arguments": {}, "shown": {}, "verdict": "fine"}
    one = level_json(1)
    assert document.document("load", "n", 0, levels=[one], interrupted=True, **given)["verdict"] == "BROKEN OFF: fine"
    assert document.document("load", "n", 0, levels=[one | {"valid": False}], **given)["verdict"] == "NOT VALID: fine"
    assert document.document("load", "n", 0, levels=[], **given)["valid"] is False


def test_warnings_that_differ_in_numbers_only_are_told_once():
    told = document.gathered(["3 of 9 failed", "4 of 9 failed", "3 of 9 failed", "no usage"])
    assert told == ["3 of 9 failed (and 1 more such)", "no usage"]


def test_the_knee_of_levels_names_the_smallest_that_is_enough():
    levels = [
        {"concurrency": n, "throughput": x, "steady_throughput": None}
        for n, x in ((1, 100.0), (2, 190.0), (4, 330.0), (8, 345.0), (16, 340.0))
    ]
    knee = document.knee_of(levels)
    assert (knee["enough"], knee["best"], knee["resolved"]) == (4, 345.0, True)
    assert knee["curve"][0][0] == 1 and knee["curve"][-1][0] == pytest.approx(16)
    assert document.knee_of([]) is None


def test_intervals_are_none_where_the_sample_is_too_small_to_say():
    small = level_json(1)["intervals"]["ttft"]
    assert small["p50"] is not None and small["p95"] is None
    large = level_json(8)["intervals"]["ttft"]
    assert large["p95"] is not None


def test_the_front_holds_what_nothing_beats_in_both():
    rows = [
        {"speed": 100, "quality": 0.9},
        {"speed": 200, "quality": 0.5},
        {"speed": 150, "quality": 0.4},  # slower and worse than the second
        {"speed": 90, "quality": 0.9},  # as good as the first, but slower
        {"speed": None, "quality": 1.0},
        {"speed": 300, "quality": None},
    ]
    assert document.front(rows) == [1, 0]


def test_what_is_shown_is_thinned_but_keeps_its_ends():
    shown = document.shown([stream(start=float(i), ttft=0.1 + i / 1000, bursts=600, size=1) for i in range(500)])
    assert len(shown["ttft"]) == 400 and len(shown["strip"]["bars"]) == 400
    assert (shown["ttft"][0], shown["ttft"][-1]) == (0.1, pytest.approx(0.599))


def test_nothing_that_json_lacks_is_left():
    assert document.plain({"a": [inf, nan, (1.0, -inf)], "b": "inf"}) == {"a": [None, None, [1.0, None]], "b": "inf"}
