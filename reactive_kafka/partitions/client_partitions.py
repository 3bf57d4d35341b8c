"""Moves the partitions of one client together with their lanes and with who waits for verdicts."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger, verdicts_of


class ClientPartitions:
    """The partitions of one client with their lanes.

    The table says how they move. Each method here moves them there, and then does what follows for
    the lane and for those who wait for verdicts.

    Args:
        client: The client's name.
        abandon: Called with a lane that is not ours any more, or is read from another place, while
            handlers still run its records.
    """

    def __init__(
        self,
        client: str,
        table: PartitionTable,
        lanes: LaneQueue,
        acknowledger: Acknowledger,
        abandon: Callable[[Lane], None],
    ) -> None:
        self.table = table
        self._client = client
        self._lanes = lanes
        self._acknowledger = acknowledger
        self._abandon = abandon
        # Lanes that were replaced while handlers ran their records.
        self._replaced: list[Lane] = []
        # The channel ends: no record is taken any more, whatever is assigned meanwhile.
        self.is_ending = False
        # The group may have given the partitions to others. Where reading begins meanwhile, no
        # record is taken.
        self.is_alone = False

    # -- rebalances

    def assign(self, generation: int, names: frozenset[TopicPartition]) -> None:
        """An assignment has come: forget the partitions that were revoked and are not in it."""
        # A client names in an assignment what it did not have. If it names what it had, no
        # revocation was reported, though the partition was away: suspend its lane and let verdicts
        # wait, as if one had been.
        self.drain(names)
        self.revoke(names)
        for partition in self.table.assign(generation, names):
            self._forget(partition, partition.tracker)

    def drain(self, names: Collection[TopicPartition] | None = None) -> None:
        """Let no worker take another record of these (None: all), even if it is in the lane."""
        for partition in self.table.drain(names):
            if partition.lane is not None:
                partition.lane.change("suspend")

    def revoke(self, names: Collection[TopicPartition] | None = None) -> None:
        """These are revoked. Verdicts are answered when it is known whether they are retained."""
        for partition in self.table.revoke(names):
            if partition.tracker is not None:
                verdicts_of(partition.tracker).hold_answers()

    def close(self) -> None:
        """No assignment will follow."""
        for partition in self.table.close():
            self._forget(partition, partition.tracker)

    # -- one partition

    def start(
        self, partition: Partition, tracker: OffsetTracker, *, stored: int | None = None
    ) -> None:
        """Read a partition from the tracker's position on, instead of from where it was read."""
        self._acknowledger.begins(tracker, self._client)
        if partition.lane is not None:
            self._replace(partition.lane)
        if partition.live is not None:
            verdicts_of(partition.live).gone()
        self.table.start(partition, tracker, stored)
        partition.lane = self._lanes.new(tracker)
        if self.is_ending:
            self.table.drain((partition.id,))
        if partition.state is PartitionState.DRAINING or self.is_alone:
            partition.lane.change("suspend")

    def retain(self, partition: Partition, stored: Committed | None) -> bool:
        """Let a partition that is retained commit again, and answer verdicts on its records.

        Its lane stays suspended until :meth:`resume`.

        Returns:
            False if it is not retained: its tracker is closed then.
        """
        left = partition.left
        tracker = self.table.retain(partition, None if stored is None else stored.offset)
        if tracker is None:
            if left is not None:
                self._forget(partition, left)
            return False
        # The answer to a commit was lost: tell those who wait for it.
        if tracker.committed is not None:
            verdicts_of(tracker).confirmed(tracker.committed)
        verdicts_of(tracker).answer(is_retained=True)
        partition.commits.metadata.found(tracker, stored)
        return True

    def resume(self, partition: Partition) -> None:
        """Read on in a partition that was retained: workers may take its records again."""
        self.table.move(partition, "read")
        if self.is_ending:
            self.table.drain((partition.id,))
        elif partition.lane is not None:
            partition.lane.change("retain")
            self._lanes.offer(partition.lane)

    def drop(self, partition: Partition, *, is_ours: bool = False) -> None:
        """Discard the records of a partition.

        Args:
            is_ours: It is ours and starts elsewhere; otherwise another member has had it.
        """
        tracker = self.table.drop(partition, is_ours=is_ours)
        if tracker is not None:
            self._forget(partition, tracker)

    def _forget(self, partition: Partition, tracker: OffsetTracker | None) -> None:
        lane = partition.lane
        partition.lane = None
        if lane is not None:
            self._replace(lane)
        if tracker is not None:
            verdicts_of(tracker).answer(is_retained=False)

    def _replace(self, lane: Lane) -> None:
        lane.change("drop")
        if lane.workers:
            # Forget the lanes that no handler runs any more, or one seek a second under a handler
            # that runs would keep one more tracker each time.
            self._replaced = [*self._still_running(), lane]
            self._abandon(lane)

    # -- what is in flight

    def among(self, names: Collection[TopicPartition] | None) -> list[Partition]:
        """The partitions with these names; None: all."""
        return [partition for partition in self.table if names is None or partition.id in names]

    def running(self, names: Collection[TopicPartition] | None = None) -> int:
        """Workers that run records of these (None: of any)."""
        return sum(partition.running for partition in self.among(names))

    def has_replaced_lanes(self) -> bool:
        """Whether handlers still run records of lanes that were replaced."""
        self._replaced = self._still_running()
        return bool(self._replaced)

    def _still_running(self) -> list[Lane]:
        return [lane for lane in self._replaced if lane.workers]

    def in_flight(self, names: Collection[TopicPartition] | None = None) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(
            partition.in_flight for partition in self.among(names) if partition.live is not None
        )

    def unsettled(self) -> list[str]:
        """The first record of each partition that is without a verdict, as text."""
        waiting = [
            (partition.id, partition.live.committable)
            for partition in self.table
            if partition.live is not None and partition.in_flight
        ]
        return [f"{name} from offset {offset} on" for name, offset in sorted(waiting)]

    def are_settled(self, names: Collection[TopicPartition] | None = None) -> bool:
        """Whether nothing is in flight, and no failure strategy is being carried out."""
        for partition in self.among(names):
            if partition.live is not None and verdicts_of(partition.live).nacks:
                return False
        return not self.in_flight(names)
