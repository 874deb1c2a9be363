"""The canonical diffusion parameters, and the four ways a client may give them.

| name | meaning |
|---|---|
| steps | denoising steps over the whole answer |
| steps_per_block | denoising steps of each block (canvas) |
| width | tokens that one step settles |
| block | tokens of a block (canvas) |
| length | tokens of the answer |
| threshold | confidence from which a token is settled, 0 to 1; makes steps a cap |
| effort | reasoning effort: instant to high |
| view | append: ordinary deltas; snapshot: each delta replaces the ones before |
| extra | fields for the backend, verbatim |

Who says more directly wins: the body's `diffusion` object, the tutorial's top-level fields, `x-diffusion-*`
headers, the model's name (`mercury-2.5@steps=8,width=64`); a route's defaults come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..body import Body

EFFORTS = ("none", "instant", "minimal", "low", "medium", "high", "xhigh", "max")
VIEWS = ("append", "snapshot")
OBJECT = "diffusion"  # the body's member that holds canonical names
TUTORIAL = {"num_denoising_steps": "steps", "parallel_tokens": "width"}  # top-level names that count as canonical
HEADER = "x-diffusion-"
_MEMBERS = frozenset((OBJECT, *TUTORIAL))
RESERVED = ("model", "stream", OBJECT)  # what routing has decided, `extra` does not undo


class ParameterError(ValueError):
    """A parameter that is none, or a value that it cannot have. One line, fit for the client."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True)
class Parameters:
    """What was asked for, in canonical names, and where it was said."""

    values: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    defaults: frozenset[str] = frozenset()  # the names whose values are the route's
    members: tuple[str, ...] = ()  # of the body: they are the proxy's to read, and go
    overruled: tuple[str, ...] = ()  # names that were given twice, with different values

    def __bool__(self) -> bool:
        """Whether there is anything to translate or to take out."""
        return bool(self.values or self.extra or self.members or self.overruled)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.values, *(["extra"] if self.extra else []))


NOTHING = Parameters()


def read(
    body: Body | None,
    headers: Mapping[str, str] | None = None,
    suffix: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Parameters:
    """Every parameter of a request; `headers` by lower-case name.

    Raises ParameterError for an unknown name or an impossible value.
    """
    said = body is not None and not _MEMBERS.isdisjoint(body.members)
    # In one look at all names: most requests have none of it, and one that holds it elsewhere only takes longer.
    if not (said or suffix or defaults or HEADER in "\n".join(headers or ())):
        return NOTHING
    values: dict[str, Any] = {}
    overruled: list[str] = []
    for name, value in _given(body, headers or {}, suffix or {}):
        if values.setdefault(name, value) != value:
            overruled.append(name)
    late = {name: check(name, value, f"diffusion.{name}") for name, value in (defaults or {}).items()}
    late = {name: value for name, value in late.items() if name not in values}
    extra = {**(late.pop("extra", None) or {}), **(values.pop("extra", None) or {})}
    members = tuple(name for name in (OBJECT, *TUTORIAL) if body is not None and name in body)
    return Parameters(values | late, extra, frozenset(late), members, tuple(dict.fromkeys(overruled)))


def _given(body: Body | None, headers: Mapping[str, str], suffix: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Names and checked values in the order in which they count."""
    if body is not None:
        own = body.get(OBJECT)
        if own is not None and not isinstance(own, dict):
            raise ParameterError(OBJECT, 'must be an object, such as {"steps": 8}')
        for name, value in (own or {}).items():
            if value is not None:
                yield name, check(name, value, f"{OBJECT}.{name}")
        for member, name in TUTORIAL.items():
            if body.get(member) is not None:
                yield name, check(name, body.get(member), member)
    for header, text in headers.items():
        if header.startswith(HEADER):
            name = header.removeprefix(HEADER).replace("-", "_")
            yield name, check(name, text, header, spelled=True)
    for name, text in suffix.items():
        yield name, check(name, text, f"model@{name}", spelled=True)


def check(name: str, value: Any, where: str, spelled: bool = False) -> Any:
    """The value, if the parameter can have it. `spelled`: it is text that stands for one."""
    match name:
        case "steps" | "steps_per_block" | "width" | "block" | "length":
            number = _number(value, spelled)
            if number is not None and number >= 1 and number == int(number):
                return int(number)
            raise ParameterError(where, f"must be a whole number from 1 on, not {_shown(value)}")
        case "threshold":
            number = _number(value, spelled)
            if number is not None and 0 <= number <= 1:
                return number
            raise ParameterError(where, f"must be a number from 0 to 1, not {_shown(value)}")
        case "effort" | "view":
            words = EFFORTS if name == "effort" else VIEWS
            if value in words:
                return value
            raise ParameterError(where, f"must be one of {', '.join(words)}, not {_shown(value)}")
        case "extra" if not spelled:
            if isinstance(value, dict) and not value.keys() & set(RESERVED):
                return value
            raise ParameterError(where, f"must be an object of fields for the backend, without {', '.join(RESERVED)}")
    known = "steps, steps_per_block, width, block, length, threshold, effort, view"
    raise ParameterError(where, f"is no diffusion parameter; there are: {known}" + (", extra" if not spelled else ""))


def _number(value: Any, spelled: bool) -> int | float | None:
    if spelled:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= 1e9 else None  # also refuses NaN and infinities


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else text[:39] + "..."
