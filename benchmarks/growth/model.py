"""A cost as a constant and so much by piece: fitted to small sizes, checked at a larger one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

RUNS = 5
Sizes = tuple[int, int, int]
HEAD = """| what | sizes | measured | error at the largest | model | predicted |
|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Quantity:
    """Something that grows with the number of *pieces*."""

    name: str
    unit: str
    pieces: str
    sizes: Sizes
    target: int
    measure: Callable[[int], float]


@dataclass(frozen=True)
class Line:
    """A constant, and a cost by piece."""

    constant: float
    each: float

    def at(self, size: int) -> float:
        return self.constant + self.each * size


def fitted(points: list[tuple[int, float]]) -> Line:
    """The line with the least squares of relative errors: a small size counts as much as a large
    one.
    """
    weights = [1 / max(value, 1e-12) ** 2 for _, value in points]
    x = sum(w * size for w, (size, _) in zip(weights, points, strict=True)) / sum(weights)
    y = sum(w * value for w, (_, value) in zip(weights, points, strict=True)) / sum(weights)
    above = sum(
        w * (size - x) * (value - y) for w, (size, value) in zip(weights, points, strict=True)
    )
    below = sum(w * (size - x) ** 2 for w, (size, _) in zip(weights, points, strict=True))
    each = above / below
    return Line(y - each * x, each)


def row(quantity: Quantity, values: list[float]) -> str:
    """A line of the table: what was measured at three sizes, how far the model was off, and what it
    predicts.
    """
    points = list(zip(quantity.sizes, values, strict=True))
    checked = fitted(points[:2]).at(quantity.sizes[2])
    line = fitted(points)
    unit = quantity.unit
    measured = ", ".join(f"{value:,.3g}" if value < 1e3 else f"{value:,.0f}" for value in values)
    expected = line.at(quantity.target)
    shown = f"{expected:,.3g}" if expected < 1e3 else f"{expected:,.0f}"
    return (
        f"| {quantity.name}, {unit} | {'; '.join(f'{size:,}' for size in quantity.sizes)} {quantity.pieces} "
        f"| {measured} | {checked / values[2] - 1:+.0%} | {line.constant:,.3g} + {line.each:,.3g} each "
        f"| **{shown}** at {quantity.target:,} |"
    )


def least_ms(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """CPU of this process, the least of some runs."""
    found = []
    for _ in range(RUNS):
        before()
        began = time.process_time()
        work()
        found.append((time.process_time() - began) * 1e3)
    return min(found)
