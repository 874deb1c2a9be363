"""From one way of counting denoising work to another. Each with its formula; None where a part is unknown.

An answer of `length` tokens is made in blocks of `block` tokens, one after the other; a step settles `width`
tokens of the current block. Servers without blocks have one block, the whole answer.
"""

from __future__ import annotations


def blocks(length: int, block: int | None) -> int:
    """ceil(length / block); without blocks, 1."""
    return -(-length // block) if block else 1


def per_block(steps: int, length: int, block: int | None) -> int:
    """Steps of each block = ceil(steps / blocks): never fewer steps in all than asked for."""
    return -(-steps // blocks(length, block))


def total(steps_per_block: int, length: int, block: int | None) -> int:
    """Steps of the answer = steps per block * blocks."""
    return steps_per_block * blocks(length, block)


def steps_of_width(width: int, length: int) -> int:
    """Steps of the answer = ceil(length / width)."""
    return -(-length // width)


def width_of_steps(steps: int, length: int) -> int:
    """Tokens that a step settles = ceil(length / steps)."""
    return -(-length // steps)


def whole_blocks(length: int, block: int) -> int:
    """The length, rounded up to whole blocks."""
    return blocks(length, block) * block


def even_steps(steps: int, count: int, most: int | None) -> int | None:
    """The multiple of `count` (blocks) nearest to `steps`, at least one a block; None: none is within `most`."""
    even = max(1, (2 * steps + count) // (2 * count)) * count
    if most is not None and even > most:
        even = most // count * count
    return even or None


def effort_of_steps(steps: int, scale: tuple[tuple[int, str], ...]) -> str:
    """The effort of the first row (up to, effort) that reaches `steps`; past the last row, the last one's."""
    return next((effort for up_to, effort in scale if steps <= up_to), scale[-1][1])
