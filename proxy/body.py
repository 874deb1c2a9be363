"""A request's JSON body: read once, changed by splicing bytes.

1. Writing parsed JSON anew rounds big integers, drops duplicate keys, loses lone surrogates and
   reorders what prompt caches depend on. So a change replaces the bytes of one value and leaves
   every other byte where it was. Nothing to change: the client's own bytes.
2. Reading takes orjson, and Python's own parser for what orjson refuses but backends accept
   (NaN, lone surrogates, control characters, a byte order mark, bytes that are no UTF-8).
3. The walk over members happens in Latin-1: there a character is a byte, so positions need no
   conversion, and JSON's own signs are ASCII either way. It calls only the C scanner, once per member.
4. A key that is absent goes right after the opening brace. That needs no walk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from json.scanner import make_scanner
from typing import Any, NamedTuple

import orjson

Path = str | tuple[str, ...]  # one top-level key, or the keys from the outside in


class BodyError(ValueError):
    """The body cannot be used. One line, fit for the client."""


@dataclass(frozen=True, slots=True)
class Body:
    """The client's bytes and what they say. The last of several equal keys counts, as with most parsers."""

    raw: bytes = field(repr=False)  # prompts are nobody's business in a log
    members: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, raw: bytes) -> Body:
        members = _parse(raw)
        if not isinstance(members, dict):
            raise BodyError("the request's body must be a JSON object: {...}")
        return cls(raw, members)

    def get(self, key: str, default: Any = None) -> Any:
        return self.members.get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self.members

    def replace(self, changes: Mapping[Path, Any], remove: Iterable[Path] = ()) -> bytes:
        """The bytes with these members gone, then these values set; everything else byte for byte.

        A path that leads through something that is no object replaces it by one. Removing what is not
        there changes nothing. A value set whole may be changed in part by another path. Of several equal keys
        all are changed: parsers differ in which one counts.
        """
        edits: _Edits = {}
        for path in remove:
            if _present(self.members, path):
                _plant(edits, path, _GONE)
        for path in sorted(changes, key=lambda path: 1 if isinstance(path, str) else len(path)):
            _plant(edits, path, _dump(changes[path]))
        if any(key in self.members for key in edits):
            return _splice(self.raw, edits)
        return _insert(self.raw, edits, bool(self.members))


class _Gone:
    """The member is to go."""


class _Fresh(dict[str, Any]):
    """Edits inside an object that replaces whatever is there."""


class _Member(NamedTuple):
    """Where one `"key": value` stands."""

    key: str
    start: int  # the key's opening quote
    value: int  # the value's first byte
    end: int  # after the value's last byte


_GONE = _Gone()
_Edits = dict[str, Any]  # key -> the value's new bytes, _GONE, or the edits inside it


def _plant(edits: _Edits, path: Path, leaf: bytes | _Gone) -> None:
    key, *inner = (path,) if isinstance(path, str) else path
    if not inner:
        edits[key] = leaf
        return
    inside = edits.get(key)
    if isinstance(inside, dict):
        _plant(inside, tuple(inner), leaf)
        return
    part: _Edits = _Fresh() if inside is _GONE else {}
    _plant(part, tuple(inner), leaf)
    edits[key] = _render(inside, part) if isinstance(inside, bytes) else part


def _present(members: Any, path: Path) -> bool:
    for key in (path,) if isinstance(path, str) else path:
        if not isinstance(members, Mapping) or key not in members:
            return False
        members = members[key]
    return True


def _splice(raw: bytes, edits: _Edits) -> bytes:
    """The object in `raw` with the edits made."""
    found = list(_walk(raw))
    view = memoryview(raw)  # bodies of megabytes are copied once, at the end
    kept: list[bytes | memoryview] = []
    for here, after in zip_longest(found, found[1:]):
        value: bytes | memoryview | None = view[here.value : here.end]
        if here.key in edits:
            value = _render(raw[here.value : here.end], edits[here.key])
        if value is not None:
            separator = view[here.end : after.start] if after else b""
            kept += (view[here.start : here.value], value, separator)
    there = {member.key for member in found}
    absent = {key: edit for key, edit in edits.items() if key not in there}
    first, last = (found[0].start, found[-1].end) if found else (len(raw), len(raw))
    return _insert(b"".join((view[:first], *kept[:-1], view[last:])), absent, bool(kept))


def _insert(raw: bytes, edits: _Edits, followed: bool) -> bytes:
    """The object with new members right after its brace; `followed`: it has others."""
    new = [_dump(key) + b":" + value for key, edit in edits.items() if (value := _render(b"", edit)) is not None]
    if not new:
        return raw
    brace = raw.index(b"{") + 1
    return b"".join((raw[:brace], b",".join(new), b"," if followed else b"", memoryview(raw)[brace:]))


def _render(old: bytes, edit: Any) -> bytes | None:
    """A value's new bytes; None: the member goes, or does not come to be."""
    if isinstance(edit, bytes):
        return edit
    if edit is _GONE:
        return None
    return _splice(old if old.startswith(b"{") and not isinstance(edit, _Fresh) else b"{}", edit)


_SPACE = re.compile(r"[ \t\n\r]*")


def _walk(raw: bytes) -> Iterator[_Member]:
    """The members of the object in `raw`, which is known to be valid."""
    text = raw.decode("latin-1")
    at = _skip(text, text.index("{") + 1)
    while text[at] == '"':
        key, end = _SCAN(text, at)
        if not key.isascii():
            key = json.loads(raw[at:end].decode("utf-8", "surrogateescape"), strict=False)
        value = _skip(text, _skip(text, end) + 1)  # past the colon
        try:
            _, after = _SCAN(text, value)
        except RecursionError:
            raise BodyError("the request's body is nested too deeply to be changed") from None
        yield _Member(key, at, value, after)
        at = _skip(text, after)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _integer(digits: str) -> int | float:
    """Python refuses to read integers of thousands of digits; nothing here needs them exactly."""
    return int(digits) if len(digits) < 1000 else float(digits)


_LENIENT = json.JSONDecoder(strict=False, parse_int=_integer)
_SCAN = make_scanner(_LENIENT)  # type: ignore[arg-type]  # (text, position) -> (value, position after it), in C


def _parse(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        refusal = error
    try:
        return _LENIENT.decode(raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise BodyError("the request's body is nested too deeply to be read") from None
    except ValueError:
        raise BodyError(f"the request's body is no JSON: {refusal}") from None


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer over 64 bits, or a lone surrogate
        return json.dumps(value).encode()
