"""Records between a forwarder and the main process: bytes out, bytes in.

Both ends are the same program in two processes of one machine, so the format is Python's own marshal: plain
tuples, fast, and unlike pickle it can't run anything. A frame is a length, a kind and a body.
"""

from __future__ import annotations

import marshal
import struct
from dataclasses import fields
from decimal import Decimal
from operator import attrgetter
from typing import Any

from .meter import Arrivals, Attempt, Fault, Reading, Settled, Usage
from .recorder import Opening

SETTINGS, READY, BATCH, DRAIN = b"S", b"R", b"B", b"D"
_HEAD = struct.Struct("!Ic")

_READING_NAMES = tuple(f.name for f in fields(Reading))
_READING = attrgetter(*_READING_NAMES)


def frame(kind: bytes, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body), kind) + body


class Frames:
    """Cuts a byte stream into frames, for every slicing."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        self._buffer += data
        out = []
        while len(self._buffer) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            out.append((kind, bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return out


def pack(records: list[tuple[Any, ...]], dropped: list[str]) -> bytes:
    """A batch: flattened records, and the ids of the readings that were dropped."""
    return marshal.dumps((dropped, records))


def unpack(body: bytes) -> tuple[list[str], list[Opening | Reading]]:
    dropped, records = marshal.loads(body)
    return dropped, [Opening._make(row) if kind == "o" else _reading(row) for kind, row in records]


def flat_opening(opening: Opening) -> tuple[str, tuple[Any, ...]]:
    return "o", tuple(opening)


def flat_reading(reading: Reading) -> tuple[str, tuple[Any, ...]]:
    row = list(_READING(reading))
    for index, flatten in _FLATTEN:
        if row[index] is not None:
            row[index] = flatten(row[index])
    return "r", tuple(row)


def _reading(row: tuple[Any, ...]) -> Reading:
    """The reading, slot by slot: the constructor of a frozen class takes three times as long."""
    reading = object.__new__(Reading)
    for put, value in zip(_SLOTS, row, strict=True):
        put(reading, value)
    for index, build in _BUILD:
        if row[index] is not None:
            _SLOTS[index](reading, build(row[index]))
    return reading


# name -> (to plain values, and back)
_NESTED: dict[str, tuple[Any, Any]] = {
    "arrivals": (Arrivals.tobytes, Arrivals.frombytes),
    "tokens": (tuple, Usage._make),
    "fault": (tuple, Fault._make),
    "settled": (tuple, Settled._make),
    "cost": (str, Decimal),
    "attempts": (lambda rows: tuple(map(tuple, rows)), lambda rows: tuple(map(Attempt._make, rows))),
}
_FLATTEN = tuple((_READING_NAMES.index(name), flatten) for name, (flatten, _) in _NESTED.items())
_BUILD = tuple((_READING_NAMES.index(name), build) for name, (_, build) in _NESTED.items())
_SLOTS = tuple(getattr(Reading, name).__set__ for name in _READING_NAMES)
