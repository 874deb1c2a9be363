"""Two servers asked in pairs: each question goes to both within moments, in an order that is drawn.

Whatever drifts during the run, drifts for both; each pair is then compared with itself (`analysis.pairing`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from proxy.meter.reading import Reading

from .analysis.metric import METRICS
from .analysis.pairing import Ratio, ratio, worst
from .bench import Measured
from .plan import Ask
from .quality import Score
from .runner import Run, Target
from .strain import Strain


@dataclass(slots=True)
class Side:
    """One of the two."""

    name: str
    target: Target
    ask: Ask
    seen: list[tuple[int, Reading, bool]] = field(default_factory=list)


async def interleave(
    sides: Sequence[Side],
    pairs: int,
    concurrency: int,
    seed: int,
    stop: asyncio.Event,
    told: Callable[[Reading], None],
    run: Run,
) -> None:
    """Ask both sides `pairs` questions; `concurrency` pairs at once, each side's turn first in half of them."""
    strain = Strain()
    strain.start()
    clients = [side.target.client(strain.worst) for side in sides]
    order = turns(pairs, seed)
    numbers = iter(range(-min(concurrency, 2), pairs))  # a pair or two to warm up: the connections, the caches

    async def worker() -> None:
        for n in numbers:
            if stop.is_set():
                return
            for which in order[n]:
                side = sides[which]
                reading = await clients[which].ask(side.ask(n % pairs), f"compare-{seed}-{n}-{which}")
                side.seen.append((n % pairs, reading, n >= 0))
                told(reading)

    workers = asyncio.gather(*(worker() for _ in range(concurrency)))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((workers, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not workers.done():
            run.interrupted = True
            for client in clients:
                client.leave()
        await workers
    finally:
        workers.cancel()
        stopped.cancel()
        for client in clients:
            await client.close()
        strain.stop()
    run.lag, run.cpu = strain.p99, strain.cpu


def turns(pairs: int, seed: int) -> list[tuple[int, int]]:
    """Who goes first in each pair: each side in half of them, in an order that is drawn."""
    order = [(0, 1) if n % 2 else (1, 0) for n in range(pairs)]
    random.Random(seed).shuffle(order)
    return order


def paired(metric: str, a: Measured, b: Measured) -> Ratio:
    """b / a of one metric over the questions that both were asked; a failure counts as the worst."""
    lower = METRICS[metric].lower_is_better

    def value(reading: Reading) -> float | None:
        return METRICS[metric].of(reading) if reading.outcome == "ok" else worst(lower)

    both = _both(dict(a.readings), dict(b.readings))
    return ratio(metric, ((value(left), value(right)) for left, right in both), lower_is_better=lower)


def judged(a: Measured, b: Measured) -> Iterator[tuple[bool, bool]]:
    """Whether each side's answer passed its check, for questions that have one."""
    left: dict[int, Score] = a.scores
    for n, score in b.scores.items():
        first = left[n].passed if n in left else None
        if first is not None and score.passed is not None:
            yield first, score.passed


def _both(a: dict[int, Reading], b: dict[int, Reading]) -> Iterator[tuple[Reading, Reading]]:
    return ((a[n], b[n]) for n in a if n in b)
