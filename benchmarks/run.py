"""`make bench`: manometer beside nginx, a plain relay and no proxy at all, in one go, on loopback.

    make bench                     about ten minutes; writes RESULTS.md
    make bench ARGS=--quick        a minute and a half; prints, writes nothing
    make bench ARGS="--only JSON"  the cases whose names hold the word
    MANOMETER_BENCH_PEERS=one/bin:another/bin make bench
                                   with litellm, smg or Portkey's gateway where they are there; five minutes more

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

import contestants
import disturbance
import memory
import readings
import results
import scaling
from cases import CASES, Case, measure, warm
from contestants import HERE, Contestant, NotThere
from figures import Samples, Section, quantile, section
from readings import Told
from rich.console import Console

RESULTS = HERE / "RESULTS.md"
_HOW = (
    "Each figure is the median of {rounds} rounds, in brackets the least and the most; contestants took turns within a "
    "round, ratios and differences are taken within a round. CPU is that of all processes of a proxy, "
    "manometer's main process included, by the scheduler's own count. The backend and the client are single "
    "processes in Python on the same machine. Times of `direct` are those without a proxy. `naive` is aiohttp's "
    "server and client with nothing measured. Whoever needs more than {longest:g} s beyond the time of a run has one "
    "round of that case only."
)
_LONGEST = 5.0  # seconds beyond those of a run: the slowest would otherwise take more time than all others together


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
        write.write_text(results.markdown(sections, machine, _HOW.format(rounds=plan.rounds, longest=_LONGEST)))
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
            add(disturbance.scrapes(ours, backend, plan.rounds, plan.seconds))
            for contestant in running[1:]:
                contestant.stop()
            add(disturbance.collections(backend, folder, plan.rounds, plan.seconds))
            try:
                add(scaling.workers(backend, folder, plan.rounds, plan.seconds))
            except NotThere as why:
                console.print(f"[dim]workers held to a share of a core: {why}[/dim]")
            add(memory.run(backend.port, folder, plan.streams, plan.held))
    finally:
        for contestant in running:
            contestant.stop()


def _contestants(backend: int, folder: Path, console: Console) -> list[Contestant]:
    starts: dict[str, Callable[[int, Path], Contestant]] = {
        "nginx": contestants.nginx,
        "manometer": contestants.manometer,
        "two workers": partial(contestants.manometer, workers=2, name="manometer, 2 workers"),
        "naive": contestants.naive,
    }
    running = []
    for name, start in (starts | contestants.PEERS).items():
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
            if any(sample.wall > plan.seconds + _LONGEST for sample in samples[contestant.name]):
                continue
            sample = measure(case, contestant, backend, plan.seconds)
            samples[contestant.name].append(sample)
            if contestant.admin and sample.ids and not case.saturated:
                said.setdefault(contestant.name, []).append(readings.told(contestant, sample.ids))
    found = section(case, samples)
    if said:
        found.rows.append(readings.each("hold p99, ms", said, lambda told: quantile(told.holds, 99) * 1e3))
    add(found)
    if said:
        add(readings.errors(case.name, said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
