"""Server-sent events as a sans-io parser: bytes in, events out, the same for every slicing.

1. Lines end at LF, CRLF or CR, and nowhere else: U+2028 and its like are text (str.splitlines would cut there).
2. Reads do not match events. Pieces of an unfinished line are kept apart and joined once, when its end comes, so
   that a long event in many small reads is never scanned twice.
3. An event ends at a blank line. What is left when the stream ends is no event (browsers and SDKs agree).
4. One limit bounds memory: an event over 16 MiB is not read, nor what follows it; a diffusion canvas fits in that
   many times. What came before it counts, so this is no exception but a state: `overflown`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LIMIT = 16 * 1024 * 1024
FIELDS = (b"data", b"event", b"id", b"retry", b"")  # what may stand before a colon; nothing: a comment
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    name: bytes  # of the `event:` field; empty when there was none
    data: bytes  # of the `data:` fields, joined by line feeds


class Parser:
    """Feed it any slicing of a stream; it returns the same events."""

    __slots__ = (
        "_after_cr",
        "_bom",
        "_data",
        "_foreign",
        "_held",
        "_limit",
        "_name",
        "_pieces",
        "_tail",
        "marked",
        "overflown",
    )

    def __init__(self, limit: int = LIMIT) -> None:
        self.overflown = False
        self.marked = False  # the stream began with a byte-order mark
        self._limit = limit
        self._pieces: list[bytes] = []  # of a line whose end has not come
        self._tail = 0  # bytes in pieces
        self._data: list[bytes] = []  # of an event whose end has not come
        self._held = 0  # bytes of its lines
        self._name = b""
        self._after_cr = False  # the last read ended with CR: a LF that follows belongs to it
        self._bom: bytes | None = b""  # what may become a byte-order mark; None once that is settled
        self._foreign = False

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two events, with nothing held."""
        return not (self._pieces or self._data or self._name or self._after_cr) and self._bom is None

    @property
    def rest(self) -> bytes:
        """The data of an event that has not ended."""
        tail = b"".join(self._pieces)
        return b"\n".join([*self._data, _value(tail)] if tail.startswith(b"data:") else self._data)

    @property
    def foreign(self) -> bool:
        """Whether lines came that are no server-sent events: a page, a JSON body."""
        return self._foreign or looks_like_events(b"".join(self._pieces)) is False

    def feed(self, chunk: bytes) -> list[Event]:
        if self.overflown:
            return []
        if self._bom is not None:
            chunk = self._without_bom(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            lines = _LINE_END.split(chunk)
        else:
            lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._pieces:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces.clear()
            self._tail = 0
        events = self._events(lines)
        if tail and not self.overflown:
            self._pieces.append(tail)
            self._tail += len(tail)
            self._bound(self._tail)
        return events

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(Event(self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                    self._data.clear()
                self._name = b""
                self._held = 0
            elif not self._bound(len(line)):
                break
            elif line.startswith(b"data:"):
                self._data.append(_value(line))
                self._held += len(line)
            else:
                self._field(line)
        return events

    def _field(self, line: bytes) -> None:
        """Any line but `data:`. Of these only the event's name matters here."""
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.removeprefix(b" ")
        elif field == b"data":
            self._data.append(b"")
            self._held += len(line)
        elif field not in FIELDS:
            self._foreign = True

    def _bound(self, line: int) -> bool:
        """Whether the event may hold one more line of this length. The line counts the same, whole or in pieces."""
        if self._held + line > self._limit:
            self.overflown = True
            self._pieces.clear()
            self._data.clear()
        return not self.overflown

    def _without_bom(self, chunk: bytes) -> bytes:
        start = (self._bom or b"") + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._bom = start
            return b""
        self._bom = None
        self.marked = start.startswith(_BOM)
        return start.removeprefix(_BOM)


def looks_like_events(start: bytes) -> bool | None:
    """Whether a body that starts so is a stream of events; None while it may still become either."""
    if _BOM.startswith(start):
        return None
    lines = _LINE_END.split(start.removeprefix(_BOM).lstrip(b"\r\n"), maxsplit=1)
    field, colon, _ = lines[0].partition(b":")
    if colon or len(lines) > 1:
        return field in FIELDS
    return None if any(name.startswith(field) for name in FIELDS) else False


def _value(line: bytes) -> bytes:
    """The value of a `data:` line."""
    return line[6:] if line.startswith(b"data: ") else line[5:]


def encode(data: bytes) -> bytes:
    """One event, as a server writes it."""
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
