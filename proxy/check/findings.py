"""What was found out about one backend, and the judgement: pure, from answers to facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from ..dialects import Dialect
from ..filters import sentence
from ..meter import Reading, grammar
from .effect import Effect

OK, ODD, BAD = "ok", "odd", "bad"  # as expected; works, but say something; cannot be used


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the table."""

    name: str
    says: str
    state: str = OK


@dataclass(frozen=True, slots=True)
class Trial:
    """A parameter that was tried out: two values, and what the difference did."""

    name: str
    little: Any
    much: Any
    measure: str  # time or size
    by: str  # the member that carried it
    known: bool = True  # the dialect has that field; else it is the tutorial's name, tried as it is
    effect: Effect | None = None
    trouble: str = ""  # why there is no effect to speak of

    @property
    def says(self) -> str:
        where = self.by if self.known else f"{self.by}, for which the dialect has no field"
        what = f"{self.little} against {self.much} ({where}): "
        effect = self.effect
        if effect is None or effect.ratio is None:
            return what + (self.trouble or "not measured")
        ratio = f"{self.measure} x {effect.ratio:.2f} [{effect.low:.2f}, {effect.high:.2f}], {effect.pairs} pairs"
        hint = f'. To use it: fields = {{ {self.name} = "{self.by}" }}' if effect.seen and not self.known else ""
        return what + ("has an effect: " if effect.seen else "no effect seen: ") + ratio + hint

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"seen": self.effect.seen if self.effect else None}


@dataclass(slots=True)
class Findings:
    """Everything about one backend."""

    backend: str
    facts: list[Fact] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        return all(fact.state != BAD for fact in self.facts)

    def add(self, name: str, says: str, state: str = OK) -> None:
        self.facts.append(Fact(name, says, state))

    def json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "usable": self.usable,
            "facts": [asdict(fact) for fact in self.facts],
            "parameters": [trial.json() for trial in self.trials],
        }


@dataclass(frozen=True, slots=True)
class Bill:
    """The most that a check can cost, told before it starts."""

    requests: int
    tokens: int  # of output, at most
    cost: Decimal | None = None
    currency: str = "USD"

    @property
    def says(self) -> str:
        cost = "no price is configured" if self.cost is None else f"at most {self.cost:.4f} {self.currency}"
        return f"up to {self.requests} short requests, {self.tokens} tokens of output; {cost}"


def key(status: int, shown: bool) -> Fact:
    """What a status says of the key."""
    if status == 401:
        says = "refused (401): change the key" if shown else "needed (401): none is configured"
        return Fact("key", says, BAD)
    if status == 402:
        return Fact("key", "accepted, but the account cannot pay (402)", BAD)
    if status == 403:
        return Fact("key", "not allowed to do this (403)", BAD)
    return Fact("key", "accepted" if shown else "none is configured, none is needed")


def shape(reading: Reading) -> Fact:
    """How a stream comes."""
    arrivals = reading.arrivals
    if not reading.streamed:
        return Fact("stream", "no stream: one JSON answer", ODD)
    if not arrivals:
        return Fact("stream", "a stream without output", ODD)
    if any(arrival.replace for arrival in arrivals):
        return Fact("stream", f"snapshots, each replacing the one before: {len(arrivals)} reads")
    if len(arrivals) == 1:
        return Fact("stream", "one burst: the whole answer in one read, so no rate after the first token", ODD)
    return Fact("stream", f"append: {len(arrivals)} reads with output")


def usage(reading: Reading, dialect: Dialect) -> Fact:
    """What a stream reports of its tokens, when asked to."""
    if not reading.tokens:
        state = ODD if dialect.include_usage else OK
        return Fact("usage", "no usage in streams: tokens of streams are unknown", state)
    if looks_like_canvas(reading) and not dialect.canvas:
        says = (
            f"{reading.tokens.completion} completion tokens for {_characters(reading)} characters: probably the size of"
        )
        return Fact("usage", f"{says} a canvas. Set canvas = true in a dialect of your own", ODD)
    return Fact("usage", f"reported: {reading.tokens.prompt} in, {reading.tokens.completion} out")


def looks_like_canvas(reading: Reading) -> bool:
    """Completion tokens that the text cannot account for: fewer characters than tokens."""
    tokens = reading.tokens.completion
    return tokens is not None and tokens >= 64 and _characters(reading) < tokens


def _characters(reading: Reading) -> int:
    return len(reading.text or "")


def trouble(reading: Reading) -> str:
    """Why an exchange was not ok, in a line."""
    told = _told(reading.fault.message or reading.fault.type) if reading.fault else ""
    status = f"{reading.status}: " if reading.status and reading.status >= 400 else ""
    return f"{status}{' '.join(told.split())[:200] or reading.outcome}"


def _told(message: str) -> str:
    """FastAPI's list of faults as a sentence; everything else as it is."""
    try:
        detail = grammar.loads(message.encode("utf-8", "replace")) if message.startswith("[") else message
    except grammar.Unreadable:
        detail = message
    return sentence(detail)


def prefixes(prefix: str) -> Iterator[str]:
    """Base paths that may be meant instead of one that answers 404, the likeliest first."""
    seen = {prefix or "/v1"}
    for path in (
        prefix.removesuffix("/chat/completions"),
        prefix.replace("/v1/v1", "/v1"),
        f"{prefix}/v1",
        prefix.removesuffix("/v1"),
        "/v1",
        "/api/v1",
        "/openai/v1",
        "/api/paas/v4",
    ):
        if path and path not in seen:
            seen.add(path)
            yield path


# The values that a parameter is tried with: little work against much, and what the difference shows in.
TRIALS: Mapping[str, tuple[Any, Any, str]] = {
    "steps": (4, 64, "time"),
    "steps_per_block": (2, 32, "time"),
    "width": (32, 2, "time"),
    "block": (128, 16, "time"),
    "length": (32, 128, "size"),
    "threshold": (0.5, 0.99, "time"),
    "effort": ("instant", "high", "time"),
}
