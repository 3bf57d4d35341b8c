"""Records of retry topics that are not due yet: kept beside their lanes until they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from reactive_kafka.commit.plans import holding, still_to_come
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.failure.headers import due_in_s
from reactive_kafka.partitions.budget import MAX_WINDOW_RECORDS
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import RawRecord
from reactive_kafka.tasks import is_set_within


class DelayedRecords:
    """The records of one client that are not due."""

    def __init__(
        self,
        parts: ClientParts,
        table: PartitionTable,
        delays: Mapping[str, int],
        arrived: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._table = table
        self._arrived = arrived
        # Retry topic -> how long after its timestamp a record of it is due, in milliseconds.
        self.delays = delays
        # The next record to become due may be another one.
        self.changed = asyncio.Event()

    def hold(
        self, lane: Lane, records: Sequence[RawRecord], first: int, now: float, delay_ms: int
    ) -> None:
        """Keep each record until it is due; one of a range that was planned before had been due by
        then.
        """
        # Both clocks at once: what a poll did before would be taken off the delay, if *now* were
        # when it ended.
        tracker = lane.tracker
        wall_ms = self._parts.clock.wall() * 1000
        looked_at = self._parts.clock.monotonic()
        tracker.in_order = False
        for index, record in enumerate(records, first):
            if holding(tracker.plans, record.offset) is not None:
                self._parts.lanes.add(
                    lane, self._parts.workers.keep(tracker.partition, [record]), index, now
                )
            else:
                due = looked_at + due_in_s(record.timestamp, delay_ms, wall_ms)
                lane.delayed.hold(record, index, due, in_order=self._parts.workers.works_elsewhere)
        self.release_due(now)
        self.changed.set()

    def release_due(self, now: float) -> float | None:
        """Give out the records that are due by *now*; when the next one is (monotonic), None if
        none is held.
        """
        # those whose planned ranges have been read: these come first
        lanes = [
            lane for one in self._table if (lane := one.lane) is not None and not awaits_plans(lane)
        ]
        if sum(self._parts.lanes.add_due(lane, now, self._parts.workers.keep) for lane in lanes):
            self._arrived()
        return min((due for lane in lanes if (due := lane.next_due) is not None), default=None)

    async def run(self) -> None:
        """Let records be taken when they are due, for ever."""
        while True:
            self.changed.clear()
            now = self._parts.clock.monotonic()
            due = self.release_due(now)
            await is_set_within(self.changed, None if due is None else due - now)


def awaits_plans(lane: Lane) -> bool:
    """Whether planned ranges of a lane's partition have not been read to their end."""
    return still_to_come(lane.tracker.plans, lane.tracker.position) > 0


def is_long(lane: Lane) -> bool:
    """Whether a partition waits for its oldest record; a planned range is read to its end all the
    same.
    """
    return lane.tracker.window >= MAX_WINDOW_RECORDS and not awaits_plans(lane)
