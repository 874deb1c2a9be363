"""Concurrency -> throughput: the universal scalability law, and where more load stops paying.

    X(n) = λ·n / (1 + σ·(n - 1) + κ·n·(n - 1))

λ is what one client gets, σ the share of work that queues, κ what clients cost each other. The fit is
least squares in three steps:

1. n / X is linear in (1/λ, σ/λ, κ/λ): that gives a start without a guess.
2. For a given σ and κ the best λ has a closed form, so only σ and κ are searched, by Gauss-Newton with
   steps that are halved until they help.
3. Both are at least 0. A solution outside is replaced by the better of the two edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

NEAR_BEST = 0.95


class Point(NamedTuple):
    concurrency: int
    throughput: float


@dataclass(frozen=True, slots=True)
class Law:
    """A fitted law. `residual`: root mean square of (measured - fitted) / largest measured."""

    rate: float  # λ, tokens per second of a single client
    contention: float  # σ
    crosstalk: float  # κ
    residual: float

    def at(self, concurrency: float) -> float:
        """X(n) = λn / (1 + σ(n-1) + κn(n-1)), tokens per second."""
        return self.rate * _shape(concurrency, self.contention, self.crosstalk)

    @property
    def peak(self) -> float | None:
        """n* = √((1-σ)/κ), at least 1: where throughput is highest. None if the curve never turns (κ = 0)."""
        if self.crosstalk <= 1e-12:
            return None
        return max(1.0, sqrt(max(0.0, 1 - self.contention) / self.crosstalk))


@dataclass(frozen=True, slots=True)
class Knee:
    """Where to stop: by the law, and by what was measured."""

    law: Law | None  # None below four levels: three parameters fit three points exactly and say nothing
    enough: int  # the smallest level with at least 95 % of the best throughput
    best: float  # the best throughput measured, tokens per second
    resolved: bool  # False: only the last level reaches it, so the true knee may lie beyond


def knee(points: Sequence[Point]) -> Knee | None:
    """The knee of a ladder; None without any level. Several runs of one level may be given as they are."""
    if not points:
        return None
    levels = sorted({point.concurrency for point in points})
    typical = {level: _median([p.throughput for p in points if p.concurrency == level]) for level in levels}
    best = max(typical.values())
    enough = next(level for level in levels if typical[level] >= NEAR_BEST * best)
    law = fit(points) if len(levels) >= 4 and best > 0 else None
    return Knee(law, enough, best, resolved=enough != levels[-1])


def fit(points: Sequence[Point]) -> Law:
    """Least squares of X(n) over λ > 0, σ >= 0, κ >= 0."""
    candidates = [_descend(points, start, free) for start, free in _starts(points)]
    contention, crosstalk = min(candidates, key=lambda pair: _error(points, *pair))
    rate = _rate(points, contention, crosstalk)
    largest = max(point.throughput for point in points) or 1.0
    return Law(rate, contention, crosstalk, sqrt(_error(points, contention, crosstalk) / len(points)) / largest)


def _starts(points: Sequence[Point]) -> list[tuple[tuple[float, float], tuple[bool, bool]]]:
    sigma, kappa = (max(0.0, value) for value in _linear(points))
    inside = ((sigma, kappa), (True, True))
    edges = [((sigma, 0.0), (True, False)), ((0.0, kappa), (False, True)), ((0.0, 0.0), (False, False))]
    return [inside, ((0.05, 0.001), (True, True)), *edges]


def _linear(points: Sequence[Point]) -> tuple[float, float]:
    """σ and κ from the straight-line form n/X = (1 + σ(n-1) + κn(n-1)) / λ."""
    used = [point for point in points if point.throughput > 0]
    rows = [(1.0, p.concurrency - 1.0, p.concurrency * (p.concurrency - 1.0)) for p in used]
    goals = [p.concurrency / p.throughput for p in used]
    normal = [[sum(r[i] * r[j] for r in rows) for j in range(3)] for i in range(3)]
    right = [sum(r[i] * goal for r, goal in zip(rows, goals, strict=True)) for i in range(3)]
    solved = _solve(normal, right)
    if solved is None or solved[0] <= 0:
        return 0.05, 0.001
    return solved[1] / solved[0], solved[2] / solved[0]


def _descend(points: Sequence[Point], start: tuple[float, float], free: tuple[bool, bool]) -> tuple[float, float]:
    """Levenberg-Marquardt over the free ones of (σ, κ), kept at or above 0."""
    here, error, damping = start, _error(points, *start), 1e-3
    for _ in range(200):
        step = _step(points, here, free, damping)
        there = (max(0.0, here[0] + step[0]), max(0.0, here[1] + step[1]))
        found = _error(points, *there)
        if found < error:
            gain = error - found
            here, error, damping = there, found, damping / 3
            if gain <= 1e-15 * error:
                break
        else:
            damping *= 4
            if damping > 1e12:
                break
    return here


def _step(
    points: Sequence[Point], here: tuple[float, float], free: tuple[bool, bool], damping: float
) -> tuple[float, float]:
    base = _residuals(points, *here)
    slopes: list[list[float]] = []
    for axis in (0, 1):
        width = 1e-7 * max(here[axis], 1e-3)
        moved = (here[0] + width, here[1]) if axis == 0 else (here[0], here[1] + width)
        slopes.append([(b - a) / width for a, b in zip(base, _residuals(points, *moved), strict=True)])
    axes = [axis for axis in (0, 1) if free[axis]]
    matrix = [[_dot(slopes[i], slopes[j]) * (1 + damping if i == j else 1) for j in axes] for i in axes]
    solved = _solve(matrix, [-_dot(slopes[i], base) for i in axes]) or [0.0] * len(axes)
    step = [0.0, 0.0]
    for axis, value in zip(axes, solved, strict=True):
        step[axis] = value
    return step[0], step[1]


def _shape(n: float, contention: float, crosstalk: float) -> float:
    return n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))


def _rate(points: Sequence[Point], contention: float, crosstalk: float) -> float:
    shapes = [_shape(point.concurrency, contention, crosstalk) for point in points]
    return _dot(shapes, [point.throughput for point in points]) / _dot(shapes, shapes)


def _residuals(points: Sequence[Point], contention: float, crosstalk: float) -> list[float]:
    rate = _rate(points, contention, crosstalk)
    return [rate * _shape(p.concurrency, contention, crosstalk) - p.throughput for p in points]


def _error(points: Sequence[Point], contention: float, crosstalk: float) -> float:
    residuals = _residuals(points, contention, crosstalk)
    return _dot(residuals, residuals)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with pivoting, for one to three unknowns; None when singular."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if abs(rows[pivot][column]) < 1e-300:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(column + 1, size):
            factor = rows[row][column] / rows[column][column]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    solved = [0.0] * size
    for row in reversed(range(size)):
        rest = sum(rows[row][k] * solved[k] for k in range(row + 1, size))
        solved[row] = (rows[row][size] - rest) / rows[row][row]
    return solved
