"""The loads that all contestants get, and what one run of one of them gives.

1. CPU is that of the proxying processes, all of them, over the whole run, divided by the events that passed.
2. Contestants take turns within a round, so that a machine that gets slower gets slower for all.
3. A proxy is given time to finish what it does after its answers: that is its own CPU, and not the next one's.
4. Where all share two cores, the kernel often lets the backend wait on the proxy's: a burst of requests then reaches
   it when all of them are sent. So that load is given with the proxy on a core of its own, too.
5. What the backend, the client and the idle cores took stands beside it: it says what bounds a saturated run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import process
from client import Load
from contestants import HERE, Contestant
from upstream import Script

AROUND = 4  # events of a stream beside its outputs: role, finish, usage, [DONE]
_SETTLE = 0.15  # seconds after a run in which records still reach the main process
_QUIET = 0.1  # of a core: who uses more has not finished
_LONGEST = 15.0  # seconds that a proxy may take to become quiet


@dataclass(frozen=True, slots=True)
class Case:
    """One load."""

    name: str
    unit: str  # of work: what CPU is divided by
    load: Load
    saturated: bool = False
    apart: bool = False  # backend and client on the last core, the proxy on the others

    def work(self, answers: int) -> int:
        return answers * (self.load.script.events + AROUND if self.unit == "event" else 1)


@dataclass(slots=True)
class Sample:
    """One run of one contestant. Seconds."""

    cpu: float  # of the proxy, for each unit of work
    rate: float  # units of work in a second of wall time
    answers: int
    wall: float = 0.0  # from the first request to the last answer
    ttfts: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    ids: list[tuple[str, float]] = field(default_factory=list)  # a reading's id, and when its first output was sent
    failed: dict[str, int] = field(default_factory=dict)
    cores: dict[str, float] = field(default_factory=dict)  # cores used: proxy, its busiest process, backend, client
    chunk: float = 0.0  # units of work in each read of the client


def _streams(number: int, script: Script, **more: Any) -> Load:
    return Load(port=0, script=script, connections=number, **more)


_AT_ONCE = _streams(64, Script(256, 20, 25, 5))
CASES = (
    Case("64 streams, 256 events, 5 ms apart, begun at once", "event", _AT_ONCE),
    Case(
        "64 streams, 256 events, 5 ms apart, begun one by one",
        "event",
        replace(_AT_ONCE, spread=1.3),
    ),
    Case("64 streams, begun at once, backend and client on a core of their own", "event", _AT_ONCE, apart=True),
    Case("1 stream, 256 events, 5 ms apart", "event", _streams(1, Script(256, 20, 25, 5))),
    Case("1 stream, 4 events, one after another", "event", _streams(1, Script(4, 20, 25, 5))),
    Case("64 streams, 256 events, 0 ms apart", "event", _streams(64, Script(256, 0, 0, 0)), saturated=True),
    Case("64 clients, one-chunk JSON after 20 ms", "request", _streams(64, Script(0, 20, 0, 0), stream=False)),
    Case("64 clients, one-chunk JSON at once", "request", _streams(64, Script(0, 0, 0, 0), stream=False), True),
    Case("64 clients, streams of 4 events at once", "stream", _streams(64, Script(4, 0, 0, 0)), saturated=True),
)


def client(load: Load) -> subprocess.Popen[str]:
    facts = json.dumps(asdict(load) | {"script": list(load.script)})
    return subprocess.Popen(
        [sys.executable, str(HERE / "client.py"), facts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )


def measure(case: Case, contestant: Contestant, backend: Contestant, seconds: float) -> Sample:
    """One run."""
    load = replace(case.load, port=contestant.port, seconds=seconds, headers=contestant.headers)
    pids, sources = contestant.pids, backend.pids
    with _placed(case, pids, sources):
        before, source, start = {pid: process.cpu(pid) for pid in pids}, process.cpus(sources), process.idle()
        out, _ = client(load).communicate()
        source = process.cpus(sources) - source
        idle, ticks = (now - then for now, then in zip(process.idle(), start, strict=True))
        _settle(pids)
        used = {pid: process.cpu(pid) - before[pid] for pid in pids}
    seen = json.loads(out)
    answers, wall = seen["answers"], seen["wall"]
    units = case.work(len(answers)) or 1
    return Sample(
        cpu=sum(used.values()) / units,
        rate=units / wall,
        answers=len(answers),
        wall=wall,
        ttfts=[ttft for ttft, *_ in answers if ttft is not None],
        totals=[total for _, total, *_ in answers],
        ids=[(id, sent) for _, _, id, sent in answers if id is not None and sent is not None],
        failed=seen["failed"],
        cores={
            "proxy": sum(used.values()) / wall,
            "busiest": max(used.values(), default=0.0) / wall,
            "backend": source / wall,
            "client": seen["cpu"] / wall,
            "idle": idle / ticks if ticks else 0.0,
        },
        chunk=units / max(1, seen["reads"]),
    )


@contextmanager
def _placed(case: Case, pids: list[int], sources: list[int]) -> Iterator[None]:
    """Each on its cores, if the case wants that; this process too, for the client that it starts."""
    cores = os.sched_getaffinity(0)
    last = {max(cores)}
    apart = case.apart and len(cores) > 1
    if apart:
        process.pin(pids, cores - last)
        process.pin([*sources, os.getpid()], last)
    try:
        yield
    finally:
        if apart:
            process.pin([*pids, *sources, os.getpid()], cores)


def _settle(pids: list[int]) -> None:
    deadline, spent = time.monotonic() + _LONGEST, process.cpus(pids)
    while time.monotonic() < deadline:
        time.sleep(_SETTLE)
        before, spent = spent, process.cpus(pids)
        if spent - before < _QUIET * _SETTLE:
            return


def warm(contestants: Sequence[Contestant]) -> None:
    """Connections to the backend are opened, code is loaded, paths are learned."""
    for contestant in contestants:
        for stream in (True, False):
            script = Script(16 if stream else 0, 20, 25, 5)
            load = Load(contestant.port, script, stream=stream, seconds=0.5, headers=contestant.headers)
            client(load).communicate()
