"""Judges how much one fault has repeated: the bound as a number, where the checker has it as a
time. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

from tests.faults.checker import Disruption, Place, Violation
from tests.faults.history import Event


class Repeat(NamedTuple):
    """A record that *process* had begun, and that *by* begins *again*. ``ended`` is inf where it
    did not end.
    """

    place: Place
    process: str
    ended: float
    by: str
    again: float


def repeats(events: Iterable[Event]) -> list[Repeat]:
    """Every delivery beyond a record's first, by who had it before."""
    begins: dict[Place, list[Event]] = defaultdict(list)
    ends: dict[tuple[Place, str], float] = {}
    for event in sorted(events, key=lambda event: event.t):
        place = event.tp, event.offset
        if event.kind == "begin" and event.attempt == 1:
            begins[place].append(event)
        elif event.kind == "end" and event.outcome != "cancelled":
            ends.setdefault((place, event.process), event.t)
    return [
        Repeat(
            place, earlier.process, ends.get((place, earlier.process), inf), later.process, later.t
        )
        for place, found in begins.items()
        for earlier, later in pairwise(found)
    ]


def too_many_repeated(
    events: Iterable[Event], disruptions: Iterable[Disruption], most: int
) -> Iterator[Violation]:
    """I7: of what a process had begun, no fault that hit it had more than *most* records repeated.

    A repeat counts for the last fault before it: a process that lives for hours is frozen and cut
    off many times.
    """
    hit = _hit(disruptions)
    for (process, _), number in Counter(
        (repeat.process, bisect_right(hit[repeat.process], repeat.again))
        for repeat in repeats(events)
    ).items():
        if number > most:
            yield Violation(
                "I7",
                f"{process}: one fault had {number} of its records repeated, and {most} may be",
            )


def oldest(events: Iterable[Event], disruptions: Iterable[Disruption]) -> float:
    """How long before the fault that had it repeated the oldest repeated record had ended, in
    seconds; 0: none was.
    """
    hit = _hit(disruptions)
    return max(
        (
            hit[it.process][number - 1] - it.ended
            for it in repeats(events)
            if it.ended < inf and (number := bisect_right(hit[it.process], it.again))
        ),
        default=0.0,
    )


def _hit(disruptions: Iterable[Disruption]) -> dict[str, list[float]]:
    """process -> when the faults began that hit it, in their order."""
    hit: dict[str, list[float]] = defaultdict(list)
    for one in sorted(disruptions, key=lambda one: one.start):
        hit[one.process].append(one.start)
    return hit
