"""Which backend answers: what a request says, and the configured table, to a plan.

1. A plan is decided whole before anything is sent: the legs to try in order, the model's name on
   each, the copy to mirror. The forwarder follows it and thinks nothing.
2. A name means, in this order: a backend that the client forces, a route, a model that a backend
   lists, and else whatever the backend that takes all names makes of it.
3. Chance is an argument. Who has no identity is split by a draw, and so is what is mirrored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

from . import split

FORCE = "x-manometer-backend"
SESSION = "x-session-id"
OTHER = "other"  # the label of a model that nobody configured


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """What routing knows of a backend."""

    name: str
    models: tuple[str, ...] = ()
    takes_all: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)  # a public name -> the backend's own
    decoding: str = "autoregressive"
    dialect: str = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """A public model name. Its targets are `backend`, or `backend/model` to say which of its models."""

    name: str
    split: Mapping[str, float]  # target -> share
    sticky: str = "user"  # user (the body's), session (x-session-id), header:NAME, key (the client), none
    mirror: str | None = None  # target
    mirror_share: float = 0.0
    fallback: tuple[str, ...] = ()  # targets
    diffusion: Mapping[str, Any] = field(default_factory=dict)  # defaults of the canonical parameters


@dataclass(frozen=True)
class Table:
    """All backends and routes. A single backend takes all names."""

    backends: Mapping[str, BackendRow]
    routes: Mapping[str, RouteRow] = field(default_factory=dict)

    @cached_property
    def taker(self) -> BackendRow | None:
        """The backend for names that nobody lists."""
        if len(self.backends) == 1:
            return next(iter(self.backends.values()))
        return next((row for row in self.backends.values() if row.takes_all), None)

    @cached_property
    def listed(self) -> Mapping[str, BackendRow]:
        """Model name -> the first backend that lists it."""
        rows = list(self.backends.values())
        return {name: row for row in reversed(rows) for name in (*row.models, *row.aliases)}

    def knows(self, name: str) -> bool:
        return name in self.routes or name in self.listed

    def names(self) -> list[str]:
        """Every public model name, routes first."""
        rows = self.backends.values()
        return list(dict.fromkeys([*self.routes, *(name for row in rows for name in (*row.aliases, *row.models))]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What routing looks at in a request."""

    path: str = ""
    model: str | None = None  # as the client spelled it
    user: str | None = None  # the body's `user`
    client: str | None = None  # the configured client whose key was shown
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # looked up in lower case


