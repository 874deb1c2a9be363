"""What the arrivals say: one function for each measurement, its formula in its docstring.

Times are seconds since `received`. An *arrival* is output that came in one read: the events of one
burst share its time. A measurement that is not defined is None, never 0.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .reading import Arrivals

STALL = 0.5
_CHARACTERS_PER_TOKEN = 4
_NAN = float("nan")


class Settled(NamedTuple):
    """When the answer was there for good. None when there was no answer."""

    t50: float | None = None
    t90: float | None = None
    t100: float | None = None
    first_stable: float | None = None
    churn: float = 0.0


def ttft(arrivals: Arrivals) -> float | None:
    """Time to first token: a[0] - received, seconds. None without output."""
    return arrivals.time(0) if arrivals else None


def ttfa(arrivals: Arrivals) -> float | None:
    """Time to first answer: first arrival with text or a tool call - received, seconds. None if all was reasoning."""
    for arrival in arrivals:
        if arrival.answer or arrival.tool or (arrival.replace and arrival.events):
            return arrival.at
    return None


def since(start: float | None, end: float | None) -> float | None:
    """end - start, seconds; None when either is missing. sent -> ttft: backend_ttft; head -> ttft: silence."""
    return None if start is None or end is None else end - start


def generation(arrivals: Arrivals) -> float | None:
    """Time from the first to the last arrival: a[k-1] - a[0], seconds. None without output."""
    return arrivals.time(len(arrivals) - 1) - arrivals.time(0) if arrivals else None


def gaps(arrivals: Arrivals) -> list[float]:
    """Times between consecutive arrivals: a[i] - a[i-1], i = 1..k-1, seconds. Empty below two arrivals."""
    times = arrivals.column("at")
    return list(map(sub, times[1:], times))


def stalls(arrivals: Arrivals, threshold: float = STALL) -> list[float]:
    """The gaps of at least `threshold` seconds: their number is stall_count, their sum stall_time."""
    return [gap for gap in gaps(arrivals) if gap >= threshold]


def bursts(arrivals: Arrivals, completion: int | None, reasoning: int | None = None) -> list[float] | None:
    """Each arrival's size in tokens; their sum is the completion tokens. None when the tokens are unknown.

    Exact where the backend told the tokens of each arrival (token ids, logprobs, running totals); else the
    tokens are shared out by characters, reasoning tokens among reasoning text where both are known. Reasoning
    tokens that were never shown came before the first arrival and belong to it; told tokens that showed no
    text, such as the end mark, belong to the last.
    """
    if completion is None or not arrivals:
        return None
    if len(arrivals) == 1:  # it brought all of them: every JSON answer, and every stream of one burst
        return [float(completion)]
    return arrivals.sized((completion, reasoning), lambda: _sizes(arrivals, completion, reasoning))


def _sizes(arrivals: Arrivals, completion: int, reasoning: int | None) -> list[float]:
    thought = min(reasoning or 0, completion)
    thoughts = arrivals.column("reasoning")
    hidden = thought if thought and _is_zero(thoughts) else 0
    sizes = _told(arrivals, completion, hidden)
    if sizes is None and thought and any(said := _said(arrivals)):
        shown = _share(thought - hidden, thoughts)
        sizes = [sum(pair) for pair in zip(_share(completion - thought, said), shown, strict=True)]
        sizes[0] += hidden
    return sizes or _share(completion, characters(arrivals))


def _told(arrivals: Arrivals, completion: int, hidden: int) -> list[float] | None:
    """The tokens that the backend told of each arrival, if it told them of all and they are most of the completion."""
    column = arrivals.column("tokens")
    told = sum(column) if column[0] == column[0] else _NAN
    if not told <= completion < 2 * told + hidden:  # NaN, where one was not told, is none of it
        return None
    sizes = list(column)
    before = min(hidden, completion - int(told))
    sizes[0] += before
    sizes[-1] += completion - told - before
    return sizes


def _share(amount: int, weights: Sequence[float]) -> list[float]:
    """An amount shared out by weights; evenly, when all are 0."""
    total = sum(weights)
    return [amount * weight / total if total else amount / len(weights) for weight in weights]


def _said(arrivals: Arrivals) -> list[float]:
    """Characters of answer and tool calls in each arrival."""
    return _added(arrivals.column("answer"), arrivals.column("tool"))


def characters(arrivals: Arrivals) -> list[float]:
    """Characters of answer, reasoning and tool calls in each arrival."""
    return _added(arrivals.column("answer"), arrivals.column("reasoning"), arrivals.column("tool"))


def _added(first: array[float], *others: array[float]) -> list[float]:
    """Columns added up row by row. Most streams have one that is not all zeros."""
    used = [column for column in (first, *others) if not _is_zero(column)] or [first]
    return list(used[0]) if len(used) == 1 else [sum(row) for row in zip(*used, strict=True)]


def _is_zero(column: array[float]) -> bool:
    """Whether all of it is 0: by its bytes, which is ten times as fast as number by number."""
    return column.tobytes() == bytes(8 * len(column))


def settled(arrivals: Arrivals) -> Settled:
    """Of an append stream: when 50, 90 and 100 % of the answer's characters had come, and the first of them.

    An appended character is final when it comes, so first_stable is the first answer and churn is 0.
    """
    times = arrivals.column("at")
    there = list(accumulate(_said(arrivals)))
    if not there or not there[-1]:
        return Settled()
    t50, t90, t100 = (times[bisect_left(there, share * there[-1] / 100)] for share in (50, 90, 100))
    return Settled(t50, t90, t100, times[bisect_right(there, 0)])


def e2e_rate(completion: int | None, e2e: float) -> float | None:
    """Completion tokens / e2e, tokens per second: the headline. None when the tokens are unknown."""
    return completion / e2e if completion is not None and e2e > 0 else None


def decode_rate(arrivals: Arrivals, completion: int | None, reasoning: int | None = None) -> float | None:
    """Tokens after the first arrival / generation, tokens per second.

    The first burst's tokens are not counted: nobody saw how long they took; nor are hidden reasoning
    tokens, which came before it. None below two arrivals and when the tokens are unknown:
    `decode_rate_reason` says which.
    """
    if decode_rate_reason(arrivals, completion) is not None:
        return None
    sizes, span = bursts(arrivals, completion, reasoning), generation(arrivals)
    assert sizes is not None and span is not None
    return sum(sizes[1:]) / span


def decode_rate_reason(arrivals: Arrivals, completion: int | None) -> str | None:
    """Why decode_rate is None: no_output, single_burst or tokens_unknown. None where it is defined."""
    if not arrivals:
        return "no_output"
    if not generation(arrivals):
        return "single_burst"
    return "tokens_unknown" if completion is None else None


def tpot(arrivals: Arrivals, completion: int | None) -> float | None:
    """Time per output token, the field's usual formula: (a[k-1] - a[0]) / (completion - 1), seconds.

    For comparison with other tools: it flatters block streams, because the first block's tokens are
    divided by and their time is not there. None below two tokens or two arrivals.
    """
    span = generation(arrivals)
    if not span or completion is None or completion < 2:
        return None
    return span / (completion - 1)


def holds(arrivals: Arrivals) -> list[float]:
    """What the proxy added to each arrival: last byte taken by the client's socket - its read, seconds, where known."""
    column = arrivals.column("hold")
    total = sum(column)
    return list(column) if total == total else [hold for hold in column if hold == hold]


def overhead(sent: float | None, body_wait: float, ended: float | None, done: float) -> float | None:
    """What the proxy itself took: (sent - received - body_wait) + (done - ended), seconds. None if nothing was sent."""
    if sent is None:
        return None
    return max(0.0, sent - body_wait) + (max(0.0, done - ended) if ended is not None else 0.0)


def estimate(arrivals: Arrivals) -> int | None:
    """Completion tokens guessed as characters / 4, rounded up. None without output. Never mixed with reported ones."""
    total = int(sum(characters(arrivals)))
    return -(-total // _CHARACTERS_PER_TOKEN) or None
