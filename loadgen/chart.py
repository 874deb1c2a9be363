"""Charts as data, drawn twice: as SVG, which needs nothing, and as a Plotly figure, which one can hover and zoom.

The SVG takes its colours from the page's CSS variables, so that it is right in light, dark and print; a
stand-alone file brings its own. All text comes from outside and is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log2, log10
from typing import Any

WIDTH, HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 40, 44
_ROW = 40  # height of a strip
PALETTE = ("#2b7fc9", "#d9652b", "#359a63", "#9b5cc0", "#b5942b", "#c84a70", "#5f8fb8", "#7d8791")
_STANDALONE = """<style>
.chart{--ink:#1d2733;--soft:#5d6b7a;--line:#d5dbe2;--paper:#ffffff}
@media (prefers-color-scheme:dark){.chart{--ink:#e6edf3;--soft:#98a5b3;--line:#303a46;--paper:#12181f}}
</style>"""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve. `colour` counts through the palette; series of one backend share it and differ by `dash`."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    dash: str = ""  # "", "dash", "dot"
    line: bool = True
    dots: bool = True
    labels: Sequence[str] = ()  # of the points, shown on hover


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    marks: Sequence[tuple[float, str, int]] = ()  # x, what is there, colour
    doubling: bool = False  # the x axis counts in doublings
    from_zero: bool = True


@dataclass(frozen=True, slots=True)
class Bar:
    """A burst in a strip: when it came and how many tokens it held."""

    at: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Strip:
    """One answer as it came: silence, then bursts."""

    name: str
    ttft: float
    end: float
    bars: Sequence[Bar]
    colour: int = 0


def svg(chart: Chart, *, standalone: bool = False) -> str:
    """The chart as an SVG element; as a file of its own when `standalone`."""
    points = [point for series in chart.series for point in series.points]
    body = _plot(chart, points) if points else _text(WIDTH / 2, HEIGHT / 2, "nothing to show", "middle", "soft")
    return _element(HEIGHT, chart.title, body, standalone)


def strips(title: str, rows: Sequence[Strip], *, standalone: bool = False) -> str:
    """Answers under each other on one time axis: the silence hatched, each burst a bar as tall as its tokens."""
    height = _TOP + _ROW * max(1, len(rows)) + 28
    end = max((row.end for row in rows), default=1.0) or 1.0
    ticks = _ticks(0, end)
    scale = (WIDTH - _LEFT - _RIGHT - 60) / max(end, ticks[-1])
    tallest = max((bar.tokens for row in rows for bar in row.bars), default=1.0) or 1.0
    body = [_strip(row, _TOP + _ROW * i, scale, tallest) for i, row in enumerate(rows)]
    for tick in ticks:
        x = _LEFT + 60 + tick * scale
        body.append(_line(x, _TOP - 8, x, height - 26, "line"))
        body.append(_text(x, height - 10, f"{_short(tick)} s", "middle", "soft"))
    body.append(_text(8, 16, title, "start", "ink", bold=True))
    return _element(height, title, "".join(reversed(body)), standalone)


def plotly(chart: Chart) -> dict[str, Any]:
    """The same chart as a Plotly figure; the page adds the colours of its theme."""
    traces = [_trace(series) for series in chart.series]
    xaxis: dict[str, Any] = {"title": {"text": escape(chart.x)}}
    if chart.doubling:
        levels = sorted({x for series in chart.series if series.dots for x, _ in series.points})
        xaxis |= {"type": "log", "tickvals": levels, "ticktext": [_short(x) for x in levels]}
    yaxis = {"title": {"text": escape(chart.y)}, "rangemode": "tozero" if chart.from_zero else "normal"}
    shapes = [
        {
            "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
            "line": {"color": _colour(colour), "dash": "dot", "width": 1},
        }
        for x, _, colour in chart.marks
    ]  # fmt: skip
    notes = [
        {
            "x": log10(x) if chart.doubling else x,
            "y": 1,
            "yref": "paper",
            "text": escape(label),
            "showarrow": False,
            "yanchor": "bottom",
        }
        for x, label, _ in chart.marks
    ]
    layout = {"title": {"text": escape(chart.title)}, "xaxis": xaxis, "yaxis": yaxis, "shapes": shapes}
    return {"data": traces, "layout": layout | {"annotations": notes}}


def _trace(series: Series) -> dict[str, Any]:
    """Names and labels are escaped, because Plotly reads a little HTML in them."""
    modes = [mode for mode, on in (("lines", series.line), ("markers", series.dots)) if on]
    return {
        "type": "scatter",
        "name": escape(series.name),
        "x": [x for x, _ in series.points],
        "y": [y for _, y in series.points],
        "mode": "+".join(modes),
        "line": {"color": _colour(series.colour), "dash": series.dash or "solid"},
        "marker": {"color": _colour(series.colour)},
        "text": [escape(label) for label in series.labels],
        "hoverinfo": "x+y+name" + ("+text" if series.labels else ""),
    }


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of block characters; empty for none."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(value / top * 8))] if value > 0 else " " for value in values)


def _plot(chart: Chart, points: list[tuple[float, float]]) -> str:
    xs = [x for x, _ in points] + [x for x, _, _ in chart.marks]
    ys = [y for _, y in points]
    place_x, ticks_x = _axis_x(chart, xs)
    ticks_y = _ticks(0.0 if chart.from_zero else min(ys), max(ys))
    low, high = ticks_y[0], ticks_y[-1]
    bottom = HEIGHT - _BOTTOM

    def place_y(y: float) -> float:
        return bottom - (y - low) / (high - low) * (bottom - _TOP)

    parts = []
    for y in ticks_y:
        parts.append(_line(_LEFT, place_y(y), WIDTH - _RIGHT, place_y(y), "line"))
        parts.append(_text(_LEFT - 6, place_y(y) + 4, _short(y), "end", "soft"))
    parts += [_text(place_x(x), bottom + 16, _short(x), "middle", "soft") for x in ticks_x]
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, chart.x, "middle", "soft"))
    parts.append(_text(8, 16, f"{chart.title} ({chart.y})", "start", "ink", bold=True))
    for x, label, colour in chart.marks:
        parts.append(
            f'<line x1="{place_x(x):.1f}" y1="{_TOP}" x2="{place_x(x):.1f}" y2="{bottom}" '
            f'stroke="{_colour(colour)}" stroke-dasharray="2 3"/>'
        )
        left = place_x(x) > WIDTH - 140
        parts.append(_text(place_x(x) + (-4 if left else 4), bottom - 6, label, "end" if left else "start", "ink"))
    parts += [_curve(series, place_x, place_y) for series in chart.series]
    parts.append(_legend(chart.series))
    return "".join(parts)


def _axis_x(chart: Chart, xs: list[float]) -> tuple[Any, list[float]]:
    span = WIDTH - _LEFT - _RIGHT - 16
    if chart.doubling:
        low, high = log2(max(min(xs), 1e-9)), log2(max(xs))
        width = (high - low) or 1.0
        ticks = [2.0**k for k in range(floor(low), ceil(high) + 1) if low - 1e-9 <= k <= high + 1e-9]
        return (lambda x: _LEFT + 8 + (log2(max(x, 1e-9)) - low) / width * span), ticks or sorted(set(xs))
    ticks = _ticks(min(xs), max(xs))
    return (lambda x: _LEFT + 8 + (x - ticks[0]) / (ticks[-1] - ticks[0]) * span), ticks


def _curve(series: Series, place_x: Any, place_y: Any) -> str:
    spots = [(place_x(x), place_y(y)) for x, y in series.points]
    dash = {"dash": ' stroke-dasharray="7 4"', "dot": ' stroke-dasharray="2 3"'}.get(series.dash, "")
    colour = _colour(series.colour)
    parts = []
    if series.line and len(spots) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
    if series.dots:
        for (x, y), label in zip(spots, [*series.labels, *[""] * len(spots)], strict=False):
            title = f"<title>{escape(label)}</title>" if label else ""
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}">{title}</circle>')
    return "".join(parts)


def _legend(series: Sequence[Series]) -> str:
    parts, x = [], 8.0
    for one in series:
        dash = {"dash": ' stroke-dasharray="5 3"', "dot": ' stroke-dasharray="2 2"'}.get(one.dash, "")
        parts.append(f'<path d="M{x:.0f} 28h18" stroke="{_colour(one.colour)}" stroke-width="2.5"{dash}/>')
        parts.append(_text(x + 22, 32, one.name, "start", "soft"))
        x += 36 + 6.2 * len(one.name)
    return "".join(parts)


def _strip(row: Strip, top: float, scale: float, tallest: float) -> str:
    base, left, colour = top + _ROW - 8, _LEFT + 60, _colour(row.colour)
    parts = [_text(8, base - 4, row.name if len(row.name) <= 17 else row.name[:16] + "…", "start", "ink")]
    parts.append(
        f'<rect x="{left}" y="{base - 6}" width="{row.ttft * scale:.1f}" height="6" class="silence">'
        f"<title>first token after {row.ttft * 1000:.0f} ms</title></rect>"
    )
    for bar in row.bars:
        height = max(2.0, bar.tokens / tallest * (_ROW - 14))
        parts.append(
            f'<rect x="{left + bar.at * scale:.1f}" y="{base - height:.1f}" width="2.4" height="{height:.1f}" '
            f'fill="{colour}"><title>{bar.tokens:.0f} tokens at {bar.at * 1000:.0f} ms</title></rect>'
        )
    parts.append(_line(left, base, left + row.end * scale, base, "soft"))
    return "".join(parts)


def _element(height: float, title: str, body: str, standalone: bool) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    style = _STANDALONE + f'<rect width="{WIDTH}" height="{height:.0f}" fill="var(--paper)"/>' if standalone else ""
    hatch = (
        "<style>.silence{fill:var(--line)}text{font:12px system-ui,sans-serif}</style>"
        if standalone
        else ""
    )  # fmt: skip
    return f"{head} aria-label={_attribute(title)}><title>{escape(title)}</title>{style}{hatch}{body}</svg>"


def _attribute(text: str) -> str:
    return f'"{escape(text, quote=True)}"'


def _line(x1: float, y1: float, x2: float, y2: float, ink: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="var(--{ink})"/>'


def _text(x: float, y: float, text: str, anchor: str, ink: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--{ink})"{weight} font-size="12">'
        f"{escape(text)}</text>"
    )


def _colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that enclose low..high."""
    if not (isfinite(low) and isfinite(high)) or high <= low:
        high = low + (abs(low) or 1.0)
    step = 10.0 ** floor(log10((high - low) / count))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= count)
    return [
        floor(low / step) * step + i * step for i in range(ceil((high - floor(low / step) * step) / step - 1e-9) + 1)
    ]


def _short(value: float) -> str:
    """A number of an axis, without false digits."""
    if value and abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{round(value, 6):g}"


def present(pairs: Iterable[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    """The points that have both numbers."""
    return [(x, y) for x, y in pairs if x is not None and y is not None and isfinite(x) and isfinite(y)]
