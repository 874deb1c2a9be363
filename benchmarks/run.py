"""`make bench`: manometer beside nginx, a plain relay and no proxy at all, in one go, on loopback.

    make bench                     about ten minutes; writes RESULTS.md
    make bench ARGS=--quick        a minute and a half; prints, writes nothing
    make bench ARGS="--only JSON"  the cases whose names hold the word

Everything is compared within one run, contestants by turns within each round, and given as a ratio to nginx:
the machine's own speed, and who else uses it, then matter least.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import contestants
import disturbance
import memory
import readings
import results
from cases import CASES, Case, measure, warm
from contestants import HERE, Contestant, NotThere
from figures import Row, Samples, Section, quantile, section, spread
from readings import Told
from rich.console import Console

RESULTS = HERE / "RESULTS.md"
_HOW = (
    "Each figure is the median of {rounds} rounds, in brackets the least and the most; contestants took turns within a "
    "round, ratios and differences are taken within a round. CPU is that of all processes of a proxy, "
    "manometer's main process included, by the scheduler's own count. The backend and the client are single "
    "processes in Python on the same machine. Times of `direct` are those without a proxy."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it."""

    rounds: int
    seconds: float  # of each run
    streams: int  # open at once
    held: float  # seconds
    cases: Sequence[Case]
    studies: bool


