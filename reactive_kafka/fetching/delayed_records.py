"""Holds records of retry topics until they are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.failure.headers import due_in_s
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import RawRecord
from reactive_kafka.tasks import Flag, is_set_within
from reactive_kafka.tracking.plans import holding, still_to_come

LOOK_S = 1.0
"""How soon to look again whether planned ranges were read. Their end may be a gap of the log, which
brings no record."""


class DelayedRecords:
    """The records of one client that are not due; each is held with the lane of its partition.

    Args:
        delays: retry topic -> how long after its timestamp a record is due, in milliseconds.
        in_order: A record is due no sooner than those before it in its partition.
        arrived: Called when records have become due.
    """

    def __init__(
        self,
        clock: Clock,
        table: PartitionTable,
        lanes: LaneQueue,
        workers: ChannelWorkers,
        delays: Mapping[str, int],
        arrived: Callable[[], None],
        *,
        in_order: bool,
    ) -> None:
        self._clock = clock
        self._table = table
        self._lanes = lanes
        self._workers = workers
        self._arrived = arrived
        self.delays = delays
        self._in_order = in_order
        # The next record to become due may be another one.
        self.changed = Flag()

    def hold(
        self, lane: Lane, records: Sequence[RawRecord], first: int, now: float, delay_ms: int
    ) -> None:
        """Hold each record until it is due.

        Records of a planned range are not held: they had been due when it was planned.

        Args:
            first: The arrival number of the first record.
        """
        # Both clocks at once: if *now*, when the poll ended, were taken, then the time since would
        # be taken off the delay.
        tracker = lane.tracker
        wall_ms = self._clock.wall() * 1000
        looked_at = self._clock.monotonic()
        tracker.in_order = False
        for index, record in enumerate(records, first):
            if holding(tracker.plans, record.offset) is not None:
                kept = self._workers.keep(tracker.partition, [record])
                self._lanes.add(lane, kept, index, now)
            else:
                due = looked_at + due_in_s(record.timestamp, delay_ms, wall_ms)
                lane.delayed.hold(record, index, due, in_order=self._in_order)
        self.release_due(now)
        self.changed.set()

    def release_due(self, now: float) -> float | None:
        """Give out the records that are due; returns when to look next, None if none is held."""
        released = 0
        times: list[float] = []
        for partition in self._table:
            lane = partition.lane
            if lane is None:
                continue
            # Planned ranges come first: nothing is given out of a lane until all of them were read.
            is_waiting = awaits_plans(lane)
            if not is_waiting:
                released += self._lanes.add_due(lane, now, self._workers.keep)
            due = lane.next_due
            if due is not None:
                times.append(now + LOOK_S if is_waiting else due)
        if released:
            self._arrived()
        return min(times, default=None)

    async def run(self) -> None:
        """Give out records when they are due, for ever."""
        while True:
            self.changed.clear()
            now = self._clock.monotonic()
            due = self.release_due(now)
            await is_set_within(self.changed, None if due is None else due - now)


def awaits_plans(lane: Lane) -> bool:
    """Whether planned ranges of a lane's partition have not been read to their end."""
    return still_to_come(lane.tracker.plans, lane.tracker.position) > 0
