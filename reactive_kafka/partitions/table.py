"""The partitions of one client: which are ours, retained after a rebalance, or gone. No I/O, no
clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.start_choice import StartChoice
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from reactive_kafka.tracking.tracker import OffsetTracker


class PartitionTable:
    """Every partition that a client has, or had in its last assignment and may retain.

    A revocation names its partitions, and an assignment those that it brings; the others are not
    touched.
    """

    def __init__(
        self,
        *,
        # Ours without a group's assignment, so they are always retained.
        is_static: bool = False,
        policy: MetadataPolicy | None = None,
        # By the settings, or a restart.
        starts: Mapping[TopicPartition, StartChoice] | None = None,
        # What is read of those that have an end.
        ranges: Mapping[TopicPartition, Ranges] | None = None,
    ) -> None:
        self.ranges = {} if ranges is None else ranges
        # Of the last assignment.
        self.generation = -1
        self._starts = {} if starts is None else starts
        self._is_static = is_static
        self.policy = MetadataPolicy() if policy is None else policy
        self._partitions: dict[TopicPartition, Partition] = {}
        self._assignments = 0
        # Made again when one has moved, as the next two.
        self._reading: list[Partition] | None = None
        self._read_names: tuple[TopicPartition, ...] = ()
        self._pending: list[Partition] | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, partition: TopicPartition) -> Partition | None:
        """The partition, if the client has it or may retain it."""
        return self._partitions.get(partition)

    @property
    def reading(self) -> list[Partition]:
        """Those that are read, which is what each poll asks for."""
        if self._reading is None:
            self._reading = [one for one in self if one.is_read]
            self._read_names = tuple(one.id for one in self._reading)
        return self._reading

    @property
    def read_names(self) -> tuple[TopicPartition, ...]:
        """The names of those that are read."""
        return self._read_names if self.reading else ()

    @property
    def pending(self) -> list[Partition]:
        """Those that are ours and where reading has not started."""
        if self._pending is None:
            self._pending = [one for one in self if one.is_pending]
        return self._pending

    @property
    def trackers(self) -> dict[TopicPartition, OffsetTracker]:
        """partition -> its tracker, of those whose positions are committed. Made anew by each
        call.
        """
        return {name: one.live for name, one in self._partitions.items() if one.live is not None}

    def all_trackers(self) -> list[OffsetTracker]:
        """Also those of partitions that may be retained."""
        return [one.tracker for one in self if one.tracker is not None]

    def of(self, tracker: OffsetTracker) -> Partition | None:
        """The partition of a tracker; None: another tracker has taken its place, or the partition
        has gone.
        """
        one = self._partitions.get(tracker.partition)
        return one if one is not None and one.tracker is tracker else None

    def has(self, tracker: OffsetTracker) -> bool:
        """Whether the positions of a tracker are committed."""
        one = self.of(tracker)
        return one is not None and one.live is tracker

    @property
    def ours(self) -> frozenset[TopicPartition]:
        """Those of the assignment, also where reading has not started."""
        return frozenset(name for name, one in self._partitions.items() if one.is_ours)

    def move(self, one: Partition, event: str) -> None:
        """Move a partition to the state that an event leads to. Raises as :meth:`Partition.go`
        does.
        """
        one.go(event)
        self._reading = self._pending = None

    def assign(self, generation: int, partitions: Iterable[TopicPartition]) -> list[Partition]:
        """An assignment brings these; the partitions that have gone with it are returned, their
        trackers closed.
        """
        added = frozenset(partitions)
        self._assignments += 1
        gone = []
        # Where no revocation came before.
        self.revoke(added)
        for one in list(self):
            if not one.is_ours and not self._is_next(one, generation):
                one.metadata.early = None
            if not self._is_static:
                # The broker refuses what comes late from an earlier generation.
                one.unknown.end()
            if one.state is PartitionState.SUSPENDED and one.id not in added:
                gone.append(self._lose(one))
        self.generation = generation
        for name in sorted(added):
            found = self._partitions.get(name)
            if found is None:
                its = self.ranges.get(name)
                found = self._partitions[name] = Partition(
                    name, self.policy, self._starts.get(name), its
                )
                self._pending = None
            else:
                self.move(found, "assign")
            found.assignment = self._assignments
            found.is_open = found.is_paused = False
            found.unreadable = None
            found.left_out_in = -1
        return gone

    def drain(self, partitions: Collection[TopicPartition] | None = None) -> list[Partition]:
        """These (None: all) are about to go: those that are read, which take no record any more."""
        draining = []
        for one in self._named(partitions):
            # What is being looked up for it is void.
            one.assignment = -1
            one.sought = None
            self.move(one, "drain")
            if one.state is PartitionState.DRAINING:
                draining.append(one)
            else:
                one.generation = self.generation
                if one.tracker is not None:
                    # It is still not known whether the partition is retained, and now it goes
                    # again: a string supplied meanwhile shares the fate of the tracker, and is not
                    # lost if that is retained in the end.
                    one.metadata.retained(one.tracker)
        return draining

    def revoke(self, partitions: Collection[TopicPartition] | None = None) -> list[Partition]:
        """These (None: all) are revoked, and not committed from here on; those that wait now to be
        retained.
        """
        waiting = []
        for one in self._named(partitions):
            was_committing = one.live is not None
            one.generation = self.generation
            self.move(one, "revoke")
            if was_committing:
                waiting.append(one)
            elif one.tracker is not None:
                one.metadata.retained(one.tracker)
        return waiting

    def _named(self, partitions: Collection[TopicPartition] | None) -> list[Partition]:
        return [one for one in self if one.is_ours and (partitions is None or one.id in partitions)]

    def _lose(self, one: Partition) -> Partition:
        self.move(one, "lose")
        del self._partitions[one.id]
        if one.tracker is not None:
            one.tracker.close()
        return one

    def is_retained(self, one: Partition, committed: int | None) -> bool:
        """Whether the partition goes on where it stood: no other member can have owned it in
        between.
        """
        tracker = one.left
        if tracker is None or self._is_static:
            return tracker is not None
        # It is ours again in the next generation, and the group's committed position is one that we
        # wrote. Both halves are needed. An older generation: somebody may have owned it in between.
        # Another position: somebody has, or an operator has moved it. "As we left it" is a range,
        # for a commit whose answer was lost may have been stored. Without this rule each rebalance
        # of an eager client would deliver all records in flight once more.
        return self._is_next(one, self.generation) and _is_as_left(one, tracker, committed)

    def _is_next(self, one: Partition, generation: int) -> bool:
        """Whether no other member can have owned a revoked partition before this generation."""
        return self._is_static or generation == one.generation + 1

    def retain(self, one: Partition, committed: int | None) -> OffsetTracker | None:
        """Let a partition that is retained commit again; None if it is not, and its tracker is
        closed.
        """
        tracker = one.left
        if tracker is None:
            return None
        if not self.is_retained(one, committed):
            self.drop(one)
            return None
        if committed != one.stored and committed is not None:
            one.stored = committed
            # else it was stored for a place that a seek has left: commits follow the new one
            if committed not in one.behind or committed <= tracker.uncommitted_from:
                tracker.committed = tracker.uncommitted_from = committed
        self.move(one, "retain")
        one.metadata.retained(tracker)
        return tracker

    def drop(self, one: Partition, *, is_ours: bool = False) -> OffsetTracker | None:
        """Close the tracker of a partition, which may be tracked afresh; None if it has none."""
        tracker = one.tracker
        if tracker is None:
            return None
        if one.live is not None and not is_ours:
            one.is_void = True
        one.behind = range(0)
        one.unknown.forget()
        one.metadata.forget()
        # What waits for its next position goes on waiting.
        if is_ours:
            one.metadata.starts_elsewhere(tracker)
        tracker.close()
        self.move(one, "relocate")
        one.tracker = None
        return tracker

    def start(self, one: Partition, tracker: OffsetTracker, stored: int | None = None) -> None:
        """Read a partition from the tracker's position on; if it was read (a reset, a seek), the
        old one is closed.
        """
        if one.left is not None:
            self.drop(one)
        old = one.live
        if old is None:
            one.behind = range(0)
        else:
            one.behind = range(one.unknown.lowest(old.uncommitted_from), old.attempted + 1)
            old.close()
        one.unknown.starts_elsewhere()
        one.metadata.starts(tracker, old)
        # What the group has may be none of these records'
        one.stored = tracker.committed if stored is None else stored
        one.tracker = tracker
        self.move(one, "start")

    def close(self) -> list[Partition]:
        """No assignment will follow: every tracker refuses verdicts from now on."""
        return [self._lose(one) for one in list(self)]


def _is_as_left(one: Partition, tracker: OffsetTracker, committed: int | None) -> bool:
    """Whether the group's position is the one that was known, or one that we may have stored
    since.
    """
    if committed is None or committed == one.stored:
        return committed == one.stored
    if committed in one.behind:
        return True
    return (
        max(tracker.start, one.unknown.lowest(tracker.uncommitted_from))
        <= committed
        <= tracker.attempted
    )
