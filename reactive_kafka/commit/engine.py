"""The trackers of a channel's assignment: what to commit, and what a commit's outcome means. No I/O, no clock.

Three marks a partition: ``committable`` (no unsettled record before it), ``attempted`` (the highest ever
sent) and ``committed`` (the broker said so). A commit that fails moves nothing, so the next one carries it.

A commit whose outcome nobody knows may land late, over a newer one, and move the position back. So the first
one that succeeds after it is sent again, at growing intervals, for as long as the other may be on its way.

With each position goes a string: the plans beyond it. Where only they have changed, a commit of the position that
the group has is due as soon as somebody asks for it; see :meth:`CommitEngine.lacks_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from reactive_kafka.commit.metadata import decode, encode
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.commit.strategy import CommitStrategy, Latest, Progress, Throttled
from reactive_kafka.errors import CommitStrategyError
from reactive_kafka.records import Committed, TopicPartition

REPEAT_AFTER_S, REPEAT_UNTIL_S = 1.0, 60.0
"""When the first commit that succeeded behind one of unknown outcome is sent again, each wait twice the one before;
and how long after it: a request that its connection has lost may still be on its way, and then it may not."""

THROTTLED_S = 5.0
"""How often is committed where no strategy says otherwise."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One commit request: positions of the trackers of one generation, and of no other."""

    generation: int
    positions: tuple[tuple[OffsetTracker, int], ...]
    metadata: tuple[str, ...] = ()  # of each of them
    repeated: frozenset[TopicPartition] = frozenset()  # where it goes over one of unknown outcome once more
    is_last: bool = False

    @property
    def offsets(self) -> dict[TopicPartition, Committed]:
        """partition -> what to store."""
        texts = self.metadata or ("",) * len(self.positions)
        return {
            tracker.partition: Committed(position, text)
            for (tracker, position), text in zip(self.positions, texts, strict=True)
        }


class _Doubt(NamedTuple):
    since: float
    """When the first commit behind the one of unknown outcome succeeded."""
    next_at: float
    """When to send again what is stored by then."""


