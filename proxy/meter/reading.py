"""The frozen result of one exchange: what was seen, and every number that follows from it.

The fields are facts. The measurements are properties that call `timeline`, where each has its
formula once; so a reading that crossed a process boundary, or came back from a file, says the same
as the one that was made. Times are seconds since `received`; only `started_at` is wall-clock time.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple, overload

from . import timeline
from .usage import NOTHING, Usage

OUTCOMES = (
    "ok",
    "client_gone",
    "refused",
    "backend_error",
    "unreachable",
    "timeout_connect",
    "timeout_first_output",
    "timeout_idle",
    "timeout_total",
    "truncated",
    "bad_stream",
    "empty",
    "internal",
)


class Arrival(NamedTuple):
    """Output that came in one read, and so has one time."""

    at: float  # seconds since received
    events: int  # events that carried output
    answer: int  # characters of answer text
    reasoning: int  # characters of reasoning
    tool: int  # characters of tool-call names and arguments
    replace: bool  # True: a snapshot; `answer` then counts the characters that were final from here on
    tokens: int | None  # completion tokens, where the backend said so exactly
    hold: float | None  # seconds from this read to the client's socket having taken its last byte


_WIDTH = len(Arrival._fields)
_PLACES = {name: place for place, name in enumerate(Arrival._fields)}
_ROW = struct.Struct(f"{_WIDTH}d")
_NAN = float("nan")


class Arrivals(Sequence[Arrival]):
    """A compact list of arrivals: one flat array of doubles, because streams are many and long.

    It holds `cap` arrivals at most; before it would hold more, neighbours are merged, and `merged` says so.
    """

    __slots__ = ("_cells", "_full", "_sized", "merged")

    def __init__(self, cap: int | None = None) -> None:
        self._cells = array("d")
        self._sized: tuple[Any, list[float] | None] = ((), None)
        self._full = (sys.maxsize if cap is None else max(cap, 8)) * _WIDTH
        self.merged = False

    @classmethod
    def of(cls, *rows: Arrival) -> Arrivals:
        arrivals = cls()
        for row in rows:
            arrivals.add(row)
        return arrivals

    def add(self, row: Arrival) -> None:
        tokens = _NAN if row.tokens is None else row.tokens
        hold = _NAN if row.hold is None else row.hold
        self._append(_ROW.pack(*row[:6], tokens, hold))

    def append(
        self, at: float, answer: int, reasoning: int = 0, hold: float = _NAN, _pack: Callable[..., bytes] = _ROW.pack
    ) -> None:
        """The common row, without building it: one event of plain text. `hold`: NaN, if it is not known."""
        cells = self._cells
        cells.frombytes(_pack(at, 1.0, answer, reasoning, 0.0, 0.0, _NAN, hold))
        if len(cells) > self._full:
            self._halve()

    def _append(self, row: bytes) -> None:
        self._cells.frombytes(row)
        if len(self._cells) > self._full:
            self._halve()

    def held(self, index: int, until: float) -> None:
        """The client's socket took the arrival's last byte at `until`, seconds since received."""
        cells, start = self._cells, index * _WIDTH
        cells[start + 7] = until - cells[start]

    def _halve(self) -> None:
        """Merge neighbours; a pair has the time of its later half, when all of it was there.

        The first, the first with an answer and the last stay as they are: ttft, ttfa, generation and the
        tokens after the first arrival, and so decode_rate, are the same as before.
        """
        last = len(self) - 1
        kinds = zip(self.column("answer"), self.column("tool"), self.column("replace"), strict=True)
        answer = next((index for index, row in enumerate(kinds) if any(row)), 0)
        apart = sorted({0, 1, answer, answer + 1, last, last + 1})
        columns = [_halved(self.column(name), how, apart) for name, how in _MERGE.items()]
        cells = array("d", bytes(8 * _WIDTH * len(columns[0])))
        for place, column in enumerate(columns):
            cells[place::_WIDTH] = column
        self._cells = cells
        self.merged = True

    def settle(self, finals: Sequence[int]) -> None:
        """Give each arrival the number of characters that were final from it on."""
        for index, characters in enumerate(finals):
            self._cells[index * _WIDTH + 2] += characters

    def column(self, name: str) -> array[float]:
        """One field of all arrivals; unknown tokens and holds are NaN."""
        return self._cells[_PLACES[name] :: _WIDTH]

    def time(self, index: int) -> float:
        """When that arrival came, without building it."""
        return self._cells[index * _WIDTH]

    def sized(self, by: Hashable, size: Callable[[], list[float] | None]) -> list[float] | None:
        """What `size` gives. Kept: of a finished stream, several ask for the same sizes. Nobody changes them."""
        if self._sized[0] != (by, len(self)):
            self._sized = (by, len(self)), size()
        return self._sized[1]

    def tobytes(self) -> bytes:
        return self._cells.tobytes()

    @classmethod
    def frombytes(cls, raw: bytes) -> Arrivals:
        arrivals = cls()
        arrivals._cells.frombytes(raw)
        return arrivals

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> list[Arrival]: ...
    def __getitem__(self, index: int | slice) -> Arrival | list[Arrival]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        start = index % len(self) * _WIDTH
        return _arrival(*self._cells[start : start + _WIDTH])

    def __iter__(self) -> Iterator[Arrival]:
        return (_arrival(*row) for row in _ROW.iter_unpack(self._cells))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrivals) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self.tobytes())

    def __repr__(self) -> str:
        return f"Arrivals({len(self)})"


def _arrival(
    at: float, events: float, answer: float, reasoning: float, tool: float, replace: float, tokens: float, hold: float
) -> Arrival:
    return Arrival(
        at,
        int(events),
        int(answer),
        int(reasoning),
        int(tool),
        bool(replace),
        None if tokens != tokens else int(tokens),
        None if hold != hold else hold,
    )


def _later(_: float, second: float) -> float:
    return second


def _known(first: float, second: float) -> float:
    """The larger of two of which either may be NaN."""
    return first if second != second or first > second else second


# How each field of two neighbours becomes one; tokens of which one is unknown (NaN) are unknown.
_MERGE: dict[str, Callable[[float, float], float]] = {
    "at": _later,
    "events": add,
    "answer": add,
    "reasoning": add,
    "tool": add,
    "replace": max,
    "tokens": add,
    "hold": _known,
}


def _halved(column: array[float], how: Callable[[float, float], float], cuts: Iterable[int]) -> array[float]:
    """One column with neighbours merged, but never across a cut."""
    merged = array("d")
    for start, stop in pairwise(cuts):
        part = column[start:stop]
        merged.extend(map(how, part[::2], part[1::2]))
        if len(part) % 2:
            merged.append(part[-1])
    return merged


class Fault(NamedTuple):
    """What went wrong, in the words of whoever said so. Untrusted text: escape it where it is shown."""

    type: str
    message: str = ""
    code: str | None = None


class Attempt(NamedTuple):
    """One try at one backend."""

    backend: str
    outcome: str
    status: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything known about one exchange. None means: not seen, not reported, or not defined."""

    id: str
    started_at: float  # wall clock, seconds since the epoch, when `received`
    outcome: str
    api: str  # chat, completions, fim, edit, responses, embeddings, other
    streamed: bool  # by the answer, not by the request
    method: str = "POST"
    path: str = ""
    backend: str | None = None
    decoding: str | None = None  # diffusion, autoregressive
    route: str | None = None
    client: str | None = None
    model: str | None = None  # a configured name, or "other": fit for a label
    asked_model: str | None = None  # what the client called it: untrusted
    sent_model: str | None = None
    answered_model: str | None = None
    status: int | None = None  # HTTP status that the client got
    fault: Fault | None = None
    # stamps
    sent: float | None = None
    head: float | None = None
    ended: float | None = None  # the backend's stream ended: its last read that mattered
    done: float = 0.0  # the last byte was written to the client; also the e2e
    body_wait: float = 0.0  # time spent reading the client's body
    intended: float | None = None  # load generator, open loop: when it should have been sent (<= 0)
    connect: float | None = None  # time to open the connection; 0.0 when it was reused
    # what came
    arrivals: Arrivals = field(default_factory=Arrivals)
    data_events: int = 0
    parse_errors: int = 0
    done_seen: bool = False
    finish_reasons: tuple[str, ...] = ()
    choices: int = 0
    tokens: Usage = NOTHING
    usage_source: str = "none"  # reported, estimated, none
    usage_final: bool = False  # False: the stream broke after a running total
    canvas: int | None = None  # completion tokens that are the size of a canvas, not of the text
    settled: timeline.Settled | None = None  # of replace-style streams; append streams follow from arrivals
    text: str | None = None  # only where the meter was asked to keep it
    warning: str | None = None  # the backend's own, e.g. a parameter that it reset
    notes: tuple[str, ...] = ()  # why this reading is partial
    # the proxy itself
    cost: Decimal | None = None
    currency: str = "USD"
    loop_lag: float | None = None
    attempts: tuple[Attempt, ...] = ()
    mirror: bool = False
    translated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    stall_threshold: float = timeline.STALL

    @property
    def ttfb(self) -> float | None:
        return self.head

    @property
    def ttft(self) -> float | None:
        return timeline.ttft(self.arrivals)

    @property
    def backend_ttft(self) -> float | None:
        return timeline.since(self.sent, self.ttft)

    @property
    def ttfa(self) -> float | None:
        return timeline.ttfa(self.arrivals)

    @property
    def silence(self) -> float | None:
        return timeline.since(self.head, self.ttft)

    @property
    def e2e(self) -> float:
        return self.done

    @property
    def generation(self) -> float | None:
        return timeline.generation(self.arrivals)

    @property
    def gaps(self) -> list[float]:
        return timeline.gaps(self.arrivals)

    @property
    def stalls(self) -> list[float]:
        return timeline.stalls(self.arrivals, self.stall_threshold)

    @property
    def bursts(self) -> list[float] | None:
        return timeline.bursts(self.arrivals, self.tokens.completion, self.tokens.reasoning)

    @property
    def stability(self) -> timeline.Settled:
        return self.settled or timeline.settled(self.arrivals)

    @property
    def e2e_rate(self) -> float | None:
        return timeline.e2e_rate(self.tokens.completion, self.done)

    @property
    def decode_rate(self) -> float | None:
        return timeline.decode_rate(self.arrivals, self.tokens.completion, self.tokens.reasoning)

    @property
    def decode_rate_reason(self) -> str | None:
        return timeline.decode_rate_reason(self.arrivals, self.tokens.completion)

    @property
    def tpot(self) -> float | None:
        return timeline.tpot(self.arrivals, self.tokens.completion)

    @property
    def holds(self) -> list[float]:
        return timeline.holds(self.arrivals)

    @property
    def hold_max(self) -> float | None:
        return max(self.holds, default=None)

    @property
    def hold_sum(self) -> float | None:
        holds = self.holds
        return sum(holds) if holds else None

    @property
    def overhead(self) -> float | None:
        return timeline.overhead(self.sent, self.body_wait, self.ended, self.done)

    @property
    def perturbed(self) -> bool:
        """Whether the stamps are uncertain: the event loop was late by more than 5 ms."""
        return self.loop_lag is not None and self.loop_lag > 0.005

    @property
    def estimated_completion(self) -> int | None:
        """A guess of the completion tokens by characters, where none were reported. Kept apart, always."""
        return timeline.estimate(self.arrivals) if self.tokens.completion is None else None

    def summary(self) -> dict[str, Any]:
        """As JSON: the names of MEASUREMENTS, seconds, no text of the answer, never NaN."""
        stable, stalls, bursts = self.stability, self.stalls, self.bursts
        return {
            "id": self.id,
            "started_at": self.started_at,
            "outcome": self.outcome,
            "status": self.status,
            "fault": self.fault._asdict() if self.fault else None,
            "method": self.method,
            "path": self.path,
            "api": self.api,
            "backend": self.backend,
            "decoding": self.decoding,
            "route": self.route,
            "client": self.client,
            "model": self.model,
            "asked_model": self.asked_model,
            "sent_model": self.sent_model,
            "answered_model": self.answered_model,
            "streamed": self.streamed,
            "ttfb": self.ttfb,
            "ttft": self.ttft,
            "backend_ttft": self.backend_ttft,
            "ttfa": self.ttfa,
            "silence": self.silence,
            "e2e": self.e2e,
            "generation": self.generation,
            "arrival_count": len(self.arrivals),
            "token_events": int(sum(self.arrivals.column("events"))),
            "data_events": self.data_events,
            "parse_errors": self.parse_errors,
            "stall_threshold": self.stall_threshold,
            "stall_count": len(stalls),
            "stall_time": sum(stalls),
            "largest_burst": max(bursts) if bursts else None,
            "t50": stable.t50,
            "t90": stable.t90,
            "t100": stable.t100,
            "first_stable": stable.first_stable,
            "churn": stable.churn,
            "e2e_rate": self.e2e_rate,
            "decode_rate": self.decode_rate,
            "decode_rate_reason": self.decode_rate_reason,
            "tpot": self.tpot,
            "tokens": {
                "prompt": self.tokens.prompt,
                "cached": self.tokens.cached,
                "cache_write": self.tokens.cache_write,
                "completion": self.tokens.completion,
                "reasoning": self.tokens.reasoning,
                "total": self.tokens.total,
            },
            "usage_source": self.usage_source,
            "usage_final": self.usage_final,
            "canvas": self.canvas,
            "estimated_completion": self.estimated_completion,
            "finish_reasons": list(self.finish_reasons),
            "choices": self.choices,
            "done_seen": self.done_seen,
            "cost": None if self.cost is None else format(self.cost, "f"),
            "currency": self.currency,
            "sent": self.sent,
            "ended": self.ended,
            "connect": self.connect,
            "intended": self.intended,
            "overhead": self.overhead,
            "hold_max": self.hold_max,
            "hold_sum": self.hold_sum,
            "loop_lag": self.loop_lag,
            "perturbed": self.perturbed,
            "attempts": [attempt._asdict() for attempt in self.attempts],
            "mirror": self.mirror,
            "translated": list(self.translated),
            "dropped": list(self.dropped),
            "warning": self.warning,
            "notes": list(self.notes),
        }

    def detail(self) -> dict[str, Any]:
        """`summary` and the arrivals, each with its share of the tokens."""
        bursts = self.bursts
        rows = [a._asdict() | {"burst": bursts[i] if bursts else None} for i, a in enumerate(self.arrivals)]
        return self.summary() | {"gaps": self.gaps, "arrivals": rows}
