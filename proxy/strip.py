"""Takes the usage event that the proxy itself asked for out of a stream, and nothing else.

The client did not ask for it, so its bytes must be the backend's without that event. Most reads hold no
usage and end where an event ends: they pass untouched. Otherwise whole events are looked at one by one, and
only an unfinished event is held back until its end comes: no client could have used it before.
"""

from __future__ import annotations

import re
from typing import Any

from .meter import grammar
from .meter.sse import looks_like_events

_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\Z))")
_SIGN = b'_tokens"'  # in every usage object; inside a JSON string the quote would be escaped
_HOLD = 64 * 1024  # no usage event is longer


class Strip:
    """`feed` what was read, send on what it returns; `finish` returns what is left at the end.

    `sure`: it is a stream of events. Else its first bytes tell, and what is none passes untouched and at once.
    """

    __slots__ = ("_held", "_stream", "taken")
    content_type: str | None = None

    def __init__(self, sure: bool = True) -> None:
        self._held = b""
        self._stream: bool | None = sure or None  # None: not known yet
        self.taken = 0  # usage events taken out

    def feed(self, chunk: bytes) -> bytes:
        if self._stream is None:
            chunk, self._held = self._held + chunk, b""
            if not chunk.strip(b"\r\n"):
                return chunk  # blank lines keep a connection alive; they tell nothing
            self._stream = looks_like_events(chunk)
            if self._stream is None:
                self._held = chunk
                return b""
        if not self._stream:
            return chunk
        if not self._held and _SIGN not in chunk and chunk.endswith(b"\n\n"):
            return chunk
        # What is held has no end in it, but may have the beginning of one.
        return self._split(self._held + chunk, max(0, len(self._held) - 4))

    def finish(self) -> bytes:
        held, self._held = self._held, b""
        if _SIGN in held and is_usage_only(held):  # its last line end never came, or was a bare CR
            self.taken += 1
            return b""
        return held

    def _split(self, data: bytes, scanned: int) -> bytes:
        kept = []
        start = 0
        for end in _EVENT_END.finditer(data, scanned):
            event = data[start : end.end()]
            start = end.end()
            if _SIGN in event and is_usage_only(event):
                self.taken += 1
            else:
                kept.append(event)
        self._held = data[start:]
        if len(self._held) > _HOLD:
            kept.append(self._held)
            self._held = b""
        return b"".join(kept)


def is_usage_only(event: bytes) -> bool:
    """Whether an event holds usage and no choice: what `include_usage` adds to a stream."""
    lines = re.split(rb"\r\n|\n|\r", event)
    data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
    try:
        doc: Any = grammar.loads(data)
    except grammar.Unreadable:
        return False
    return isinstance(doc, dict) and doc.get("choices") == [] and isinstance(doc.get("usage"), dict)
