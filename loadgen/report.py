"""Documents -> one HTML file that explains itself: offline, light and dark, on paper too.

Everything in a document may come from a server or a file, so all of it is escaped; the page's own policy
forbids it to load anything. The curves are SVG. Where Plotly is installed its library goes into the file,
and the same curves can be hovered and zoomed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .analysis.metric import METRICS
from .chart import Chart, plotly, strips, svg
from .figures import Document, at, bursts, by_backend, called, charts

_LEVEL_COLUMNS = (
    ("tokens/s", "throughput"),
    ("steady", "steady_throughput"),
    ("first token P50, ms", "ttft.p50"),
    ("P95", "ttft.p95"),
    ("P99", "ttft.p99"),
    ("whole answer P50, ms", "e2e.p50"),
    ("P95", "e2e.p95"),
    ("P99", "e2e.p99"),
    ("decode, tokens/s", "decode_rate.p50"),
    ("ok", "ok"),
    ("failed", "failed"),
    ("per million", "cost_per_million"),
)


def html(documents: Sequence[Document], *, library: bool = True) -> str:
    """The report of one run, or of several beside each other. `library`: put Plotly in, where it is installed."""
    title = " · ".join(f"{d['command']} {d['name']}" for d in documents)
    page = resources.files("loadgen").joinpath("report.html").read_text("utf-8")
    script = _library() if library else None
    parts = {
        "title": escape(title),
        "body": "".join(_sections(documents)),
        "library": f"<script>{script}</script>" if script else "",
    }
    # Cut first, filled then: what is filled in may hold anything, the marks of this template too.
    return "".join(parts.get(piece, piece) for piece in re.split(r"\{\{(\w+)\}\}", page))


def _library() -> str | None:
    """Found without importing the package, which takes half a second and is not needed."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    if not file.is_file():
        return None
    source = file.read_text("utf-8")
    return source.replace("</script", "<\\/script") if "</script" in source else source


def _sections(documents: Sequence[Document]) -> list[str]:
    parts = [_head(document) for document in documents]
    if len(documents) > 1:
        parts.append(_runs(documents))
    for document in documents:
        if document.get("decisions"):
            parts.append(_decisions(document))
        if document.get("ratios"):
            parts.append(_ratios(document))
        if document.get("cells"):
            parts.append(_cells(document))
    drawn = charts(documents)
    rows = bursts(documents)
    figures = [_figure(chart) for chart in drawn]
    if rows:
        figures.append(f'<figure class="wide">{strips("How a typical answer comes", rows)}</figure>')
    if figures:
        parts.append(f'<h2>Curves</h2><div class="charts">{"".join(figures)}</div>')
    parts += [_levels(document) for document in documents if document["levels"]]
    parts += [_arguments(document) for document in documents]
    return parts


