"""What the proxy measured, backend by backend: raw readings from its admin API, folded as every report folds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import aiohttp
import orjson

from proxy.meter.quantile import Percentiles, percentiles

from .mix import SITES

_PAGE = 500  # readings asked for at once: more than come between two looks


@dataclass(slots=True)
class Tally:
    """What the proxy measured at one backend: a fold of its readings."""

    decoding: str
    ok: int = 0
    failed: int = 0
    ttft: list[float] = field(default_factory=list)  # of streams: the series of JSON answers are kept apart
    e2e: list[float] = field(default_factory=list)
    silence: list[float] = field(default_factory=list)
    bursts: list[float] = field(default_factory=list)  # largest of each stream, tokens
    tokens: int = 0
    cost: Decimal = Decimal(0)
    start: float | None = None
    end: float | None = None
    faults: list[str] = field(default_factory=list)

    def add(self, reading: dict[str, Any]) -> None:
        if reading["outcome"] == "client_gone":
            return
        if reading["outcome"] != "ok":
            self.failed += 1
            self.faults.append(reading["outcome"])
            return
        self.ok += 1
        begin, end = reading["started_at"], reading["started_at"] + reading["e2e"]
        self.start = begin if self.start is None else min(self.start, begin)
        self.end = end if self.end is None else max(self.end, end)
        self.e2e.append(reading["e2e"])
        self.tokens += reading["tokens"]["completion"] or 0
        self.cost += Decimal(reading["cost"] or 0)
        if reading["streamed"]:
            for name, into in (("ttft", self.ttft), ("silence", self.silence), ("largest_burst", self.bursts)):
                if reading[name] is not None:
                    into.append(reading[name])

    @property
    def throughput(self) -> float | None:
        """Completion tokens of ok exchanges / (last end - first start), tokens per second."""
        if self.start is None or self.end is None or self.end <= self.start:
            return None
        return self.tokens / (self.end - self.start)

    def json(self) -> dict[str, Any]:
        return {
            "decoding": self.decoding,
            "ok": self.ok,
            "failed": self.failed,
            "ttft": _three(percentiles(self.ttft)),
            "e2e": _three(percentiles(self.e2e)),
            "completion_tokens": self.tokens,
            "throughput": self.throughput,
            "cost": float(self.cost),
        }


def _three(found: Percentiles) -> dict[str, float | None]:
    return {"p50": found.p50, "p95": found.p95, "p99": found.p99}


class Board:
    """The tallies of all backends, brought up to date from the proxy's admin API."""

    def __init__(self, admin: str) -> None:
        self._url = f"{admin}/api/requests"
        self._seen: set[str] = set()
        self.tallies = {site.name: Tally(site.decoding) for site in SITES}

    async def update(self, session: aiohttp.ClientSession) -> None:
        async with session.get(self._url, params={"limit": str(_PAGE)}) as response:
            rows = orjson.loads(await response.read())["requests"]
        fresh = [row for row in rows if row["id"] not in self._seen]
        self._seen = {row["id"] for row in rows}
        for row in reversed(fresh):
            if row["backend"] in self.tallies:
                self.tallies[row["backend"]].add(row)

    def json(self) -> dict[str, Any]:
        return {"backends": {name: tally.json() for name, tally in self.tallies.items()}}

    @property
    def sound(self) -> bool:
        """Both backends were measured, and nothing failed."""
        return all(tally.ok and not tally.failed for tally in self.tallies.values())
