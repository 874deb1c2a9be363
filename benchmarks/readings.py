"""What manometer says of the streams that the client counted: asked for over its admin API, by their ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.request import urlopen

from contestants import HOST, Contestant
from figures import Row, Section, quantile, spread

_QUANTILES = (0, 50, 90, 99, 100)


class Told(NamedTuple):
    """Of one run. Seconds."""

    errors: list[float]  # the reading's time of its first token - when the backend sent it
    perturbed: list[float]  # the same, of readings that say of themselves that they are perturbed
    holds: list[float]  # of each arrival
    lags: list[float]


def told(contestant: Contestant, ids: Iterable[tuple[str, float]]) -> Told:
    """`ids`: a reading's id, and when its first output was sent, seconds since the epoch."""
    sent = dict(ids)
    with ThreadPoolExecutor(4) as threads:
        readings = list(threads.map(lambda id: get(contestant, f"/api/requests/{id}"), sent))
    out = Told([], [], [], [])
    for reading in readings:
        error = reading["started_at"] + reading["ttft"] - sent[reading["id"]]
        (out.perturbed if reading["perturbed"] else out.errors).append(error)
        out.holds.extend(row["hold"] for row in reading["arrivals"] if row["hold"] is not None)
        out.lags.append(reading["loop_lag"])
    return out


def each(what: str, said: Mapping[str, Sequence[Told]], of: Callable[[Told], float], digits: int = 2) -> Row:
    """One measurement of what was told in each round."""
    return Row(what, {name: spread([of(told) for told in runs], digits) for name, runs in said.items()})


def errors(title: str, said: Mapping[str, Sequence[Told]]) -> Section:
    """The readings' TTFT against the backend's own clock, all rounds together."""
    rows = []
    for prefix, perturbed in (("", False), ("perturbed ", True)):
        found = {
            name: [error for told in runs for error in (told.perturbed if perturbed else told.errors)]
            for name, runs in said.items()
        }
        if any(found.values()):
            rows.append(Row(f"{prefix}readings", {name: f"{len(values):,}" for name, values in found.items()}))
            for q in _QUANTILES:
                cells = {name: f"{quantile(values, q) * 1e3:.3f}" for name, values in found.items() if values}
                rows.append(Row(f"  error p{q}, ms", cells))
    rows.append(each("event loop lag p50, ms", said, lambda told: quantile(told.lags, 50) * 1e3))
    note = "Error: the reading's first token minus the time at which the backend gave it to its socket."
    return Section(f"{title}: error of the readings", rows, note)


def in_flight(contestant: Contestant) -> int:
    """Exchanges that /metrics counts as open."""
    lines = text(contestant, "/metrics").splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("manometer_requests_in_flight{")))


def get(contestant: Contestant, path: str) -> Any:
    return json.loads(text(contestant, path))


def text(contestant: Contestant, path: str) -> str:
    with urlopen(f"http://{HOST}:{contestant.admin}{path}", timeout=30) as answer:
        return str(answer.read().decode())