class CommitEngine:
    """Owns the trackers from assignment to the end of it.

    Between a revocation and the next assignment the trackers are *left*: they take verdicts, and commit
    nothing. The next assignment either takes them up again or closes them.

    Args:
        strategy: How far is committed, and when; none: throttled.
        is_static: The partitions are ours without a group's assignment: what was left always comes straight back.

    Attributes:
        refused: Why an answer of the strategy's could not be followed; its partition was not committed.
    """

    def __init__(self, strategy: CommitStrategy | None = None, *, is_static: bool = False) -> None:
        self.strategy: CommitStrategy = Throttled(THROTTLED_S) if strategy is None else strategy
        self.refused: CommitStrategyError | None = None
        self._is_static = is_static
        # Of no other class, not even a derived one: only the setting's own name says what may be lost.
        self._is_unsafe = type(strategy) is Latest and strategy.is_unsafe
        self._reached: Callable[[OffsetTracker], int] = attrgetter("highest" if self._is_unsafe else "committable")
        self.trackers: dict[TopicPartition, OffsetTracker] = {}
        self.generation = -1
        self._left: dict[TopicPartition, OffsetTracker] = {}
        self._left_generation = -1
        self._in_flight: CommitPlan | None = None
        self._stored: dict[TopicPartition, int | None] = {}  # what the group has, as far as is known
        self._known: dict[TopicPartition, Committed] = {}  # the same with its metadata, where that is known for sure
        self._users: dict[TopicPartition, Committed] = {}  # the user's strings that an assignment has found
        # Partitions with a commit of unknown outcome, and what became of those behind it (None: none was stored yet).
        self._doubts: dict[TopicPartition, _Doubt | None] = {}
        self._again: set[TopicPartition] = set()  # of those, where it has to be sent again though nothing is new
        self._may_land: dict[TopicPartition, int] = {}  # the lowest position of unknown outcome
        self._before: dict[TopicPartition, range] = {}  # what may be stored for a place that was left by a seek

    # -- assignments

    def begin(self, generation: int, partitions: Iterable[TopicPartition]) -> list[OffsetTracker]:
        """A new assignment has come; trackers of partitions that are not in it are closed and returned."""
        kept = set(partitions)
        self._left_generation, self.generation = self.generation, generation
        self._in_flight = None
        if not self._is_static:
            self._doubts, self._again = {}, set()  # the broker refuses what comes late from an earlier generation
        self._left.update(self.trackers)  # no revocation came before: they are not ours any more either
        self.trackers = {}
        gone = [tracker for partition, tracker in self._left.items() if partition not in kept]
        for tracker in gone:
            del self._left[tracker.partition]
            self._forget(tracker.partition)
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
        tracker = self._left.get(partition)
        if tracker is None:
            return None
        is_ours = self.generation == self._left_generation + 1 and self._as_we_left_it(tracker, committed)
        if not (self._is_static or is_ours):
            self.drop_left(partition)
            return None
        del self._left[partition]
        if committed != self._stored[partition] and committed is not None:
            self._stored[partition] = committed
            is_of_before = committed in self._before.get(partition, ()) and committed > tracker.uncommitted_from
            if not is_of_before:  # else it was stored for a place that a seek has left: commits follow the new one
                tracker.committed = tracker.uncommitted_from = committed
        self.trackers[partition] = tracker
        return tracker

    def drop_left(self, partition: TopicPartition) -> OffsetTracker | None:
        """Close the tracker that waits to know whether its partition came straight back: it begins elsewhere."""
        tracker = self._left.pop(partition, None)
        if tracker is not None:
            self._forget(partition)
            tracker.close()
        return tracker

    def _forget(self, partition: TopicPartition) -> None:
        """What may be stored for it is another's from here on."""
        for known in (self._may_land, self._before, self._known, self._users):
            known.pop(partition, None)

    def _as_we_left_it(self, tracker: OffsetTracker, committed: int | None) -> bool:
        """Whether the group's position is the one that was known, or one that we may have stored since."""
        if committed is None or committed == self._stored[tracker.partition]:
            return committed == self._stored[tracker.partition]
        if committed in self._before.get(tracker.partition, ()):
            return True
        lowest = min(tracker.uncommitted_from, self._may_land.get(tracker.partition, tracker.uncommitted_from))
        return max(tracker.start, lowest) <= committed <= tracker.attempted

    def leave(self) -> list[OffsetTracker]:
        """The assignment is revoked: nothing is committed from here on; the trackers wait for the next one."""
        left = list(self.trackers.values())
        self._left.update(self.trackers)
        self.trackers = {}
        self._in_flight = None
        return left

    def replace(self, tracker: OffsetTracker, stored: int | None = None) -> None:
        """Track a partition of this assignment afresh; if it was tracked (a reset, a seek), the old tracker is closed.

        Args:
            stored: What the group has, where that is no committed position of these records.
        """
        partition = tracker.partition
        old = self.trackers.pop(partition, None)
        if old is None:
            self._before.pop(partition, None)
        else:
            lowest = min(old.uncommitted_from, self._may_land.get(partition, old.uncommitted_from))
            self._before[partition] = range(lowest, old.attempted + 1)
            old.close()
        self._may_land.pop(partition, None)
        self._again.discard(partition)
        if partition in self._doubts:
            self._doubts[partition] = None  # it takes a commit from the new place to end them
        self._stored[partition] = tracker.committed if stored is None else stored
        self.trackers[partition] = tracker

    def found(self, partition: TopicPartition, stored: Committed | None) -> None:
        """What the group had at the assignment of a partition that is tracked by now."""
        if stored is None:
            return
        self._known[partition] = stored
        user = decode(stored.metadata, stored.offset).user if stored.metadata else ""
        if user:
            self._users[partition] = Committed(stored.offset, user)

    def stored(self, partition: TopicPartition) -> int | None:
        """The position that the group has, as far as is known; None: none, or none of the log's."""
        return self._stored.get(partition)

    def close(self) -> list[OffsetTracker]:
        """End everything: every tracker, live or left, refuses verdicts from now on."""
        trackers = self.all_trackers()
        for tracker in trackers:
            tracker.close()
        self.trackers, self._left, self._in_flight = {}, {}, None
        self._stored, self._doubts, self._may_land, self._before = {}, {}, {}, {}
        self._known, self._users, self._again = {}, {}, set()
        return trackers

    # -- commits

    def plan(self, now: float, *, is_last: bool = False, wanted: Collection[OffsetTracker] = ()) -> CommitPlan | None:
        """The commit that is due: positions that moved since the last confirmed one; None if there is nothing new.

        At most one is in flight: None until the last one was confirmed, failed, or its assignment ended.

        Args:
            is_last: The assignment is about to end.
            wanted: The plans of these are to be stored, though their positions may not have moved.
        """
        if self._in_flight is not None:
            return None
        reached = self._reached
        positions = [
            (tracker, position)
            for tracker in self.trackers.values()
            if (to := reached(tracker)) > tracker.uncommitted_from
            and (position := self._ask(tracker, to, now, is_last=is_last)) is not None
        ]
        repeated = self._repeated(now, is_last=is_last) if self._doubts else frozenset()
        if repeated:
            moved = {tracker.partition for tracker, _ in positions}
            again = [self.trackers[partition] for partition in sorted(repeated - moved)]
            positions += [(tracker, tracker.uncommitted_from) for tracker in again]
        for tracker, position in positions:
            tracker.attempted = max(tracker.attempted, position)
        if wanted:
            there = {tracker.partition for tracker, _ in positions}
            lacking = (one for one in wanted if one.partition not in there and self.lacks_plans(one))
            positions += [(tracker, self._unmoved(tracker)) for tracker in dict.fromkeys(lacking)]
        if not positions:
            return None
        metadata = tuple(self._text(tracker, position) for tracker, position in positions)
        self._in_flight = CommitPlan(self.generation, tuple(positions), metadata, repeated, is_last)
        return self._in_flight

    def has(self, tracker: OffsetTracker) -> bool:
        """Whether a tracker is that of a partition of this assignment."""
        return self.trackers.get(tracker.partition) is tracker

    def lacks_plans(self, tracker: OffsetTracker) -> bool:
        """Whether the group may have other plans beside its position than this tracker, which is one of ours."""
        if not self.has(tracker):
            return False
        partition, position = tracker.partition, self._unmoved(tracker)
        known, due = self._known.get(partition), Committed(position, self._text(tracker, position))
        if known is None:
            return bool(due.metadata) or partition in self._doubts
        return known != due

    def _unmoved(self, tracker: OffsetTracker) -> int:
        """The position to commit where only the plans have changed: the group's own."""
        if tracker.partition in self._doubts and tracker.attempted > tracker.start:
            return tracker.attempted  # it may be stored, and the group does not go back
        stored = self._stored[tracker.partition]
        return tracker.start if stored is None else stored

    def _text(self, tracker: OffsetTracker, position: int) -> str:
        """The metadata of a commit: what is not ours stays where it was found, and goes with the next position."""
        plans, found = tracker.planned_beyond(position), self._users.get(tracker.partition)
        user = found.metadata if found is not None and found.offset == position else ""
        return encode(position, plans, user) if plans or user else ""

    def _ask(self, tracker: OffsetTracker, reached: int, now: float, *, is_last: bool) -> int | None:
        """What the strategy wants committed, as far as that is allowed: up to *reached*."""
        partition = tracker.partition
        safe = tracker.committable if self._is_unsafe else reached
        highest = tracker.highest if tracker.window else safe
        try:
            position = self.strategy.position(Progress(partition, tracker.committed, safe, highest, is_last), now)
        except Exception as error:  # a custom one may raise anything; who commits fails the channel with it
            self._refuse(partition, f"{type(error).__name__}: {error}", error)
            return None
        if position is None:
            return None
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            self._refuse(partition, f"it answered {position!r}; allowed are a position (an int from 0 on) and None")
            return None
        position = min(position, reached)
        position = tracker.outside_plans(position)  # also of those that are done: they come again as they were
        # What failed for sure may be followed by less; what may still land must not be.
        least = tracker.uncommitted_from + 1
        if partition in self._doubts:
            least = max(least, tracker.attempted)
        return position if position >= least else None

    def _refuse(self, partition: TopicPartition, what: str, cause: Exception | None = None) -> None:
        self.refused = CommitStrategyError(partition, what)
        self.refused.__cause__ = cause

    def _repeated(self, now: float, *, is_last: bool) -> frozenset[TopicPartition]:
        return frozenset(
            partition
            for partition, doubt in self._doubts.items()
            if partition in self.trackers
            and (partition in self._again if doubt is None else is_last or now >= doubt.next_at)
        )

    @property
    def repeat_at(self) -> float | None:
        """When a commit is to be sent once more, because one of unknown outcome may have landed after it."""
        doubts = ((partition, doubt) for partition, doubt in self._doubts.items() if partition in self.trackers)
        times = (
            0.0 if doubt is None else doubt.next_at for partition, doubt in doubts if doubt or partition in self._again
        )
        return min(times, default=None)

    def confirm(self, plan: CommitPlan, now: float) -> list[tuple[OffsetTracker, int]]:
        """The broker has stored it; what moved. A tracker whose assignment ended meanwhile is left alone."""
        if self._in_flight is plan:
            self._in_flight = None
            self._believe(plan, now)
            for partition, at in plan.offsets.items():
                if partition in self.trackers:  # though its tracker may be another one by now
                    self._known[partition], self._stored[partition] = at, at.offset
        moved = [
            (tracker, position)
            for tracker, position in plan.positions
            if not tracker.is_closed and _is_of(tracker, position)
        ]
        for tracker, position in moved:
            tracker.committed = tracker.uncommitted_from = position
            self._stored[tracker.partition] = position
        return moved

    def _believe(self, plan: CommitPlan, now: float) -> None:
        """End the doubts that the plan was repeated for; where it is the first to succeed, it is to be repeated."""
        for tracker, position in plan.positions:
            if tracker.is_closed or tracker.partition not in self._doubts or not _is_of(tracker, position):
                continue
            doubt = self._doubts[tracker.partition]
            if doubt is None:
                self._again.discard(tracker.partition)
                self._doubts[tracker.partition] = _Doubt(now, now + REPEAT_AFTER_S)
            elif tracker.partition in plan.repeated:
                self._go_on_doubting(tracker.partition, doubt, now, is_last=plan.is_last)

    def _go_on_doubting(self, partition: TopicPartition, doubt: _Doubt, now: float, *, is_last: bool) -> None:
        if is_last or now >= doubt.since + REPEAT_UNTIL_S:
            del self._doubts[partition]
        else:
            next_at = now + max(REPEAT_AFTER_S, now - doubt.since)
            self._doubts[partition] = _Doubt(doubt.since, min(next_at, doubt.since + REPEAT_UNTIL_S))

    def fail(self, plan: CommitPlan, *, is_unknown: bool) -> None:
        """It was not stored, or nobody knows: nothing moves, the next plan carries the positions of then."""
        if self._in_flight is not plan:
            return
        self._in_flight = None
        if is_unknown:
            for tracker, position in plan.positions:
                partition, doubt = tracker.partition, self._doubts.get(tracker.partition)
                if doubt is not None and position <= tracker.uncommitted_from:
                    self._again.add(partition)  # one that was repeated: nothing new may come that would go over it
                self._doubts[partition] = None
                self._known.pop(partition, None)
                self._may_land[partition] = min(position, self._may_land.get(partition, position))


def _is_of(tracker: OffsetTracker, position: int) -> bool:
    """Whether a position that was sent is news for these records: not an older one, nor the group's before a seek."""
    return tracker.uncommitted_from <= position <= tracker.attempted
