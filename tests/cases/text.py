"""Bytes of the corpus: its escapes, HTTP heads, content codings, events, JSON. Nothing here is the proxy's own."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

Headers = list[tuple[str, str]]
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_PLAIN = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""The corpus's escaped strings: \n \r \t \\ \xNN; anything else is UTF-8."""
    out, place = b"", 0
    for match in _ESCAPE.finditer(text):
        escape = match[1]
        out += text[place : match.start()].encode()
        out += bytes([int(escape[1:], 16)]) if len(escape) == 3 else _PLAIN[escape]
        place = match.end()
    return out + text[place:].encode()


def header_values(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name.lower()]


def parse_head(head: bytes) -> tuple[str, Headers]:
    """The first line, and the headers."""
    first, *rest = head.decode("latin-1").split("\r\n")
    lines = (line.partition(":") for line in rest if line)
    return first, [(name, value.strip()) for name, _, value in lines]


def decoded(payload: bytes | bytearray, headers: Headers) -> bytes:
    """Without gzip; as it is under any other coding."""
    if header_values(headers, "content-encoding") != ["gzip"]:
        return bytes(payload)
    return zlib.decompressobj(31).decompress(payload)


def sse_events(payload: bytes) -> list[tuple[str, str]]:
    """(name, data) by the WHATWG rules. What is not ended by a blank line is no event."""
    events, name, data = [], "", list[str]()
    text = payload.decode("utf-8", "replace").removeprefix("\ufeff")
    for line in re.split(r"\r\n|\n|\r", text)[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append((name or "message", "\n".join(data)))
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return events


def json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def is_usage_only(data: str) -> bool:
    doc = json_or_none(data)
    return isinstance(doc, dict) and doc.get("choices") == [] and isinstance(doc.get("usage"), dict)


def is_error_event(data: str) -> bool:
    doc = json_or_none(data)
    return isinstance(doc, dict) and bool(doc.get("error") or doc.get("type") == "error")


def json_pairs(body: bytes) -> Any:
    """JSON kept exact: objects as ordered pairs (duplicates stay), floats as their source text."""
    return json.loads(body, object_pairs_hook=lambda pairs: ("object", pairs), parse_float=lambda text: ("float", text))


def without_stream_options(doc: Any) -> Any:
    if not isinstance(doc, tuple):
        return doc
    return doc[0], [(name, value) for name, value in doc[1] if name != "stream_options"]
