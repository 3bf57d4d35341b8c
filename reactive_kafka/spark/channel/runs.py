"""What one Spark job works on: runs of consecutive records, each a range of one partition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.cuts import Taken
from reactive_kafka.delivery.lane import Lane, Slice
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.spark.batches import rows
from reactive_kafka.spark.batches.batch import Part, spark_range

Fetch = Callable[[TopicPartition, Collection[int]], AsyncGenerator[Sequence[RawRecord]]]
"""Reads records by their offsets, in pieces, ascending; those that are not in the log any more are left out."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one lane that a job runs as one range.

    Attributes:
        slices: The records, as the lane kept them: Arrow columns, or Python ranges of offsets.
        planned: The range, as the tracker knows it.
    """

    lane: Lane
    slices: tuple[Slice, ...]
    planned: PlannedRange

    @property
    def tracker(self) -> OffsetTracker:
        """Of its partition, from when it was taken."""
        return self.lane.tracker

    @property
    def first(self) -> int:
        """Arrival number of the first record."""
        return self.slices[0].first

    @property
    def end(self) -> int:
        """Arrival number after the last record."""
        return self.slices[-1].first + len(self.slices[-1].records)

    @property
    def records(self) -> int:
        """How many there are; where executors read them, how many offsets."""
        return self.end - self.first

    def part(self, group_id: str) -> Part:
        """What the runner is handed."""
        partition = self.tracker.partition
        covered = spark_range(group_id, partition, self.planned.start, self.planned.until)
        return Part(covered, tuple(part.records for part in self.slices), self.records)

    def between(self, first: int, end: int, planned: PlannedRange) -> Run:
        """The records of arrival numbers *first* up to *end*, planned as a range of their own."""
        slices = []
        for part in self.slices:
            low, high = max(first, part.first), min(end, part.first + len(part.records))
            if low < high:
                slices.append(Slice(self.lane, part.records[low - part.first : high - part.first], low))
        return Run(self.lane, tuple(slices), planned)

    def index_of(self, offset: int) -> int | None:
        """Arrival number of the record with this offset; None if none of these has it that may still be unsettled."""
        low, high = max(self.first, self.tracker.base), self.end  # offsets of what lies before are not known any more
        while low < high:
            middle = (low + high) // 2
            if self.tracker.offset_of(middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low if low < self.end and self.tracker.offset_of(low) == offset else None

    def give_back(self) -> None:
        """Nobody works on these records any more: they wait again, before all others of their lane."""
        for part in reversed(self.slices):
            self.lane.give_back(part.records, part.first)

    async def raw(self, indexes: Collection[int], fetch: Fetch) -> AsyncGenerator[list[tuple[int, RawRecord]]]:
        """Records with their bytes and arrival numbers, ascending, in pieces.

        Args:
            indexes: Of which records.
            fetch: Reads those that executors read.
        """
        wanted = None if len(indexes) == self.records else set(indexes)
        at: dict[int, int] = {}  # offset -> arrival number, of what is to be fetched
        for part in self.slices:
            if isinstance(part.records, range):
                at.update(_offsets_of(part, wanted))
            else:
                for piece in _of_columns(part, wanted):
                    yield piece
        if at:
            async with aclosing(fetch(self.tracker.partition, at.keys())) as pieces:
                async for records in pieces:
                    yield [(at[record.offset], record) for record in records if record.offset in at]


PIECE_RECORDS = 500
"""So many records are made out of columns at once."""


def _offsets_of(part: Slice, wanted: set[int] | None) -> Iterator[tuple[int, int]]:
    offsets: Any = part.records
    return ((offset, at) for at, offset in enumerate(offsets, part.first) if wanted is None or at in wanted)


def _row(columns: Any, at: int) -> Any:
    return columns[at : at + 1]


def _of_columns(part: Slice, wanted: set[int] | None) -> Iterator[list[tuple[int, RawRecord]]]:
    columns: Any = part.records
    if wanted is not None:
        found = sorted(wanted.intersection(range(part.first, part.first + len(columns))))
        for begin in range(0, len(found), PIECE_RECORDS):
            piece = found[begin : begin + PIECE_RECORDS]
            yield [(index, record) for index in piece for record in rows.records(_row(columns, index - part.first))]
        return
    for at in range(0, len(columns), PIECE_RECORDS):
        piece = columns[at : at + PIECE_RECORDS]
        yield list(enumerate(rows.records(piece), part.first + at))


def runs_of(taken: Iterable[Taken]) -> list[Run]:
    """What was taken, each run with its planned range; one that is cut now ends with its last record."""
    found = []
    for one in taken:
        tracker, planned = one.lane.tracker, one.planned
        if planned is None:
            last = one.slices[-1]
            until = tracker.offset_of(last.first + len(last.records) - 1) + 1
            planned = PlannedRange(tracker.offset_of(one.first), until)
        found.append(Run(one.lane, one.slices, planned))
    return found


def weigh(piece: Sequence[Any]) -> int:
    """The bytes of a piece; offsets that executors read weigh nothing here."""
    columns: Any = piece
    return 0 if isinstance(piece, range) else int(columns.nbytes)
