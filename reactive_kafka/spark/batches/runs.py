"""Runs: consecutive records of one partition that a Spark job handles as one range. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reactive_kafka.delivery.lanes.lane import Lane, LaneSlice
from reactive_kafka.spark.batches.batch import BatchPart, SparkRange, spark_range
from reactive_kafka.tracking.plans import PlannedRange
from reactive_kafka.tracking.tracker import OffsetTracker


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records of one lane, taken for a batch."""

    lane: Lane
    # At least one, as the lane kept the records: Arrow columns or Python ranges of offsets.
    slices: tuple[LaneSlice, ...]
    # The range that they are run as.
    planned: PlannedRange

    @property
    def tracker(self) -> OffsetTracker:
        """The tracker of the assignment in which the records were taken."""
        return self.lane.tracker

    @property
    def first(self) -> int:
        """Arrival number of the first record."""
        return self.slices[0].first

    @property
    def end(self) -> int:
        """Arrival number after the last record."""
        return end_of(self.slices[-1])

    @property
    def records(self) -> int:
        """The number of records; where executors read them, the number of offsets."""
        return self.end - self.first

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets, ascending; a ``range`` where there are no gaps."""
        offset_of = self.tracker.offset_of
        first = offset_of(self.first)
        last = offset_of(self.end - 1)
        if last - first + 1 == self.records:
            return range(first, last + 1)
        return [offset_of(index) for index in range(self.first, self.end)]

    def range_of(self, group_id: str) -> SparkRange:
        """The range with the id under which sinks know it."""
        return spark_range(group_id, self.tracker.partition, self.planned.start, self.planned.until)

    def part(self, group_id: str) -> BatchPart:
        """What the runner is handed."""
        return BatchPart(
            self.range_of(group_id), tuple(one.records for one in self.slices), self.records
        )

    def between(self, first: int, end: int, planned: PlannedRange) -> RecordRun:
        """The records of arrival numbers *first* up to *end*, planned as a range of their own."""
        slices = []
        for one in self.slices:
            low = max(first, one.first)
            high = min(end, end_of(one))
            if low < high:
                slices.append(
                    LaneSlice(self.lane, one.records[low - one.first : high - one.first], low)
                )
        return RecordRun(self.lane, tuple(slices), planned)

    def index_of(self, offset: int) -> int | None:
        """Arrival number of the record with this offset; None if no record that may still be
        unsettled has it.
        """
        # The tracker has forgotten the offsets before its base.
        first = max(self.first, self.tracker.base)
        at = first + bisect_left(range(first, self.end), offset, key=self.tracker.offset_of)
        return at if at < self.end and self.tracker.offset_of(at) == offset else None


def run_of(slices: Sequence[LaneSlice], planned: PlannedRange | None = None) -> RecordRun:
    """Consecutive slices of one lane as a run; without a plan it becomes a new range, up to its
    last record.
    """
    lane = slices[0].lane
    offset_of = slices[0].lane.tracker.offset_of
    if planned is None:
        planned = PlannedRange(offset_of(slices[0].first), offset_of(end_of(slices[-1]) - 1) + 1)
    return RecordRun(lane, tuple(slices), planned)


def plan(runs: Iterable[RecordRun]) -> None:
    """Plan the ranges of runs, as far as they are not."""
    for run in runs:
        if run.planned not in run.tracker.plans:
            run.tracker.plan(run.planned)


def trackers_of(runs: Iterable[RecordRun]) -> list[OffsetTracker]:
    """The trackers of some runs, each once."""
    return list({id(run.tracker): run.tracker for run in runs}.values())


def lanes_of(runs: Iterable[RecordRun]) -> list[Lane]:
    """The lanes of some runs, each once."""
    return list({id(run.lane): run.lane for run in runs}.values())


def end_of(one: LaneSlice) -> int:
    """Arrival number after the last record of a slice."""
    return one.first + len(one.records)


def give_back(slices: Sequence[LaneSlice]) -> None:
    """Return slices of one lane to its head."""
    for one in reversed(slices):
        one.lane.give_back(one.records, one.first)
