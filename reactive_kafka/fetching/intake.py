"""Puts the records that a poll brought into the lanes of their partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reactive_kafka.assignment.history import AssignmentReports
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.broker.client import Chunk, Poll
from reactive_kafka.clock import Clock
from reactive_kafka.delivery.ages import Ages, RecordTimes
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.fetching.delayed_records import DelayedRecords
from reactive_kafka.fetching.header_filter import HeaderFilter
from reactive_kafka.fetching.read_failures import ReadFailures
from reactive_kafka.fetching.record_skips import RecordSkips
from reactive_kafka.fetching.trim import from_position, in_ranges, without_done
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker


@dataclass(frozen=True, slots=True)
class IntakeListeners:
    """Who hears that records came in."""

    # Records can be handled: wake workers, and the application that iterates.
    arrived: Callable[[], None]
    # A number of records came from a partition.
    received: Callable[[TopicPartition, int], None]
    # A partition that held no record has got some.
    holds: Callable[[], None]
    # Times how old records are when they are handled.
    times: RecordTimes
    # Records that are to be skipped as they come.
    skips: RecordSkips
    # Called with a partition and how many of its records were skipped.
    skipped: Callable[[TopicPartition, int], None]
    # Selects records by their headers. None: all come in.
    header_filter: HeaderFilter | None
    # Called with a partition and how many of its records were not selected.
    filtered: Callable[[TopicPartition, int], None]
    # The channel has a bound in bytes, so the sizes of records are kept.
    measures: bool


class RecordIntake:
    """The way of the records of one client from its polls into the lanes."""

    def __init__(
        self,
        clock: Clock,
        starts: PositionLookup,
        lanes: LaneQueue,
        workers: ChannelWorkers,
        delayed: DelayedRecords,
        failures: ReadFailures,
        reports: AssignmentReports,
        listeners: IntakeListeners,
    ) -> None:
        self._clock = clock
        self._starts = starts
        self._table = starts.table
        self._lanes = lanes
        self._workers = workers
        self.delayed = delayed
        self._failures = failures
        self._reports = reports
        self._listeners = listeners
        # Records that were brought in all.
        self.brought = 0
        # The partitions that may hold records; no others can.
        self._holding: dict[Partition, None] = {}

    def holding(self) -> list[Partition]:
        """The partitions with a record in their window: few where little comes."""
        self._holding = {
            partition: None
            for partition in self._holding
            if partition.tracker is not None and partition.tracker.flags
        }
        return list(self._holding)

    def take(self, poll: Poll) -> None:
        """Put what a poll brought into the lanes, and wake those who work on it."""
        now = self._clock.monotonic()
        for chunk in poll.chunks:
            partition = self._table.get(chunk.partition)
            if partition is None or not partition.is_read:
                continue
            tracker = partition.tracker
            lane = partition.lane
            if tracker is None or lane is None:
                continue
            partition.log.note_end(chunk.high_watermark)
            is_broken = partition.fetch.unreadable is not None
            if is_broken and not self._failures.is_over(partition):
                continue
            self._deliver(chunk, partition, tracker, lane, now)
        if not poll.chunks:
            return
        if self._table.ranges and all(partition.is_read_out for partition in self._table):
            self._lanes.is_at_end = True
        self._listeners.arrived()

    def _deliver(
        self, chunk: Chunk, partition: Partition, tracker: OffsetTracker, lane: Lane, now: float
    ) -> None:
        if partition.ranges is not None:
            chunk = self._within_ranges(chunk, partition, tracker)
        records, offsets = from_position(chunk.records, tracker.position)
        # What an earlier owner knew as done is left out before the tracker sees it: to everything
        # behind here it is a gap of the log. The tracker keeps the map until its position has
        # passed it, because the next map is made of its window and of what was left out.
        kept = tracker.kept
        if records and kept is not None and offsets[0] < kept.until:
            if chunk.high_watermark < kept.until:
                # The log was cut off below what was acked: other records are there by now.
                tracker.kept = None
                reason = f"they go up to {kept.until}, and the log ends at {chunk.high_watermark}"
                self._reports.acks_dropped(chunk.partition, reason)
            else:
                count = len(records)
                records, offsets = without_done(kept, records, offsets)
                self._reports.history.replays_avoided += count - len(records)
        if records and self._listeners.skips:
            count = len(records)
            records, offsets = self._listeners.skips.without(
                chunk.partition, records, offsets, tracker.committed
            )
            if len(records) < count:
                self._listeners.skipped(chunk.partition, count - len(records))
        header_filter = self._listeners.header_filter
        if records and header_filter is not None:
            count = len(records)
            records, offsets = header_filter.selected(records, offsets)
            if len(records) < count:
                self._listeners.received(chunk.partition, count - len(records))
                self._listeners.filtered(chunk.partition, count - len(records))
        if not records:
            tracker.deliver((), chunk.next_offset)
            return
        first = tracker.deliver(offsets, chunk.next_offset)
        if not isinstance(records, range):
            if self._listeners.measures:
                tracker.measure(records, first)
            # Where executors read the records, only their offsets are here.
            if tracker.ages is None:
                tracker.ages = Ages(self._listeners.times, self._clock)
            tracker.ages.came(first, records)
        if partition not in self._holding:
            self._holding[partition] = None
            self._listeners.holds()
        self.brought += len(records)
        self._listeners.received(chunk.partition, len(records))
        delay_ms = self.delayed.delays.get(chunk.partition.topic)
        if delay_ms is None:
            self._lanes.add(lane, self._workers.keep(chunk.partition, records), first, now)
        else:
            self.delayed.hold(lane, records, first, now, delay_ms)

    def _within_ranges(self, chunk: Chunk, partition: Partition, tracker: OffsetTracker) -> Chunk:
        """Cut a chunk to the ranges that are read, and send the client on to the next range."""
        if partition.ranges is None:
            return chunk
        kept, go_on_at = in_ranges(chunk, partition.ranges, tracker.position)
        consumer = self._starts.consumer
        if go_on_at is not None and consumer is not None:
            consumer.start_at({chunk.partition: go_on_at})
        return kept
