"""The partitions of a client: what to commit, and what a commit's outcome means. No I/O, no clock.

Three marks a partition: ``committable`` (no unsettled record before it), ``attempted`` (the highest
ever sent) and ``committed`` (the broker said so). A commit that fails moves nothing, so the next
one carries it.

With each position goes a string (:mod:`reactive_kafka.tracking.metadata`): plans, the user's string,
kept acks. Where only it has changed, the position that the group has is committed again: at the
next tick, and for plans as soon as somebody asks for it, or an assignment finds others there; see
:meth:`Partition.lacks_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from reactive_kafka.commit.refusals import Refusals
from reactive_kafka.commit.strategy import CommitStrategy, LatestCommits, NoCommits, Progress
from reactive_kafka.errors import (
    BrokerError,
    CommitRefusedError,
    CommitStrategyError,
    MetadataTooLargeError,
    NotOwnerError,
    describe,
)
from reactive_kafka.partitions.partition import Partition, rests
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.pending import PendingCommit
from reactive_kafka.tracking.tracker import OffsetTracker


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit request: positions of the trackers of one generation, and of no other."""

    generation: int
    due: tuple[PendingCommit, ...]
    # Where it goes over one of unknown outcome once more.
    repeated: frozenset[TopicPartition] = frozenset()
    is_last: bool = False

    @property
    def offsets(self) -> dict[TopicPartition, Committed]:
        """partition -> what to store."""
        return {one.partition: one.stored for one in self.due}


