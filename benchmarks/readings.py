"""What manometer says of the streams that the client counted: asked for over its admin API, by their ids."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.request import urlopen

from contestants import HOST, Contestant

PERTURBED = 0.005  # seconds of event loop lag above which a reading says that it is perturbed


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


def in_flight(contestant: Contestant) -> int:
    """Exchanges that /metrics counts as open."""
    lines = text(contestant, "/metrics").splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("manometer_requests_in_flight{")))


def get(contestant: Contestant, path: str) -> Any:
    return json.loads(text(contestant, path))


def text(contestant: Contestant, path: str) -> str:
    with urlopen(f"http://{HOST}:{contestant.admin}{path}", timeout=30) as answer:
        return str(answer.read().decode())
