"""Which stretch of a run counts. Two are always told: the whole run, and its steady part.

A run fills up and drains; at the edges the server is less busy than the level says. The steady window
goes from the moment all clients are busy to the moment the first one runs dry. An answer that crosses an
edge is split there by when its tokens were made: clients in step get their blocks at one moment, and an
edge a hair before it would lose them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.meter.reading import Reading


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of wall time (epoch seconds) and the answer tokens that came in it."""

    start: float
    end: float
    tokens: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def throughput(self) -> float | None:
        """Completion tokens of ok exchanges / wall time, tokens per second. None for an empty window."""
        return self.tokens / self.seconds if self.seconds > 0 else None


def whole(readings: Sequence[Reading]) -> Window | None:
    """From the first start to the last end."""
    if not readings:
        return None
    start = min(r.started_at for r in readings)
    return Window(
        start, max(r.started_at + r.done for r in readings), sum(size(r) for r in readings if r.outcome == "ok")
    )


def steady(readings: Sequence[Reading], clients: int | None, before: Sequence[Reading] = ()) -> Window | None:
    """From the start of the n-th request to the first end after the last start, n the number of clients.

    `before` are warm-up exchanges: the window does not begin before the first measured start, but what they
    still bring in it is throughput like any other. Open loop (`clients` None): from the first start to the last.
    None when that leaves less than half of the run, and so says little.
    """
    every = [*before, *readings]
    starts = sorted(r.started_at for r in every)
    if len(readings) < 2 or (clients is not None and len(starts) < clients):
        return None
    first, last = min(r.started_at for r in readings), starts[-1]
    ends = [r.started_at + r.done for r in every]
    start = max(first, starts[(clients or 1) - 1])
    end = last if clients is None else min((end for end in ends if end > last), default=last)
    if end - start < (max(ends) - first) / 2:
        return None
    return Window(start, end, sum(_within(r, start, end) for r in every if r.outcome == "ok"))


def size(reading: Reading) -> float:
    """Completion tokens as reported, else estimated by characters: `Level.usage_source` says which they are."""
    return reading.tokens.completion or reading.estimated_completion or 0


def _within(reading: Reading, start: float, end: float) -> float:
    """The answer's tokens made between start and end: each arrival's are spread over the time since the one before."""
    begin = reading.started_at
    if start <= begin and begin + reading.done <= end:
        return size(reading)
    sizes = sized(reading)
    made, before = 0.0, begin
    for at, tokens in zip(reading.arrivals.column("at"), sizes, strict=True):
        now = begin + at
        if now > before:
            made += tokens * max(0.0, min(now, end) - max(before, start)) / (now - before)
        elif start < now <= end:
            made += tokens
        before = now
    return size(reading) * made / (sum(sizes) or 1.0)


def sized(reading: Reading) -> list[float]:
    """Each arrival's tokens: exact, or shared out by characters; of estimated ones too."""
    bursts = reading.bursts
    if bursts is not None:
        return bursts
    columns = (reading.arrivals.column(name) for name in ("answer", "reasoning", "tool"))
    return [sum(parts) for parts in zip(*columns, strict=True)]


def over_time(readings: Sequence[Reading], bins: int = 60) -> list[float]:
    """Answer tokens per second in `bins` equal slices of the whole run; of failed exchanges too, as they came."""
    window = whole(readings)
    if window is None or window.seconds <= 0:
        return []
    speed = bins / window.seconds
    sums = [0.0] * (bins + 1)  # what came at the very end falls into one more
    for reading in readings:
        sizes = sized(reading)
        scale = size(reading) / (sum(sizes) or 1.0)
        begin = reading.started_at - window.start
        for at, tokens in zip(reading.arrivals.column("at"), sizes, strict=True):
            sums[min(int((begin + at) * speed), bins)] += tokens * scale
    last = sums.pop()
    sums[-1] += last
    return [tokens * speed for tokens in sums]


def typical(readings: Sequence[Reading]) -> Reading | None:
    """The ok exchange with the median e2e: the one that is shown when one is shown."""
    ok = sorted((r for r in readings if r.outcome == "ok"), key=lambda r: r.e2e)
    return ok[(len(ok) - 1) // 2] if ok else None
