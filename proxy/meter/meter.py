"""One meter per exchange: whoever holds the socket feeds it what was read and when, and takes a `Reading` at the end.

1. Times are passed in, never read; `at` is seconds on any monotonic clock.
2. The output of one read is one arrival, however many events it held.
3. Most events of a stream differ in a few letters of text only. `plain` learns the bytes around them and
   passes such events without parsing them again; everything else goes the long way. A property test holds
   the two ways to the same reading.
4. Nothing here raises on what a backend sends: a stream that can't be read makes a reading that says so, and
   so does one that we can read but the usual clients can't.
"""

from __future__ import annotations

import zlib
from typing import Any, Protocol

from . import grammar, snapshot, timeline
from .cost import Price, cost
from .grammar import Delta, Unreadable
from .plain import Plain
from .reading import Arrival, Arrivals, Fault, Reading
from .snapshot import Snapshots
from .sse import LIMIT, Event, Parser, looks_like_events
from .usage import NOTHING, Usage

CAP = 4096
_NAN = float("nan")
_FAULT_LIMIT = 1 << 20
_SNIFF = 64  # bytes kept while nothing but blank lines has come
# The APIs whose answers hold output that we can read. Others are passed through and timed.
MEASURED = frozenset({"chat", "completions", "fim", "edit", "responses"})
_READ = MEASURED | {"embeddings"}  # whose JSON bodies tell usage
_NO_STREAM = (Plain(), Parser())  # of all meters that have met none: it matches nothing and is fed nothing


