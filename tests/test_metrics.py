"""The catalogue, and the page that explains it."""

import re
from pathlib import Path

import pytest

from proxy import metrics as m
from proxy.meter import OUTCOMES
from tests.promql import problems, unguarded

PAGE = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
ROWS = {cells[0].strip("`"): cells for line in PAGE.splitlines() if len(cells := line.strip("| ").split(" | ")) == 4}
BUCKETS = dict(re.findall(r"^\| (.+?) \| ([\d. ]+) \|$", PAGE, re.M))
EXCHANGE = "`backend`, `model`, `decoding`, `api`, `mirror`"


@pytest.mark.parametrize("metric", m.METRICS, ids=lambda metric: metric.name)
def test_the_page_has_every_metric_with_its_type_buckets_labels_and_meaning(metric: m.Metric) -> None:
    _, kind, labels, meaning = ROWS[metric.full_name]
    assert kind.split(":")[0] == ("gauge" if metric.kind == "info" else metric.kind)
    assert tuple(re.findall(r"`(\w+)`", labels.replace("*exchange*", EXCHANGE))) == metric.labels
    assert meaning == metric.help
    if metric.kind == "histogram":
        name = kind.partition(": ")[2]
        bounds = next(row for heading, row in BUCKETS.items() if heading.split(" (")[0] == name)
        assert tuple(map(float, bounds.split())) == metric.bounds


def test_the_page_has_no_metric_that_is_not_exported() -> None:
    named = set(re.findall(r"`(manometer_\w+)`", PAGE))
    assert named == {metric.full_name for metric in m.METRICS}


def test_the_queries_of_the_page_read_what_is_exported() -> None:
    (block,) = re.findall(r"```promql\n(.*?)```", PAGE, re.S)
    queries = [query for query in block.split("\n\n") if query.strip()]
    assert len(queries) >= 4
    for query in queries:
        assert problems(query) == [], query
        assert unguarded(query) == [], query


def test_the_page_names_every_outcome() -> None:
    assert set(OUTCOMES) <= set(re.findall(r"`(\w+)`", PAGE))


@pytest.mark.parametrize("metric", m.METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus_rules(metric: m.Metric) -> None:
    assert re.fullmatch("manometer_[a-z0-9_]+", metric.full_name)
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert list(metric.bounds) == sorted(set(metric.bounds))
    assert "le" not in metric.labels


def test_per_token_buckets_tell_fast_diffusion_models_apart() -> None:
    """700 and 1,000 tokens a second are 1.4 and 1 ms: not in one bucket, and not in the first."""
    bucket = [next(i for i, bound in enumerate(m.PER_TOKEN) if bound >= time) for time in (1 / 700, 1 / 1000)]
    assert bucket[0] != bucket[1] and min(bucket) > 0


def test_durations_reach_ten_minutes_and_an_objective_of_two_seconds_is_exact() -> None:
    assert max(m.DURATION) == 600
    assert 2.0 in m.LATENCY
