"""Token counts as the backend reported them. None means "not reported", which is not zero.

One merge rule serves final usage, usage on every chunk (running totals) and details that come in
pieces: per count, the last real one wins; nothing is ever added up. A zero that follows a positive
count is a placeholder, not news.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Usage(NamedTuple):
    """Tokens of one exchange. `cached` and `cache_write` are part of `prompt`, `reasoning` is part of `completion`."""

    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def merge(self, later: Usage) -> Usage:
        """This usage, brought up to date by a later report."""
        if self is NOTHING:
            return later
        return Usage(*map(_newer, self, later))

    def __bool__(self) -> bool:
        """Whether a prompt, completion or total count was reported."""
        return self.prompt is not None or self.completion is not None or self.total is not None


NAMES = Usage._fields
NOTHING = Usage()

# Where each count may be found, the best place first: OpenAI chat, OpenAI responses, then the flat spellings
# of Mercury, SGLang and DeepSeek. A dot steps into an object.
_PLACES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt_tokens", "input_tokens"),
    "completion": ("completion_tokens", "output_tokens"),
    "total": ("total_tokens",),
    "cached": (
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "cached_input_tokens",
        "cached_tokens",
        "prompt_cache_hit_tokens",
    ),
    "cache_write": ("prompt_tokens_details.cache_write_tokens", "input_tokens_details.cache_write_tokens"),
    "reasoning": (
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "reasoning_tokens",
    ),
}
_WORST = max(map(len, _PLACES.values()))  # of no place
# The same, by member: which count it is, and how good a place; of members that are objects, by theirs.
_FLAT: dict[str, tuple[int, int]] = {}
_INNER: dict[str, dict[str, tuple[int, int]]] = {}
for _number, _name in enumerate(NAMES):
    for _rank, _place in enumerate(_PLACES[_name]):
        _outer, _, _member = _place.rpartition(".")
        (_INNER.setdefault(_outer, {}) if _outer else _FLAT)[_member] = (_number, _rank)


def read(report: Any) -> Usage | None:
    """The counts in a `usage` object; None when it is no object or holds no count at all."""
    if not isinstance(report, dict):
        return None
    counts: list[int | None] = [None] * len(NAMES)
    ranks = [_WORST] * len(NAMES)
    for places, members in ((_FLAT, report), *((_INNER[key], report[key]) for key in _INNER if key in report)):
        if not isinstance(members, dict):
            continue
        for key, value in members.items():
            name, rank = places.get(key, (0, _WORST))
            if rank < ranks[name] and (tokens := count(value)) is not None:
                counts[name], ranks[name] = tokens, rank
    found = Usage(*counts)
    return found if found != NOTHING else None


def _newer(old: int | None, new: int | None) -> int | None:
    if new is None or (new == 0 and old):
        return old
    return new


def count(value: Any) -> int | None:
    """A token count, or None for anything that cannot be one (true, -1, 1.5, NaN, "7")."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == value // 1 and value < 1 << 53 else None
