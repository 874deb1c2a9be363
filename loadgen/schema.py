"""Does a JSON value fit a JSON Schema? The keywords that structured output uses, and no others.

A keyword that is not in the table is an error of the schema's author, not a silent "fits".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}


class UnknownKeyword(ValueError):
    """The schema uses a keyword that is not read here."""


def misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    """The first reason why `value` does not fit, with its place; None when it fits."""
    return next(_misfits(value, schema, "$"), None)


def _misfits(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    for keyword, wanted in schema.items():
        if keyword in ("description", "title", "$schema"):
            continue
        if keyword not in _KEYWORDS:
            raise UnknownKeyword(f"the schema keyword {keyword!r} is not known; known are {', '.join(_KEYWORDS)}")
        yield from _KEYWORDS[keyword](value, wanted, schema, place)


def _type(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_TYPES[name](value) for name in names):
        yield f"{place} is no {' or '.join(names)}"


def _properties(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in wanted.items():
            if name in value:
                yield from _misfits(value[name], inner, f"{place}.{name}")


def _required(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{place}.{name} is missing" for name in wanted if name not in value)


def _additional(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name in value.keys() - schema.get("properties", {}).keys():
        if wanted is False:
            yield f"{place}.{name} is not allowed"
        elif isinstance(wanted, dict):
            yield from _misfits(value[name], wanted, f"{place}.{name}")


def _items(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misfits(item, wanted, f"{place}[{index}]")


def _const(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if not _same(value, wanted):
        yield f"{place} is not {wanted!r}"


def _enum(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if not any(_same(value, option) for option in wanted):
        yield f"{place} is none of {wanted!r}"


def _same(value: Any, wanted: Any) -> bool:
    """JSON's equality: true is not 1, and 1 is 1.0, at every depth."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(_same(value[key], wanted[key]) for key in value)
    return bool(value == wanted)


def _pattern(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(wanted, value):
        yield f"{place} does not match {wanted!r}"


def _bound(fits: Callable[[Any, Any], bool], kind: str, what: str) -> Any:
    """A keyword that compares a number, or the size of a text or list, with a bound."""

    def check(value: Any, wanted: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
        if _TYPES[kind](value) and not fits(value if kind == "number" else len(value), wanted):
            yield f"{place} is {what} {wanted}"

    return check


_KEYWORDS: dict[str, Callable[[Any, Any, Mapping[str, Any], str], Iterator[str]]] = {
    "type": _type,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "items": _items,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _bound(lambda size, wanted: size >= wanted, "number", "below"),
    "maximum": _bound(lambda size, wanted: size <= wanted, "number", "above"),
    "minLength": _bound(lambda size, wanted: size >= wanted, "string", "shorter than"),
    "maxLength": _bound(lambda size, wanted: size <= wanted, "string", "longer than"),
    "minItems": _bound(lambda size, wanted: size >= wanted, "array", "shorter than"),
    "maxItems": _bound(lambda size, wanted: size <= wanted, "array", "longer than"),
}
