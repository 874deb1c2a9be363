"""Documents -> charts: which curves a report shows, and what is on them. Pure; `chart` draws them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Bar, Chart, Series, Strip, present

Document = Mapping[str, Any]
Levels = Sequence[Mapping[str, Any]]
_DATE = re.compile(r"^\d{8}-\d{6}-")
_CROWD = 4  # more curves than these, all going up and down, show nothing


def charts(documents: Sequence[Document]) -> list[Chart]:
    """Every chart for which the documents hold at least one point."""
    named = by_backend(documents)
    drawn = [
        _throughput(documents, named),
        _latency(documents, named, "ttft", "First token"),
        _latency(documents, named, "e2e", "Whole answer"),
        _cost(documents, named),
        _distribution(documents),
        _pareto(documents),
        _over_time(documents),
    ]
    return [chart for chart in drawn if any(series.points for series in chart.series)]


def bursts(documents: Sequence[Document]) -> list[Strip]:
    """A strip for each backend's typical answer."""
    rows: list[Strip] = []
    for name, shown in _shown(documents).items():
        if strip := shown.get("strip"):
            bars = [Bar(at, tokens) for at, tokens in strip["bars"]]
            rows.append(Strip(name, strip["ttft"], strip["end"], bars, len(rows)))
    return rows


def by_backend(documents: Sequence[Document]) -> dict[str, list[Mapping[str, Any]]]:
    """Levels with a concurrency, by backend; by run and backend where there are several runs."""
    named: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        for level in document["levels"]:
            if level.get("concurrency") and not level.get("scenario"):
                named.setdefault(_name(documents, document, level["backend"]), []).append(level)
    return {name: sorted(levels, key=lambda level: level["concurrency"]) for name, levels in named.items()}


def _shown(documents: Sequence[Document]) -> dict[str, Mapping[str, Any]]:
    return {
        _name(documents, document, name): shown for document in documents for name, shown in document["shown"].items()
    }


def _name(documents: Sequence[Document], document: Document, backend: str) -> str:
    """What a curve is called: the backend, and the run where there are several."""
    if len(documents) == 1:
        return backend
    run = called(documents, document)
    return backend if run == backend else f"{run}: {backend}"


def called(documents: Sequence[Document], document: Document) -> str:
    """A run's name, without its date where that is clear enough."""
    short = _DATE.sub("", document["name"])
    same = [other for other in documents if _DATE.sub("", other["name"]) == short]
    return short if len(same) == 1 else str(document["name"])


def _curve(levels: Levels, key: str, scale: float = 1.0) -> list[tuple[float, float]]:
    """Repeats of a level share an x: their median is the point."""
    values: dict[float, list[float]] = {}
    for level in levels:
        value = at(level, key)
        if value is not None:
            values.setdefault(float(level["concurrency"]), []).append(value * scale)
    return [(x, sorted(ys)[(len(ys) - 1) // 2]) for x, ys in values.items()]


def _throughput(documents: Sequence[Document], named: Mapping[str, Levels]) -> Chart:
    series = []
    knees = _knees(documents)
    for colour, (name, levels) in enumerate(named.items()):
        steady = [dict(lv) | {"steady_throughput": lv["steady_throughput"] or lv["throughput"]} for lv in levels]
        series.append(Series(name, _curve(steady, "steady_throughput"), colour))
        if name in knees and knees[name]["curve"]:
            fitted = [(n, x) for n, x in knees[name]["curve"]]
            series.append(Series(f"{name}, fitted", fitted, colour, dash="dot", dots=False))
    return Chart("throughput", "Throughput", "concurrency", "tokens/s", series, _marks(documents, named), doubling=True)


def _knees(documents: Sequence[Document]) -> dict[str, Mapping[str, Any]]:
    return {_name(documents, d, name): knee for d in documents for name, knee in (d.get("knees") or {}).items()}


def _marks(documents: Sequence[Document], named: Mapping[str, Levels]) -> list[tuple[float, str, int]]:
    """The knee of each backend: the smallest level with 95 % of the best throughput."""
    knees = _knees(documents)
    return [
        (float(knees[name]["enough"]), f"95 % at {knees[name]['enough']}", colour)
        for colour, name in enumerate(named)
        if name in knees
    ]


def _latency(documents: Sequence[Document], named: Mapping[str, Levels], key: str, title: str) -> Chart:
    series = []
    for colour, (name, levels) in enumerate(named.items()):
        for percentile, dash in (("p50", ""), ("p95", "dash"), ("p99", "dot")):
            points = _curve(levels, f"{key}.{percentile}", 1000)
            series.append(Series(f"{name} {percentile.upper()}", points, colour, dash))
    return Chart(key, title, "concurrency", "ms", series, _marks(documents, named), doubling=True)


def _cost(documents: Sequence[Document], named: Mapping[str, Levels]) -> Chart:
    series = []
    for colour, (name, levels) in enumerate(named.items()):
        series.append(Series(f"{name}, by tokens", _curve(levels, "cost_per_million"), colour))
        prices = dict.fromkeys(price for level in levels for price in level["instance_cost_per_million"])
        for price, dash in zip(prices, ("dash", "dot", "dash", "dot"), strict=False):
            points = present((lv["concurrency"], lv["instance_cost_per_million"].get(price)) for lv in levels)
            series.append(Series(f"{name}, at {price} an hour", points, colour, dash))
    shown = [one for one in series if one.points]
    return Chart(
        "cost", "Cost per million tokens", "concurrency", "price", shown, _marks(documents, named), doubling=True
    )


def _distribution(documents: Sequence[Document]) -> Chart:
    series = []
    for colour, (name, shown) in enumerate(_shown(documents).items()):
        values = shown.get("ttft") or []
        points = [(value * 1000, 100 * (i + 1) / len(values)) for i, value in enumerate(values)]
        series.append(Series(name, points, colour, dots=False))
    return Chart("distribution", "First token: share of answers that had it", "ms", "%", series)


def _pareto(documents: Sequence[Document]) -> Chart:
    series: list[Series] = []
    for document in documents:
        cells = document.get("cells") or []
        points = [
            (c["speed"], 100 * c["quality"], c["label"]) for c in cells if c["speed"] and c["quality"] is not None
        ]
        best = [cells[i] for i in document.get("front") or ()]
        colour = len(series)
        spots = [(x, y) for x, y, _ in points]
        series.append(Series("settings", spots, colour, line=False, labels=[label for *_, label in points]))
        front = [(c["speed"], 100 * c["quality"]) for c in best]
        series.append(Series("none better in both", front, colour + 1, dots=False))
    return Chart("pareto", "Quality against speed", "tokens/s of a whole answer", "% of checks passed", series)


def _over_time(documents: Sequence[Document]) -> Chart:
    series: list[Series] = []
    known = _shown(documents)
    for colour, (name, shown) in enumerate(known.items() if len(known) <= _CROWD else ()):
        values = shown.get("tokens_over_time") or []
        points = [(100 * i / len(values), value) for i, value in enumerate(values)]
        series.append(Series(name, points, colour, dots=False))
    return Chart("time", "Tokens over the run", "% of the run", "tokens/s", series)


def at(row: Mapping[str, Any], key: str) -> Any:
    """`ttft.p50` of a level; None where any part is missing."""
    value: Any = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
