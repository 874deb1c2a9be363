"""Which of a dialect's fields gets which value: conversions and rounding, before any byte is thought of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import conversion
from .row import Dialect, Field


@dataclass(frozen=True, slots=True)
class Shape:
    """The answer's size as the backend will see it; None: unknown."""

    length: int | None
    block: int | None  # None: one block, the whole answer
    source: str = "length"  # who says the length


class Placed(NamedTuple):
    """A value for a field, and the parameter that it comes from when that is not the field's own, such as `steps=8`."""

    value: Any
    source: str = ""


Formula = Callable[[int, Shape, Dialect], int | str | None]


def _sized(formula: Callable[[int, int, int | None], int]) -> Formula:
    """A formula that needs the answer's length."""
    return lambda value, shape, _: None if shape.length is None else formula(value, shape.length, shape.block)


# A parameter without a field -> one that may have it, in the order to try.
CONVERSIONS: tuple[tuple[str, str, Formula], ...] = (
    ("steps", "steps_per_block", _sized(conversion.per_block)),
    ("steps_per_block", "steps", _sized(conversion.total)),
    ("width", "steps", _sized(lambda width, length, _: conversion.steps_of_width(width, length))),
    (
        "width",
        "steps_per_block",
        _sized(
            lambda width, length, block: conversion.per_block(conversion.steps_of_width(width, length), length, block)
        ),
    ),
    ("steps", "width", _sized(lambda steps, length, _: conversion.width_of_steps(steps, length))),
    (
        "steps",
        "effort",
        lambda steps, _, dialect: (
            conversion.effort_of_steps(steps, dialect.effort_from_steps) if dialect.effort_from_steps else None
        ),
    ),
)


def becomes(name: str, dialect: Dialect) -> str | None:
    """The parameter that one without a field is converted to; None: it has a field, or is dropped."""
    if name in dialect.fields:
        return None
    return next(
        (
            target
            for source, target, _ in CONVERSIONS
            if source == name and target in dialect.fields and (target != "effort" or dialect.effort_from_steps)
        ),
        None,
    )


def place(
    wanted: Mapping[str, Any], fields: Mapping[str, Field], shape: Shape, dialect: Dialect
) -> tuple[dict[str, Placed], list[str]]:
    """Canonical field -> value, and the parameters that found no place."""
    placed = {name: Placed(value) for name, value in wanted.items() if name in fields}
    homeless = [name for name in wanted if name not in fields]
    for name, target, formula in CONVERSIONS:
        if name in homeless and target in fields and target not in placed:
            value = formula(wanted[name], shape, dialect)
            if value is not None:
                placed[target] = Placed(value, f"{name}={wanted[name]}")
                homeless.remove(name)
    if dialect.even and shape.block and shape.length and fields.keys() >= {"steps", "block", "length"}:
        placed |= _evened(placed, fields, shape, dialect)
    return placed, homeless


def _evened(
    placed: Mapping[str, Placed], fields: Mapping[str, Field], shape: Shape, dialect: Dialect
) -> dict[str, Placed]:
    """What has to change so that the answer is whole blocks, and every block gets the same steps."""
    assert shape.length and shape.block
    changed = {}
    row = fields["steps"]
    most = int(row.most) if row.most else None
    block = shape.block
    if most and conversion.blocks(shape.length, block) > most:  # more blocks than there may be steps
        block = -(-shape.length // most)
        changed["block"] = Placed(block, f"block={shape.block}")
    length = conversion.whole_blocks(shape.length, block)
    if length != shape.length:
        changed["length"] = Placed(length, f"{shape.source}={shape.length}")
    asked = placed.get("steps") or (Placed(dialect.steps, f"steps={dialect.steps}") if dialect.steps else None)
    if asked:
        even = conversion.even_steps(asked.value, length // block, most)
        if even != asked.value:
            changed["steps"] = Placed(even, asked.source or f"steps={asked.value}")
    return changed
