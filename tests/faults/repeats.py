"""Judges how much one fault has repeated: the bound as a number, where the checker has it as a time. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import NamedTuple

from tests.faults.checker import Disruption, Place, Violation
from tests.faults.history import Event


class Repeat(NamedTuple):
    """A record that *process* had begun, and that another delivery repeats. ``ended`` is inf where it did not end."""

    place: Place
    process: str
    ended: float
    by: str


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
        Repeat(place, earlier.process, ends.get((place, earlier.process), inf), later.process)
        for place, found in begins.items()
        for earlier, later in pairwise(found)
    ]


def too_many_repeated(events: Iterable[Event], most: int) -> Iterator[Violation]:
    """I7: of what one process had begun, no more than *most* records are repeated."""
    for process, number in Counter(repeat.process for repeat in repeats(events)).items():
        if number > most:
            yield Violation("I7", f"{process}: {number} of its records were repeated, and {most} may be")


def oldest(events: Iterable[Event], disruptions: Iterable[Disruption]) -> float:
    """How long before the end of its process the oldest record had ended that was repeated, in seconds; 0: none."""
    cut: Mapping[str, float] = {one.process: one.start for one in disruptions}
    return max(
        (cut[it.process] - it.ended for it in repeats(events) if it.process in cut and it.ended < inf), default=0.0
    )
