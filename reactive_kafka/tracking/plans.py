"""Ranges of one partition that are planned: handled as one, now or after a crash. Pure values.

What writes a range as one (a Spark job) recognises it by its start and end. Records that come again
after a crash must be cut in the same places, or what was written under one range would be written
once more under another. So the plan is stored with the commit before the work begins, and no
committed position ever lies inside of a plan.
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
    # The ranges around it that failed as a whole, the outermost first.
    failed: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"[{self.start}, {self.until})"


Plans = tuple[PlannedRange, ...]


def check_plan(planned: PlannedRange) -> None:
    """Check that a range can be a plan.

    Raises:
        ValueError: It is empty or below 0, or the ranges that failed do not hold it and each other.
    """
    if not 0 <= planned.start < planned.until:
        raise ValueError(f"{planned} is no range of records")
    for outer, inner in pairwise((*planned.failed, planned[:2])):
        is_within = outer[0] <= inner[0] < inner[1] <= outer[1]
        if outer[0] < 0 or not is_within or outer == inner:
            raise ValueError(
                f"{planned}: what failed, {planned.failed}, must hold it strictly, "
                "the outermost first"
            )


def check_plans(plans: Sequence[PlannedRange]) -> None:
    """Check that all of these are plans, and ascend without overlap.

    Raises:
        ValueError: They are not.
    """
    for planned in plans:
        check_plan(planned)
    for before, planned in pairwise(plans):
        if planned.start < before.until:
            raise ValueError(f"{planned} is planned after {before}, and begins before its end")


class PlanBook:
    """The plans of one partition during one assignment.

    Its methods raise ValueError for what is not planned, or cannot be.
    """

    __slots__ = ("_done", "plans")

    def __init__(self) -> None:
        # Those that are not done, ascending.
        self.plans: Plans = ()
        # Those that are done, until the group has a position behind them.
        self._done: Plans = ()

    def add(self, planned: PlannedRange) -> None:
        """Plan one more range, which must not overlap another one."""
        self._replace(self.plans, planned)

    def split(self, old: PlannedRange, new: Sequence[PlannedRange]) -> None:
        """Plan the ranges *new* instead of *old*.

        They have to be all of it, in their order: a gap would be cut in another way after a crash.
        """
        starts = [planned.start for planned in new]
        ends = [planned.until for planned in new]
        if not new or [*starts, old.until] != [old.start, *ends]:
            raise ValueError(f"{', '.join(map(str, new)) or 'nothing'} is not all of {old}")
        self._replace(self._without(old), *new)

    def finish(self, planned: PlannedRange, reached: int) -> None:
        """A plan is done.

        Args:
            reached: The position that the group has: plans that are done before it are forgotten.
        """
        self.plans = self._without(planned)
        done = [other for other in self._done if other.until > reached]
        self._done = tuple(sorted((planned, *done)))

    def _without(self, planned: PlannedRange) -> Plans:
        if planned not in self.plans:
            raise ValueError(f"{planned} is not planned")
        return tuple(other for other in self.plans if other != planned)

    def _replace(self, plans: Plans, *new: PlannedRange) -> None:
        check_plans(sorted((*plans, *self._done, *new)))
        self.plans = tuple(sorted((*plans, *new)))

    def beyond(self, position: int) -> Plans:
        """The plans that a commit of *position* leaves to the reader that continues there.

        Those that are done are among them, for their records come again.
        """
        both = (*self.plans, *self._done)
        return tuple(sorted(planned for planned in both if planned.start >= position))

    def outside(self, position: int) -> int:
        """The position itself, or the start of the plan, done or not, that it lies inside of."""
        for planned in (*self.plans, *self._done):
            if planned.start < position < planned.until:
                return planned.start
        return position


def still_to_come(plans: Sequence[PlannedRange], position: int) -> int:
    """How many offsets have to be read from a position on until all of the plans were read."""
    return max(0, plans[-1].until - position) if plans else 0


def holding(plans: Sequence[PlannedRange], offset: int) -> PlannedRange | None:
    """The plan, of plans that ascend, that the record with this offset belongs to."""
    number = bisect_right(plans, offset, key=attrgetter("start")) - 1
    if number < 0 or offset >= plans[number].until:
        return None
    return plans[number]
