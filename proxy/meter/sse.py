"""Server-sent events as a sans-io parser: bytes in, events out, the same for every slicing.

1. Lines end at LF, CRLF or CR, and nowhere else: U+2028 and its like are text (str.splitlines would cut there).
2. Reads do not match events. Pieces of an unfinished line are kept apart and joined once, when its end comes, so
   that a long event in many small reads is never scanned twice.
3. An event ends at a blank line. What is left when the stream ends is no event (browsers and SDKs agree).
4. One limit bounds memory: an event over 16 MiB is not read further. A diffusion canvas fits in that many times.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LIMIT = 16 * 1024 * 1024
FIELDS = (b"data", b"event", b"id", b"retry", b":")
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventTooLong(ValueError):
    """A single event outgrew the limit; the stream is not worth measuring further."""


class Event(NamedTuple):
    name: bytes  # of the `event:` field; empty when there was none
    data: bytes  # of the `data:` fields, joined by line feeds


class Parser:
    """Feed it any slicing of a stream; it returns the same events."""

    __slots__ = ("_after_cr", "_bom", "_data", "_foreign", "_limit", "_name", "_pieces", "_size")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of a line whose end has not come
        self._size = 0  # bytes held in pieces and data
        self._data: list[bytes] = []
        self._name = b""
        self._after_cr = False  # the last read ended with CR: a LF that follows belongs to it
        self._bom: bytes | None = b""  # what may become a byte-order mark; None once that is settled
        self._foreign = False

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two events, with nothing held."""
        return not (self._size or self._pieces or self._name or self._after_cr) and self._bom is None

    @property
    def rest(self) -> bytes:
        """The data of an event that has not ended."""
        return b"\n".join([*self._data, *filter(None, [_data_of(b"".join(self._pieces))])])

    @property
    def foreign(self) -> bool:
        """Whether lines came that are no server-sent events: a page, a JSON body."""
        return self._foreign or (bool(self._pieces) and not b"".join(self._pieces).startswith(FIELDS))

    def feed(self, chunk: bytes) -> list[Event]:
        if self._bom is not None:
            chunk = self._without_bom(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            lines = _LINE_END.split(chunk)
        else:
            lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._keep(lines[0])
            return []
        if self._pieces:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._size -= sum(map(len, self._pieces))
            self._pieces.clear()
        tail = lines.pop()
        events = self._events(lines)
        self._keep(tail)
        return events

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(Event(self._name, data))
                    self._data.clear()
                    self._size = 0
                self._name = b""
            elif line.startswith(b"data:"):
                self._hold(_data_of(line) or b"")
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ")
            elif line == b"data":
                self._hold(b"")
            elif not line.startswith(FIELDS):
                self._foreign = True
        return events

    def _hold(self, data: bytes) -> None:
        self._data.append(data)
        self._grow(len(data) + 1)

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._grow(len(piece))

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > self._limit:
            raise EventTooLong(f"an event is longer than {self._limit} bytes")

    def _without_bom(self, chunk: bytes) -> bytes:
        start = (self._bom or b"") + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._bom = start
            return b""
        self._bom = None
        return start.removeprefix(_BOM)


def _data_of(line: bytes) -> bytes | None:
    """The value of a `data:` line; None for any other line."""
    return line[6:] if line.startswith(b"data: ") else line[5:] if line.startswith(b"data:") else None


def encode(data: bytes) -> bytes:
    """One event, as a server writes it."""
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