class CommitEngine:
    """Says what to commit of the partitions of one client, and what a commit's outcome means for
    them.
    """

    def __init__(
        self,
        strategy: CommitStrategy,
        table: PartitionTable,
        is_left_alone: Callable[[OffsetTracker], bool],
    ) -> None:
        self.strategy = strategy
        self.table = table
        # An answer of the strategy's could not be followed.
        self.refused: CommitStrategyError | None = None
        # Whether the position of a tracker comes with a transaction that is open.
        self._is_left_alone = is_left_alone
        # Of no other class, not even a derived one: only the setting's own name says what may be
        # lost.
        self._is_unsafe = type(strategy) is LatestCommits and strategy.is_unsafe
        # what may be committed: up to what is settled without a gap, or behind the highest settled
        # record
        self.reached: Callable[[OffsetTracker], int] = attrgetter(
            "highest" if self._is_unsafe else "committable"
        )
        self._in_flight: CommitRequest | None = None
        self.refusals = Refusals()

    def end_request(self) -> None:
        """The assignment is over: the request in flight says nothing of the next one."""
        self._in_flight = None

    def unstored(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """partition -> how many offsets the position that is due is ahead of the one that is
        stored, where it is.
        """
        trackers = [one.tracker for one in partitions if one.tracker is not None]
        ahead = {one.partition: self._unstored(one) for one in trackers}
        return {partition: offsets for partition, offsets in ahead.items() if offsets > 0}

    def _unstored(self, tracker: OffsetTracker) -> int:
        return self.reached(tracker) - max(tracker.start, tracker.uncommitted_from)

    def ahead(self) -> tuple[int, int]:
        """How many offsets the positions that are due are ahead of those that are stored, in all
        partitions of ours.

        And how many records are behind those positions: unsettled ones, and settled ones behind
        them. Partitions whose positions are refused are left out: :meth:`refused_unstored` has
        them.
        """
        ahead = window = 0
        refusals = self.refusals
        for one in self.table:
            # Where nothing has come since the last commit the window needs no look, which costs the
            # most here.
            if (tracker := one.live) and (
                tracker.flags or tracker.position != tracker.uncommitted_from
            ):
                if refusals and refusals.has(tracker):
                    continue
                ahead += max(0, self._unstored(tracker))
                window += tracker.window
        return ahead, window

    def refused_unstored(self) -> dict[TopicPartition, int]:
        """partition -> how many offsets its position that is due is ahead of the stored one, where
        it is refused.
        """
        if not self.refusals:
            return {}
        trackers = [
            one.live for one in self.table if one.live is not None and self.refusals.has(one.live)
        ]
        return {one.partition: self._unstored(one) for one in trackers}

    @property
    def refused_at(self) -> float:
        """When a partition whose position was refused is to be committed again; infinite: none
        was.
        """
        return self.refusals.again_at(self.table.trackers.values()) if self.refusals else inf

    @property
    def refused_reasons(self) -> Mapping[TopicPartition, str]:
        """partition -> why the broker does not store its position."""
        return self.refusals.reasons(self.table.trackers.values()) if self.refusals else {}

    def left_unstored(self) -> list[TopicPartition]:
        """The partitions that may be retained, and where something is settled that is not
        stored.
        """
        if isinstance(self.strategy, NoCommits):
            return []
        return sorted(self.unstored(one for one in self.table if one.left is not None))

    def left_to_transactions(self) -> list[TopicPartition]:
        """The partitions where something is settled, and an open transaction is to store the
        position.
        """
        return sorted(
            self.unstored(one for one in self.table if one.live and self._is_left_alone(one.live))
        )

    def plan(
        self,
        now: float,
        *,
        # The assignment of those that are *going* is about to end.
        is_last: bool = False,
        # None: all.
        going: Collection[TopicPartition] | None = None,
        # Their plans are to be stored, moved or not.
        wanted: Collection[OffsetTracker] = (),
        # What acks have brought without moving a position is to be stored, too.
        is_tick: bool = True,
        # Somebody wants all of it stored: also what was refused a moment ago.
        is_asked: bool = False,
    ) -> CommitRequest | None:
        """The commit that is due: positions that moved since the last confirmed one; None if there
        is nothing new.

        At most one is in flight: None until the last one was confirmed, failed, or its assignment
        ended.
        """
        # One request at a time: a second one could overtake the first, whose outcome nobody knows
        # yet. It names trackers and not only partitions, so an answer that comes after the
        # assignment has ended finds closed ones and moves nothing.
        if self._in_flight is not None:
            return None
        commits = not isinstance(self.strategy, NoCommits)
        restates = is_tick and commits
        due = list[PendingCommit]()
        repeated = set[TopicPartition]()
        for one in self.table:
            tracker = one.live
            if tracker is None or (rests(one) and tracker not in wanted):
                continue
            ends = is_last and (going is None or one.id in going)
            is_resting = self.refusals.is_resting(tracker, now)
            if is_resting and not (ends or is_asked or tracker in wanted):
                continue
            if one.unknown and one.unknown.is_due(now, is_last=ends):
                repeated.add(one.id)
            position = None
            if (to := self.reached(tracker)) > tracker.uncommitted_from:
                position = self._ask(one, tracker, to, now, is_last=ends)
            if position is not None:
                due.append(one.metadata.due(tracker, position, is_new=True))
            elif one.id in repeated:
                due.append(one.metadata.due(tracker, tracker.uncommitted_from, is_new=False))
            elif (tracker in wanted or (commits and one.metadata.lost_plans)) and one.lacks_plans(
                tracker
            ):
                due.append(
                    one.metadata.due(
                        tracker, one.unmoved(tracker), is_new=one.may_be_stored(tracker)
                    )
                )
            elif restates and (restated := one.restated(tracker)) is not None:
                due.append(restated)
        due = [one for one in due if is_last or not self._is_left_alone(one.tracker)]
        if self.refusals:
            self.refusals.keep({one.partition for one in due}, now)
        return self._send(due, frozenset(repeated), is_last=is_last)

    def _send(
        self,
        due: list[PendingCommit],
        repeated: frozenset[TopicPartition] = frozenset(),
        *,
        is_last: bool = False,
    ) -> CommitRequest | None:
        if not due:
            return None
        for pending in due:
            if pending.is_new or pending.partition in repeated:
                pending.tracker.attempted = max(pending.tracker.attempted, pending.position)
        for one in self.table:
            one.is_void = False
        self._in_flight = CommitRequest(self.table.generation, tuple(due), repeated, is_last)
        return self._in_flight

    def _ask(
        self, one: Partition, tracker: OffsetTracker, reached: int, now: float, *, is_last: bool
    ) -> int | None:
        """What the strategy wants committed, as far as that is allowed: up to *reached*."""
        safe = tracker.committable if self._is_unsafe else reached
        highest = tracker.highest if tracker.window else safe
        try:
            position = self.strategy.position(
                Progress(one.id, tracker.committed, safe, highest, is_last), now
            )
        except BaseException as error:
            # A custom one may raise anything; who commits fails the channel with it.
            self.refused = CommitStrategyError(one.id, describe(error))
            self.refused.__cause__ = error
            return None
        if position is None:
            return None
        if not is_position(position):
            what = f"it answered {position!r}; allowed are a position (an int from 0 on) and None"
            self.refused = CommitStrategyError(one.id, what)
            return None
        # A strategy only wishes: none can pass an unsettled record, cut a planned range or go back.
        # The one exception is the class LatestCommits itself with commit_latest_unsafe, whose *reached* is
        # the highest settled record.
        position = min(position, reached)
        # Also of those that are done: they come again as they were.
        position = tracker.outside_plans(position)
        # What failed for sure may be followed by less; what may still land must not be.
        least = max(tracker.uncommitted_from + 1, tracker.attempted if one.unknown else 0)
        return position if position >= least else None

    @property
    def repeat_at(self) -> float | None:
        """When a commit is to be sent once more, because one of unknown outcome may have landed
        after it.
        """
        unknown = [
            one
            for one in self.table
            if one.unknown and one.live and not self._is_left_alone(one.live)
        ]
        return min((at for one in unknown if (at := one.unknown.next_at) is not None), default=None)

    def plan_positions(self, offsets: Mapping[TopicPartition, int]) -> CommitRequest | None:
        """The commit of exactly these positions, which are checked first; None: the group has them,
        with strings.
        """
        due = []
        for one, tracker, offset in self.check_positions(offsets):
            pending = one.metadata.due(tracker, offset, is_new=True)
            if pending.number or not tracker.uncommitted_from == offset == one.stored:
                due.append(pending)
        return self._send(due)

    def check_positions(
        self, offsets: Mapping[TopicPartition, int]
    ) -> list[tuple[Partition, OffsetTracker, int]]:
        """Check that these positions may be committed now; each with what it is of.

        NotOwnerError: a partition is not ours. ValueError: it is no offset. CommitRefusedError: a
        position would pass an unsettled record, lies inside of a planned range, or goes back.
        """
        found = []
        for name, position in offsets.items():
            if not is_position(position):
                raise ValueError(
                    f"a position to commit is an offset from 0 on, not {position!r} (for {name})"
                )
            one = self.table.get(name)
            if one is None or not one.is_ours:
                raise NotOwnerError(f"{TopicPartition(*name)} is not ours")
            found.append((one, position))
        return [(one, self._check(one, position), position) for one, position in found]

    def _check(self, one: Partition, position: int) -> OffsetTracker:
        if one.tracker is not None and self._is_left_alone(one.tracker):
            raise CommitRefusedError(f"{one.id} has an open transaction: it stores its position")
        tracker = one.live
        why = "reading has not begun there yet"
        if tracker is not None:
            why = _why_not(tracker, position, is_in_doubt=bool(one.unknown))
        if tracker is None or why:
            raise CommitRefusedError(f"{one.id}: position {position} was not committed: {why}")
        return tracker

    def confirm(
        self,
        plan: CommitRequest,
        now: float,
        refused: Mapping[TopicPartition, BrokerError] | None = None,
    ) -> list[tuple[OffsetTracker, int]]:
        """The broker has stored it, but for what it has *refused*; what moved.

        A tracker whose assignment ended meanwhile is left alone. What was refused is tried again
        after a pause.
        """
        is_believed = self._in_flight is plan
        if is_believed:
            self._in_flight = None
        moved = []
        for pending in plan.due:
            if refused is not None and pending.partition in refused:
                self._note_refusal(pending, refused[pending.partition], now)
                continue
            self.refusals.remove(pending.partition)
            if (one := self.table.get(pending.partition)) is None:
                continue
            is_ours = one.tracker is pending.tracker
            is_news = _is_of(pending.tracker, pending.position)
            # Ends what is unknown where it was repeated for that.
            if is_believed and is_ours and is_news:
                one.unknown.stored(now, was_repeated=one.id in plan.repeated, is_last=plan.is_last)
            # Believed, maybe by another tracker; else of records that went on through a cooperative
            # assignment.
            if one.live is not None and not one.is_void and (is_believed or (is_ours and is_news)):
                one.metadata.stored(pending)
                one.stored = pending.position
            if not is_ours:
                continue
            # Plans alone are stored at the position that the group has, which after a seek is none
            # of the tracker's. Such a commit confirms nothing of what is read now, and ends no
            # doubt about it.
            if is_news:
                pending.tracker.committed = pending.position
                pending.tracker.uncommitted_from = pending.position
                one.stored = pending.position
                moved.append((pending.tracker, pending.position))
            one.metadata.used_up(pending)
        return moved

    def _note_refusal(self, pending: PendingCommit, error: BrokerError, now: float) -> None:
        if isinstance(error, MetadataTooLargeError):
            # The next plan has less beside the position.
            self.table.policy.refused([pending])
        else:
            self.refusals.add(pending.tracker, str(error), now)

    def due_with(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What a transaction of the application's is to store for a position, instead of a
        commit.
        """
        one = self.table.of(tracker)
        return (
            one.metadata.due(tracker, position, is_new=True)
            if one
            else PendingCommit(tracker, position, True)
        )

    def stored_with(self, pending: PendingCommit) -> None:
        """A transaction of the application's has stored it."""
        tracker = pending.tracker
        one = self.table.of(pending.tracker)
        if one is None:
            return
        tracker.attempted = max(tracker.attempted, pending.position)
        # Else the next assignment finds it.
        if one.live is not None:
            tracker.committed = tracker.uncommitted_from = one.stored = pending.position
            one.metadata.stored(pending)
            one.metadata.used_up(pending)

    def takes_less(self, plan: CommitRequest, partitions: Collection[TopicPartition]) -> bool:
        """The broker refused the strings of these partitions (none: of any); whether the next plan
        leaves some out.
        """
        refused = [one for one in plan.due if not partitions or one.partition in partitions]
        if self._in_flight is not plan or not self.table.policy.refused(refused):
            return False
        self._in_flight = None
        return True

    def fail(self, plan: CommitRequest, *, is_unknown: bool) -> None:
        """It was not stored, or that is not known: nothing moves, and the next plan carries the
        positions of then.
        """
        if self._in_flight is not plan:
            return
        self._in_flight = None
        for pending in plan.due if is_unknown else ():
            one = self.table.get(pending.partition)
            if one is not None:
                one.unknown.add(
                    pending.position,
                    is_repeated=pending.position <= pending.tracker.uncommitted_from,
                )
                one.metadata.unknown(pending)


def is_position(value: object) -> bool:
    """Whether it can be committed at all: an offset from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_of(tracker: OffsetTracker, position: int) -> bool:
    """Whether a position that was sent is news for these records: not an older one, nor the group's
    before a seek.
    """
    return tracker.uncommitted_from <= position <= tracker.attempted


def _why_not(tracker: OffsetTracker, position: int, *, is_in_doubt: bool) -> str:
    """Why a position that somebody asks for may not be committed; empty: it may."""
    if position > tracker.safe and tracker.window:
        return f"the record at offset {tracker.safe} is not settled"
    if position > tracker.limit:
        return f"it lies behind {tracker.limit}, and the offsets from there on are not read"
    if position > tracker.safe:
        return f"records from {tracker.position} on have not been read"
    if (start := tracker.outside_plans(position)) != position:
        return f"it lies inside of a range that is handled as one, from {start} on"
    if position < (
        least := tracker.start if tracker.uncommitted_from < 0 else tracker.uncommitted_from
    ):
        return f"that would go back from {least}"
    if is_in_doubt and position < tracker.attempted:
        return f"that would go back from {tracker.attempted}, which may have been stored"
    return ""
