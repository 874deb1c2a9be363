"""What may disturb a stream: somebody who scrapes /metrics each second, and Python's garbage collector.

Both by turns, with and without, on the same load; hold is what the proxy added to each arrival.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import contestants
import readings
from cases import CASES, Sample, measure
from contestants import HERE, Contestant
from figures import Row, Section, quantile, spread
from readings import Told

# Loaded by each Python process that is started with this folder on its path: notes how long collections took, from
# the moment at which the forwarder has loaded all and freezes it.
_WATCH = """\
import atexit, gc, json, os, time
start, pauses = [0.0], []
def watch(phase, info):
    if phase == "start":
        start[0] = time.perf_counter()
    else:
        pauses.append((info["generation"], time.perf_counter() - start[0]))
def freeze(real=gc.freeze):
    if os.environ["WATCH_GC"] == "tuned":
        real()
    pauses.clear()
gc.callbacks.append(watch)
gc.freeze = freeze
if os.environ["WATCH_GC"] == "untuned":
    gc.set_threshold = lambda *_: None
def tell():
    with open(os.path.join(os.environ["WATCH_FOLDER"], f"{os.environ['WATCH_GC']}.{os.getpid()}.json"), "w") as out:
        json.dump(pauses, out)
atexit.register(tell)
"""


@contextmanager
def scraping(contestant: Contestant, every: float = 1.0) -> Iterator[None]:
    """Somebody asks for /metrics all the while."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            readings.text(contestant, "/metrics")
            stop.wait(every)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def scrapes(contestant: Contestant, backend: Contestant, rounds: int, seconds: float) -> Section:
    """Holds with nobody asking, and with somebody asking each second."""
    found: dict[str, list[Told]] = {"not scraped": [], "scraped": []}
    for _ in range(rounds):
        found["not scraped"].append(_told(contestant, backend, seconds)[1])
        with scraping(contestant):
            found["scraped"].append(_told(contestant, backend, seconds)[1])
    rows = [readings.each(f"hold p{q}, ms", found, partial(_hold, q=q), 3) for q in (50, 99, 100)]
    return Section("64 streams, 5 ms apart, /metrics asked for each second", rows)


def collections(backend: Contestant, folder: Path, rounds: int, seconds: float) -> Section:
    """The forwarder's collector as it is set, and as Python would have it: pauses, and the holds beside them."""
    watch = folder / "watch"
    watch.mkdir(exist_ok=True)
    (watch / "sitecustomize.py").write_text(_WATCH)
    running = {name: _watched(name, backend.port, folder, watch) for name in ("tuned", "untuned")}
    told: dict[str, list[Told]] = {name: [] for name in running}
    cpu: dict[str, list[float]] = {name: [] for name in running}
    try:
        for _ in range(rounds):
            for name, contestant in running.items():
                sample, said = _told(contestant, backend, seconds)
                told[name].append(said)
                cpu[name].append(sample.cpu * 1e6)
    finally:
        forwarders = {name: contestant.pids[1:] for name, contestant in running.items()}
        for contestant in running.values():
            contestant.stop()
    pauses = {name: _pauses(watch, name, pids) for name, pids in forwarders.items()}
    rows = [
        Row("collections in all rounds", {name: f"{len(found):,}" for name, found in pauses.items()}),
        Row("  the longest, ms", {name: f"{max(found, default=0.0) * 1e3:.1f}" for name, found in pauses.items()}),
        Row("  all together, ms", {name: f"{sum(found) * 1e3:.1f}" for name, found in pauses.items()}),
        *(readings.each(f"hold p{q}, ms", told, partial(_hold, q=q), 3) for q in (99, 100)),
        Row("CPU per event, us", {name: spread(found, 1) for name, found in cpu.items()}),
    ]
    return Section("64 streams, 5 ms apart: the forwarder's garbage collector, tuned or as Python has it", rows)


def _hold(told: Told, q: float) -> float:
    return quantile(told.holds, q) * 1e3


def _told(contestant: Contestant, backend: Contestant, seconds: float) -> tuple[Sample, Told]:
    sample = measure(CASES[0], contestant, backend, seconds)
    return sample, readings.told(contestant, sample.ids)


def _watched(name: str, backend: int, folder: Path, watch: Path) -> Contestant:
    extra = {"PYTHONPATH": f"{watch}:{HERE.parent}", "WATCH_GC": name, "WATCH_FOLDER": str(watch)}
    return contestants.manometer(backend, folder, name=name, extra=extra)


def _pauses(watch: Path, name: str, pids: list[int]) -> list[float]:
    """Seconds that each collection took."""
    pauses: list[float] = []
    for pid in pids:
        file = watch / f"{name}.{pid}.json"
        if file.is_file():
            pauses += [seconds for _, seconds in json.loads(file.read_text())]
    return pauses
