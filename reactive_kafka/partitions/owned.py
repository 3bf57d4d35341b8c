"""What the coming and going of partitions means for their lanes, and for who waits for verdicts on
their records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.verdicts.acknowledger import Acknowledger, verdicts_of


class OwnedPartitions:
    """The partitions of one client with their lanes."""

    def __init__(
        self,
        owner: str,
        table: PartitionTable,
        lanes: Lanes,
        acknowledger: Acknowledger,
        abandon: Callable[[Lane], None],
    ) -> None:
        self.table = table
        # The client's name.
        self._owner = owner
        self._queue = lanes
        self._acknowledger = acknowledger
        # Called with a lane that is not ours any more, or is read anew, while handlers run it.
        self._abandon = abandon
        # With handlers that still run.
        self._replaced: list[Lane] = []
        # The channel ends: no record is taken any more, whatever is assigned meanwhile.
        self.is_ending = False
        # The group may have given them to others: where reading begins meanwhile, it waits.
        self.is_alone = False

    def assign(self, generation: int, partitions: frozenset[TopicPartition]) -> None:
        """An assignment has come; what was revoked and is not in it has gone."""
        # A client names in an assignment what it did not have. Where it names what it had, no
        # revocation has come, though the partition was away: its lane is suspended, and verdicts
        # wait, as if one had.
        self.drain(partitions)
        self.revoke(partitions)
        for one in self.table.assign(generation, partitions):
            self._forget(one, one.tracker)

    def start(self, one: Partition, tracker: OffsetTracker, *, stored: int | None = None) -> None:
        """Read a partition from a position on: what was read of it before is over."""
        self._acknowledger.begins(tracker, self._owner)
        if one.lane is not None:
            self._replace(one.lane)
        if one.live is not None:
            verdicts_of(one.live).gone()
        self.table.start(one, tracker, stored)
        one.lane = self._queue.new(tracker)
        if self.is_ending:
            self.table.drain((one.id,))
        if one.state is PartitionState.DRAINING or self.is_alone:
            one.lane.change("suspend")

    def retain(self, one: Partition, stored: Committed | None) -> bool:
        """Let a partition that is retained commit again, and answer verdicts on its records; False
        if it is not.

        What waited in it stays suspended until :meth:`resume`.
        """
        left = one.left
        tracker = self.table.retain(one, None if stored is None else stored.offset)
        if tracker is None:
            if left is not None:
                self._forget(one, left)
            return False
        # A commit whose answer was lost: who waits for it is told now.
        if tracker.committed is not None:
            verdicts_of(tracker).confirmed(tracker.committed)
        verdicts_of(tracker).answer(is_retained=True)
        one.metadata.found(tracker, stored)
        return True

    def resume(self, one: Partition) -> None:
        """Read on in a partition that was retained: what waited may be taken again."""
        self.table.move(one, "read")
        if self.is_ending:
            self.table.drain((one.id,))
        elif one.lane is not None:
            one.lane.change("retain")
            self._queue.offer(one.lane)

    def drop(self, one: Partition, *, is_ours: bool = False) -> None:
        """Discard what there is of a partition: it is another member's by now, or starts elsewhere
        (*is_ours*).
        """
        tracker = self.table.drop(one, is_ours=is_ours)
        if tracker is not None:
            self._forget(one, tracker)

    def drain(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Let nobody take a record of these (None: of any), not even a worker that is in a lane;
        what waits stays.
        """
        for one in self.table.drain(partitions):
            if one.lane is not None:
                one.lane.change("suspend")

    def revoke(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """These are revoked: verdicts on their records are answered when it is known whether they
        are retained.
        """
        for one in self.table.revoke(partitions):
            if one.tracker is not None:
                verdicts_of(one.tracker).hold_answers()

    def close(self) -> None:
        """No assignment will follow."""
        for one in self.table.close():
            self._forget(one, one.tracker)

    def _forget(self, one: Partition, tracker: OffsetTracker | None) -> None:
        lane = one.lane
        one.lane = None
        if lane is not None:
            self._replace(lane)
        if tracker is not None:
            verdicts_of(tracker).answer(is_retained=False)

    def _replace(self, lane: Lane) -> None:
        lane.change("drop")
        if lane.workers:
            # Each keeps its tracker. A seek a second, under a handler that runs, would keep one
            # more each time.
            self._replaced = [*self._remains(), lane]
            self._abandon(lane)

    def named(self, partitions: Collection[TopicPartition] | None) -> list[Partition]:
        """Those of the table among these; None: all."""
        return [one for one in self.table if partitions is None or one.id in partitions]

    def running(self, partitions: Collection[TopicPartition] | None = None) -> int:
        """Workers that run records of these (None: of any)."""
        return sum(one.running for one in self.named(partitions))

    def has_remains(self) -> bool:
        """Whether handlers run records of partitions that have gone or were started anew."""
        self._replaced = self._remains()
        return bool(self._replaced)

    def _remains(self) -> list[Lane]:
        return [lane for lane in self._replaced if lane.workers]

    def in_flight(self, partitions: Collection[TopicPartition] | None = None) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(one.in_flight for one in self.named(partitions) if one.live is not None)

    def unsettled(self) -> list[str]:
        """The first record of each partition that is without a verdict."""
        live = [(one.id, one.live) for one in self.table if one.live is not None and one.in_flight]
        return [
            f"{partition} from offset {tracker.committable} on"
            for partition, tracker in sorted(live)
        ]

    def are_settled(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Whether nothing is in flight, and no nack is being carried out any more."""
        nacks = [
            verdicts_of(one.live).nacks for one in self.named(partitions) if one.live is not None
        ]
        return not any(nacks) and not self.in_flight(partitions)
