"""What the kernel knows of a process and its descendants: CPU time to the nanosecond, resident memory.

CPU is read from the process's own clock, not from the ticks of stat: 10 ms are too coarse for a run of two seconds.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_PAGE: int = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_SCHEDULED = 2  # of the clocks of a process: what the scheduler gave it


def tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)):
            children.setdefault(parent, []).append(int(entry.name))
    pids = [pid]
    for found in pids:
        pids += children.get(found, [])
    return pids


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def cpu(pid: int) -> float:
    """Seconds of CPU, user and system, of all threads that a process has or had. 0.0 when it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | _SCHEDULED)
    except OSError:
        return 0.0


def cpus(pids: list[int]) -> float:
    return sum(map(cpu, pids))


def pin(pids: list[int], cores: set[int]) -> None:
    """Let these processes, all their threads, run on these cores only."""
    for pid in pids:
        for task in (_PROC / str(pid) / "task").glob("*"):
            with suppress(OSError):  # it has ended meanwhile
                os.sched_setaffinity(int(task.name), cores)


def resident(pid: int) -> int:
    """Bytes of resident memory."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def idle() -> tuple[float, float]:
    """Clock ticks of all cores since start: idle, and all."""
    fields = [int(field) for field in (_PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)
