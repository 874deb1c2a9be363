"""Grafana's classic dashboard schema as plain dicts: the panels, the variables and the grid.

1. Plain dicts and no builder library: what is used of the schema fits on these pages, the dashboards cost
   the project no dependency, and the JSON that Grafana reads is what one sees here.
2. The classic schema, because Grafana 10.4 to 13 all read it.
3. Every panel has a description that ends with the metrics it reads, a unit, and says "No traffic" where
   there is nothing to show: a 0 there would be a lie.
4. The colours of the two kinds of decoding are fixed by name, never by the order of series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
TAG = "manometer"
DIFFUSION, AUTOREGRESSIVE = "#E69F00", "#0072B2"  # as on the live page: told apart by everyone (Okabe and Ito)
GRID = 24
NO_TRAFFIC = "No traffic"

_NOTHING: Json = {"type": "special", "options": {"match": "nan", "result": {"text": NO_TRAFFIC, "index": 0}}}


def target(expr: str, legend: str = "", *, exemplar: bool = False, instant: bool = False, format: str = "") -> Json:
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend or "__auto",
        "range": not instant,
        "instant": instant,
        "exemplar": exemplar,
        "format": format or ("table" if instant else "time_series"),
    }


def stat(
    title: str,
    about: str,
    unit: str,
    expr: str,
    *,
    warn: tuple[float, float] | None = None,
    decimals: int | None = None,
) -> Json:
    """One number. It has a colour only when it can be good or bad: `warn` is from where it is yellow and red."""
    panel = _panel("stat", title, about, unit, [target(expr)])
    panel["fieldConfig"]["defaults"] |= {"thresholds": _thresholds(warn)}
    if decimals is not None:
        panel["fieldConfig"]["defaults"]["decimals"] = decimals
    panel["options"] = {
        "colorMode": "value" if warn else "none",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }
    return panel


def lines(
    title: str,
    about: str,
    unit: str,
    targets: Sequence[Json],
    *,
    stack: bool = False,
    log: bool = False,
    top: float | None = None,
    empty: str = NO_TRAFFIC,
) -> Json:
    """Values over time. Quantiles are told apart by the stroke: p50 is solid, p95 and p5 dashed, p99 dotted."""
    panel = _panel("timeseries", title, about, unit, targets)
    panel["fieldConfig"]["defaults"] |= {
        "noValue": empty,
        "color": {"mode": "palette-classic-by-name"},
        "min": None if log else 0,
        "max": top,
        "custom": {
            "drawStyle": "line",
            "lineWidth": 2,
            "fillOpacity": 25 if stack else 0,
            "showPoints": "auto",
            "pointSize": 4,
            "spanNulls": False,
            "axisSoftMin": None if log else 0,
            "stacking": {"mode": "normal" if stack else "none", "group": "A"},
            "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        },
    }
    panel["fieldConfig"]["overrides"] = [*_DECODING, *_STROKES]
    panel["options"] = {
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def heatmap(title: str, about: str, unit: str, expr: str, *, scheme: str, repeat: str = "") -> Json:
    """A histogram's own buckets over time."""
    panel = _panel("heatmap", title, about, unit, [target(expr, "{{le}}", format="heatmap")])
    panel["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": scheme, "steps": 64, "exponent": 0.5, "fill": "orange", "reverse": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    if repeat:
        panel |= {"repeat": repeat, "repeatDirection": "h", "maxPerRow": 2}
    return panel


def table(title: str, about: str, by: Sequence[str], columns: Sequence[tuple[str, str, str]]) -> Json:
    """One row for each combination of `by`; a column is (heading, unit, expression over the whole range)."""
    targets = [target(expr, instant=True) for _, _, expr in columns]
    panel = _panel("table", title, about, "none", targets)
    values = [f"Value #{t['refId']}" for t in panel["targets"]]
    headings = dict(zip(values, (heading for heading, _, _ in columns), strict=True))
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": {name: index for index, name in enumerate((*by, *values))},
                "renameByName": {**{name: name.capitalize() for name in by}, **headings},
            },
        },
    ]
    panel["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "unit", "value": unit}]}
        for heading, unit, _ in columns
    ]
    panel["options"] = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "fields": ""},
    }
    return panel


