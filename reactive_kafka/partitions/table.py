"""The partitions of one client, and how a rebalance moves them. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.start_choice import StartChoice
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import UnknownCommits


class PartitionTable:
    """Every partition that a client has, or had in its last assignment and may retain.

    A revocation names its partitions, and an assignment those that it brings; the others are not
    touched. Lanes and verdicts follow in
    :class:`~reactive_kafka.partitions.client_partitions.ClientPartitions`.

    Args:
        is_static: The partitions are ours without a group's assignment, so they are always
            retained.
        policy: What is stored with their positions.
        starts: partition -> where its first reading starts, by the settings or a restart.
        ranges: partition -> what is read of it, for those that are read up to an end.
        unanswered: partition -> what is not known of its commits. With *is_static* it outlives the
            client, because no broker refuses what an earlier one has sent.
    """

    def __init__(
        self,
        *,
        is_static: bool = False,
        policy: MetadataPolicy | None = None,
        starts: Mapping[TopicPartition, StartChoice] | None = None,
        ranges: dict[TopicPartition, Ranges] | None = None,
        unanswered: dict[TopicPartition, UnknownCommits] | None = None,
    ) -> None:
        self.ranges = {} if ranges is None else ranges
        self.policy = MetadataPolicy() if policy is None else policy
        # Of the last assignment.
        self.generation = -1
        self._starts = {} if starts is None else starts
        self.is_static = is_static
        self._unanswered = {} if unanswered is None else unanswered
        self._partitions: dict[TopicPartition, Partition] = {}
        self._assignments = 0
        # Lists that each poll needs: they are made again when a partition has moved.
        self._reading: list[Partition] | None = None
        self._read_names: tuple[TopicPartition, ...] = ()
        self._pending: list[Partition] | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, name: TopicPartition) -> Partition | None:
        """The partition, if the client has it or may retain it."""
        return self._partitions.get(name)

    @property
    def reading(self) -> list[Partition]:
        """The partitions that polls ask for; the same list until a partition moves."""
        if self._reading is None:
            self._reading = [partition for partition in self if partition.is_read]
            self._read_names = tuple(partition.id for partition in self._reading)
        return self._reading

    @property
    def read_names(self) -> tuple[TopicPartition, ...]:
        """The names of the partitions that polls ask for."""
        return self._read_names if self.reading else ()

    @property
    def pending(self) -> list[Partition]:
        """The partitions that are ours and where reading has not started."""
        if self._pending is None:
            self._pending = [partition for partition in self if partition.is_pending]
        return self._pending

    @property
    def trackers(self) -> dict[TopicPartition, OffsetTracker]:
        """partition -> its tracker, where its positions are committed. A new dict each time."""
        return {partition.id: partition.live for partition in self if partition.live is not None}

    def all_trackers(self) -> list[OffsetTracker]:
        """All trackers, also those of partitions that may be retained."""
        return [partition.tracker for partition in self if partition.tracker is not None]

    def partition_of(self, tracker: OffsetTracker) -> Partition | None:
        """The partition that this tracker is of; None if it has another one or has gone."""
        partition = self._partitions.get(tracker.partition)
        if partition is None or partition.tracker is not tracker:
            return None
        return partition

    def has(self, tracker: OffsetTracker) -> bool:
        """Whether the positions of a tracker are committed."""
        partition = self.partition_of(tracker)
        return partition is not None and partition.live is tracker

    @property
    def ours(self) -> frozenset[TopicPartition]:
        """The assignment, with the partitions where reading has not started."""
        return frozenset(partition.id for partition in self if partition.is_ours)

    def move(self, partition: Partition, event: str) -> None:
        """Move a partition to the state that *event* leads to; raises as :meth:`Partition.go`."""
        partition.go(event)
        self._reading = None
        self._pending = None

    # -- rebalances

    def assign(self, generation: int, names: Iterable[TopicPartition]) -> list[Partition]:
        """Bring these partitions into the assignment.

        Returns:
            The partitions that this assignment does not bring back: they were revoked before it.
            Their trackers are closed.
        """
        added = frozenset(names)
        self._assignments += 1
        gone = []
        # A client names the partitions that are new to it. If it had one before, it did not report
        # the revocation.
        self.revoke(added)
        for partition in list(self):
            if not partition.is_ours and not self._may_be_retained(partition, generation):
                partition.commits.metadata.forget_early()
            if not (self.is_static or partition.is_ours):
                # The broker refuses late commits for a partition that was given up. For one that
                # stays, a late commit may have been stored already, and brokers from 4.3 on accept
                # it even now (KIP-1251).
                partition.commits.unknown.end()
            if partition.state is PartitionState.SUSPENDED and partition.id not in added:
                gone.append(self._lose(partition))
        self.generation = generation
        for name in sorted(added):
            self._add(name)
        return gone

    def _add(self, name: TopicPartition) -> None:
        partition = self._partitions.get(name)
        if partition is None:
            partition = Partition(
                name,
                self.policy,
                self._starts.get(name),
                self.ranges.get(name),
                self._unknown_commits(name),
            )
            self._partitions[name] = partition
            self._pending = None
        else:
            self.move(partition, "assign")
        partition.assignment = self._assignments
        partition.start.begin_assignment()
        partition.fetch.begin_assignment()

    def _unknown_commits(self, name: TopicPartition) -> UnknownCommits:
        if not self.is_static:
            return UnknownCommits()
        return self._unanswered.setdefault(name, UnknownCommits(is_fenced=False))

    def found_range(self, partition: Partition, ranges: Ranges, start: StartChoice) -> None:
        """Read these offsets of a partition only; they are those of a range of times.

        Args:
            start: Where reading starts, unless something else was chosen.
        """
        self.ranges[partition.id] = ranges
        partition.ranges = ranges
        if partition.start.configured is None:
            partition.start.configured = start

    def drain(self, names: Collection[TopicPartition] | None = None) -> list[Partition]:
        """These partitions (None: all) are about to go: take no record of them any more.

        Returns:
            Those whose records may finish and be committed.
        """
        draining = []
        for partition in self._ours_among(names):
            # Answers to what is being asked about it do not apply any more.
            partition.assignment = -1
            partition.start.end_assignment()
            self.move(partition, "drain")
            if partition.state is PartitionState.DRAINING:
                draining.append(partition)
            else:
                partition.generation = self.generation
                if partition.tracker is not None:
                    # It is still not known whether the partition is retained, and now it goes
                    # again: a string supplied meanwhile shares the fate of the tracker, and is not
                    # lost if that is retained in the end.
                    partition.commits.metadata.retained(partition.tracker)
        return draining

    def revoke(self, names: Collection[TopicPartition] | None = None) -> list[Partition]:
        """These partitions (None: all) are revoked: commit nothing for them from here on.

        Returns:
            Those that wait now to hear whether they are retained.
        """
        waiting = []
        for partition in self._ours_among(names):
            was_committing = partition.live is not None
            partition.generation = self.generation
            self.move(partition, "revoke")
            if was_committing:
                waiting.append(partition)
            elif partition.tracker is not None:
                partition.commits.metadata.retained(partition.tracker)
        return waiting

    def _ours_among(self, names: Collection[TopicPartition] | None) -> list[Partition]:
        return [
            partition
            for partition in self
            if partition.is_ours and (names is None or partition.id in names)
        ]

    def _lose(self, partition: Partition) -> Partition:
        self.move(partition, "lose")
        del self._partitions[partition.id]
        if partition.tracker is not None:
            partition.tracker.close()
        return partition

    def close(self) -> list[Partition]:
        """No assignment will follow: every tracker refuses verdicts from now on."""
        return [self._lose(partition) for partition in list(self)]

    # -- one partition

    def is_retained(self, partition: Partition, committed: int | None) -> bool:
        """Whether the partition continues where it was: no other member can have had it meanwhile.

        Args:
            committed: The group's position.
        """
        tracker = partition.left
        if tracker is None:
            return False
        if self.is_static:
            return True
        # It is ours again in the next generation, and the group's committed position is one that we
        # wrote. Both halves are needed. An older generation: another member may have owned it.
        # Another position: one has, or an operator has moved it. "As we left it" is a range,
        # for a commit whose answer was lost may have been stored. Without this rule each rebalance
        # of an eager client would deliver all records in flight once more.
        if not self._may_be_retained(partition, self.generation):
            return False
        return partition.commits.is_as_left(tracker, committed)

    def _may_be_retained(self, partition: Partition, generation: int) -> bool:
        """Whether this is the generation right after the one in which the partition was ours."""
        return self.is_static or generation == partition.generation + 1

    def retain(self, partition: Partition, committed: int | None) -> OffsetTracker | None:
        """Let a retained partition commit again; if it is not retained, close its tracker.

        Returns:
            The tracker; None if the partition is not retained.
        """
        tracker = partition.left
        if tracker is None:
            return None
        if not self.is_retained(partition, committed):
            self.drop(partition)
            return None
        self.move(partition, "retain")
        partition.commits.retain(tracker, committed)
        return tracker

    def drop(self, partition: Partition, *, is_ours: bool = False) -> OffsetTracker | None:
        """Close the tracker of a partition, which can be tracked from another place then.

        Returns:
            The tracker; None if it had none.
        """
        tracker = partition.tracker
        if tracker is None:
            return None
        was_committing = partition.live is not None
        partition.commits.drop(tracker, was_committing=was_committing, is_ours=is_ours)
        tracker.close()
        self.move(partition, "relocate")
        partition.tracker = None
        return tracker

    def start(
        self, partition: Partition, tracker: OffsetTracker, stored: int | None = None
    ) -> None:
        """Read a partition from the tracker's position on.

        If it was read (a reset, a seek), the old tracker is closed.
        """
        if partition.left is not None:
            self.drop(partition)
        old = partition.live
        partition.commits.start(tracker, old, stored)
        if old is not None:
            old.close()
        partition.tracker = tracker
        self.move(partition, "start")
