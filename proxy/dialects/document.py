"""The table of dialects as Markdown, for docs/dialects.md: `python -m proxy.dialects.document` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .placement import becomes
from .row import Dialect, Field
from .table import BUILT_IN

PARAMETERS = ("steps", "steps_per_block", "width", "block", "length", "threshold", "effort", "view")
NONE = "–"


def tables(dialects: Mapping[str, Dialect] = BUILT_IN) -> str:
    """Which parameter goes into which field, and what else the proxy does for each kind of backend."""
    rows = list(dialects.values())
    fields = _markdown(
        ["parameter", *(f"`{row.name}`" for row in rows)],
        ([f"`{name}`", *(_cell(row, name) for row in rows)] for name in PARAMETERS),
    )
    capabilities = _markdown(
        ["", *(f"`{row.name}`" for row in rows)],
        (
            ["for", *(row.about for row in rows)],
            ["other members", *(_members(row) for row in rows)],
            ["renamed", *(_renames(row) for row in rows)],
            ["messages", *(_messages(row) for row in rows)],
            ["`include_usage`", *(_yes(row.include_usage, "asked for", "not sent") for row in rows)],
            ["errors", *(_yes(row.plain_errors, "put into OpenAI's shape", "as they are") for row in rows)],
            ["completion tokens", *(_yes(row.canvas, "the canvas, kept apart", "of the text") for row in rows)],
            ["stream", *(_yes(row.streams, "its own", "made from its JSON answer") for row in rows)],
            ["division", *(_yes(row.even, "whole blocks, even steps", NONE) for row in rows)],
        ),
    )
    return f"{fields}\n{capabilities}"


def _cell(dialect: Dialect, name: str) -> str:
    if field := dialect.fields.get(name):
        return _field(field)
    if name == "view":
        return "`append` only"
    target = becomes(name, dialect)
    return f"becomes {target}" if target else NONE


def _field(field: Field) -> str:
    limits = ""
    if field.words:
        limits = f" {', '.join(field.words)}"
    elif field.most is not None:
        limits = f" {field.least:g} to {field.most:g}"
    return f"`{field.spelled}`{limits}"


def _members(dialect: Dialect) -> str:
    if dialect.standard:
        return f"only those it lists ({', '.join(dialect.standard)})"
    return f"all but {', '.join(sorted(dialect.refuses))}" if dialect.refuses else "all"


def _renames(dialect: Dialect) -> str:
    return ", ".join(f"`{name}` → `{'.'.join(path)}`" for name, path in dialect.renames.items()) or NONE


def _messages(dialect: Dialect) -> str:
    rule = dialect.messages.get("chat")
    if rule is None:
        return "as they are"
    told = [f"{role} as {own}" for role, own in rule.roles.items()]
    return ", ".join([*told, *(["content as text"] if rule.text_only else [])]) or "as they are"


def _yes(flag: bool, yes: str, no: str) -> str:
    return yes if flag else no


def _markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(tables())
