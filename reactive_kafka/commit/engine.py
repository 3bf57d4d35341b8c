"""The trackers of a channel's assignment: what to commit, and what a commit's outcome means. No I/O, no clock.

Three marks a partition: ``committable`` (no unsettled record before it), ``attempted`` (the highest ever
sent) and ``committed`` (the broker said so). A commit that fails moves nothing, so the next one carries it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.records import Committed, TopicPartition


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One commit request: positions of the trackers of one generation, and of no other."""

    generation: int
    positions: tuple[tuple[OffsetTracker, int], ...]

    @property
    def offsets(self) -> dict[TopicPartition, Committed]:
        """partition -> what to store."""
        return {tracker.partition: Committed(position) for tracker, position in self.positions}


class CommitEngine:
    """Owns the trackers from assignment to the end of it.

    Between a revocation and the next assignment the trackers are *left*: they take verdicts, and commit
    nothing. The next assignment either takes them up again or closes them.
    """

    def __init__(self) -> None:
        self.trackers: dict[TopicPartition, OffsetTracker] = {}
        self.generation = -1
        self._left: dict[TopicPartition, OffsetTracker] = {}
        self._left_generation = -1
        self._in_flight: CommitPlan | None = None

    # -- assignments

    def begin(self, generation: int, partitions: Iterable[TopicPartition]) -> list[OffsetTracker]:
        """A new assignment has come; trackers of partitions that are not in it are closed and returned."""
        kept = set(partitions)
        self._left_generation, self.generation = self.generation, generation
        self._in_flight = None
        self._left.update(self.trackers)  # no revocation came before: they are not ours any more either
        self.trackers = {}
        gone = [tracker for partition, tracker in self._left.items() if partition not in kept]
        for tracker in gone:
            del self._left[tracker.partition]
            tracker.close()
        return gone

    def left(self, partition: TopicPartition) -> OffsetTracker | None:
        """The tracker that waits to know whether its partition came straight back."""
        return self._left.get(partition)

    def all_trackers(self) -> list[OffsetTracker]:
        """Those of the assignment, and those that wait to know whether their partition comes straight back."""
        return [*self.trackers.values(), *self._left.values()]

    def take_up(self, partition: TopicPartition, committed: int | None) -> OffsetTracker | None:
        """The tracker of a partition that came straight back, live again; else None, and the old one is closed.

        Straight back means: the very next generation, and the group's position as we left it. Nobody else
        can have had the partition in between, so what is in flight goes on and its acks count.
        """
        tracker = self._left.pop(partition, None)
        if tracker is None:
            return None
        if self.generation == self._left_generation + 1 and _as_we_left_it(tracker, committed):
            if committed is not None:
                tracker.committed = committed
                tracker.uncommitted_from = committed
            self.trackers[partition] = tracker
            return tracker
        tracker.close()
        return None

    def add(self, tracker: OffsetTracker) -> None:
        """Start tracking a partition afresh."""
        self.trackers[tracker.partition] = tracker

    def leave(self) -> list[OffsetTracker]:
        """The assignment is revoked: nothing is committed from here on; the trackers wait for the next one."""
        left = list(self.trackers.values())
        self._left.update(self.trackers)
        self.trackers = {}
        self._in_flight = None
        return left

    def replace(self, tracker: OffsetTracker) -> None:
        """Track a partition of this assignment from somewhere else (a reset): the old tracker is closed."""
        old = self.trackers.pop(tracker.partition, None)
        if old is not None:
            old.close()
        self.trackers[tracker.partition] = tracker

    def close(self) -> list[OffsetTracker]:
        """End everything: every tracker, live or left, refuses verdicts from now on."""
        trackers = self.all_trackers()
        for tracker in trackers:
            tracker.close()
        self.trackers, self._left, self._in_flight = {}, {}, None
        return trackers

    # -- commits

    def plan(self) -> CommitPlan | None:
        """The commit that is due: positions that moved since the last confirmed one; None if there is nothing new.

        At most one is in flight: None until the last one was confirmed, failed, or its assignment ended.
        """
        if self._in_flight is not None:
            return None
        positions = tuple(
            (tracker, position)
            for tracker in self.trackers.values()
            if (position := tracker.committable) > tracker.uncommitted_from
        )
        if not positions:
            return None
        for tracker, position in positions:
            tracker.attempted = max(tracker.attempted, position)
        self._in_flight = CommitPlan(self.generation, positions)
        return self._in_flight

    def confirm(self, plan: CommitPlan) -> list[tuple[OffsetTracker, int]]:
        """The broker has stored it; what moved. A tracker whose assignment ended meanwhile is left alone."""
        self._done(plan)
        moved = [(tracker, position) for tracker, position in plan.positions if not tracker.is_closed]
        for tracker, position in moved:
            tracker.committed = max(position, -1 if tracker.committed is None else tracker.committed)
            tracker.uncommitted_from = max(position, tracker.uncommitted_from)
        return moved

    def fail(self, plan: CommitPlan) -> None:
        """It was not stored, or nobody knows: nothing moves, the next plan carries the positions of then."""
        self._done(plan)

    def _done(self, plan: CommitPlan) -> None:
        if self._in_flight is plan:
            self._in_flight = None


def _as_we_left_it(tracker: OffsetTracker, committed: int | None) -> bool:
    """Whether the group's position is one that we stored, or may have stored, or found."""
    if committed is None:
        return tracker.committed is None
    lowest = tracker.start if tracker.committed is None else tracker.committed
    return lowest <= committed <= tracker.attempted
