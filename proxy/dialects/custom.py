"""A user's own dialects and overrides: the same data as the built-in table, from the configuration file.

```toml
[dialects.mine]
like    = "openai"                                   # start from this one
fields  = { steps = "options.steps", width = { path = "width", kind = "int", least = 1, most = 64 } }
refuses = ["stream_options", "user"]
renames = { max_completion_tokens = "max_tokens" }
```

A dot in a path steps into an object. `fields = { effort = false }` takes a field away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from .parameters import EFFORTS
from .row import TEXT_APIS, Dialect, Field, Messages
from .table import BUILT_IN, OPENAI

CANONICAL = ("steps", "steps_per_block", "width", "block", "length", "threshold", "effort", "view")
KINDS = ("int", "number", "word", "list", "object", "any")
_KIND_OF = {"threshold": "number", "effort": "any", "view": "any"}


class DialectError(ValueError):
    """A dialect that cannot be. One line that names the field."""


def resolve(name: str, custom: Mapping[str, Mapping[str, Any]], fields: Mapping[str, Any]) -> Dialect:
    """The dialect of that name, a built-in or a user's, with a backend's own `fields` over it."""
    if name in custom:
        dialect = _own(name, custom[name], custom)
    elif name in BUILT_IN:
        dialect = BUILT_IN[name]
    else:
        raise DialectError(
            f"dialect: there is no {name!r}; there are: {', '.join(dict.fromkeys((*BUILT_IN, *custom)))}"
        )
    return _with_fields(dialect, fields, "fields") if fields else dialect


def _own(name: str, data: Mapping[str, Any], custom: Mapping[str, Mapping[str, Any]]) -> Dialect:
    where = f"dialects.{name}"
    like = data.get("like", OPENAI.name)
    if like not in BUILT_IN:
        raise DialectError(f"{where}.like: one of {', '.join(BUILT_IN)}, not {like!r}")
    changes: dict[str, Any] = {"name": name}
    for key, value in data.items():
        if key in _COLUMNS:
            column, read = _COLUMNS[key]
            changes[column] = read(value, f"{where}.{key}")
        elif key not in ("like", "fields"):
            raise DialectError(f"{where}.{key}: no such setting; there are: like, fields, {', '.join(_COLUMNS)}")
    return _with_fields(replace(BUILT_IN[like], **changes), data.get("fields", {}), f"{where}.fields")


def _with_fields(dialect: Dialect, data: Any, where: str) -> Dialect:
    fields = dict(dialect.fields)
    for name, value in _table(data, where).items():
        if name not in CANONICAL:
            raise DialectError(f"{where}.{name}: no such parameter; there are: {', '.join(CANONICAL)}")
        if value is False:
            fields.pop(name, None)
        else:
            fields[name] = _field(name, value, f"{where}.{name}")
    for one, other in combinations(fields, 2):
        if all(a == b for a, b in zip(fields[one].path, fields[other].path, strict=False)):
            raise DialectError(f"{where}: {one} and {other} are in the same place, {fields[one].spelled}")
    return replace(dialect, fields=fields)


def _field(name: str, value: Any, where: str) -> Field:
    data = {"path": value} if isinstance(value, str) else _table(value, where)
    for key in data:
        if key not in ("path", "kind", "least", "most", "words", "aliases", "apis"):
            raise DialectError(
                f"{where}.{key}: no such setting; there are: path, kind, least, most, words, aliases, apis"
            )
    kind = data.get("kind", "word" if "words" in data else _KIND_OF.get(name, "int"))
    if kind not in KINDS:
        raise DialectError(f"{where}.kind: one of {', '.join(KINDS)}, not {kind!r}")
    least, most = (_number(data.get(key), f"{where}.{key}") for key in ("least", "most"))
    if least is not None and most is not None and least > most:
        raise DialectError(f"{where}: least is {least:g} and most is {most:g}")
    apis = _texts(data.get("apis", list(TEXT_APIS)), f"{where}.apis")
    if unknown := [api for api in apis if api not in TEXT_APIS]:
        raise DialectError(f"{where}.apis: some of {', '.join(TEXT_APIS)}, not {unknown[0]!r}")
    return Field(
        path=_path(data.get("path", ""), f"{where}.path"),
        kind=kind,
        least=1 if least is None and kind == "int" else least,
        most=most,
        words=_texts(data.get("words", []), f"{where}.words"),
        aliases=_words(data.get("aliases", {}), f"{where}.aliases"),
        apis=apis,
    )


# -- kinds of values -----------------------------------------------------------------------------


def _accepts(value: Any, where: str) -> Mapping[str, Mapping[str, Field]]:
    """The only members that the backend takes, on every API."""
    members = {name: Field(path=(name,)) for name in _texts(value, where)}
    return {api: members for api in TEXT_APIS}  # noqa: C420 (shared on purpose: nobody changes it)


def _messages(value: Any, where: str) -> Mapping[str, Messages]:
    data = _table(value, where)
    for key in data:
        if key not in ("members", "roles", "text_only"):
            raise DialectError(f"{where}.{key}: no such setting; there are: members, roles, text_only")
    rule = Messages(
        members=_texts(data.get("members", []), f"{where}.members"),
        roles=_words(data.get("roles", {}), f"{where}.roles"),
        text_only=_yes(data.get("text_only", False), f"{where}.text_only"),
    )
    return {"chat": rule}


def _scale(value: Any, where: str) -> tuple[tuple[int, str], ...]:
    """`{ 8 = "instant", 32 = "low" }`: steps up to here -> effort."""
    words = _words(value, where)
    for key, word in words.items():
        if not key.isdecimal() or word not in EFFORTS:
            raise DialectError(f'{where}.{key}: write steps = "effort", such as 8 = "instant"')
    return tuple(sorted((int(key), word) for key, word in words.items()))


def _renames(value: Any, where: str) -> Mapping[str, tuple[str, ...]]:
    return {name: _path(path, f"{where}.{name}") for name, path in _words(value, where).items()}


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DialectError(f"{where}: a table, not {value!r}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise DialectError(f"{where}: a text, not {value!r}")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise DialectError(f"{where}: a list of texts, not {value!r}")
    return tuple(_text(item, where) for item in value)


def _words(value: Any, where: str) -> dict[str, str]:
    return {key: _text(item, f"{where}.{key}") for key, item in _table(value, where).items()}


def _yes(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise DialectError(f"{where}: true or false, not {value!r}")
    return value


def _number(value: Any, where: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise DialectError(f"{where}: a number, not {value!r}")
    return value


def _path(value: Any, where: str) -> tuple[str, ...]:
    keys = tuple(_text(value, where).split("."))
    if not all(keys):
        raise DialectError(f"{where}: names with a dot between, such as options.steps, not {value!r}")
    return keys


def _size(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DialectError(f"{where}: a whole number from 1 on, not {value!r}")
    return value


_COLUMNS: Mapping[str, tuple[str, Callable[[Any, str], Any]]] = {
    "about": ("about", _text),
    "accepts": ("standard", _accepts),
    "refuses": ("refuses", lambda value, where: frozenset(_texts(value, where))),
    "renames": ("renames", _renames),
    "messages": ("messages", _messages),
    "length": ("length", _size),
    "block": ("block", _size),
    "steps": ("steps", _size),
    "even": ("even", _yes),
    "effort_from_steps": ("effort_from_steps", _scale),
    "include_usage": ("include_usage", _yes),
    "canvas": ("canvas", _yes),
    "plain_errors": ("plain_errors", _yes),
    "streams": ("streams", _yes),
}