def main(arguments: Sequence[str]) -> int:
    plan, write = _plan(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    machine = results.machine()
    memory.capacity(0)
    sections: list[Section] = []

    def add(found: Section) -> None:
        sections.append(found)
        results.show([found], console)

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        _compete(plan, Path(folder), add, console)
    if write is not None:
        write.write_text(results.markdown(sections, machine, _HOW.format(rounds=plan.rounds)))
        console.print(f"written to {write}")
    return 0


def _plan(arguments: Sequence[str]) -> tuple[Plan, Path | None]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run, at least")
    parser.add_argument("--streams", type=int, default=5000, help="open at once, for the memory of each")
    parser.add_argument("--only", default="", help="cases whose names hold this word; no studies")
    parser.add_argument("--quick", action="store_true", help="one round, 500 open streams")
    parser.add_argument("--output", type=Path, help="where to write; default: RESULTS.md, if all of it was run")
    given = parser.parse_args(arguments)
    cases = [case for case in CASES if given.only.lower() in case.name.lower()]
    if not cases:
        parser.error(f"--only: no case is called {given.only!r}; there are: {'; '.join(case.name for case in CASES)}")
    whole = not given.quick and not given.only
    plan = Plan(
        rounds=1 if given.quick else given.rounds,
        seconds=given.seconds,
        streams=memory.capacity(500 if given.quick else given.streams),
        held=3.0 if given.quick else 10.0,
        cases=cases,
        studies=not given.only,
    )
    return plan, given.output or (RESULTS if whole else None)


def _compete(plan: Plan, folder: Path, add: Callable[[Section], None], console: Console) -> None:
    backend = contestants.backend(folder)
    running = [backend]
    try:
        running += _contestants(backend.port, folder, console)
        warm(running)
        for case in plan.cases:
            _case(case, plan, running, backend, add)
        if plan.studies:
            ours = next(one for one in running if one.name == "manometer")
            add(_scraping(disturbance.scrapes(ours, backend, plan.rounds, plan.seconds)))
            for contestant in running[1:]:
                contestant.stop()
            add(_collector(disturbance.collections(backend, folder, plan.rounds, plan.seconds)))
            add(_memory(memory.run(backend.port, folder, plan.streams, plan.held)))
    finally:
        for contestant in running:
            contestant.stop()


def _contestants(backend: int, folder: Path, console: Console) -> list[Contestant]:
    two = partial(contestants.manometer, workers=2, name="manometer, 2 workers")
    starts = {"nginx": contestants.nginx, "manometer": contestants.manometer, "2 workers": two}
    running = []
    for name, start in (starts | {"naive": contestants.naive} | contestants.PEERS).items():
        try:
            running.append(start(backend, folder))
        except NotThere as why:
            console.print(f"[dim]{name} takes no part: {why}[/dim]")
    return running


def _case(
    case: Case, plan: Plan, running: list[Contestant], backend: Contestant, add: Callable[[Section], None]
) -> None:
    samples: Samples = {contestant.name: [] for contestant in running}
    said: dict[str, list[Told]] = {}
    for _ in range(plan.rounds):
        for contestant in running:
            sample = measure(case, contestant, backend, plan.seconds)
            samples[contestant.name].append(sample)
            if contestant.admin and sample.ids and not case.saturated:
                said.setdefault(contestant.name, []).append(readings.told(contestant, sample.ids))
    found = section(case, samples)
    if said:
        found.rows.append(_each("hold p99, ms", said, lambda told: quantile(told.holds, 99) * 1e3))
    add(found)
    if said:
        add(_errors(case, said))


def _each(what: str, said: dict[str, list[Told]], of: Callable[[Told], float], digits: int = 2) -> Row:
    return Row(what, {name: spread([of(told) for told in runs], digits) for name, runs in said.items()})


def _errors(case: Case, said: dict[str, list[Told]]) -> Section:
    """The readings' TTFT against the backend's own clock, all rounds together."""
    rows = []
    for label, of in (("", lambda told: told.errors), ("perturbed: ", lambda told: told.perturbed)):
        all_of = {name: [error for told in runs for error in of(told)] for name, runs in said.items()}
        if any(all_of.values()):
            rows.append(Row(f"{label}readings", {name: f"{len(errors):,}" for name, errors in all_of.items()}))
            for q in (0, 50, 90, 99, 100):
                cells = {name: f"{quantile(errors, q) * 1e3:.3f}" for name, errors in all_of.items() if errors}
                rows.append(Row(f"{label}error p{q}, ms", cells))
    rows.append(_each("event loop lag p50, ms", said, lambda told: quantile(told.lags, 50) * 1e3))
    note = "Reading's first token minus the time at which the backend gave it to its socket."
    return Section(f"{case.name}: error of the readings", rows, note)


def _scraping(found: dict[str, list[Told]]) -> Section:
    rows = [
        _each(f"hold p{q}, ms", found, lambda told, q=q: quantile(told.holds, q) * 1e3, 3)  # type: ignore[misc]
        for q in (50, 99, 100)
    ]
    return Section("64 streams, 5 ms apart, /metrics asked for each second", rows)


def _collector(found: dict[str, dict[str, object]]) -> Section:
    rows = [
        Row("collections of the forwarder"),
        Row("  longest, ms"),
        Row("  all together, ms"),
        Row("hold p99, ms"),
        Row("hold p100, ms"),
        Row("CPU per event, us"),
    ]
    for name, facts in found.items():
        pauses: list[float] = facts["pauses"]  # type: ignore[assignment]
        told: list[Told] = facts["told"]  # type: ignore[assignment]
        cpu: list[float] = facts["cpu"]  # type: ignore[assignment]
        cells = (
            f"{len(pauses):,}",
            f"{max(pauses, default=0.0) * 1e3:.1f}",
            f"{sum(pauses) * 1e3:.1f}",
            spread([quantile(one.holds, 99) * 1e3 for one in told]),
            spread([quantile(one.holds, 100) * 1e3 for one in told]),
            f"{median(cpu) * 1e6:.1f}",
        )
        for row, cell in zip(rows, cells, strict=True):
            row.cells[name] = cell
    return Section("64 streams, 5 ms apart: the forwarder's garbage collector, tuned or as Python has it", rows)


def _memory(found: list[memory.Open]) -> Section:
    rows = [
        Row("streams that broke", {one.name: f"{one.failed:,}" for one in found}),
        Row("KiB for each, all processes", {one.name: f"{one.bytes / 1024:.1f}" for one in found}),
        Row("  the process that grew most", {one.name: f"{one.busiest / 1024:.1f}" for one in found}),
        Row("in flight by /metrics", {one.name: f"{one.in_flight:,}" for one in found if one.in_flight is not None}),
        Row("  after all had gone", {one.name: f"{one.left:,}" for one in found if one.left is not None}),
    ]
    return Section(f"{found[0].asked:,} open streams, an event every 4 s" if found else "open streams", rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