def row(title: str) -> Json:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def grid(rows: Iterable[tuple[int, Sequence[Json]]]) -> list[Json]:
    """Panels placed line by line, (height, panels): those of one line share the width evenly, without holes."""
    placed: list[Json] = []
    y = 0
    for height, panels in rows:
        width, rest = divmod(GRID, len(panels))
        if rest:
            raise ValueError(f"{len(panels)} panels do not fill a line of {GRID}")
        for index, panel in enumerate(panels):
            place = {"h": height, "w": width, "x": index * width, "y": y}
            placed.append({"id": len(placed) + 1, "gridPos": place, **panel})
        y += height
    return placed


def choice(name: str, label: str, query: str, *, multi: bool = True) -> Json:
    """A variable whose values Prometheus knows."""
    everything: Json = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,  # with the time range: yesterday's backends are offered when one looks at yesterday
        "regex": "",
        "sort": 1,
        "multi": multi,
        "includeAll": multi,
        "allValue": ".*" if multi else None,
        "current": everything if multi else {},
        "hide": 0,
        "options": [],
        "skipUrlSync": False,
    }


def fixed(name: str, label: str, options: Sequence[tuple[str, str]]) -> Json:
    """A variable with given values, as (text, value); the first is the default."""
    choices = [{"selected": not i, "text": text, "value": value} for i, (text, value) in enumerate(options)]
    return {
        "type": "custom",
        "name": name,
        "label": label,
        "query": ",".join(f"{text} : {value}" for text, value in options),
        "options": choices,
        "current": choices[0],
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "skipUrlSync": False,
    }


def dashboard(
    uid: str, title: str, about: str, variables: Sequence[Json], annotations: Sequence[Json], rows: Any
) -> Json:
    source: Json = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}
    source |= {"current": {}, "hide": 0, "includeAll": False, "multi": False, "options": [], "refresh": 1, "regex": ""}
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": [TAG],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-15m", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Manometer",
                "tags": [TAG],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [source, *variables]},
        "annotations": {"list": list(annotations)},
        "panels": grid(rows),
    }


def annotation(name: str, expr: str, color: str, title: str) -> Json:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "expr": expr,
        "step": "10s",
        "iconColor": color,
        "titleFormat": title,
        "textFormat": "",
    }


def _panel(type: str, title: str, about: str, unit: str, targets: Sequence[Json]) -> Json:
    lettered = [{"refId": chr(ord("A") + index), **each} for index, each in enumerate(targets)]
    return {
        "type": type,
        "title": title,
        "description": f"{about}\n\nFrom {_metrics(lettered)}.",
        "datasource": SOURCE,
        "targets": lettered,
        "fieldConfig": {"defaults": {"unit": unit, "noValue": NO_TRAFFIC, "mappings": [_NOTHING]}, "overrides": []},
        "options": {},
    }


def _metrics(targets: Sequence[Json]) -> str:
    found = dict.fromkeys(name for each in targets for name in re.findall(r"\b(\w+)\{", each["expr"]))
    return ", ".join(f"`{name}`" for name in found)


def _thresholds(warn: tuple[float, float] | None) -> Json:
    steps: list[Json] = [{"color": "green" if warn else "text", "value": None}]
    if warn:
        steps += [{"color": "yellow", "value": warn[0]}, {"color": "red", "value": warn[1]}]
    return {"mode": "absolute", "steps": steps}


def _override(pattern: str, id: str, value: Any) -> Json:
    return {"matcher": {"id": "byRegexp", "options": pattern}, "properties": [{"id": id, "value": value}]}


_DECODING = [
    _override("/^diffusion/", "color", {"mode": "fixed", "fixedColor": DIFFUSION}),
    _override("/^autoregressive/", "color", {"mode": "fixed", "fixedColor": AUTOREGRESSIVE}),
]
_STROKES = [
    _override("/(p95|p5|seconds)$/", "custom.lineStyle", {"fill": "dash", "dash": [10, 6]}),
    _override("/p99$/", "custom.lineStyle", {"fill": "dot", "dash": [2, 6]}),
]
