"""The trackers of a channel's assignment: what to commit, and what a commit's outcome means. No I/O, no clock.

Three marks a partition: ``committable`` (no unsettled record before it), ``attempted`` (the highest ever
sent) and ``committed`` (the broker said so). A commit that fails moves nothing, so the next one carries it.

With each position goes a string (:mod:`reactive_kafka.commit.metadata`): plans, the user's string, kept acks. Where
only it has changed, the position that the group has is committed again: at the next tick, and for plans as soon as
somebody asks for it; see :meth:`CommitEngine.lacks_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from reactive_kafka.commit.by_hand import check_offset, check_position
from reactive_kafka.commit.metadata.pending import OffsetMetadata, PendingCommit
from reactive_kafka.commit.metadata.user import check_metadata
from reactive_kafka.commit.strategy import Checkpointed, CommitStrategy, Ignore, Latest, Progress, Throttled
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.commit.unknown import UnknownCommits
from reactive_kafka.errors import CommitRefusedError, CommitStrategyError, NotOwnerError, describe
from reactive_kafka.records import Committed, TopicPartition

THROTTLED_S = 5.0
"""How often is committed where no strategy says otherwise."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit request: positions of the trackers of one generation, and of no other."""

    generation: int
    due: tuple[PendingCommit, ...]
    repeated: frozenset[TopicPartition] = frozenset()  # where it goes over one of unknown outcome once more
    is_last: bool = False

    @property
    def offsets(self) -> dict[TopicPartition, Committed]:
        """partition -> what to store."""
        return {one.partition: one.stored for one in self.due}


