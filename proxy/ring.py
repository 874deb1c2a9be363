"""The newest readings and what is in flight, in memory: what the admin API and the live page show.

1. Bounded three ways: by number, by the bytes of the arrivals, and by time for the window's samples.
   What is pushed out is gone from here; the ledger is where readings are kept.
2. Failures are kept apart as well, so that a thousand good exchanges a second do not push them out.
3. It has no clock. When an exchange was done follows from its reading; "now" is told by whoever asks.
4. It is used by one thread. `look` hands out copies, so that the arithmetic can be done in another.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from .meter import Reading
from .recorder import Opening
from .window import NOT_FAILED, Backend, Sample, Series, distribution, row, tokens

HORIZON = 900  # seconds that samples are kept for
_SAMPLES = 20_000
_FAILURES = 100
_FEED = 12


class Entry:
    """A kept reading and its summary as JSON, made once, when first asked for."""

    __slots__ = ("_summary", "reading")

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._summary: bytes | None = None

    def summary(self) -> orjson.Fragment:
        if self._summary is None:
            self._summary = dump(self.reading.summary())
        return orjson.Fragment(self._summary)


def dump(value: Any) -> bytes:
    """As JSON. Half a surrogate pair, which a client may put into a name, is no UTF-8: it goes out escaped."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return json.dumps(value).encode()


class Look(NamedTuple):
    """The state at one moment, copied: everything the summary is computed from."""

    now: float
    since: float
    span: int
    backends: tuple[Backend, ...]
    samples: list[Sample]
    whole: bool  # False: the window holds fewer samples than there were, older ones were pushed out
    openings: list[Opening]
    failures: list[Reading]
    seconds: dict[str, dict[int, float]]
    counts: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        begin = self.now - self.span if self.whole else self.samples[0].at
        begin = max(begin, self.since, self.now - self.span)
        recent = [s for s in self.samples if s.at >= begin]
        seconds = max(self.now - begin, 0.0)
        return self.counts | {
            "now": self.now,
            "since": self.since,
            "window": self.span,
            "seconds": seconds,
            "in_flight": len(self.openings),
            "backends": list(self._rows(recent, seconds)),
            "ttft": distribution(recent),
            "tokens": tokens(self.seconds, self.now, self.span),
            "failures": [failure(reading) for reading in self.failures],
        }

    def _rows(self, recent: Sequence[Sample], seconds: float) -> Iterator[dict[str, Any]]:
        groups: dict[str | None, list[Sample]] = {backend.name: [] for backend in self.backends}
        for sample in recent:
            groups.setdefault(sample.backend, []).append(sample)
        known = {backend.name: backend for backend in self.backends}
        busy = Counter(opening.backend for opening in self.openings)
        oldest = {opening.backend: self.now - opening.started_at for opening in reversed(self.openings)}
        for name in [*groups, *(name for name in busy if name not in groups)]:
            samples = groups.get(name, [])
            decoding = samples[-1].decoding if samples else None
            backend = known.get(name or "") or Backend(name or "", decoding)
            state = {"in_flight": busy[name], "oldest_in_flight": oldest.get(name)}
            yield row(backend, samples, seconds) | state | {"name": name}


def failure(reading: Reading) -> dict[str, Any]:
    """A failure, or a success that took more than one attempt, as the feed shows it."""
    return {
        "id": reading.id,
        "at": reading.started_at + reading.done,
        "backend": reading.backend,
        "model": reading.model,
        "outcome": reading.outcome,
        "status": reading.status,
        "type": reading.fault.type if reading.fault else None,
        "message": reading.fault.message if reading.fault else None,
        "e2e": reading.e2e,
        "arrivals": len(reading.arrivals),
        "completion": reading.tokens.completion,
        "attempts": [attempt._asdict() for attempt in reading.attempts],
    }


class Ring:
    """A `recorder.Sink`. `since` is when it began, in wall-clock seconds, as are all times asked of it."""

    def __init__(
        self,
        backends: Sequence[Backend] = (),
        *,
        since: float,
        keep: int = 2_000,
        keep_bytes: int = 64 << 20,
    ) -> None:
        self.backends = tuple(backends)
        self._since = since
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # oldest first
        self._failures: deque[Entry] = deque(maxlen=_FAILURES)
        self._open: dict[str, Opening] = {}  # oldest first
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._series = Series(HORIZON)
        self._lost = 0.0  # when the newest sample that was pushed out was done
        self._started = 0
        self._finished = 0
        self._last = since

    def configure(self, backends: Sequence[Backend]) -> None:
        """After a reload."""
        self.backends = tuple(backends)

    def opened(self, opening: Opening) -> None:
        self._open[opening.id] = opening
        self._started += 1
        self._last = max(self._last, opening.started_at)

    def finished(self, reading: Reading) -> None:
        self._open.pop(reading.id, None)
        self._finished += 1
        self._last = max(self._last, reading.started_at + reading.done)
        self._remember(Entry(reading))
        if len(self._samples) == _SAMPLES:
            self._lost = self._samples[0].at
        self._samples.append(Sample.of(reading))
        self._series.add(reading)

    def _remember(self, entry: Entry) -> None:
        reading = entry.reading
        if reading.outcome not in NOT_FAILED or len(reading.attempts) > 1:
            self._failures.append(entry)
        if twin := self._entries.pop(reading.id, None):
            self._bytes -= _size(twin.reading)
        self._entries[reading.id] = entry
        self._bytes += _size(reading)
        while len(self._entries) > self._keep or (self._bytes > self._keep_bytes and len(self._entries) > 1):
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= _size(oldest.reading)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, id: str) -> Reading | None:
        """The reading with this id, while it is kept."""
        if entry := self._entries.get(id):
            return entry.reading
        return next((entry.reading for entry in self._failures if entry.reading.id == id), None)

    def is_open(self, id: str) -> bool:
        return id in self._open

    def newest(self) -> list[Entry]:
        """All that is kept, newest first."""
        return list(reversed(self._entries.values()))

    def look(self, now: float, span: int) -> Look:
        """What the last `span` seconds before `now` hold (at most `HORIZON`)."""
        while self._samples and self._samples[0].at < now - HORIZON:
            self._samples.popleft()
        counts = {
            "started": self._started,
            "finished": self._finished,
            "kept": len(self._entries),
            "last": self._last,
        }
        return Look(
            now,
            self._since,
            min(span, HORIZON),
            self.backends,
            list(self._samples),
            self._lost < now - span,
            list(self._open.values()),
            [entry.reading for entry in list(self._failures)[: -_FEED - 1 : -1]],
            self._series.copy(),
            counts,
        )


def _size(reading: Reading) -> int:
    return 64 * len(reading.arrivals)
