"""What a run found, as one JSON document: `summary.json`. Reports are drawn from it alone, now or years later.

Pure: readings and levels in, plain values out. The keys:

| key | holds |
|---|---|
| command, name, started_at, arguments | what was run, when, with what; never a key |
| verdict, valid, interrupted, warnings | the line to read first, and what to doubt |
| levels | one object for each level and repeat: `analysis.level.Level.json` |
| knees | for each backend: the scalability law, its peak, the smallest level that is enough |
| cells, ratios, decisions | of a sweep; of a comparison |
| shown | for each backend: its typical answer's bursts, sorted first-token times, tokens over time |
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from proxy.meter.reading import Reading

from .analysis import scaling, span
from .analysis.interval import bootstrap, order_statistic
from .analysis.level import Level
from .analysis.metric import METRICS
from .analysis.pairing import Decision, Ratio

SCHEMA = 1
_KEPT = 400  # values of a distribution that a picture needs


def document(
    command: str,
    name: str,
    started_at: float,
    *,
    arguments: Mapping[str, Any],
    levels: Sequence[Mapping[str, Any]],
    shown: Mapping[str, Any],
    verdict: str,
    interrupted: bool = False,
    warnings: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """The document of a run. `more`: knees, cells, ratios, decisions, where the command has them."""
    valid = bool(levels) and all(level["valid"] for level in levels) and not interrupted
    told = gathered([*warnings, *(w for level in levels for w in level["warnings"])])
    return {
        "schema": SCHEMA,
        "command": command,
        "name": name,
        "started_at": started_at,
        "arguments": dict(arguments),
        "verdict": verdict if valid else f"{'BROKEN OFF' if interrupted else 'NOT VALID'}: {verdict}",
        "valid": valid,
        "interrupted": interrupted,
        "warnings": told,
        "levels": list(levels),
        "shown": dict(shown),
    } | more


def gathered(warnings: Sequence[str]) -> list[str]:
    """Each warning once; of those that differ in their numbers only, the first, and how many more there were."""
    groups: dict[str, list[str]] = {}
    for warning in dict.fromkeys(warnings):
        groups.setdefault(re.sub(r"\d+(\.\d+)?", "#", warning), []).append(warning)
    return [own[0] + (f" (and {len(own) - 1} more such)" if len(own) > 1 else "") for own in groups.values()]


def measured(level: Level, readings: Sequence[Reading], *, seed: int = 0, **facts: Any) -> dict[str, Any]:
    """A level with the 95 % intervals of its medians and P95s: bootstrap, and None where n is too small to say."""
    intervals: dict[str, Any] = {}
    ok = [r for r in readings if r.outcome == "ok"]
    source = random.Random(seed)
    for name in ("ttft", "e2e", "decode_rate", "e2e_rate"):
        values = sorted(v for v in map(METRICS[name].of, ok) if v is not None)
        # The order statistics know when a sample is too small to say anything; the bootstrap does not.
        intervals[name] = {
            f"p{q}": bootstrap(values, q, source, resamples=500) if order_statistic(values, q) else None
            for q in (50, 95)
        }
    return level.json() | {"intervals": intervals} | facts


def shown(readings: Sequence[Reading]) -> dict[str, Any]:
    """What pictures need of one backend's readings."""
    typical = span.typical(readings)
    firsts = sorted(r.ttft for r in readings if r.outcome == "ok" and r.ttft is not None)
    strip = None
    if typical is not None and typical.ttft is not None:
        bars = list(zip(typical.arrivals.column("at"), span.sized(typical), strict=True))
        strip = {"ttft": typical.ttft, "end": typical.done, "bars": _thinned(bars, _KEPT)}
    return {"strip": strip, "ttft": _thinned(firsts, _KEPT), "tokens_over_time": span.over_time(readings, 60)}


def knee_of(levels: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The knee of one backend's levels, from the steady throughput where there is one."""
    points = [
        scaling.Point(level["concurrency"], level["steady_throughput"] or level["throughput"])
        for level in levels
        if level["concurrency"] and level["throughput"]
    ]
    found = scaling.knee(points)
    if found is None:
        return None
    law = found.law
    return {
        "enough": found.enough,
        "best": found.best,
        "resolved": found.resolved,
        "peak": law.peak if law else None,
        "law": {"rate": law.rate, "contention": law.contention, "crosstalk": law.crosstalk} if law else None,
        "residual": law.residual if law else None,
        "curve": [[n, law.at(n)] for n in _between(points)] if law else [],
    }


def ratio_of(ratio: Ratio, scenario: str, names: tuple[str, str]) -> dict[str, Any]:
    return {"scenario": scenario, "a": names[0], "b": names[1]} | ratio.json()


def decision_of(decision: Decision) -> dict[str, Any]:
    return {"scenario": decision.scenario, "choice": decision.choice, "evidence": decision.evidence}


def front(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of the rows that no other beats in both speed and quality, by falling speed. A row must have both."""
    known = [(i, r["speed"], r["quality"]) for i, r in enumerate(rows) if r["speed"] and r["quality"] is not None]
    known.sort(key=lambda row: (-row[1], -row[2]))
    found, best = [], -1.0
    for index, _, quality in known:
        if quality > best:
            found.append(index)
            best = quality
    return found


def plain(value: Any) -> Any:
    """Without infinities and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _between(points: Sequence[scaling.Point]) -> list[float]:
    low, high = min(p.concurrency for p in points), max(p.concurrency for p in points)
    return [low * (high / low) ** (i / 40) for i in range(41)]


def _thinned(values: list[Any], kept: int) -> list[Any]:
    """At most `kept` of them, evenly chosen, both ends among them."""
    if len(values) <= kept:
        return values
    return [values[round(i * (len(values) - 1) / (kept - 1))] for i in range(kept)]
