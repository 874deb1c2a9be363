"""What a run looks like in the terminal: a line of progress while it runs, then what one must know, first.

The verdict comes first, then at most twelve rows for a backend, each unit once, then how a typical answer
came. With `--json` all of it goes to stderr, and stdout gets one line.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from proxy.meter.reading import Reading

from .analysis.metric import METRICS
from .chart import sparkline

_REFRESH = 0.5  # seconds: drawing more often would disturb the stamps
_WINDOW = 50  # readings that a rolling number is taken of
_CELLS = 60  # characters of a picture
_EFFECT = 28  # characters of a setting's effect; the warnings have it in full
_SHOWN = 4  # backends of which the terminal shows an answer
_ROWS = ("ttft", "ttfa", "e2e", "t90", "decode_rate", "e2e_rate", "tpot", "burst", "largest_gap")


class Screen:
    """The terminal of one command."""

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=json, highlight=False)
        self._progress: Progress | None = None
        self._next = 0.0
        self._recent: deque[Reading] = deque(maxlen=_WINDOW)

    def begin(self, title: str, total: int | None) -> None:
        """A level starts."""
        self._recent.clear()
        if not self.console.is_terminal:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
        )
        # No thread of its own: it would take the interpreter from the event loop at a moment of its choice.
        self._progress = Progress(*columns, console=self.console, auto_refresh=False, transient=True)
        self._progress.start()
        self._progress.add_task(Text(title).markup, total=total, now="")

    def saw(self, reading: Reading) -> None:
        """An exchange ended."""
        self._recent.append(reading)
        progress = self._progress
        if progress is None:
            return
        task = progress.tasks[0]
        task.completed += 1
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REFRESH
            task.fields["now"] = rolling(self._recent)
            progress.refresh()

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def line(self, text: str) -> None:
        """A line of plain text: what it says may come from a server."""
        self.console.print(Text(text), soft_wrap=True)

    def show(self, document: Mapping[str, Any], where: str = "") -> None:
        """The end of a run."""
        style = "bold green" if document["valid"] else "bold red"
        self.console.print(Text(document["verdict"], style=style), soft_wrap=True)
        for table in tables(document):
            self.console.print(table)
        if len(document["shown"]) <= _SHOWN:  # the report has the rest
            for name, shown in document["shown"].items():
                for text in pictures(name, shown):
                    self.line(text)
        for warning in document["warnings"]:
            self.console.print(Text(f"! {warning}", style="yellow"), soft_wrap=True)
        if where:
            self.line(f"Report: {where}")


def rolling(readings: Sequence[Reading] | deque[Reading]) -> str:
    """The latest exchanges in short: typical first token, tokens per second in all, failures."""
    ok = [r for r in readings if r.outcome == "ok"]
    firsts = [r.ttft for r in ok if r.ttft is not None]
    parts = [f"first token {median(firsts) * 1000:.0f} ms"] if firsts else []
    if len(ok) > 1:
        span = max(r.started_at + r.done for r in ok) - min(r.started_at for r in ok)
        tokens = sum(r.tokens.completion or 0 for r in ok)
        parts += [f"{tokens / span:.0f} tokens/s"] if span > 0 and tokens else []
    failed = len(readings) - len(ok)
    return " · ".join(parts + ([f"{failed} failed"] if failed else []))


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The tables that fit the document: one level in full, several as rows, cells, ratios and decisions."""
    found = []
    if document.get("decisions"):
        found.append(_decisions(document["decisions"]))
    if document.get("ratios"):
        found.append(_ratios(document["ratios"]))
    if document.get("cells"):
        found.append(_cells(document))
        return found
    levels = [level for level in document["levels"] if not level.get("scenario")]
    by_backend: dict[str, list[Mapping[str, Any]]] = {}
    for level in levels:
        by_backend.setdefault(level["backend"], []).append(level)
    for name, own in by_backend.items():
        knee = document.get("knees", {}).get(name)
        ranges = {row["concurrency"]: row for row in document.get("repeats", {}).get(name, ())}
        found.append(_level(name, own[0]) if len(own) == 1 else _ladder(name, _typical(own), knee, ranges))
    return found


def pictures(name: str, shown: Mapping[str, Any]) -> list[str]:
    """A backend in a few lines: its typical answer's silence and bursts, and its tokens over the run."""
    lines = []
    if strip := shown.get("strip"):
        end = strip["end"] or 1.0
        cells = [0.0] * _CELLS
        for at, tokens in strip["bars"]:
            cells[min(_CELLS - 1, int(at / end * _CELLS))] += tokens
        silent = min(_CELLS - 1, int(strip["ttft"] / end * _CELLS))
        told = f"{_ms(strip['ttft'])} ms silence, {len(strip['bars'])} bursts, {_ms(end)} ms in all"
        lines += [f"{name}: {told}", f"  an answer  {'·' * silent}{sparkline(cells)[silent:]}"]
    if spark := sparkline(shown.get("tokens_over_time") or ()):
        lines.append(f"  the run    {spark}")
    return lines


