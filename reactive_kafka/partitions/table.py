"""What one client of a channel has: a tracker and a lane for each of its partitions."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.acknowledge import Acknowledger


class PartitionTable:
    """The trackers and lanes of one client's partitions, which come and go together.

    Args:
        owner: The client's name.
        abandon: Called with a lane whose records are not ours any more, or are read anew, while handlers run them.
    """

    def __init__(
        self,
        owner: str,
        engine: CommitEngine,
        lanes: Lanes,
        acknowledger: Acknowledger,
        abandon: Callable[[Lane], None],
    ) -> None:
        self._owner = owner
        self.engine = engine
        self.lanes: dict[TopicPartition, Lane] = {}
        self._queue = lanes
        self._acknowledger = acknowledger
        self._abandon = abandon
        self._replaced: list[Lane] = []  # with handlers that still run
        self.stays_parked = False  # the channel ends: no record is taken any more, whatever is assigned meanwhile

    # -- partitions come and go

    def track(self, tracker: OffsetTracker, *, stored: int | None = None) -> None:
        """Begin to read a partition: what was there of it before is over.

        Args:
            stored: What the group has, where the tracker does not say it.
        """
        tracker.owner = self._acknowledger
        self._acknowledger.begins(tracker, self._owner)
        old, lane = self.engine.trackers.get(tracker.partition), self.lanes.get(tracker.partition)
        if lane is not None:
            self._replace(lane)
        if old is not None:
            self._acknowledger.gone(old)
        self.engine.replace(tracker, stored=stored)
        lane = self.lanes[tracker.partition] = self._queue.new(tracker)
        if self.stays_parked:
            lane.change("suspend")

    def take_up(self, partition: TopicPartition, committed: int | None) -> OffsetTracker | None:
        """The tracker of a partition that came straight back; else None, and it begins afresh.

        Verdicts on its records are answered. What waited stays parked until :meth:`go_on`.
        """
        left = self.engine.left(partition)
        tracker = self.engine.take_up(partition, committed)
        if tracker is None:
            if left is not None:
                self.forget(left)
            return None
        if tracker.committed is not None:  # a commit whose answer was lost: who waits for it is told now
            self._acknowledger.confirmed(tracker, tracker.committed)
        self._acknowledger.answer(tracker, came_back=True)
        return tracker

    def go_on(self, partition: TopicPartition) -> None:
        """What waited in a partition that was taken up may be taken again."""
        lane = self.lanes[partition]
        if not self.stays_parked:
            lane.change("retain")
            self._queue.offer(lane)

    def give_up(self, partition: TopicPartition, *, is_ours: bool = False) -> None:
        """A partition that may have come straight back is to begin somewhere else all the same; *is_ours*: it did."""
        left = self.engine.drop_left(partition, is_ours=is_ours)
        if left is not None:
            self.forget(left)

    def drop(self, partition: TopicPartition, *, is_ours: bool = False) -> bool:
        """A partition is another's by now, or begins elsewhere: what is there of it is over; False if nothing is."""
        tracker = self.engine.drop(partition, is_ours=is_ours)
        if tracker is not None:
            self.forget(tracker)
        return tracker is not None

    def park(self) -> None:
        """Let nobody take a record, not even a worker that is in a lane; what waits stays."""
        for lane in self.lanes.values():
            lane.change("suspend")

    def forget(self, tracker: OffsetTracker) -> None:
        """A partition has gone for good; its tracker is closed."""
        lane = self.lanes.pop(tracker.partition, None)
        if lane is not None:
            self._replace(lane)
        self._acknowledger.answer(tracker, came_back=False)

    def _replace(self, lane: Lane) -> None:
        lane.change("drop")
        if lane.workers:
            self._replaced.append(lane)
            self._abandon(lane)

    # -- what is going on

    def running(self) -> int:
        """Handlers that run records of its partitions."""
        return sum(lane.workers for lane in self.lanes.values())

    def has_remains(self) -> bool:
        """Whether handlers run records of partitions that have gone or were begun anew."""
        self._replaced = [lane for lane in self._replaced if lane.workers]
        return bool(self._replaced)

    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(self.in_flight_of(tracker) for tracker in self.engine.trackers.values())

    def are_settled(self) -> bool:
        """Whether nothing is in flight, and no nack is being carried out any more."""
        carrying_out = self._acknowledger.carrying_out
        return not self.in_flight() and not any(carrying_out(tracker) for tracker in self.engine.trackers.values())

    def in_flight_of(self, tracker: OffsetTracker) -> int:
        """Of one partition."""
        lane = self.lanes.get(tracker.partition)
        return tracker.open - (lane.waiting + len(lane.delayed) if lane is not None else 0)
