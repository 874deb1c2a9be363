"""The request as one backend gets it: the client's body, with only that changed which must be.

The model's name, the diffusion parameters in the backend's words, and `stream_options.include_usage` where the
backend takes it and the client did not ask. When nothing must change, the client's bytes go on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .body import Body, Path
from .dialects import Dialect, Parameters, translate
from .routes import Leg

_STREAMED = ("chat", "completions", "fim")


class Unsupported(ValueError):
    """A parameter that the backend can't take, where that is to be refused. One line."""


class Draft(NamedTuple):
    """What is sent, and what was done to it."""

    raw: bytes
    asked_stream: bool = False
    injected: bool = False  # the proxy asked for usage: that event is not for the client
    replace: bool = False  # the stream's deltas are whole-text snapshots
    append: bool = False  # and the client is to get append deltas
    translated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def draft(
    raw: bytes,
    body: Body | None,
    leg: Leg,
    api: str,
    dialect: Dialect,
    parameters: Parameters,
    *,
    usage: bool,
    reject: bool,
) -> Draft:
    """The draft for one leg. `body` None: the request holds no JSON; `usage`: ask for it. Raises Unsupported."""
    if body is None:
        if not parameters:
            return Draft(raw)
        lost = translate(parameters, None, api, dialect, reject)
        if lost.refused:
            raise Unsupported(lost.refused)
        return Draft(raw, dropped=lost.dropped)
    changes: dict[Path, Any] = {}
    if leg.model is not None and leg.model != body.get("model"):
        changes["model"] = leg.model
    stream = body.get("stream") is True
    injected = stream and usage and api in _STREAMED and not _asks_usage(body)
    if injected:
        changes["stream_options", "include_usage"] = True
    if dialect.open and not parameters:
        sent = body.replace(changes) if changes else raw
        return Draft(sent, stream, injected, _diffusing(leg, body, {}))
    translation = translate(parameters, body, api, dialect, reject)
    if translation.refused:
        raise Unsupported(translation.refused)
    changed = bool(translation.set or translation.remove or changes)
    return Draft(
        translation.apply(body, changes) if changed else raw,
        stream,
        injected,
        _diffusing(leg, body, translation.set),
        translation.append,
        translation.translated,
        translation.dropped,
    )


def _asks_usage(body: Body) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is not None


def _diffusing(leg: Leg, body: Body, changes: Mapping[Path, Any]) -> bool:
    """Whether what is sent asks for snapshots, of a backend that has any: others pass over the word."""
    return leg.decoding == "diffusion" and changes.get(("diffusing",), body.get("diffusing")) is True
