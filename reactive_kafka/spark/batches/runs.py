"""Runs: consecutive records of one partition that a Spark job handles as one range. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reactive_kafka.delivery.lanes.lane import Lane, LaneSlice
from reactive_kafka.spark.batches.spark_batch import BatchPart, SparkRange, spark_range
from reactive_kafka.tracking.plans import PlannedRange
from reactive_kafka.tracking.tracker import OffsetTracker


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive records of one lane, taken for a batch."""

    lane: Lane
    # At least one. Their records are Arrow columns or Python ranges of offsets, as in the lane.
    slices: tuple[LaneSlice, ...]
    # The planned range of these records.
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
        """The number of records; if executors read them, the number of offsets."""
        return self.end - self.first

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets in ascending order; a ``range`` if there are no gaps."""
        offset_of = self.tracker.offset_of
        first = offset_of(self.first)
        last = offset_of(self.end - 1)
        if last - first + 1 == self.records:
            return range(first, last + 1)
        return [offset_of(index) for index in range(self.first, self.end)]

    def range_of(self, group_id: str) -> SparkRange:
        """Return the range with the id that sinks see."""
        return spark_range(group_id, self.tracker.partition, self.planned.start, self.planned.until)

    def part(self, group_id: str) -> BatchPart:
        """Return the records as a part of a batch."""
        pieces = tuple(piece.records for piece in self.slices)
        return BatchPart(self.range_of(group_id), pieces, self.records)

    def between(self, first: int, end: int, planned: PlannedRange) -> RecordRun:
        """Return a run of the records with arrival numbers from *first* to before *end*.

        *planned* is its range.
        """
        slices = []
        for piece in self.slices:
            low = max(first, piece.first)
            high = min(end, end_of(piece))
            if low < high:
                records = piece.records[low - piece.first : high - piece.first]
                slices.append(LaneSlice(self.lane, records, low))
        return RecordRun(self.lane, tuple(slices), planned)

    def index_of(self, offset: int) -> int | None:
        """Return the arrival number of the record with this offset.

        None: the run has no such record, or it is settled and forgotten.
        """
        # The tracker has forgotten the offsets before its base.
        first = max(self.first, self.tracker.base)
        index = first + bisect_left(range(first, self.end), offset, key=self.tracker.offset_of)
        if index < self.end and self.tracker.offset_of(index) == offset:
            return index
        return None


def run_of(slices: Sequence[LaneSlice], planned: PlannedRange | None = None) -> RecordRun:
    """Make a run of consecutive slices of one lane.

    Without *planned* its range goes from its first record to its last one.
    """
    lane = slices[0].lane
    if planned is None:
        offset_of = lane.tracker.offset_of
        planned = PlannedRange(offset_of(slices[0].first), offset_of(end_of(slices[-1]) - 1) + 1)
    return RecordRun(lane, tuple(slices), planned)


def plan(runs: Iterable[RecordRun]) -> None:
    """Plan the ranges of runs that are not planned yet."""
    for run in runs:
        if run.planned not in run.tracker.plans:
            run.tracker.plan(run.planned)


def trackers_of(runs: Iterable[RecordRun]) -> list[OffsetTracker]:
    """Return the trackers of some runs, each once."""
    return list({id(run.tracker): run.tracker for run in runs}.values())


def lanes_of(runs: Iterable[RecordRun]) -> list[Lane]:
    """Return the lanes of some runs, each once."""
    return list({id(run.lane): run.lane for run in runs}.values())


def end_of(piece: LaneSlice) -> int:
    """Return the arrival number after the last record of a slice."""
    return piece.first + len(piece.records)


def give_back(slices: Sequence[LaneSlice]) -> None:
    """Return slices of one lane to the head of the lane."""
    for piece in reversed(slices):
        piece.lane.give_back(piece.records, piece.first)
