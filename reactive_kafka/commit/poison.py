"""Which record is overdue, and when to look next. No I/O, no clock.

Records of a partition are started in order, so only the lowest unsettled one can be the oldest: looking
costs one step a partition, and there is one deadline for the channel instead of a timer for each record.
Source: SmallRye, ``throttled.unprocessed-record-max-age.ms``, judged here at the limit and not at the next flush.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reactive_kafka.commit.offsets import OffsetTracker

RECHECK_S = 0.25
"""How soon a poison record that has settled is seen to have settled."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A record whose handler has had it for longer than the limit."""

    tracker: OffsetTracker
    index: int
    offset: int
    since: float  # when its handler got it, by the monotonic clock
    waiting: int  # records received behind it in its partition, and not settled

    @property
    def is_open(self) -> bool:
        """Whether it has no verdict yet, and its tracker may still take one."""
        return self.tracker.is_open(self.index)

    def is_same(self, other: Poison) -> bool:
        """Whether both name the same record of the same assignment."""
        return self.tracker is other.tracker and self.index == other.index


class PoisonWatch:
    """Remembers what is overdue, so that each poison record is reported once.

    Args:
        max_age_s: The limit in seconds; 0 turns the watch off.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._reported: tuple[Poison, ...] = ()
        self.current: tuple[Poison, ...] = ()

    def look(self, trackers: Iterable[OffsetTracker], now: float) -> list[Poison]:
        """Find what is overdue at *now*; returns what was not reported before.

        A record that is out of sight for a rebalance is not new when its partition has come straight back.
        """
        if not self._max_age_s:
            return []
        found = [poison for tracker in trackers if (poison := self._overdue(tracker, now))]
        new = [poison for poison in found if not any(poison.is_same(known) for known in self._reported)]
        self.current = tuple(found)
        self._reported += tuple(new)
        return new

    def settled(self) -> list[Poison]:
        """What was reported and has a verdict by now, each told once; those whose partition has gone are forgotten."""
        settled = [poison for poison in self._reported if not (poison.is_open or poison.tracker.is_closed)]
        self._reported = tuple(poison for poison in self._reported if poison.is_open)
        return settled

    def next_look(self, trackers: Iterable[OffsetTracker], now: float) -> float | None:
        """When to look again at the latest; None if the watch is off.

        A record that starts later than *now* is overdue no sooner than the limit from now.

        Args:
            trackers: Also those between a revocation and the next assignment: what comes straight back has its age.
        """
        if not self._max_age_s:
            return None
        deadlines = (oldest[1] for tracker in trackers if (oldest := tracker.oldest_started()))
        due = min(deadlines, default=now) + self._max_age_s
        return due if due > now else now + min(RECHECK_S, self._max_age_s)  # overdue: look soon whether it has settled

    def _overdue(self, tracker: OffsetTracker, now: float) -> Poison | None:
        oldest = tracker.oldest_started()
        if oldest is None or now - oldest[1] < self._max_age_s:
            return None
        index, since = oldest
        return Poison(tracker, index, tracker.offset_of(index), since, tracker.unsettled - 1)
