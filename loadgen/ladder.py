"""`manometer ladder`: more and more at once, until more does not help. Where is the knee, and at what cost?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from . import document
from .analysis.interval import repeats as spread
from .bench import Bench, say, start
from .options import Options, Refused, command, numbers
from .plan import Ask, limits
from .schedule import Closed

_PANEL = "How far"
_GAIN = 1.05  # a level that brings less than this over the best so far does not pay


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL)


@command
def ladder(
    options: Options,
    levels: Annotated[str, _option("--levels", "-l", help="1,2,4,8; empty: doubling until the knee.")] = "",
    most: Annotated[int, _option("--most", help="Where doubling ends at the latest.")] = 256,
    requests: Annotated[int, _option("--requests", "-n", help="For each level; 0: four for each client.")] = 0,
    duration: Annotated[float, _option("--duration", "-d", help="Seconds for each level, instead.")] = 0.0,
    repeats: Annotated[int, _option("--repeats", help="Whole ladders; from two on there are intervals.")] = 1,
) -> int:
    """Climb through levels of concurrency: throughput, latency and cost at each, and the knee."""
    fixed = numbers("--levels", levels)
    if options.otpm:
        raise Refused("--otpm: a paced ladder would find the pace, not the capacity; use load")
    if repeats < 1 or most < 1:
        raise Refused("--repeats and --most must be at least 1")
    own = {"levels": fixed, "most": most, "requests": requests, "duration": duration, "repeats": repeats}

    async def body(bench: Bench) -> str:
        target = bench.target()
        model = await bench.identify(target, options.model)
        bench.warnings += limits(options, model, options.url)
        ask = Ask(bench.work(), bench.question(model))
        climbed: list[int] = []
        for turn in range(repeats):
            steps: Iterator[int] = iter(climbed if turn else fixed) if (fixed or turn) else doubling(bench.levels, most)
            for concurrency in steps:
                if bench.stop.is_set():
                    break
                amount = (None, duration) if duration else (requests or max(16, 4 * concurrency), None)
                title = f"{model} × {concurrency}" + (f", run {turn + 1}" if repeats > 1 else "")
                await bench.measure(
                    target, ask, Closed(concurrency), requests=amount[0], duration=amount[1], title=title, repeat=turn
                )
                climbed += [] if turn else [concurrency]
        return conclude(bench, model)

    bench = start("ladder", options, own, body)
    say(bench)
    return bench.status()


def doubling(done: Sequence[Mapping[str, Any]], most: int) -> Iterator[int]:
    """1, 2, 4, ... until two levels in a row bring nothing, or more fails than works. Looks at `done` as it grows."""
    concurrency, best, idle = 1, 0.0, 0
    while concurrency <= most:
        yield concurrency
        level = done[-1]
        throughput = level["throughput"] or 0.0
        idle = idle + 1 if throughput < best * _GAIN else 0
        best = max(best, throughput)
        if idle == 2 or level["failed"] > level["ok"]:
            return
        concurrency *= 2


def conclude(bench: Bench, model: str) -> str:
    """Puts knees and repeats into the report; gives the verdict."""
    name = bench.levels[0]["backend"] if bench.levels else model
    knee = document.knee_of(bench.levels)
    if knee is None:
        return f"{model}: no level gave any throughput"
    bench.more["knees"] = {name: knee}
    bench.focus = knee["enough"]
    if ranges := over_repeats(bench.levels):
        bench.more["repeats"] = {name: ranges}
    return verdict(model, knee, bench.levels)


def over_repeats(levels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each concurrency that was run more than once: the mean throughput and its 95 % interval."""
    found = []
    for concurrency in dict.fromkeys(level["concurrency"] for level in levels):
        values = [lv["throughput"] for lv in levels if lv["concurrency"] == concurrency and lv["throughput"]]
        interval = spread(values)
        if interval is not None:
            found.append({"concurrency": concurrency, "mean": sum(values) / len(values), "interval": list(interval)})
    return found


def verdict(model: str, knee: Mapping[str, Any], levels: Sequence[Mapping[str, Any]]) -> str:
    """The one line to read."""
    enough = next(level for level in levels if level["concurrency"] == knee["enough"])
    first = enough["ttft"]["p95"]
    told = f"{model}: up to {knee['best']:,.0f} tokens/s; {knee['enough']} at once are enough for 95 % of it"
    told += f" (first token {first * 1000:,.0f} ms at P95)" if first is not None else ""
    if len({level["concurrency"] for level in levels}) == 1:
        told += "; one level is no ladder"
    elif not knee["resolved"]:
        told += "; throughput still rises there: the knee lies beyond"
    elif knee["peak"] is not None:
        told += f"; the fitted law peaks at {knee['peak']:,.0f}"
    return told