def _level(name: str, level: Mapping[str, Any]) -> Table:
    """One level: its metrics as rows."""
    place = f"{level['rate']:g} requests/s" if level.get("rate") else f"{level['concurrency']} at once"
    table = _table(
        f"{name}, {place}: {level['ok']} ok, {level['failed']} failed", "", "P50", "P95", "P99", "95 % of P50"
    )
    for key in _ROWS:
        metric, values = METRICS[key], level[key]
        if not values["n"]:
            if key == "decode_rate":
                table.add_row(Text(metric.title), "not defined", "", "", "")
            continue
        interval = (level.get("intervals") or {}).get(key, {}).get("p50")
        show = _ms if metric.unit == "s" else _number
        title = f"{metric.title}, {'ms' if metric.unit == 's' else metric.unit}"
        between = f"{show(interval[0])} – {show(interval[1])}" if interval else ""
        table.add_row(Text(title), *(show(values[p]) for p in ("p50", "p95", "p99")), between)
    if level["failed"]:
        values = [_ms(level["adjusted"]["e2e"][p]) for p in ("p50", "p95", "p99")]
        table.add_row("whole answer, failures as infinite, ms", *values, "")
    about = "≈ " if level["usage_source"] in ("estimated", "mixed") else ""
    table.add_row(
        "throughput, tokens/s",
        about + _number(level["throughput"]),
        "",
        "",
        f"steady {_number(level['steady_throughput'])}",
    )
    money = [f"{_number(level['cost_per_million'])} by tokens"] if level["cost_per_million"] is not None else []
    money += [f"{_number(cost)} at {price}/h" for price, cost in level["instance_cost_per_million"].items()]
    if money or level["goodput"] is not None:
        good = (
            "" if level["goodput"] is None else f"goodput {_number(level['goodput'])}/s, {level['goodput_share']:.0%}"
        )
        table.add_row("per million tokens", Text(", ".join(money) or "–"), "", "", good)
    return table  # nine metrics and three more rows: twelve at most


def _typical(levels: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One level for each concurrency: of repeats the one with the median throughput."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for level in levels:
        groups.setdefault(level["concurrency"], []).append(level)
    ordered = [sorted(group, key=lambda level: level["throughput"] or 0) for group in groups.values()]
    return [group[(len(group) - 1) // 2] for group in ordered]


def _ladder(
    name: str,
    levels: Sequence[Mapping[str, Any]],
    knee: Mapping[str, Any] | None,
    ranges: Mapping[Any, Mapping[str, Any]],
) -> Table:
    """Several levels: a row each, at most twelve. Percentiles and prices share a cell, so that it fits 80 columns."""
    prices = [str(price) for price in levels[0]["instance_cost_per_million"]]
    priced = any(level["cost_per_million"] is not None for level in levels)
    money = ", ".join((["tokens"] if priced else []) + [f"{price}/h" for price in prices])
    columns = [
        "tokens/s",
        "first token, ms",
        "whole answer, ms",
        *([f"per million by {money}"] if money else []),
        "failed",
    ]
    table = _table(f"{name} (latencies: P50 P95 P99)", "at once", *columns)
    for level in levels[:12]:
        mark = " ◂" if knee and level["concurrency"] == knee["enough"] else ""
        latencies = [" ".join(_short(level[key][p]) for p in ("p50", "p95", "p99")) for key in ("ttft", "e2e")]
        costs = [level["cost_per_million"]] if priced else []
        costs += [level["instance_cost_per_million"][price] for price in prices]
        cost = [" ".join(map(_number, costs))] if money else []
        throughput = _number(level["throughput"])
        if interval := ranges.get(level["concurrency"], {}).get("interval"):
            throughput += f" ± {_number((interval[1] - interval[0]) / 2)}"
        table.add_row(f"{level['concurrency']}{mark}", throughput, *latencies, *cost, str(level["failed"]))
    return table


def _cells(document: Mapping[str, Any]) -> Table:
    best = set(document.get("front") or ())
    table = _table(
        "Settings (★: none is better in both speed and quality)",
        "",
        "whole answer P50, ms",
        "tokens/s",
        "characters",
        "checks passed",
        "effect",
    )
    for index, cell in enumerate(document["cells"]):
        quality = "–" if cell["quality"] is None else f"{cell['quality']:.0%}"
        title = Text(f"{'★ ' if index in best else '  '}{cell['label']}")
        numbers = [_ms(cell["e2e"]["p50"]), _number(cell["speed"]), _number(cell["chars"]), quality]
        effect = cell["effect"]
        table.add_row(title, *numbers, Text(effect if len(effect) <= _EFFECT else effect[: _EFFECT - 1] + "…"))
    return table


def _ratios(ratios: Sequence[Mapping[str, Any]]) -> Table:
    a, b = ratios[0]["a"], ratios[0]["b"]
    table = _table(f"{b} / {a}, pair by pair", "scenario", "metric", "ratio", "95 % interval", "pairs", f"{b} is")
    before = ""
    for row in ratios:
        scenario, before = "" if row["scenario"] == before else row["scenario"], row["scenario"]
        title = METRICS[row["metric"]].title if row["metric"] in METRICS else row["metric"]
        known = row["low"] is not None or row["high"] is not None
        between = f"{_number(row['low'], '∞')} – {_number(row['high'], '∞')}" if known else "too few pairs"
        style = {"better": "green", "worse": "red"}.get(row["verdict"], "")
        verdict = Text(row["verdict"], style=style)
        table.add_row(Text(scenario), Text(title), _number(row["value"]), between, str(row["pairs"]), verdict)
    return table


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Decision", "scenario", "choose", "on what evidence")
    for row in decisions:
        table.add_row(Text(row["scenario"]), Text(row["choice"], style="bold"), Text(row["evidence"]))
    return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.add_column(Text(first), no_wrap=True)
    for column in columns:
        words = "evidence" in column or column == "effect"
        table.add_column(
            Text(column), justify="left" if words else "right", no_wrap=column == "effect", overflow="fold"
        )
    return table


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.1f}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def _short(seconds: float | None) -> str:
    """Milliseconds in three digits or so."""
    return "–" if seconds is None else f"{seconds * 1000:.3g}" if seconds < 0.1 else f"{seconds * 1000:.0f}"


def _number(value: float | None, missing: str = "–") -> str:
    if value is None:
        return missing
    return f"{value:,.0f}" if abs(value) >= 100 or isinstance(value, int) else f"{value:.3g}"
