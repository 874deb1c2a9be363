import json
import xml.etree.ElementTree as ElementTree

import pytest

from loadgen.chart import Bar, Chart, Series, Strip, plotly, present, sparkline, strips, svg

EVIL = '<script>alert("x")</script>'


def chart(**facts):
    given = {
        "id": "throughput",
        "title": "Throughput",
        "x": "concurrency",
        "y": "tokens/s",
        "series": [Series("mercury", [(1, 100.0), (2, 190.0), (4, 300.0)])],
        "doubling": True,
    }
    return Chart(**given | facts)


def parsed(text):
    return ElementTree.fromstring(text)


def circles(text):
    return [float(node.get("cx")) for node in parsed(text).iter("{http://www.w3.org/2000/svg}circle")]


def test_a_chart_is_well_formed_and_holds_every_point():
    assert len(circles(svg(chart()))) == 3
    assert len(circles(svg(chart(), standalone=True))) == 3


def test_doublings_are_equally_far_apart():
    one, two, four = circles(svg(chart()))
    assert two - one == pytest.approx(four - two, abs=0.2)


def test_a_mark_stands_at_its_place_with_its_label():
    drawn = svg(chart(marks=[(2, "knee at 2", 0)]))
    assert "knee at 2" in drawn
    line = next(n for n in parsed(drawn).iter("{http://www.w3.org/2000/svg}line") if n.get("stroke-dasharray"))
    assert float(line.get("x1")) == pytest.approx(circles(drawn)[1], abs=0.1)


@pytest.mark.parametrize("standalone", [False, True])
def test_untrusted_text_is_escaped(standalone):
    hostile = chart(title=EVIL, x=EVIL, y=EVIL, series=[Series(EVIL, [(1, 1.0)], labels=[EVIL])], marks=[(1, EVIL, 0)])
    for drawn in (svg(hostile, standalone=standalone), strips(EVIL, [Strip(EVIL, 0.1, 1, [])], standalone=standalone)):
        assert "<script" not in drawn
        parsed(drawn)
    assert "<script" not in json.dumps(plotly(hostile))


def test_a_chart_without_points_says_so():
    assert "nothing to show" in svg(chart(series=[]))
    assert "nothing to show" in svg(chart(series=[Series("a", [])]))


@pytest.mark.parametrize("points", [[(1, 0.0)], [(1, 0.0), (2, 0.0)], [(3, 7.0), (3, 7.0)], [(1, 1e9), (64, 1e-9)]])
def test_odd_values_are_drawn_without_trouble(points):
    for doubling in (False, True):
        assert len(circles(svg(chart(series=[Series("a", points)], doubling=doubling)))) == len(points)


def test_the_plotly_figure_has_the_same_points_and_marks():
    figure = plotly(chart(marks=[(2, "knee", 0)]))
    assert (figure["data"][0]["x"], figure["data"][0]["y"]) == ([1, 2, 4], [100.0, 190.0, 300.0])
    assert figure["layout"]["xaxis"]["tickvals"] == [1, 2, 4]
    assert figure["layout"]["annotations"][0]["x"] == pytest.approx(0.30103)  # a log axis places by the power of ten


def test_a_strip_shows_the_silence_and_each_burst():
    drawn = parsed(strips("Bursts", [Strip("mercury", 0.2, 0.34, [Bar(0.2 + i * 0.02, 8) for i in range(8)])]))
    boxes = list(drawn.iter("{http://www.w3.org/2000/svg}rect"))
    silence = next(n for n in boxes if n.get("class") == "silence")
    bars = [n for n in boxes if n.get("class") is None]
    assert len(bars) == 8
    assert float(bars[0].get("x")) == pytest.approx(float(silence.get("x")) + float(silence.get("width")), abs=0.2)


def test_a_sparkline_has_a_character_for_each_value():
    assert sparkline([0, 1, 4, 8]) == " ▂▅█"
    assert sparkline([]) == sparkline([0, 0]) == ""


def test_only_points_with_two_finite_numbers_are_present():
    assert present([(1, 2), (None, 1), (1, None), (1, float("inf"))]) == [(1, 2)]
