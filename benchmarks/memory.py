"""Many open, slow streams through one forwarder: does any break, is each counted, what does each take?

Contestants are started anew for it: a process that has already been busy has memory to reuse, and would flatter.
"""

from __future__ import annotations

import json
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import contestants
import process
import readings
from cases import client
from client import Load
from contestants import Contestant
from figures import Row, Section
from upstream import Script

_SPARE = 256  # open files for everything else
_GAP = 4000  # milliseconds


@dataclass(slots=True)
class Open:
    """What many open streams took. Bytes for each stream."""

    name: str
    failed: int
    bytes: float  # of all processes of the proxy
    busiest: float  # of the process that grew most: the forwarder
    in_flight: int | None = None  # by /metrics, while they were open
    left: int | None = None  # and after all clients had gone


def capacity(wanted: int) -> int:
    """Open files are raised as far as they may be; a proxy needs two for each stream."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else 65536
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return min(wanted, (most - _SPARE) // 2)


def hold(contestant: Contestant, number: int, seconds: float) -> Open:
    """Open the streams, keep them for a while, read the memory, let them go."""
    before = {pid: process.resident(pid) for pid in contestant.pids}
    sources = tuple(f"127.0.0.{n}" for n in range(2, 6))  # four addresses: ports never run out
    script = Script(100_000, 0, 0, _GAP)
    running = client(Load(contestant.port, script, connections=number, hold=True, sources=sources))
    assert running.stdout is not None
    running.stdout.readline()
    time.sleep(seconds)
    grown = [process.resident(pid) - size for pid, size in before.items()]
    counted = readings.in_flight(contestant) if contestant.admin else None
    out, _ = running.communicate()
    failed = sum(json.loads(out)["failed"].values())
    found = Open(contestant.name, failed, sum(grown) / number, max(grown) / number, counted)
    if contestant.admin:
        found.left = _left(contestant)
    return found


def _left(contestant: Contestant) -> int:
    """What is still counted once all clients have gone; given a few seconds to be noticed."""
    deadline = time.monotonic() + 15
    while (left := readings.in_flight(contestant)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def run(backend: int, folder: Path, number: int, seconds: float) -> Section:
    found = []
    for start in (contestants.nginx, contestants.manometer, contestants.naive):
        try:
            contestant = start(backend, folder)
        except contestants.NotThere:
            continue
        try:
            found.append(hold(contestant, number, seconds))
        finally:
            contestant.stop()
    rows = [
        Row("streams that broke", {one.name: f"{one.failed:,}" for one in found}),
        Row("KiB for each, all processes", {one.name: f"{one.bytes / 1024:.1f}" for one in found}),
        Row("  the process that grew most", {one.name: f"{one.busiest / 1024:.1f}" for one in found}),
        Row("in flight by /metrics", {one.name: f"{one.in_flight:,}" for one in found if one.in_flight is not None}),
        Row("  after all had gone", {one.name: f"{one.left:,}" for one in found if one.left is not None}),
    ]
    return Section(f"{number:,} open streams through one process, an event every {_GAP / 1000:g} s", rows)
