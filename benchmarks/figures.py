"""From samples to rows: medians over rounds, ratios within a round, and how far the rounds lie apart.

A round without a whole answer gives no figure; what failed, and how, has a row of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from cases import Case, Sample

from proxy.meter.quantile import percentile

_BUSY = 0.9  # of a core
_SMALL = 0.05  # what is less is given with a third digit
Samples = dict[str, list[Sample]]  # contestant -> one for each round


@dataclass(slots=True)
class Row:
    """One measurement with its unit, for each contestant that has it."""

    what: str
    cells: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Section:
    title: str
    rows: list[Row] = field(default_factory=list)
    note: str = ""


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median and, in brackets, the smallest and the largest."""
    middle = f"{median(values):,.{digits}f}"
    return middle if len(values) < 2 else f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def quantile(values: Sequence[float], q: float) -> float:
    return percentile(sorted(values), q) if values else float("nan")


def section(case: Case, samples: Samples) -> Section:
    """The table of one case."""
    rows = [
        _row(f"CPU per {case.unit}, us", samples, lambda s: s.cpu * 1e6, 1, skip="direct"),
        _ratio("  times nginx's", samples, lambda s: s.cpu, "nginx"),
    ]
    if case.saturated:
        rows += [
            _row(f"{case.unit}s per second", samples, lambda s: s.rate, 0),
            _ratio("  times nginx's", samples, lambda s: s.rate, "nginx"),
            _ratio("  times one worker's", samples, lambda s: s.rate, "manometer"),
            _row("cores used by the proxy", samples, lambda s: s.cores["proxy"], skip="direct"),
            _row("  by its busiest process", samples, lambda s: s.cores["busiest"], skip="direct"),
            _row("cores used by the backend", samples, lambda s: s.cores["backend"]),
            _row("cores used by the client", samples, lambda s: s.cores["client"]),
            _row("machine idle, %", samples, lambda s: 100 * s.cores["idle"], 0),
            Row("bound by", {name: _bound(name, done) for name, runs in samples.items() if (done := _whole(runs))}),
        ]
        if case.unit == "event":
            rows.append(_row("events in one read of the client", samples, lambda s: s.chunk, 1))
    elif case.load.stream:
        rows += _latency("TTFT", samples, lambda s: s.ttfts)
    else:
        rows += _latency("latency", samples, lambda s: s.totals)
    if any(sample.failed for runs in samples.values() for sample in runs):
        rows.append(Row("failed", {name: _failed(runs) for name, runs in samples.items() if runs}))
    return Section(case.name, rows)


def _whole(runs: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in runs if sample.answers]


def _failed(runs: Sequence[Sample]) -> str:
    """How many in all rounds, of how many, and why."""
    why: Counter[str] = Counter()
    for sample in runs:
        why.update(sample.failed)
    if not why:
        return "0"
    tried = why.total() + sum(sample.answers for sample in runs)
    return f"{why.total():,} of {tried:,}: {', '.join(why)}"


def _bound(name: str, runs: Sequence[Sample]) -> str:
    """Who was busy all the time; where nobody was, the cores had no time left for all together."""
    who = {"busiest": "the proxy", "backend": "the backend", "client": "the client"}
    if name == "direct":
        del who["busiest"]  # there is none: that is the backend again
    for one, said in who.items():
        if median(sample.cores[one] for sample in runs) >= _BUSY:
            return said
    return "all cores" if median(sample.cores["idle"] for sample in runs) <= 1 - _BUSY else "waiting"


def _latency(word: str, samples: Samples, of: Callable[[Sample], list[float]]) -> list[Row]:
    rows = []
    for q in (50, 99):

        def value(sample: Sample, q: int = q) -> float:
            return quantile(of(sample), q) * 1e3

        rows.append(_row(f"{word} p{q}, ms", samples, value))
        rows += [_added(f"  added over {base}, ms", samples, value, base) for base in ("direct", "nginx")]
    return rows


def _row(what: str, samples: Samples, of: Callable[[Sample], float], digits: int = 2, skip: str = "") -> Row:
    whole = {name: _whole(runs) for name, runs in samples.items() if name != skip}
    return Row(what, {name: spread([of(sample) for sample in runs], digits) for name, runs in whole.items() if runs})


def _ratio(what: str, samples: Samples, of: Callable[[Sample], float], base: str) -> Row:
    return _against(what, samples, of, base, lambda a, b: a / b if b else float("nan"))


def _added(what: str, samples: Samples, of: Callable[[Sample], float], base: str) -> Row:
    return _against(what, samples, of, base, lambda a, b: a - b)


def _against(
    what: str, samples: Samples, of: Callable[[Sample], float], base: str, how: Callable[[float, float], float]
) -> Row:
    """Compared within a round, then the median over rounds."""
    row = Row(what)
    for name, runs in samples.items():
        pairs = zip(runs, samples.get(base, []), strict=False)
        found = [how(of(mine), of(other)) for mine, other in pairs if mine.answers and other.answers]
        if name not in (base, "direct") and found:
            row.cells[name] = spread(found, 2 if abs(median(found)) >= _SMALL else 3)
    return row