class _Decoder(Protocol):
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class Meter:
    """`head`, then `feed` for every read, then `finish`.

    `replace`: the request asked for snapshots. `canvas`: this backend reports the size of its canvas as
    completion tokens; the reading keeps it apart, because rates from it would flatter.
    """

    __slots__ = (
        "_asked_stream",
        "_body",
        "_canvas",
        "_choices",
        "_data_events",
        "_decoder",
        "_empty_data",
        "_fault",
        "_finishes",
        "_given",
        "_keep_text",
        "_limit",
        "_model",
        "_names",
        "_notes",
        "_parse_errors",
        "_parser",
        "_plain",
        "_received",
        "_replace",
        "_snapshots",
        "_status",
        "_terminal",
        "_text",
        "_told",
        "_undecodable",
        "_usage",
        "_usage_final",
        "_warning",
        "_way",
        "api",
        "arrivals",
        "head_at",
        "streamed",
        "terminal_at",
    )

    def __init__(
        self,
        *,
        api: str = "chat",
        received: float = 0.0,
        asked_stream: bool = True,
        replace: bool = False,
        canvas: bool = False,
        keep_text: bool = False,
        cap: int = CAP,
        limit: int = LIMIT,
        plain: Plain | None = None,
    ) -> None:
        self.api = api
        self.streamed = False
        self.terminal_at: float | None = None  # when the API's own end came; what follows it is not counted
        self.arrivals = Arrivals(cap)
        self.head_at: float | None = None
        self._received = received
        self._asked_stream = asked_stream
        self._replace = replace
        self._canvas = canvas
        self._keep_text = keep_text
        self._limit = limit
        self._status: int | None = None
        self._way = "sniff"  # sniff, sse, body (a JSON answer), fault (an error answer), pass (not readable)
        self._decoder: _Decoder | None = None
        self._given = plain
        self._plain, self._parser = _NO_STREAM
        self._body = bytearray()
        self._text: list[str] = []
        self._snapshots: dict[int, Snapshots] = {}
        self._told = 0  # completion tokens told so far, one by one or by a running total
        self._usage = NOTHING
        self._usage_final = False  # the last usage came at or after the finish
        self._model: str | None = None
        self._fault: Fault | None = None
        self._warning: str | None = None
        self._names: dict[tuple[int, int], str] = {}  # of tool calls
        self._choices: set[int] = set()
        self._finishes: dict[int, str] = {}
        self._terminal = False
        self._data_events = 0
        self._parse_errors = 0
        self._undecodable = False
        self._empty_data = False
        self._notes: list[str] = []

    @property
    def output(self) -> bool:
        """Whether any output has been seen."""
        return len(self.arrivals) > 0

    @property
    def readable(self) -> bool:
        """Whether the answer's bytes are plain text on the wire: neither compressed nor given up on."""
        return self._decoder is None and self._way != "pass"

    @property
    def between_events(self) -> bool:
        """Whether the stream stands where an event could start."""
        return self._parser.idle

    def head(self, at: float, status: int, content_type: str = "", content_encoding: str = "") -> None:
        """The answer's head came at `at`."""
        self.head_at = at
        self._status = status
        kind = content_type.partition(";")[0].strip().lower()
        coding = content_encoding.strip().lower()
        self._way = self._way_of(status, kind)
        if self._way == "sse":
            self._begin()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._decoder = zlib.decompressobj(47)
        elif coding not in ("", "identity"):
            self._stop(f"not read: content-encoding {coding[:20]}")

    def _way_of(self, status: int, kind: str) -> str:
        if not 200 <= status < 300:
            return "fault"
        if kind == "text/event-stream":
            return "sse"
        if kind in ("text/html", "application/xhtml+xml"):
            if self.api in MEASURED:
                self._fault = Fault("unexpected_content_type", kind)
                self._undecodable = True
            return "pass"
        if self._asked_stream and (not kind or kind.startswith(("text/", "application/"))):
            return "sniff"
        return "body" if self.api in _READ else "pass"

    def _begin(self) -> None:
        """It is a stream of events. What reads one is made only now: a JSON answer needs none of it."""
        self.streamed = True
        self._way = "sse"
        self._plain = self._given or Plain()
        self._parser = Parser(self._limit)

    def feed(self, chunk: bytes, at: float, until: float = _NAN) -> None:
        """Bytes of the answer's body, read at `at`. `until`: when the client's socket had taken them, if it has."""
        plain = self._plain
        if chunk.startswith(plain.before) and (size := plain.match(chunk)):
            self._data_events += 1
            if plain.reasoning:
                self.arrivals.append(at - self._received, 0, size, until - at)
            else:
                self.arrivals.append(at - self._received, size, 0, until - at)
                if self._keep_text:
                    self._text.append(plain.text(chunk))
        elif self._way != "pass":
            self._read(chunk, at, until)

    def _read(self, chunk: bytes, at: float, until: float) -> None:
        if self._decoder is not None:
            chunk = self._decoded(self._decoder, chunk)
        if self._way == "sniff":
            chunk = self._sniffed(chunk)
        if self._way == "sse":
            self._read_stream(chunk, at, until)
        elif self._way in ("body", "fault"):
            self._body += chunk
            if len(self._body) > (self._limit if self._way == "body" else _FAULT_LIMIT):
                self._stop("not read: the answer is too long")

    def _decoded(self, decoder: _Decoder, chunk: bytes) -> bytes:
        try:
            data = decoder.decompress(chunk, self._limit)
        except zlib.error:
            self._undecodable = True
            self._stop("not read on: broken compression")
            return b""
        if decoder.unconsumed_tail:
            self._stop("not read on: a read unpacks to more than the limit")
        return data

    def _sniffed(self, chunk: bytes) -> bytes:
        """A stream was asked, and the content type does not say what came: the first bytes do."""
        self._body += chunk
        events = looks_like_events(bytes(self._body))
        if events is None:
            del self._body[:-_SNIFF]
            return b""
        if events:
            self._begin()
        else:
            self._way = "body" if self.api in _READ else "pass"
        start = bytes(self._body)
        self._body.clear()
        return start

    def _read_stream(self, chunk: bytes, at: float, until: float) -> None:
        events = self._parser.feed(chunk)
        if events:
            self._arrive(events, at, until)
        if self._parser.overflown:
            self._stop("not read on: an event is longer than the limit")
        else:
            # Only bytes that are on the wire as they are, and only before the end, may pass unread.
            self._plain.ready(self._parser.idle and self.terminal_at is None and self._decoder is None)

    def _arrive(self, events: list[Event], at: float, until: float) -> None:
        """The events of one read become one arrival, if any of them holds output."""
        count = answer = reasoning = tool = 0
        tokens: int | None = 0
        replaced = False
        for event in events:
            if self.terminal_at is not None:
                break
            if size := self._plain.match_data(event):
                self._data_events += 1
                count, tokens = count + 1, None
                if self._plain.reasoning:
                    reasoning += size
                    continue
                answer += size
                if self._keep_text:
                    self._text.append(self._plain.text_of(event.data))
                continue
            delta = self._delta(event, at)
            if delta is None or not delta.is_output:
                continue
            count += 1
            answer += len(delta.answer)
            reasoning += len(delta.reasoning)
            tool += len(delta.tool)
            replaced = replaced or bool(delta.snapshots)
            exact = self._exact(delta)
            tokens = None if tokens is None or exact is None else tokens + exact
        if count:
            hold = None if until != until else until - at
            self.arrivals.add(Arrival(at - self._received, count, answer, reasoning, tool, replaced, tokens, hold))

    def _delta(self, event: Event, at: float) -> Delta | None:
        self._data_events += not event.data.startswith(grammar.DONE)  # the end mark is no part of the answer
        self._empty_data = self._empty_data or not event.data
        try:
            delta = grammar.read_event(event.data, event.name, self._replace)
        except Unreadable:
            self._parse_errors += 1
            return None
        self._take(delta)
        if delta.terminal:
            self.terminal_at = at
        for index, text in delta.snapshots.items():
            self._snapshots.setdefault(index, Snapshots()).show(text, at - self._received)
        if self.output:  # not from the first: meanwhile other streams' first ones would wait for their stamps
            self._plain.learn(event, delta, self._data_events)
        return delta

    def _take(self, delta: Delta) -> None:
        """What an event or a body says beside its output; of the names of tool calls, those that are new are output."""
        for call, name in delta.names.items():
            if self._names.get(call) != name:
                self._names[call] = name
                delta.tool = name + delta.tool
        self._choices |= delta.choices
        self._finishes |= delta.finishes
        self._model = self._model or delta.model
        self._warning = delta.warning or self._warning
        self._fault = self._fault or delta.fault
        self._terminal = self._terminal or delta.terminal
        if delta.usage is not None:
            self._usage = self._usage.merge(delta.usage)
            self._usage_final = not delta.choices or self._ended
        if self._keep_text and delta.answer:
            self._text.append(delta.answer)

    def _exact(self, delta: Delta) -> int | None:
        """The event's tokens, where the backend tells them: by a running total (of one choice), or one by one."""
        running = delta.usage.completion if delta.usage and len(self._choices) < 2 else None
        if running is not None and running >= self._told:
            tokens: int | None = running - self._told
        else:
            tokens = delta.tokens
        self._told += tokens or 0
        return tokens

    def _stop(self, note: str) -> None:
        self._way = "pass"
        self._body.clear()
        self._plain.ready(False)
        self._note(note)

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def finish(
        self,
        at: float,
        *,
        id: str,
        started_at: float,
        ended: float | None = None,
        outcome: str | None = None,
        fault: Fault | None = None,
        notes: tuple[str, ...] = (),
        price: Price | None = None,
        **facts: Any,
    ) -> Reading:
        """The reading. `at`: when the client had the last byte; `ended`: when the backend's stream ended.

        `outcome` and `fault` say how the transport ended; None leaves it to what the stream said. `price` is
        the one in force at `received`; None: unpriced.
        """
        ended = self.terminal_at if self.terminal_at is not None else ended
        if outcome is None and self._way in ("body", "sniff"):
            self._read_body(at if ended is None else ended)
        if self._refused and self._fault is None:
            self._fault = grammar.fault_of(bytes(self._body)) or Fault(f"http_{self._status}")
        if self._way == "sse" and self._parser.rest.strip() == grammar.DONE:
            self._terminal = True  # the last blank line is missing, and nothing else
        if self._terminal and outcome in _TOO_LATE:
            self._note(f"{outcome} after the end of the answer")
            outcome, fault = None, None
        if outcome is None:
            self._remark()
        if self.arrivals.merged:
            self._note("arrivals merged pairwise: more came than the meter keeps")
        head = self.head_at
        facts.setdefault("answered_model", self._model)
        facts.setdefault("status", self._status)
        return Reading(
            **facts,
            id=id,
            started_at=started_at,
            outcome=outcome or self._outcome(),
            fault=fault or self._fault,
            api=self.api,
            streamed=self.streamed,
            head=None if head is None else head - self._received,
            ended=None if ended is None else ended - self._received,
            done=at - self._received,
            arrivals=self.arrivals,
            data_events=self._data_events,
            parse_errors=self._parse_errors,
            done_seen=self._terminal and self.streamed,
            finish_reasons=tuple(self._finishes[i] for i in sorted(self._finishes)),
            choices=len(self._choices),
            tokens=self._visible(),
            canvas=self._usage.completion if self._canvas else None,
            usage_source="reported" if self._usage else "none",
            usage_final=bool(self._usage) and (self._usage_final or self._terminal),
            settled=self._settle(),
            text=self._answer() if self._keep_text else None,
            warning=self._warning,
            cost=cost(self._usage, price),
            currency=price.currency if price else "USD",
            notes=(*self._notes, *notes),
        )

    def _remark(self) -> None:
        """What the usual clients stumble over, in a stream that we could read."""
        if self.streamed and self._finishes and not self._terminal:
            self._note("no [DONE] after the finish_reason")
        if self._parser.marked:
            self._note("begins with a byte-order mark: OpenAI's SDKs see an empty stream")
        if self._empty_data:
            self._note("has an event without data: OpenAI's SDKs fail on it")
        if self._way == "body" and self._asked_stream and self.output:
            self._note("a JSON body where a stream was asked: OpenAI's SDKs see an empty stream")

    def _visible(self) -> Usage:
        """The tokens as reported; those of a canvas are not those of the text, which then are unknown."""
        return self._usage._replace(completion=None, total=None) if self._canvas else self._usage

    def _read_body(self, ended: float) -> None:
        """A JSON answer is one arrival at its end."""
        body = bytes(self._body)
        if not body.strip():
            return
        try:
            delta = grammar.read_body(body, self.api)
        except Unreadable:
            self._parse_errors += 1
            return
        self._take(delta)
        if delta.is_output:
            sizes = len(delta.answer), len(delta.reasoning), len(delta.tool)
            self.arrivals.add(Arrival(ended - self._received, 1, *sizes, False, delta.tokens, None))

    def _settle(self) -> timeline.Settled | None:
        """Of snapshot streams: who was final when; the arrivals learn how many characters each brought for good."""
        if not self._snapshots:
            return None
        choices = list(self._snapshots.values())
        times = list(self.arrivals.column("at"))
        if times:
            self.arrivals.settle(snapshot.finals(choices, times))
        return snapshot.settled(choices)

    def _answer(self) -> str:
        if self._snapshots:
            return grammar.wellformed("".join(self._snapshots[i].text for i in sorted(self._snapshots)))
        return grammar.wellformed("".join(self._text))

    @property
    def _refused(self) -> bool:
        return self._status is not None and not 200 <= self._status < 300

    @property
    def _ended(self) -> bool:
        """The API's own end, or a finish for every choice that spoke."""
        return self._terminal or (bool(self._finishes) and self._choices <= self._finishes.keys())

    def _outcome(self) -> str:
        """How a stream that ended without a fault of the transport ended."""
        if self._undecodable:
            return "bad_stream"
        if self._refused or self._fault is not None:
            return "backend_error"
        if self._way == "pass" or self.api not in MEASURED:
            return "ok"
        if self._parse_errors or (self._way == "sse" and not self._data_events and self._parser.foreign):
            return "bad_stream"
        if self._way == "sse" and not self._ended and (self._data_events or self._parser.rest):
            return "truncated"
        return "ok" if self.output or self._usage else "empty"


# A fault that comes after the end of the answer took nothing from it.
_TOO_LATE = frozenset({"client_gone", "truncated", "timeout_first_output", "timeout_idle", "timeout_total"})