def table(document: Document) -> str:
    """summary.csv: one row for each cell of a sweep, else for each level."""
    rows = document.get("cells") or document["levels"]
    flat = [dict(_flat(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(row: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}_")
        elif name not in ("text", "texts"):
            told = " | ".join(map(str, value)) if isinstance(value, list | tuple) else value
            # A spreadsheet must not take text for a formula
            found.append((prefix + name, f"'{told}" if isinstance(told, str) and told[:1] in "=+-@" else told))
    return found


def _figure(chart: Chart) -> str:
    data = json.dumps(plotly(chart), allow_nan=False).replace("<", "\\u003c")
    return f'<figure data-chart="{chart.id}">{svg(chart)}<script type="application/json">{data}</script></figure>'


def _head(document: Document) -> str:
    when = datetime.fromtimestamp(document["started_at"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    kind = "verdict" if document["valid"] else "verdict invalid"
    warnings = "".join(f"<li>{escape(str(w))}</li>" for w in document["warnings"])
    return (
        f"<h1>{escape(document['command'])} · {escape(document['name'])}</h1><p class=meta>{when}</p>"
        f'<p class="{kind}">{escape(document["verdict"])}</p>'
        + (f"<ul class=warnings>{warnings}</ul>" if warnings else "")
    )


def _runs(documents: Sequence[Document]) -> str:
    rows = []
    for document in documents:
        for name, levels in by_backend([document]).items():
            best = max(levels, key=lambda level: level["throughput"] or 0)
            knee = (document.get("knees") or {}).get(name)
            numbers = [best["concurrency"], knee["enough"] if knee else None, best["throughput"]]
            measured = [_ms(at(best, key)) for key in ("ttft.p50", "ttft.p95", "e2e.p50", "e2e.p95")]
            rows.append([called(documents, document), name, *map(_number, numbers), *measured])
    columns = [
        "run",
        "backend",
        "best at",
        "enough",
        "tokens/s",
        "first token P50, ms",
        "P95",
        "whole answer P50, ms",
        "P95",
    ]
    return "<h2>Runs compared</h2>" + _table(columns, rows)


def _decisions(document: Document) -> str:
    rows = [[row["scenario"], row["choice"], row["evidence"]] for row in document["decisions"]]
    return "<h2>Decision</h2>" + _table(["scenario", "choose", "on what evidence"], rows, words=(1, 2))


def _ratios(document: Document) -> str:
    rows, before = [], ""
    for row in document["ratios"]:
        metric = METRICS[row["metric"]].title if row["metric"] in METRICS else row["metric"]
        scenario, before = "" if row["scenario"] == before else row["scenario"], row["scenario"]
        interval = (
            "" if row["verdict"] == "undecided" and row["low"] is None and row["high"] is None else _interval(row)
        )
        rows.append([scenario, metric, _number(row["value"]), interval, row["pairs"], row["verdict"]])
    first = document["ratios"][0]
    columns = ["scenario", "metric", f"{first['b']} / {first['a']}", "95 % interval", "pairs", f"{first['b']} is"]
    return "<h2>Pair by pair</h2>" + _table(columns, rows)


def _interval(row: Mapping[str, Any]) -> str:
    return f"{_number(row['low'], '∞')} – {_number(row['high'], '∞')}"


def _cells(document: Document) -> str:
    rows = []
    for cell in document["cells"]:
        quality = "–" if cell["quality"] is None else f"{cell['quality']:.0%}"
        speeds = [
            _ms(cell["ttft"]["p50"]),
            _ms(cell["e2e"]["p50"]),
            _number(cell["speed"]),
            _number(cell["throughput"]),
        ]
        rows.append([cell["label"], *speeds, quality, cell["ok"], cell["failed"], cell["effect"]])
    marked = set(document.get("front") or ())
    columns = ["setting", "first token P50, ms", "whole answer P50, ms", "tokens/s of an answer", "tokens/s in all"]
    caption = "Bold: no other setting is better in both speed and quality."
    columns += ["checks passed", "ok", "failed", "effect"]
    return "<h2>Settings</h2>" + _table(columns, rows, words=(8,), marked=marked, caption=caption)


def _levels(document: Document) -> str:
    rows = []
    for level in document["levels"]:
        place = f"{level['rate']:g}/s" if level.get("rate") else f"× {level['concurrency']}"
        name = " ".join(str(part) for part in (level["backend"], level.get("scenario") or "", place) if part)
        shown = [(_ms if key.startswith(("ttft", "e2e.")) else _number)(at(level, key)) for _, key in _LEVEL_COLUMNS]
        rows.append([name, *shown])
    columns = ["at", *(title for title, _ in _LEVEL_COLUMNS)]
    return f"<h2>Levels of {escape(document['name'])}</h2>" + _table(columns, rows)


def _arguments(document: Document) -> str:
    text = json.dumps(document["arguments"], indent=2, ensure_ascii=False, default=str)
    return f"<details><summary>How {escape(document['name'])} was run</summary><pre>{escape(text)}</pre></details>"


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    words: Sequence[int] = (),
    marked: set[int] | frozenset[int] = frozenset(),
    caption: str = "",
) -> str:
    def cell(tag: str, index: int, value: Any) -> str:
        kind = ' class="words"' if index in words else ""
        text = str(value)
        tone = {"better": ' class="good"', "worse": ' class="bad"'}.get(text, kind)
        return f"<{tag}{tone}>{escape(text)}</{tag}>"

    head = "".join(cell("th", i, title) for i, title in enumerate(columns))
    lines = []
    for index, row in enumerate(rows):
        kind = ' class="best"' if index in marked else ""
        lines.append(f"<tr{kind}>" + "".join(cell("td", i, value) for i, value in enumerate(row)) + "</tr>")
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{told}<thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.1f}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def _number(value: float | None, missing: str = "–") -> str:
    if value is None:
        return missing
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
