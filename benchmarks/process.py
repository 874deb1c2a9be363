"""What the kernel knows of a process and its descendants: CPU time to the nanosecond, resident memory.

CPU is read from schedstat, not from the clock ticks of stat: 10 ms are too coarse for a run of two seconds.
"""

from __future__ import annotations

import os
from pathlib import Path

_PAGE: int = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


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
    """Seconds of CPU, user and system, of one process's living threads."""
    total = 0
    for task in _tasks(pid):
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def cpus(pids: list[int]) -> float:
    return sum(map(cpu, pids))


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


def _tasks(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []
