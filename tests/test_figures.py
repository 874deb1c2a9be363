import pytest

from loadgen import document, figures
from tests.documents import ladder


def chart(id, *documents):
    return next(c for c in figures.charts([document.plain(d) for d in documents]) if c.id == id)


def test_throughput_has_the_measured_points_and_the_fitted_curve():
    measured, fitted = chart("throughput", ladder()).series
    assert [x for x, _ in measured.points] == [1, 2, 4, 8]
    assert fitted.dash == "dot" and len(fitted.points) == 41


def test_latencies_are_in_milliseconds_at_three_percentiles():
    series = chart("ttft", ladder()).series
    assert [s.name for s in series] == ["mercury P50", "mercury P95", "mercury P99"]
    assert series[0].points[0] == (1, pytest.approx(200))


def test_runs_beside_each_other_are_told_apart_by_name():
    names = [s.name for s in chart("throughput", ladder("one"), ladder("two")).series]
    assert names == ["one: mercury", "one: mercury, fitted", "two: mercury", "two: mercury, fitted"]


def test_repeats_of_a_level_become_one_point():
    twice = ladder()
    twice["levels"] = twice["levels"] * 2
    assert len(chart("throughput", twice).series[0].points) == 4


def test_quality_is_drawn_against_speed_and_the_front_is_a_line():
    cells = [{"speed": s, "quality": q, "label": f"{s}"} for s, q in ((100.0, 0.9), (200.0, 0.5), (90.0, 0.1))]
    told = ladder() | {"cells": cells, "front": document.front(cells)}
    settings, front = chart("pareto", told).series
    assert settings.points == [(100.0, 90.0), (200.0, 50.0), (90.0, 10.0)]
    assert front.points == [(200.0, 50.0), (100.0, 90.0)]


def test_a_distribution_rises_to_a_hundred_percent():
    (series,) = chart("distribution", ladder()).series
    assert series.points[-1] == (pytest.approx(200), 100)


def test_a_chart_without_points_is_left_out():
    told = ladder() | {"levels": [], "shown": {}, "knees": {}}
    assert figures.charts([told]) == []
    assert figures.bursts([told]) == []


def test_runs_are_called_without_their_date_where_that_is_clear():
    runs = [{"name": "20261130-171153-mercury"}, {"name": "20261130-171212-ar"}, {"name": "20261130-171300-ar"}]
    assert figures.called(runs[:2], runs[0]) == "mercury"
    assert figures.called(runs, runs[1]) == "20261130-171212-ar"
