"""Ranges of one partition that are planned: handled as one, now or after a crash. Pure values.

What writes a range as one (a Spark job) is known by the range's start and end. Records that come
again after a crash must be cut in the same places, or what was written under one range would be
written once more under another. So the plan is stored with the commit before the work begins, and
no committed position ever lies inside of a plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple


class PlannedRange(NamedTuple):
    """The records of one partition from *start* up to, not including, *until*, handled as one."""

    start: int
    until: int
    # What failed as a whole and held it, the outermost first.
    failed: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"[{self.start}, {self.until})"


Plans = tuple[PlannedRange, ...]


def check_plan(planned: PlannedRange) -> None:
    """ValueError where a range cannot be a plan: empty or below 0, or not held by what failed, one
    in the other.
    """
    if not 0 <= planned.start < planned.until:
        raise ValueError(f"{planned} is no range of records")
    for outer, inner in pairwise((*planned.failed, planned[:2])):
        if not (0 <= outer[0] <= inner[0] < inner[1] <= outer[1] and outer != inner):
            raise ValueError(
                f"{planned}: what failed, {planned.failed}, must hold it strictly, the outermost first"
            )


def check_plans(plans: Sequence[PlannedRange]) -> None:
    """ValueError where one of them is no plan, or they do not ascend without overlap."""
    for planned in plans:
        check_plan(planned)
    for one, following in pairwise(plans):
        if following.start < one.until:
            raise ValueError(f"{following} is planned after {one}, and begins before its end")


class PlanBook:
    """The plans of one partition during one assignment. What is not planned, or no plan, is a
    ValueError.
    """

    __slots__ = ("_done", "plans")

    def __init__(self) -> None:
        # Those that are not done, ascending.
        self.plans: Plans = ()
        # Some have been committed past.
        self._done: Plans = ()

    def add(self, planned: PlannedRange) -> None:
        """Plan one more range, which overlaps no other one."""
        self._replace(self.plans, planned)

    def split(self, old: PlannedRange, new: Sequence[PlannedRange]) -> None:
        """Plan *new*, which are all of it in their order, instead of *old*: a gap would be cut anew
        after a crash.
        """
        edges = [old.start, *(edge for part in new for edge in part[:2]), old.until]
        if not new or any(edges[at] != edges[at + 1] for at in range(0, len(edges), 2)):
            raise ValueError(f"{', '.join(map(str, new)) or 'nothing'} is not all of {old}")
        self._replace(self._without(old), *new)

    def finish(self, planned: PlannedRange, reached: int) -> None:
        """A plan is done; those that are done before *reached*, the position that the group has,
        are forgotten.
        """
        self.plans = self._without(planned)
        self._done = tuple(sorted((planned, *(one for one in self._done if one.until > reached))))

    def _without(self, planned: PlannedRange) -> Plans:
        if planned not in self.plans:
            raise ValueError(f"{planned} is not planned")
        return tuple(one for one in self.plans if one != planned)

    def _replace(self, plans: Plans, *new: PlannedRange) -> None:
        check_plans(sorted((*plans, *self._done, *new)))
        self.plans = tuple(sorted((*plans, *new)))

    def beyond(self, position: int) -> Plans:
        """What a commit of *position* leaves to whoever goes on from there; also what is done, for
        that comes again.
        """
        return tuple(sorted(one for one in (*self.plans, *self._done) if one.start >= position))

    def outside(self, position: int) -> int:
        """The position itself, or the start of the plan, done or not, that it lies inside of."""
        return next(
            (one.start for one in (*self.plans, *self._done) if one.start < position < one.until),
            position,
        )


def still_to_come(plans: Sequence[PlannedRange], position: int) -> int:
    """How many offsets from a position on have to be read until all of the plans, which ascend,
    have been.
    """
    return max(0, plans[-1].until - position) if plans else 0


def holding(plans: Sequence[PlannedRange], offset: int) -> PlannedRange | None:
    """The plan, of those that ascend, that a record belongs to."""
    at = bisect_right(plans, offset, key=attrgetter("start")) - 1
    return plans[at] if at >= 0 and offset < plans[at].until else None
