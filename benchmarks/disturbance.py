"""What may disturb a stream: somebody who scrapes /metrics each second, and Python's garbage collector.

Both by turns, with and without, on the same load; hold is what the proxy added to each arrival.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import contestants
import readings
from cases import CASES, Sample, measure
from contestants import HERE, Contestant

# Loaded by each Python process that is started with this folder on its path: notes how long collections took.
_WATCH = """\
import atexit, gc, json, os, time
start, pauses = [0.0], []
def watch(phase, info):
    if phase == "start":
        start[0] = time.perf_counter()
    else:
        pauses.append((info["generation"], time.perf_counter() - start[0]))
gc.callbacks.append(watch)
if os.environ["WATCH_GC"] == "untuned":
    gc.freeze = gc.set_threshold = lambda *_: None
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


def scrapes(contestant: Contestant, backend: Contestant, rounds: int, seconds: float) -> dict[str, list[readings.Told]]:
    """Holds with nobody asking, and with somebody asking each second."""
    found: dict[str, list[readings.Told]] = {"not scraped": [], "scraped": []}
    for _ in range(rounds):
        found["not scraped"].append(_told(contestant, backend, seconds)[1])
        with scraping(contestant):
            sample = measure(CASES[0], contestant, backend, seconds)
        found["scraped"].append(readings.told(contestant, sample.ids))
    return found


def collections(backend: Contestant, folder: Path, rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """The forwarder's collector as it is set, and as Python would have it: pauses, and the holds beside them."""
    watch = folder / "watch"
    watch.mkdir(exist_ok=True)
    (watch / "sitecustomize.py").write_text(_WATCH)
    running = {name: _watched(name, backend.port, folder, watch) for name in ("tuned", "untuned")}
    told: dict[str, list[readings.Told]] = {name: [] for name in running}
    cpu: dict[str, list[float]] = {name: [] for name in running}
    try:
        for _ in range(rounds):
            for name, contestant in running.items():
                sample, said = _told(contestant, backend, seconds)
                told[name].append(said)
                cpu[name].append(sample.cpu)
    finally:
        for contestant in running.values():
            contestant.stop()
    return {
        name: {"told": told[name], "cpu": cpu[name], "pauses": _pauses(watch, name, contestant)}
        for name, contestant in running.items()
    }


def _told(contestant: Contestant, backend: Contestant, seconds: float) -> tuple[Sample, readings.Told]:
    sample = measure(CASES[0], contestant, backend, seconds)
    return sample, readings.told(contestant, sample.ids)


def _watched(name: str, backend: int, folder: Path, watch: Path) -> Contestant:
    extra = {"PYTHONPATH": f"{watch}:{HERE.parent}", "WATCH_GC": name, "WATCH_FOLDER": str(watch)}
    return contestants.manometer(backend, folder, name=name, extra=extra)


def _pauses(watch: Path, name: str, contestant: Contestant) -> list[float]:
    """Of the forwarders: seconds that each collection took."""
    pauses: list[float] = []
    for pid in contestant.pids[1:]:
        file = watch / f"{name}.{pid}.json"
        if file.is_file():
            pauses += [seconds for _, seconds in json.loads(file.read_text())]
    return pauses
