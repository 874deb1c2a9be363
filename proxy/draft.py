"""The request as one backend gets it: the client's body, with only that changed which must be.

The model's name, the diffusion parameters in the backend's words, and `stream_options.include_usage` where the
backend takes it and the client did not ask. When nothing must change, the client's bytes go on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .body import Body
from .routes import Leg, Plan
from .settings import Backend


@dataclass(frozen=True, slots=True)
class Draft:
    """What is sent, and what was done to it."""

    raw: bytes
    asked_stream: bool = False
    injected: bool = False  # the proxy asked for usage: that event is not for the client
    replace: bool = False  # the stream's deltas are whole-text snapshots
    translated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def draft(raw: bytes, body: Body | None, leg: Leg, backend: Backend, plan: Plan, api: str) -> Draft:
    """The draft for one leg. `body` is None where the request holds no JSON."""
    if body is None:
        return Draft(raw)
    changes: dict[Any, Any] = {}
    if leg.model is not None and leg.model != body.get("model"):
        changes["model"] = leg.model
    stream = body.get("stream") is True
    injected = stream and api in ("chat", "completions", "fim") and _takes_usage(backend) and not _asks_usage(body)
    if injected:
        changes[("stream_options", "include_usage")] = True
    return Draft(
        body.replace(changes) if changes else raw,
        asked_stream=stream,
        injected=injected,
        replace=body.get("diffusing") is True and backend.kind == "diffusion",
    )


def _takes_usage(backend: Backend) -> bool:
    return backend.usage != "as-asked"


def _asks_usage(body: Body) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is not None
