"""Two workers beside one, where cores are not what bounds them.

Backend and client take part in the machine, so on few cores a second worker has none to run on. Here each forwarder
is held to a fifth of a core by the kernel (a cgroup with a quota): what then grows with the number of workers is what
the workers, the split of connections among them and the one main process can do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import contestants
from cases import CASES, Case, Sample, measure, warm
from contestants import Contestant, NotThere
from figures import Row, Section, spread

SHARE = 0.2  # of a core, for each forwarder
_PERIOD = 10_000  # microseconds
_GROUPS = Path("/sys/fs/cgroup")


def workers(backend: Contestant, folder: Path, rounds: int, seconds: float) -> Section:
    """Saturated units of work per second with one forwarder and with two, each held. Raises NotThere."""
    counts = {"manometer": 1, "manometer, 2 workers": 2}
    running: list[Contestant] = []
    try:
        for name, number in counts.items():
            running.append(contestants.manometer(backend.port, folder, workers=number, name=name))
        warm(running)
        with _held([pid for one in running for pid in one.pids[1:]]):
            rows = [row for case in CASES if case.saturated for row in _rows(case, running, backend, rounds, seconds)]
    finally:
        for one in running:
            one.stop()
    return Section(f"each forwarder held to {SHARE:.0%} of a core", rows)


def _rows(case: Case, running: Sequence[Contestant], backend: Contestant, rounds: int, seconds: float) -> Iterator[Row]:
    samples: dict[str, list[Sample]] = {one.name: [] for one in running}
    for _ in range(rounds):
        for one in running:
            samples[one.name].append(measure(case, one, backend, seconds))
    (one, few), (two, many) = ((name, [sample.rate for sample in found]) for name, found in samples.items())
    yield Row(f"{case.name}: {case.unit}s per second", {one: spread(few, 0), two: spread(many, 0)})
    yield Row("  times one worker's", {two: spread([more / less for less, more in zip(few, many, strict=True)])})


@contextmanager
def _held(pids: Sequence[int]) -> Iterator[None]:
    """Each process may run for its share of every period."""
    unified = (_GROUPS / "cgroup.controllers").is_file()
    root = _GROUPS if unified else _GROUPS / "cpu"
    groups = {pid: root / f"manometer-bench-{os.getpid()}-{pid}" for pid in pids}
    try:
        for pid, group in groups.items():
            try:
                _hold(group, pid, unified)
            except OSError as why:
                raise NotThere(f"the kernel takes no quota of us: {why}") from None
        yield
    finally:
        for pid, group in groups.items():
            _release(root, group, pid)


def _hold(group: Path, pid: int, unified: bool) -> None:
    quota = int(_PERIOD * SHARE)
    group.mkdir()
    if unified:
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    (group / "cgroup.procs").write_text(str(pid))


def _release(root: Path, group: Path, pid: int) -> None:
    with suppress(OSError):  # it has ended meanwhile
        (root / "cgroup.procs").write_text(str(pid))
    with suppress(OSError):  # it was never made
        group.rmdir()
