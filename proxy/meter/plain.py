"""The short way for the commonest event: one more piece of text or reasoning, all else as in the event before.

A stream repeats itself: `{"id":…,"choices":[{"index":0,"delta":{"content":"` + a few letters + the same end.
Once the long way has read such an event, the bytes before and after its text are remembered. An event
that starts and ends with them, and whose middle holds no quote, no backslash and no control character, is
the same JSON with another text: it needs no parser. What the learned bytes mean is not assumed but tried:
another text is put between them and read the long way, and it must come out as that text and nothing else.
"""

from __future__ import annotations

from . import grammar
from .grammar import Delta, Unreadable
from .sse import Event

_NEVER = ()  # nothing starts with one of no prefixes
_PROBE = "manometer"
TRIES = 4  # of a stream whose events share nothing (a new id each), the rest goes the long way
_WORTH = 16  # what served so many events was worth learning, and so will be what comes after it


class Plain:
    """What one stream's plain events look like."""

    __slots__ = (
        "_after",
        "_data_after",
        "_data_before",
        "_from",
        "_most",
        "_seen",
        "_start",
        "_to",
        "_tries",
        "before",
        "reasoning",
    )

    def __init__(self, tries: int = TRIES) -> None:
        self.before: bytes | tuple[()] = (
            _NEVER  # a whole read that holds one event starts with these bytes; _NEVER: not now
        )
        self.reasoning = False  # whether the text is reasoning
        self._start: bytes | tuple[()] = _NEVER  # what `before` is when a read may be taken whole
        self._after = b""
        self._from, self._to = 0, 0  # where such a read holds its text
        self._data_before: bytes | tuple[()] = _NEVER
        self._data_after = b""
        self._most = self._tries = tries
        self._seen = 0

    def match(self, chunk: bytes) -> int:
        """The characters of text in a read that is one plain event; 0 if it is not. It starts with `before`."""
        if not chunk.endswith(self._after):
            return 0
        text = chunk[self._from : self._to]  # from here on as `_printable`, without the call: it is of every event
        if b'"' in text or b"\\" in text:
            return 0
        try:
            characters = text.decode()
        except UnicodeDecodeError:
            return 0
        return len(characters) if characters.isprintable() else 0

    def text(self, chunk: bytes) -> str:
        return chunk[self._from : self._to].decode()

    def match_data(self, event: Event) -> int:
        """The same for one event among several."""
        data = event.data
        if event.name or not (data.startswith(self._data_before) and data.endswith(self._data_after)):
            return 0
        return _printable(data[len(self._data_before) : -len(self._data_after)])

    def text_of(self, data: bytes) -> str:
        return data[len(self._data_before) : -len(self._data_after)].decode()

    def ready(self, between_events: bool) -> None:
        """A read can be taken whole only when it starts where an event starts."""
        self.before = self._start if between_events else _NEVER

    def learn(self, event: Event, delta: Delta, seen: int) -> bool:
        """Remember what surrounds this event's text, if the event is plain. It is the `seen`-th of the stream."""
        served, self._seen = seen - self._seen, seen
        if served > _WORTH:
            self._tries = self._most
        if not self._tries or event.name or not _is_plain(delta):
            return False
        self._tries -= 1
        text = (delta.answer or delta.reasoning).encode(errors="surrogatepass")
        if not _printable(text) or event.data.count(b'"' + text + b'"') != 1:
            return False
        before, _, after = event.data.partition(b'"' + text + b'"')
        before, after = before + b'"', b'"' + after
        if b"\n" in before + after or not _same(before + _PROBE.encode() + after, delta):
            return False
        self.reasoning = bool(delta.reasoning)
        self._data_before, self._data_after = before, after
        self._start, self._after = b"data: " + before, after + b"\n\n"
        self._from, self._to = len(b"data: " + before), -len(self._after)
        return True


def _printable(text: bytes) -> int:
    """The number of characters, if JSON would read these bytes as they stand between two quotes; else 0."""
    if b'"' in text or b"\\" in text:
        return 0
    try:
        characters = text.decode()
    except UnicodeDecodeError:
        return 0
    return len(characters) if characters.isprintable() else 0


def _is_plain(delta: Delta) -> bool:
    """Text or reasoning, and nothing that would have to be taken from each event anew."""
    return bool(delta.answer) != bool(delta.reasoning) and delta == _alone(delta, delta.answer or delta.reasoning)


def _alone(delta: Delta, text: str) -> Delta:
    """The same event with this text, if it says nothing else."""
    alone = Delta(model=delta.model, choices=delta.choices)
    if delta.reasoning:
        alone.reasoning = text
    else:
        alone.answer = text
    return alone


def _same(data: bytes, delta: Delta) -> bool:
    try:
        probe = grammar.read_event(data, b"", replace=False)
    except Unreadable:
        return False
    return probe == _alone(delta, _PROBE)
