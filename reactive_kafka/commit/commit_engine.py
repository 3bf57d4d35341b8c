"""Decides what to commit for the partitions of a client. No I/O, no clock.

Three marks a partition: ``committable`` (no unsettled record before it), ``attempted`` (the highest
position ever sent) and ``committed`` (the broker confirmed it). A commit that fails moves nothing,
so the next one carries it.

A string goes with each position (:mod:`reactive_kafka.tracking.metadata`): plans, the user's
string, kept acks. If only the string has changed, the position that the group has is committed
again: at the next tick; for plans as soon as that is asked for, or an assignment finds others
there (:meth:`CommitState.lacks_plans`).
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
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.pending import PendingCommit
from reactive_kafka.tracking.tracker import NO_LIMIT, OffsetTracker


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit request: positions of the trackers of one generation."""

    generation: int
    due: tuple[PendingCommit, ...]
    # Partitions whose position is sent once more, because a commit of unknown outcome may have
    # landed after it.
    repeated: frozenset[TopicPartition] = frozenset()
    is_last: bool = False

    @property
    def offsets(self) -> dict[TopicPartition, Committed]:
        """partition -> what to store."""
        return {pending.partition: pending.stored for pending in self.due}


class CommitEngine:
    """Plans the commits of one client, and notes what their outcome means for its partitions.

    Args:
        is_left_alone: Whether the position of a tracker is stored by a transaction that is open.
    """

    def __init__(
        self,
        strategy: CommitStrategy,
        table: PartitionTable,
        is_left_alone: Callable[[OffsetTracker], bool],
    ) -> None:
        self.strategy = strategy
        self.table = table
        # Why an answer of the strategy could not be followed.
        self.refused: CommitStrategyError | None = None
        self._is_left_alone = is_left_alone
        self._commits = not isinstance(strategy, NoCommits)
        # Only this very class, not even a derived one: only the setting's own name may lose
        # records.
        self._is_unsafe = type(strategy) is LatestCommits and strategy.is_unsafe
        # Up to where may be committed: what is settled without a gap, or all that is settled.
        self.reached: Callable[[OffsetTracker], int] = attrgetter(
            "highest" if self._is_unsafe else "committable"
        )
        self._in_flight: CommitRequest | None = None
        self.refusals = Refusals()

    def end_request(self) -> None:
        """The assignment is over: the request in flight says nothing about the next one.

        If all of its partitions stay with this member, its answer still counts. Otherwise its
        outcome is unknown for the partitions that stay, and without a group for all of them,
        because no broker refuses it there.
        """
        request = self._in_flight
        if request is None:
            return
        staying = [pending for pending in request.due if self.table.has(pending.tracker)]
        if self.table.is_static:
            self._note_unknown(request.due)
        elif len(staying) == len(request.due):
            return
        else:
            self._note_unknown(staying)
        self._in_flight = None

    # -- what is settled and not stored

    def unstored(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """partition -> the number of offsets that are settled and not stored, where there are any.

        Only offsets up to the position that may be committed are counted.
        """
        ahead = {
            partition.id: self._unstored(partition.tracker)
            for partition in partitions
            if partition.tracker is not None
        }
        return {name: offsets for name, offsets in ahead.items() if offsets > 0}

    def _unstored(self, tracker: OffsetTracker) -> int:
        return self.reached(tracker) - tracker.stored

    def ahead(self) -> tuple[int, int]:
        """The offsets that are settled and not stored, and the records in the windows behind them.

        Of all partitions that are ours but those whose positions are refused, which
        :meth:`refused_unstored` has.
        """
        ahead = 0
        window = 0
        refusals = self.refusals
        for partition in self.table:
            tracker = partition.live
            if tracker is None:
                continue
            # Without this check each look would compact all windows, although in most of them
            # nothing has come since the last commit.
            if not tracker.flags and tracker.position == tracker.uncommitted_from:
                continue
            if refusals and refusals.has(tracker):
                continue
            ahead += max(0, self._unstored(tracker))
            window += tracker.window
        return ahead, window

    def refused_unstored(self) -> dict[TopicPartition, int]:
        """partition -> offsets that are settled and not stored, where its position is refused."""
        if not self.refusals:
            return {}
        return {
            partition.id: self._unstored(partition.live)
            for partition in self.table
            if partition.live is not None and self.refusals.has(partition.live)
        }

    @property
    def refused_at(self) -> float:
        """When to commit a refused position again; infinite if none was refused."""
        return self.refusals.again_at(self.table.trackers.values()) if self.refusals else inf

    @property
    def refused_reasons(self) -> Mapping[TopicPartition, str]:
        """partition -> why the broker does not store its position."""
        return self.refusals.reasons(self.table.trackers.values()) if self.refusals else {}

    def left_unstored(self) -> list[TopicPartition]:
        """The partitions in a rebalance for which something is settled and not stored."""
        if not self._commits:
            return []
        return sorted(
            self.unstored(partition for partition in self.table if partition.left is not None)
        )

    def left_to_transactions(self) -> list[TopicPartition]:
        """The partitions whose settled records an open transaction is to store."""
        return sorted(
            self.unstored(
                partition
                for partition in self.table
                if partition.live and self._is_left_alone(partition.live)
            )
        )

    # -- planning a request

    def plan(
        self,
        now: float,
        *,
        is_last: bool = False,
        going: Collection[TopicPartition] | None = None,
        wanted: Collection[OffsetTracker] = (),
        is_tick: bool = True,
        is_asked: bool = False,
    ) -> CommitRequest | None:
        """The request that is due: what has changed since the last confirmed one; None: nothing.

        At most one is in flight: None until the last one was confirmed or failed, or its assignment
        has ended.

        Args:
            is_last: The assignment of the partitions that are *going* (None: of all) ends.
            wanted: Store the plans of these trackers, even if no position has moved.
            is_tick: Store also what acks have brought without moving a position.
            is_asked: A caller wants everything stored, also what was refused a moment ago.
        """
        # A second request could overtake the first, whose outcome is not known yet. A request names
        # trackers and not only partitions, so an answer that comes after the assignment has ended
        # finds closed ones and moves nothing.
        if self._in_flight is not None:
            return None
        due = list[PendingCommit]()
        repeated = set[TopicPartition]()
        for partition in self.table:
            tracker = partition.live
            if tracker is None:
                continue
            is_wanted = tracker in wanted
            if not is_wanted and partition.commits.rests(tracker):
                continue
            ends = is_last and (going is None or partition.id in going)
            if self.refusals.is_resting(tracker, now) and not (ends or is_asked or is_wanted):
                continue
            unknown = partition.commits.unknown
            is_repeated = bool(unknown) and unknown.is_due(now, is_last=ends)
            if is_repeated:
                repeated.add(partition.id)
            pending = self._due(
                partition,
                tracker,
                now,
                ends=ends,
                is_repeated=is_repeated,
                is_wanted=is_wanted,
                is_tick=is_tick,
            )
            if pending is not None:
                due.append(pending)
        if not is_last:
            due = [pending for pending in due if not self._is_left_alone(pending.tracker)]
        if self.refusals:
            self.refusals.keep({pending.partition for pending in due}, now)
        return self._send(due, frozenset(repeated), is_last=is_last)

    def _due(
        self,
        partition: Partition,
        tracker: OffsetTracker,
        now: float,
        *,
        ends: bool,
        is_repeated: bool,
        is_wanted: bool,
        is_tick: bool,
    ) -> PendingCommit | None:
        commits = partition.commits
        reached = self.reached(tracker)
        if reached > tracker.uncommitted_from:
            position = self._ask(partition, tracker, reached, now, is_last=ends)
            if position is not None:
                return commits.metadata.due(tracker, position, is_new=True)
        if is_repeated:
            return commits.metadata.due(tracker, tracker.uncommitted_from, is_new=False)
        needs_plans = is_wanted or (self._commits and commits.metadata.lost_plans)
        if needs_plans and commits.lacks_plans(tracker):
            return commits.pending_plans(tracker)
        if is_tick and self._commits:
            return commits.restated(tracker)
        return None

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
                pending.tracker.sent(pending.position)
        for partition in self.table:
            partition.commits.send()
        self._in_flight = CommitRequest(self.table.generation, tuple(due), repeated, is_last)
        return self._in_flight

    def _ask(
        self,
        partition: Partition,
        tracker: OffsetTracker,
        reached: int,
        now: float,
        *,
        is_last: bool,
    ) -> int | None:
        """What the strategy wants committed, lowered to what is allowed: up to *reached*."""
        safe = tracker.committable if self._is_unsafe else reached
        highest = tracker.highest if tracker.window else safe
        progress = Progress(partition.id, tracker.committed, safe, highest, is_last)
        try:
            position = self.strategy.position(progress, now)
        except BaseException as error:
            # A custom strategy may raise anything. The committer fails the channel with it.
            self.refused = CommitStrategyError(partition.id, describe(error))
            self.refused.__cause__ = error
            return None
        if position is None:
            return None
        if not is_position(position):
            what = f"it answered {position!r}; allowed are a position (an int from 0 on) and None"
            self.refused = CommitStrategyError(partition.id, what)
            return None
        # A strategy only wishes: it cannot pass an unsettled record, cut a planned range or go
        # back. The one exception is the class LatestCommits itself with commit_latest_unsafe, whose
        # *reached* is the highest settled record.
        position = min(position, reached)
        # Not inside of plans that are done either: after a crash their records come again, and have
        # to be cut as they were.
        position = tracker.outside_plans(position)
        # A lower position may follow a commit that failed for sure. It must not follow one that may
        # still land.
        least = tracker.uncommitted_from + 1
        if partition.commits.unknown:
            least = max(least, tracker.attempted)
        return position if position >= least else None

    @property
    def repeat_at(self) -> float | None:
        """When to send a commit once more that one of unknown outcome may have overtaken."""
        times = []
        for partition in self.table:
            unknown = partition.commits.unknown
            if unknown and partition.live and not self._is_left_alone(partition.live):
                times.append(unknown.next_at)
        return min((at for at in times if at is not None), default=None)

    # -- positions of the application's own

    def plan_positions(self, offsets: Mapping[TopicPartition, int]) -> CommitRequest | None:
        """The request for exactly these positions; None: the group has them, strings included.

        Raises as :meth:`check_positions` does.
        """
        due = []
        for partition, tracker, position in self.check_positions(offsets):
            pending = partition.commits.metadata.due(tracker, position, is_new=True)
            is_stored = tracker.uncommitted_from == position == partition.commits.stored
            if pending.number or not is_stored:
                due.append(pending)
        return self._send(due)

    def check_positions(
        self, offsets: Mapping[TopicPartition, int]
    ) -> list[tuple[Partition, OffsetTracker, int]]:
        """Check that these positions may be committed now; returns each with what it is of.

        Raises:
            NotOwnerError: A partition is not ours.
            ValueError: A position is no offset.
            CommitRefusedError: A position would pass an unsettled record, lies inside of a planned
                range, or goes back.
        """
        found = []
        for name, position in offsets.items():
            if not is_position(position):
                raise ValueError(
                    f"a position to commit is an offset from 0 on, not {position!r} (for {name})"
                )
            partition = self.table.get(name)
            if partition is None or not partition.is_ours:
                raise NotOwnerError(f"{TopicPartition(*name)} is not ours")
            found.append((partition, position))
        return [
            (partition, self._check(partition, position), position) for partition, position in found
        ]

    def _check(self, partition: Partition, position: int) -> OffsetTracker:
        if partition.tracker is not None and self._is_left_alone(partition.tracker):
            raise CommitRefusedError(
                f"{partition.id} has an open transaction: it stores its position"
            )
        tracker = partition.live
        why = "reading has not begun there yet"
        if tracker is not None:
            why = _why_not(tracker, position, is_in_doubt=bool(partition.commits.unknown))
        if tracker is None or why:
            raise CommitRefusedError(
                f"{partition.id}: position {position} was not committed: {why}"
            )
        return tracker

    # -- the outcome of a request

    def confirm(
        self,
        request: CommitRequest,
        now: float,
        refused: Mapping[TopicPartition, BrokerError] | None = None,
    ) -> list[tuple[OffsetTracker, int]]:
        """Note that the broker has stored the request, except for what it has *refused*.

        Refused positions are sent again after a pause. The answer may be late: the assignment may
        have ended since, and another tracker may read the partition. Then that tracker does not
        move.

        Returns:
            The trackers that moved, with the positions that are stored for them.
        """
        is_current = self._in_flight is request
        if is_current:
            self._in_flight = None
        moved = []
        for pending in request.due:
            if refused is not None and pending.partition in refused:
                self._note_refusal(pending, refused[pending.partition], now)
                continue
            self.refusals.remove(pending.partition)
            partition = self.table.get(pending.partition)
            if partition is None:
                continue
            commits = partition.commits
            is_same = partition.tracker is pending.tracker
            is_news = _is_news(pending.tracker, pending.position)
            if is_current and is_same and is_news:
                was_repeated = pending.partition in request.repeated
                commits.unknown.stored(now, was_repeated=was_repeated, is_last=request.is_last)
            # Does the group have this position now? After an answer in time, yes, whichever tracker
            # reads the partition by now. After a late answer only if the same tracker still reads
            # it, because it was kept in a cooperative rebalance: otherwise another member may have
            # committed in between. That is also what ``is_void`` says.
            is_stored = is_current or (is_same and is_news)
            if is_stored and partition.live is not None and not commits.is_void:
                commits.confirm(pending)
            if not is_same:
                continue
            # A commit that stores plans only repeats the position that the group has. After a seek
            # that is no position of this tracker, so the tracker must not move to it.
            if is_news:
                pending.tracker.confirmed(pending.position)
                commits.confirm_position(pending.position)
                moved.append((pending.tracker, pending.position))
            commits.metadata.used_up(pending)
        return moved

    def _note_refusal(self, pending: PendingCommit, error: BrokerError, now: float) -> None:
        if isinstance(error, MetadataTooLargeError):
            # The next request stores less with the position.
            self.table.policy.refused([pending])
        else:
            self.refusals.add(pending.tracker, str(error), now)

    def takes_less(self, request: CommitRequest, partitions: Collection[TopicPartition]) -> bool:
        """The broker refused the strings of these partitions (none named: of any).

        Returns:
            Whether the next request will leave something out, so that it is worth a try.
        """
        refused = [
            pending for pending in request.due if not partitions or pending.partition in partitions
        ]
        if self._in_flight is not request or not self.table.policy.refused(refused):
            return False
        self._in_flight = None
        return True

    def fail(self, request: CommitRequest, *, is_unknown: bool) -> None:
        """The request was not stored, or that is not known: nothing moves."""
        if self._in_flight is not request:
            return
        self._in_flight = None
        if is_unknown:
            self._note_unknown(request.due)

    def _note_unknown(self, due: Iterable[PendingCommit]) -> None:
        for pending in due:
            partition = self.table.get(pending.partition)
            if partition is not None:
                is_repeated = pending.position <= pending.tracker.uncommitted_from
                partition.commits.unknown.add(pending.position, is_repeated=is_repeated)
                partition.commits.metadata.unknown(pending)

    # -- transactions of the application's

    def due_with(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What a transaction of the application's has to store instead of a commit."""
        partition = self.table.partition_of(tracker)
        if partition is None:
            return PendingCommit(tracker, position, True)
        return partition.commits.metadata.due(tracker, position, is_new=True)

    def stored_with(self, pending: PendingCommit) -> None:
        """A transaction of the application's has stored it."""
        tracker = pending.tracker
        partition = self.table.partition_of(tracker)
        if partition is None:
            return
        tracker.sent(pending.position)
        if partition.live is None:
            # The next assignment finds it.
            return
        tracker.confirmed(pending.position)
        partition.commits.confirm(pending)
        partition.commits.metadata.used_up(pending)


def is_position(value: object) -> bool:
    """Whether it can be committed at all: an offset from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_news(tracker: OffsetTracker, position: int) -> bool:
    """Whether a position that was sent is news for these records.

    An older one is not, nor is the one that the group had before a seek.
    """
    return tracker.uncommitted_from <= position <= tracker.attempted


def _why_not(tracker: OffsetTracker, position: int, *, is_in_doubt: bool) -> str:
    """Why a requested position may not be committed; empty: it may."""
    if position > tracker.safe and tracker.window:
        return f"the record at offset {tracker.safe} is not settled"
    if tracker.limit != NO_LIMIT and position > tracker.limit:
        return f"it lies behind {tracker.limit}, and the offsets from there on are not read"
    if position > tracker.safe:
        return f"records from {tracker.position} on have not been read"
    start = tracker.outside_plans(position)
    if start != position:
        return f"it lies inside of a range that is handled as one, from {start} on"
    least = tracker.start if tracker.uncommitted_from < 0 else tracker.uncommitted_from
    if position < least:
        return f"that would go back from {least}"
    if is_in_doubt and position < tracker.attempted:
        return f"that would go back from {tracker.attempted}, which may have been stored"
    return ""
