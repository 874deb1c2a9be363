"""A body's ordinary members, as the backend takes them: renamed, brought into range, left out.

A dialect without rows for this changes nothing. What is changed is told, null aside: it says nothing, and strict
servers refuse it where the member may only be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .draft import Draft, spell
from .row import Dialect, Field, Messages

LENGTHS = ("max_completion_tokens", "max_tokens")  # the answer's length in OpenAI's words; the first wins


def translate_members(draft: Draft, dialect: Dialect, api: str) -> None:
    standard = dialect.standard.get(api)
    for name, path in dialect.renames.items():
        if name in draft.body and name not in draft.remove:
            _rename(draft, name, path, (standard or {}).get(path[0]) or Field(path=path))
    own = {row.path[0] for row in dialect.fields.values()}
    for name in draft.body.members:
        if name not in draft.remove and (name,) not in draft.set:
            _fit(draft, name, dialect, standard, own)


def _fit(draft: Draft, name: str, dialect: Dialect, standard: Mapping[str, Field] | None, own: set[str]) -> None:
    if standard is None:
        if name in dialect.refuses:
            draft.leave_out(name)
    elif name in standard:
        _bring_in(draft, standard[name], name)
    elif name not in own:
        draft.leave_out(name)


def _rename(draft: Draft, name: str, path: tuple[str, ...], row: Field) -> None:
    value, there = draft.body.get(name), draft.said(path)
    if path in draft.set or (there is not None and path[0] not in LENGTHS):
        draft.leave_out(name)  # the backend's own word says it already
        return
    draft.remove.append(name)
    if value is not None and value == there:
        draft.translated.append(f"{name} (as {row.spelled}, which says the same)")
    elif value is not None:
        draft.put(row, value, name)


def _bring_in(draft: Draft, row: Field, name: str) -> None:
    value = draft.body.get(name)
    held = row.hold(value)
    if held is None:
        draft.leave_out(name)
    elif held is not value:
        draft.set[row.path] = held
        draft.translated.append(f"{name}{_difference(row, value, held)}")


def _difference(row: Field, value: Any, held: Any) -> str:
    match row.kind:
        case "list":
            return " (as a list)"
        case "object":
            return f" (only {', '.join(row.members)})"
        case "word":
            return f"={held} (from {'an object' if isinstance(value, dict) else value})"
    return f"={spell(held)} (from {spell(value)})"


def translate_messages(draft: Draft, rule: Messages | None) -> None:
    """The messages, made anew only when one of them has to change."""
    messages = draft.body.get("messages")
    if rule is None or not isinstance(messages, list) or all(map(rule.takes, messages)):
        return
    told: dict[str, None] = {}
    draft.set["messages",] = [message if rule.takes(message) else rule.remade(message, told) for message in messages]
    draft.translated += (f"messages ({what})" for what in told)