@dataclass(frozen=True, slots=True)
class Leg:
    """One try: a backend and the model's name there."""

    backend: str
    model: str | None  # None: the request's own name stays as it is, or it names none
    label: str  # the model as a label: a configured name, or "other"
    decoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do with one request."""

    legs: tuple[Leg, ...]  # the one chosen, then the fallbacks in order; never empty
    mirror: Leg | None = None  # a copy goes there as well
    route: str | None = None
    asked: str | None = None  # the model as the client spelled it: untrusted, fit for storing, never for a label
    suffix: Mapping[str, str] = field(default_factory=dict)  # diffusion parameters from the model's name
    diffusion: Mapping[str, Any] = field(default_factory=dict)  # the route's defaults


@dataclass(frozen=True, slots=True)
class Refusal:
    """No plan: an HTTP status, a stable code and one line for the client."""

    status: int
    code: str
    message: str
    param: str | None = None


def plan(table: Table, ask: Ask, draw: Callable[[], float]) -> Plan | Refusal:
    """The plan for this request; `draw` gives numbers evenly from [0, 1)."""
    asked = ask.model or _named(ask.path)
    if asked and not _sound(asked):
        return _unsound(table, asked)
    name, suffix = (asked, {}) if not asked or table.knows(asked) else split_suffix(asked)
    route = table.routes.get(name) if name else None
    targets = _targets(table, route, name, ask, draw)
    if isinstance(targets, Refusal):
        return targets
    legs = tuple(_distinct(_leg(table, target, name) for target in targets))
    mirrored = route and route.mirror and FORCE not in ask.headers and draw() < route.mirror_share
    mirror = _leg(table, route.mirror, name) if route and route.mirror and mirrored else None
    return Plan(
        legs=legs,
        mirror=mirror if mirror not in legs[:1] else None,
        route=route.name if route else None,
        asked=asked,
        suffix=suffix,
        diffusion=route.diffusion if route else {},
    )


def _unsound(table: Table, asked: str) -> Plan | Refusal:
    """A name that nothing could store goes where all names go, as it is, and is kept in a form that can be."""
    if table.taker is None:
        return Refusal(400, "invalid_model", "model: at most 256 characters, all of them printable", "model")
    leg = Leg(table.taker.name, None, OTHER, table.taker.decoding)
    return Plan(legs=(leg,), asked=asked[:256].encode("utf-8", "replace").decode())


def _targets(
    table: Table, route: RouteRow | None, name: str | None, ask: Ask, draw: Callable[[], float]
) -> tuple[str, ...] | Refusal:
    """Where to send it, in the order to try."""
    if forced := ask.headers.get(FORCE):
        if forced in table.backends:
            return (forced,)
        message = f"{FORCE}: no backend {_short(forced)!r}; there are: {_list(table.backends)}"
        return Refusal(404, "backend_not_found", message)
    if route:
        return (split.choose(route.split, _identity(route, ask), route.name, draw), *route.fallback)
    if row := table.listed.get(name or "") or table.taker:
        return (row.name,)
    if name is None:
        message = f"the request names no model and no backend takes all; name the backend in the header {FORCE}"
        return Refusal(404, "no_backend", message, "model")
    return Refusal(404, "model_not_found", f"no model {_short(name)!r}; there are: {_list(table.names())}", "model")


_SUFFIX = re.compile(r"(?P<name>.+)@(?P<pairs>[a-z_]+=[^,=@]+(?:,[a-z_]+=[^,=@]+)*)")


def split_suffix(model: str) -> tuple[str, dict[str, str]]:
    """`mercury-2.5@steps=8,width=64` -> the name, and the parameters as text; any other name as it is."""
    match = _SUFFIX.fullmatch(model)
    if not match:
        return model, {}
    pairs = (pair.partition("=") for pair in match["pairs"].split(","))
    return match["name"], {key: value.strip() for key, _, value in pairs}


def _leg(table: Table, target: str, name: str | None) -> Leg:
    backend, _, wanted = target.partition("/")
    row = table.backends[backend]
    model = wanted or _own_name(table, row, name)
    configured = wanted or model in row.models or model in row.aliases.values()
    return Leg(backend, model, model if model and configured else OTHER, row.decoding)


def _identity(route: RouteRow, ask: Ask) -> str | None:
    """Who stays on one side of the split; None: nobody known."""
    kind, _, header = route.sticky.partition(":")
    match kind:
        case "user":
            return ask.user or None
        case "session":
            return ask.headers.get(SESSION) or None
        case "header":
            return ask.headers.get(header.lower()) or None
        case "key":
            return ask.client or ask.headers.get("authorization") or None
        case _:
            return None


def _own_name(table: Table, row: BackendRow, name: str | None) -> str | None:
    """What the backend calls the model: as it lists it, else its first one, where it does not take all names."""
    if name is None or name in row.models:
        return name
    if name in row.aliases:
        return row.aliases[name]
    takes_it = row is table.taker and name not in table.routes
    return name if takes_it or not row.models else row.models[0]


def _distinct(legs: Iterable[Leg]) -> Iterator[Leg]:
    """A backend that has failed is not asked again for the same model."""
    seen = set()
    for leg in legs:
        if (leg.backend, leg.model) not in seen:
            seen.add((leg.backend, leg.model))
            yield leg


# -- fallbacks -----------------------------------------------------------------------------------


def falls_back(outcome: str, status: int | None) -> bool:
    """Whether the next leg may be tried after this end of one. To be asked only while the client has got nothing."""
    if outcome in ("unreachable", "timeout_connect", "timeout_first_output", "truncated"):
        return True
    if status is None:
        return outcome == "backend_error"  # it took the request and died
    return status in (408, 429) or status >= 500


def rest(headers: Mapping[str, str], now: float) -> float:
    """Seconds that a backend asked to be left alone, by Retry-After; 0 when it did not say. `now`: since the epoch."""
    try:
        if ms := headers.get("retry-after-ms"):
            return _bounded(float(ms) / 1000)
        after = headers.get("retry-after") or "0"
        return _bounded(float(after) if after.strip()[:1].isdigit() else parsedate_to_datetime(after).timestamp() - now)
    except ValueError:
        return 0.0


def awake(legs: tuple[Leg, ...], resting: Mapping[str, float], now: float) -> tuple[Leg, ...]:
    """The legs without the backends that still rest (name -> until); all of them when none is awake."""
    if not resting:
        return legs
    return tuple(leg for leg in legs if resting.get(leg.backend, 0.0) <= now) or legs


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else 0.0


# -- the table itself ----------------------------------------------------------------------------


def labels(table: Table, backend: str) -> tuple[str, ...]:
    """Every model label that readings of this backend can have."""
    row = table.backends[backend]
    routed = (target for r in table.routes.values() for target in (*r.split, *r.fallback, r.mirror or ""))
    wanted = (model for name, _, model in (target.partition("/") for target in routed) if name == backend and model)
    return tuple(dict.fromkeys((*row.models, *row.aliases.values(), *wanted, OTHER)))


# -- paths and names that clients send ---------------------------------------------------------------------


_STEP = re.compile(r"(?:/|\\|%2f|%5c)(?:\.|%2e){1,2}(?=/|\\|%2f|%5c|$)", re.IGNORECASE)


@lru_cache(maxsize=256)
def served(path: str) -> bool:
    """Whether a path is under /v1 and stays there: `..` would reach what a backend's key was not meant for."""
    return (path == "/v1" or path.startswith("/v1/")) and not _STEP.search(path)


def _named(path: str) -> str | None:
    """The model in `/v1/models/NAME`."""
    _, found, name = path.partition("/models/")
    return unquote(name) or None if found else None


def _sound(name: str) -> bool:
    """Fit to be stored and shown: bounded, no line breaks, none of the lone surrogates that no encoder takes."""
    return len(name) <= 256 and name.isprintable()


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _list(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "none"