class CommitEngine:
    """Owns the trackers from assignment to the end of it.

    Between a revocation and the next assignment the trackers are *left*: they take verdicts, and commit
    nothing. The next assignment either takes them up again or closes them.

    Args:
        strategy: How far is committed, and when; none: throttled.
        is_static: The partitions are ours without a group's assignment: what was left always comes straight back.
        beside: The strings that go with the positions; none: those of a channel that keeps no acks.

    Attributes:
        reached: The position of a tracker that may be committed: behind what is settled without a gap, or
            (``commit_latest_unsafe``) behind the highest settled record.
        refused: Why an answer of the strategy's could not be followed; its partition was not committed.
    """

    def __init__(
        self, strategy: CommitStrategy | None = None, *, is_static: bool = False, metadata: OffsetMetadata | None = None
    ) -> None:
        self.strategy: CommitStrategy = Throttled(THROTTLED_S) if strategy is None else strategy
        self.refused: CommitStrategyError | None = None
        self._is_static = is_static
        # Of no other class, not even a derived one: only the setting's own name says what may be lost.
        self._is_unsafe = type(strategy) is Latest and strategy.is_unsafe
        # With a checkpoint store: partitions whose positions come with a transaction that is open.
        self._is_left_alone = strategy.is_in_transaction if isinstance(strategy, Checkpointed) else None
        self.reached: Callable[[OffsetTracker], int] = attrgetter("highest" if self._is_unsafe else "committable")
        self.trackers: dict[TopicPartition, OffsetTracker] = {}
        self.generation = -1
        self._left: dict[TopicPartition, OffsetTracker] = {}
        self._left_generation = -1
        self._in_flight: CommitRequest | None = None
        self._stored: dict[TopicPartition, int | None] = {}  # what the group has, as far as is known
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._metadata = OffsetMetadata() if metadata is None else metadata
        self._unknown = UnknownCommits()
        self._before: dict[TopicPartition, range] = {}  # what may be stored for a place that was left by a seek
        self._dropped: set[TopicPartition] = set()  # since the request in flight went out: it stores nothing for these

    # -- assignments

    def begin(self, generation: int, partitions: Iterable[TopicPartition]) -> list[OffsetTracker]:
        """A new assignment has come; trackers of partitions that are not in it are closed and returned."""
        kept = set(partitions)
        self._left_generation, self.generation = self.generation, generation
        self._in_flight = None
        self._assigned = frozenset(kept)
        self._metadata.forget_early()
        if not self._is_static:
            self._unknown.end()  # the broker refuses what comes late from an earlier generation
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
        if not self.comes_back(partition, committed):
            self.drop_left(partition)
            return None
        del self._left[partition]
        if committed != self._stored[partition] and committed is not None:
            self._stored[partition] = committed
            is_of_before = committed in self._before.get(partition, ()) and committed > tracker.uncommitted_from
            if not is_of_before:  # else it was stored for a place that a seek has left: commits follow the new one
                tracker.committed = tracker.uncommitted_from = committed
        self.trackers[partition] = tracker
        self._metadata.taken_up(tracker)
        return tracker

    def comes_back(self, partition: TopicPartition, committed: int | None) -> bool:
        """Whether :meth:`take_up` finds that a partition came straight back."""
        tracker = self._left.get(partition)
        if tracker is None or self._is_static:
            return tracker is not None
        return self.generation == self._left_generation + 1 and self._as_we_left_it(tracker, committed)

    def drop_left(self, partition: TopicPartition, *, is_ours: bool = False) -> OffsetTracker | None:
        """Close the tracker that waits to know whether its partition came straight back: it begins elsewhere.

        Args:
            is_ours: It did come back, so what waits for its next new position goes on waiting.
        """
        return self._close(self._left.pop(partition, None), is_ours=is_ours)

    def drop(self, partition: TopicPartition, *, is_ours: bool = False) -> OffsetTracker | None:
        """Close the tracker of a partition; it may be tracked afresh.

        Args:
            is_ours: As above; else its position is another's by now.
        """
        if partition in self.trackers and not is_ours:
            self._dropped.add(partition)
        return self._close(self.trackers.pop(partition, None), is_ours=is_ours)

    def _close(self, tracker: OffsetTracker | None, *, is_ours: bool) -> OffsetTracker | None:
        if tracker is not None:
            self._forget(tracker.partition)
            if is_ours:
                self._metadata.begins_elsewhere(tracker)
            tracker.close()
        return tracker

    def _forget(self, partition: TopicPartition) -> None:
        """What may be stored for it is another's from here on."""
        self._before.pop(partition, None)
        self._unknown.forget(partition)
        self._metadata.forget(partition)

    def _as_we_left_it(self, tracker: OffsetTracker, committed: int | None) -> bool:
        """Whether the group's position is the one that was known, or one that we may have stored since."""
        if committed is None or committed == self._stored[tracker.partition]:
            return committed == self._stored[tracker.partition]
        if committed in self._before.get(tracker.partition, ()):
            return True
        lowest = self._unknown.lowest(tracker.partition, tracker.uncommitted_from)
        return max(tracker.start, lowest) <= committed <= tracker.attempted

    def leave(self) -> list[OffsetTracker]:
        """The assignment is revoked: nothing is committed from here on; the trackers wait for the next one."""
        left = list(self.trackers.values())
        self._left.update(self.trackers)
        self.trackers = {}
        self._in_flight = None
        self._assigned = frozenset()
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
            self._before[partition] = range(self._unknown.lowest(partition, old.uncommitted_from), old.attempted + 1)
            old.close()
        self._unknown.begun_elsewhere(partition)
        self._metadata.begin(tracker, old)
        self._stored[partition] = tracker.committed if stored is None else stored
        self.trackers[partition] = tracker

    def found(self, partition: TopicPartition, stored: Committed | None) -> None:
        """What the group had at the assignment of a partition that is tracked by now."""
        self._metadata.found(self.trackers.get(partition), partition, stored)

    def stored(self, partition: TopicPartition) -> int | None:
        """The position that the group has, as far as is known; None: none, or none of the log's."""
        return self._stored.get(partition)

    def close(self) -> list[OffsetTracker]:
        """End everything: every tracker, live or left, refuses verdicts from now on."""
        trackers = self.all_trackers()
        for tracker in trackers:
            tracker.close()
        self.trackers, self._left, self._in_flight = {}, {}, None
        self._stored, self._before, self._assigned = {}, {}, frozenset()
        for tracker in trackers:
            self._metadata.forget(tracker.partition)
        self._metadata.forget_early()
        self._unknown = UnknownCommits()
        return trackers

    # -- strings

    def store_metadata(self, partition: TopicPartition, text: str) -> bool:
        """Have a string go with the next new position of a partition, whoever commits it; False: it is not ours.

        Raises:
            ValueError: It cannot be stored: see :func:`reactive_kafka.commit.metadata.user.check_metadata`.
        """
        check_metadata(text)
        tracker = self.trackers.get(partition)
        if tracker is not None:
            tracker.texts.store(text)
        elif partition in self._assigned:
            self._metadata.store_early(partition, text)
        else:
            return False
        return True

    def metadata_of(self, partition: TopicPartition) -> Committed | None:
        """The position that the group has and the user's string beside it; None: not ours, or not known for sure.

        Where the group has nothing the position is -1.
        """
        return self._metadata.user_of(partition) if partition in self.trackers else None

    def metadata_units(self, tracker: OffsetTracker) -> int:
        """At most so many UTF-16 units go beside the next position of a tracker."""
        return self._metadata.units(tracker)

    # -- commits

    def unstored(self) -> dict[TopicPartition, int]:
        """partition -> how many offsets the position that is due is ahead of the one that is stored, where it is."""
        ahead = {partition: self._ahead(one) for partition, one in self.trackers.items()}
        return {partition: offsets for partition, offsets in ahead.items() if offsets > 0}

    def left_unstored(self) -> list[TopicPartition]:
        """The partitions that may come straight back, and where something is settled that is not stored."""
        if isinstance(self.strategy, Ignore):
            return []
        return sorted(partition for partition, one in self._left.items() if self._ahead(one) > 0)

    def _ahead(self, tracker: OffsetTracker) -> int:
        return self.reached(tracker) - max(tracker.start, tracker.uncommitted_from)

    def plan(
        self, now: float, *, is_last: bool = False, wanted: Collection[OffsetTracker] = (), is_tick: bool = True
    ) -> CommitRequest | None:
        """The commit that is due: positions that moved since the last confirmed one; None if there is nothing new.

        At most one is in flight: None until the last one was confirmed, failed, or its assignment ended.

        Args:
            is_last: The assignment is about to end.
            wanted: The plans of these are to be stored, though their positions may not have moved.
            is_tick: So is what acks have brought without moving a position.
        """
        if self._in_flight is not None:
            return None
        reached = self.reached
        positions = [
            (tracker, position)
            for tracker in self.trackers.values()
            if (to := reached(tracker)) > tracker.uncommitted_from
            and (position := self._ask(tracker, to, now, is_last=is_last)) is not None
        ]
        due = [self._metadata.due(tracker, position, is_new=True) for tracker, position in positions]
        repeated = self._unknown.due(self.trackers, now, is_last=is_last) if self._unknown else frozenset()
        if repeated:
            again = [self.trackers[partition] for partition in sorted(repeated - _partitions(due))]
            due += [self._metadata.due(tracker, tracker.uncommitted_from, is_new=False) for tracker in again]
        if wanted:
            lacking = [one for one in dict.fromkeys(wanted) if self.lacks_plans(one)]
            due += [self._unmoved_due(one) for one in lacking if one.partition not in _partitions(due)]
        if is_tick and not isinstance(self.strategy, Ignore):
            due += self._restated(_partitions(due))
        if self._is_left_alone is not None and not is_last:
            due = [one for one in due if not self._is_left_alone(one.partition)]
        return self._send(due, repeated, is_last=is_last) if due else None

    def _send(self, due: list[PendingCommit], repeated: frozenset[TopicPartition], *, is_last: bool) -> CommitRequest:
        for one in due:
            if one.is_new or one.partition in repeated:
                one.tracker.attempted = max(one.tracker.attempted, one.position)
        self._dropped.clear()
        self._in_flight = CommitRequest(self.generation, tuple(due), repeated, is_last)
        return self._in_flight

    def has(self, tracker: OffsetTracker) -> bool:
        """Whether a tracker is that of a partition of this assignment."""
        return self.trackers.get(tracker.partition) is tracker

    def lacks_plans(self, tracker: OffsetTracker) -> bool:
        """Whether the group may have other plans beside its position than this tracker, which is one of ours."""
        if not self.has(tracker):
            return False
        is_in_doubt = tracker.partition in self._unknown
        return self._metadata.lacks_plans(tracker, self._unmoved(tracker), is_in_doubt=is_in_doubt)

    def divide(self, tracker: OffsetTracker) -> bool:
        """Divide the plan that the group's position lies inside of, after a seek back; False if there is none.

        It cannot be stored there, and who goes on from there would cut what lies behind in another way.
        """
        at = self._unmoved(tracker) if self.has(tracker) else -1
        across = next((planned for planned in tracker.plans if planned.start < at < planned.until), None)
        if across is not None:
            tracker.replan(across, across._replace(until=at), across._replace(start=at))
        return across is not None

    def _unmoved_due(self, tracker: OffsetTracker) -> PendingCommit:
        return self._metadata.due(tracker, self._unmoved(tracker), is_new=self._may_be_stored(tracker))

    def _restated(self, there: Collection[TopicPartition]) -> list[PendingCommit]:
        """Strings of acks, and kept acks, that are to stand beside a position that has not moved."""
        found = []
        for partition, tracker in self.trackers.items():
            if partition in there or not (self._metadata.keeps_acks or tracker.texts.has_acked):
                continue
            is_new, is_in_doubt = self._may_be_stored(tracker), partition in self._unknown
            due = self._metadata.restated(tracker, self._unmoved(tracker), is_new=is_new, is_in_doubt=is_in_doubt)
            if due is not None:
                found.append(due)
        return found

    def _may_be_stored(self, tracker: OffsetTracker) -> bool:
        """Whether nobody knows if the position to commit where none has moved is the group's."""
        partition, attempted = tracker.partition, tracker.attempted
        is_it = partition in self._unknown and attempted == self._unmoved(tracker)
        return is_it and tracker.uncommitted_from < attempted != self._stored[partition]

    def _unmoved(self, tracker: OffsetTracker) -> int:
        """The position to commit where only the plans have changed: the group's own."""
        if tracker.partition in self._unknown and tracker.attempted > tracker.start:
            return tracker.attempted  # it may be stored, and the group does not go back
        stored = self._stored[tracker.partition]
        return tracker.start if stored is None else stored

    def _ask(self, tracker: OffsetTracker, reached: int, now: float, *, is_last: bool) -> int | None:
        """What the strategy wants committed, as far as that is allowed: up to *reached*."""
        partition = tracker.partition
        safe = tracker.committable if self._is_unsafe else reached
        highest = tracker.highest if tracker.window else safe
        try:
            position = self.strategy.position(Progress(partition, tracker.committed, safe, highest, is_last), now)
        except BaseException as error:  # a custom one may raise anything; who commits fails the channel with it
            self._refuse(partition, describe(error), error)
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
        if partition in self._unknown:
            least = max(least, tracker.attempted)
        return position if position >= least else None

    def _refuse(self, partition: TopicPartition, what: str, cause: BaseException | None = None) -> None:
        self.refused = CommitStrategyError(partition, what)
        self.refused.__cause__ = cause

    @property
    def repeat_at(self) -> float | None:
        """When a commit is to be sent once more, because one of unknown outcome may have landed after it."""
        ours: Collection[TopicPartition] = self.trackers
        if self._is_left_alone is not None:
            ours = [partition for partition in ours if not self._is_left_alone(partition)]
        return self._unknown.next_at(ours)

    def plan_positions(self, offsets: Mapping[TopicPartition, int]) -> CommitRequest | None:
        """The commit of exactly these positions; None where the group has all of them already, and no string waits.

        Nothing may be in flight.

        Raises:
            CommitRefusedError: See :meth:`check_positions`.
            NotOwnerError: See there.
        """
        self.check_positions(offsets)
        due = [
            self._metadata.due(self.trackers[partition], offset, is_new=True) for partition, offset in offsets.items()
        ]
        due = [one for one in due if one.number or not self._has(one)]
        return self._send(due, frozenset(), is_last=False) if due else None

    def _has(self, due: PendingCommit) -> bool:
        return due.tracker.uncommitted_from == due.position == self._stored[due.partition]

    def check_positions(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Check that these positions may be committed now.

        Raises:
            NotOwnerError: A partition is not ours.
            CommitRefusedError: A position would pass an unsettled record, lies inside of a planned range, or goes back.
            ValueError: It is no offset.
        """
        for partition, position in offsets.items():
            check_offset(partition, position)
            if partition not in self.trackers and partition not in self._assigned:
                raise NotOwnerError(f"{TopicPartition(*partition)} is not ours")
        for partition, position in offsets.items():
            tracker, is_in_doubt = self.trackers.get(partition), partition in self._unknown
            if self._is_left_alone is not None and self._is_left_alone(TopicPartition(*partition)):
                raise CommitRefusedError(
                    f"{TopicPartition(*partition)} has an open transaction: it stores its position"
                )
            check_position(TopicPartition(*partition), tracker, position, is_in_doubt=is_in_doubt)

    def confirm(self, plan: CommitRequest, now: float) -> list[tuple[OffsetTracker, int]]:
        """The broker has stored it; what moved. A tracker whose assignment ended meanwhile is left alone."""
        if self._in_flight is plan:
            self._in_flight = None
            self._believe(plan, now)
            for one in plan.due:
                if one.partition in self.trackers and one.partition not in self._dropped:  # maybe by another tracker
                    self._metadata.stored(one)
                    self._stored[one.partition] = one.position
        moved = [
            (one.tracker, one.position)
            for one in plan.due
            if not one.tracker.is_closed and _is_of(one.tracker, one.position)
        ]
        for tracker, position in moved:
            tracker.committed = tracker.uncommitted_from = position
            self._stored[tracker.partition] = position
        for one in plan.due:
            if not one.tracker.is_closed:
                self._metadata.used_up(one)
        return moved

    def due_with(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What a transaction of the application's is to store for a position, instead of a commit."""
        return self._metadata.due(tracker, position, is_new=True)

    def stored_with(self, due: PendingCommit) -> None:
        """A transaction of the application's has stored it."""
        tracker = due.tracker
        if tracker.is_closed:
            return
        tracker.attempted = max(tracker.attempted, due.position)
        if self.has(tracker):  # else the next assignment finds it
            tracker.committed = tracker.uncommitted_from = due.position
            self._stored[due.partition] = due.position
            self._metadata.stored(due)
            self._metadata.used_up(due)

    def _believe(self, plan: CommitRequest, now: float) -> None:
        """End the doubts that the plan was repeated for; where it is the first to succeed, it is to be repeated."""
        for one in plan.due:
            if not one.tracker.is_closed and _is_of(one.tracker, one.position):
                was_repeated = one.partition in plan.repeated
                self._unknown.stored(one.partition, now, was_repeated=was_repeated, is_last=plan.is_last)

    def takes_less(self, plan: CommitRequest, partitions: Collection[TopicPartition]) -> bool:
        """The broker refused the strings of these partitions (none: of any); the others' may have been stored.

        Returns:
            Whether the next plan leaves something out, so that it may be sent at once.
        """
        refused = [one for one in plan.due if not partitions or one.partition in partitions]
        if self._in_flight is not plan or not self._metadata.refused(refused):
            return False
        self._in_flight = None
        return True

    def fail(self, plan: CommitRequest, *, is_unknown: bool) -> None:
        """It was not stored, or nobody knows: nothing moves, the next plan carries the positions of then."""
        if self._in_flight is not plan:
            return
        self._in_flight = None
        if is_unknown:
            for one in plan.due:
                is_repeated = one.position <= one.tracker.uncommitted_from
                self._unknown.unknown(one.partition, one.position, is_repeated=is_repeated)
                self._metadata.unknown(one)


def _partitions(due: Iterable[PendingCommit]) -> set[TopicPartition]:
    return {one.partition for one in due}


def _is_of(tracker: OffsetTracker, position: int) -> bool:
    """Whether a position that was sent is news for these records: not an older one, nor the group's before a seek."""
    return tracker.uncommitted_from <= position <= tracker.attempted
