"""What /api/requests was asked, read from its query string: anything that is not understood is said, not skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .meter import OUTCOMES, Reading
from .ring import HORIZON, Entry, Ring
from .window import NOT_FAILED

SORTS: dict[str, Callable[[Reading], Any]] = {
    "started_at": lambda r: r.started_at,
    "ended_at": lambda r: r.started_at + r.done,
    "ttft": lambda r: r.ttft,
    "silence": lambda r: r.silence,
    "e2e": lambda r: r.e2e,
    "e2e_rate": lambda r: r.e2e_rate,
    "decode_rate": lambda r: r.decode_rate,
    "completion": lambda r: r.tokens.completion,
    "cost": lambda r: r.cost,
}
_NAMES = ("limit", "backend", "outcome", "before", "text", "sort", "order")
_MOST = 1_000


class Invalid(Exception):
    """The query names something that is not there. Its text is for the one who asked."""


class Selection(NamedTuple):
    entries: Sequence[Entry]
    matched: int  # how many fit, with those of other pages
    next: str | None  # the `before` of the next page


class Query(NamedTuple):
    limit: int
    backend: str | None
    outcome: str | None
    before: str | None
    text: str
    sort: str | None
    descending: bool

    def fits(self, reading: Reading) -> bool:
        if self.backend is not None and (reading.backend or "none") != self.backend:
            return False
        if self.outcome == "failed":
            if reading.outcome in NOT_FAILED:
                return False
        elif self.outcome is not None and reading.outcome != self.outcome:
            return False
        return not self.text or self.text in _words(reading)

    def select(self, entries: Sequence[Entry]) -> Selection:
        """Of the kept entries, newest first, those that were asked for."""
        fitting = [entry for entry in entries if self.fits(entry.reading)]
        if self.sort is not None:
            return Selection(self._sorted(fitting, SORTS[self.sort])[: self.limit], len(fitting), None)
        rest = fitting
        if self.before is not None:
            places = (i for i, entry in enumerate(entries, 1) if entry.reading.id == self.before)
            rest = [entry for entry in entries[next(places, len(entries)) :] if self.fits(entry.reading)]
        page = rest[: self.limit]
        return Selection(page, len(fitting), page[-1].reading.id if len(rest) > self.limit else None)

    def _sorted(self, found: Sequence[Entry], measure: Callable[[Reading], Any]) -> list[Entry]:
        """What has no such number comes last, whichever way round."""
        pairs = [(measure(entry.reading), entry) for entry in found]
        there = [(value, entry) for value, entry in pairs if value is not None]
        there.sort(key=lambda pair: pair[0], reverse=self.descending)
        return [entry for _, entry in there] + [entry for value, entry in pairs if value is None]


def query(given: Mapping[str, str], ring: Ring) -> Query:
    """Reads the query string; raises `Invalid` with one line that names the parameter."""
    _known(given, _NAMES)
    limit = _whole(given, "limit", 100, _MOST)
    outcome = _choice(given, "outcome", (*OUTCOMES, "failed"))
    backend = _choice(given, "backend", (*(b.name for b in ring.backends), "none")) if ring.backends else None
    sort = _choice(given, "sort", tuple(SORTS))
    order = _choice(given, "order", ("asc", "desc"))
    before = given.get("before")
    if before is not None and (sort is not None or ring.find(before) is None):
        raise Invalid(
            "before: goes with newest first only; leave out sort"
            if sort is not None
            else "before: no request with this id is kept; begin again without it"
        )
    return Query(limit, backend, outcome, before, given.get("text", "").casefold(), sort, order != "asc")


def span(given: Mapping[str, str]) -> int:
    """The window that /api/summary and /api/events were asked for, in seconds."""
    _known(given, ("window",))
    return _whole(given, "window", 60, HORIZON)


def _words(reading: Reading) -> str:
    names = (reading.id, reading.model, reading.asked_model, reading.client, reading.route, reading.api)
    fault = tuple(reading.fault) if reading.fault else ()
    return "\n".join(word for word in (*names, *fault) if word).casefold()


def _known(given: Mapping[str, str], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            raise Invalid(f"{name[:40]}: is not a parameter here; there are: {', '.join(names)}")


def _whole(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    value = given.get(name, str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= most):
        raise Invalid(f"{name}: must be a whole number from 1 to {most}")
    return int(value)


def _choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str | None:
    value = given.get(name)
    if value is not None and value not in choices:
        raise Invalid(f"{name}: must be one of {', '.join(choices)}")
    return value
