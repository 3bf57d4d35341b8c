"""Consecutive records of one partition that a Spark job handles as one range, and the search for
bad ones. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log2

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lanes.lane import Lane, LaneSlice
from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.batches.batch import BatchPart, SparkRange, spark_range


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


LEAST_JOBS = 64
JOBS_PER_HALVING = 4
# So many bad records are found alone, wherever they are.
FOUND_ALONE = 10
Found = tuple[RecordRun, OffloadError]


class Bisection:
    """Says which part of a failed batch is to be run next, smaller and smaller ones, and which
    records are nacked.

    Each record gets one result: worked, or found, which is bad (it has failed alone) or given up
    with others of its part. The parts of one partition run in the order of their offsets; of
    several partitions each runs once as a whole before one that has failed is searched, or one that
    is all bad would leave no job for the others. With *k* bad records of *n* it takes about ``2 k
    log2(n / k) + 1`` jobs; their number is limited, as :func:`jobs_for` says.
    """

    def __init__(
        self, wholes: Sequence[RecordRun], reason: OffloadError, *, max_jobs: int | None = None
    ) -> None:
        """*wholes*: the failed batch, one range for each partition; *max_jobs* depends on their
        records by default, and on how many of them turn out to be bad.
        """
        # Kept, because a tracker that is closed meanwhile has no offsets any more.
        self._offsets = {whole.tracker.partition: (whole.first, whole.offsets) for whole in wholes}
        of_its_size = jobs_for(sum(whole.records for whole in wholes), len(wholes))
        self._few_jobs, self._many_jobs = of_its_size if max_jobs is None else (max_jobs, max_jobs)
        # So far.
        self.jobs = 0
        # Records that have worked, and that were found bad alone.
        self._good = self._bad = 0
        self._found: list[Found] = []
        # The next one is the last.
        self._stack: list[Found] = [(whole, reason) for whole in reversed(wholes)]
        # The parts before the first job; empty if the ranges stay as they are.
        self.first_split = self._split(reason) if len(wholes) == 1 else ()
        self._keep_the_bound()

    @property
    def max_jobs(self) -> int:
        """The most jobs, from what is known so far."""
        # A batch that is all bad would only show one bad record after the other; what has worked
        # shows that it is not.
        return self._many_jobs if self._good > self._bad else self._few_jobs

    @property
    def left(self) -> tuple[RecordRun, ...]:
        """The parts without a result, in the order in which they are run."""
        return tuple(piece for piece, _ in reversed(self._stack))

    def next(self) -> RecordRun | None:
        """The part to run now, until it has worked or failed; None if every record has its
        result.
        """
        return self._stack[-1][0] if self._stack else None

    def worked(self) -> RecordRun:
        """The job of the next part has worked."""
        self.jobs += 1
        piece, _ = self._stack.pop()
        self._good += piece.records
        self._keep_the_bound()
        return piece

    def failed(self, reason: OffloadError, *, is_data_error: bool) -> tuple[RecordRun, ...]:
        """The job of the next part has failed: the parts that are run instead, in order; none if it
        has its result.
        """
        self.jobs += 1
        self._bad += self._stack[-1][0].records == 1
        parts = (
            self._split(reason)
            if is_data_error and self.jobs < self.max_jobs
            else self._give_up(reason)
        )
        self._keep_the_bound()
        return parts

    def take_found(self) -> list[Found]:
        """The parts found bad or given up since the last call, with their error or that of the
        range that held them.
        """
        taken = self._found
        self._found = []
        return taken

    def _split(self, reason: OffloadError) -> tuple[RecordRun, ...]:
        if self._stack[-1][0].records == 1:
            return self._give_up(reason)
        piece, _ = self._stack.pop()
        parts = tuple(self._halves(piece))
        is_whole = piece.records == len(self._offsets[piece.tracker.partition][1])
        # Behind the wholes that have not run yet, or next.
        at = 0 if is_whole else len(self._stack)
        self._stack[at:at] = [(part, reason) for part in reversed(parts)]
        return parts

    def _halves(self, piece: RecordRun) -> Iterator[RecordRun]:
        middle = piece.first + (piece.records + 1) // 2
        first, offsets = self._offsets[piece.tracker.partition]
        start, until, failed = piece.planned
        cut = offsets[middle - first]
        failed = (*failed, (start, until))
        yield piece.between(piece.first, middle, PlannedRange(start, cut, failed))
        yield piece.between(middle, piece.end, PlannedRange(cut, until, failed))

    def _give_up(self, reason: OffloadError) -> tuple[()]:
        self._found.append((self._stack.pop()[0], reason))
        return ()

    def _keep_the_bound(self) -> None:
        """Give up what is left when no job is."""
        while self._stack and self.jobs >= self.max_jobs:
            self._give_up(self._stack[-1][1])


def jobs_for(records: int, partitions: int = 1) -> tuple[int, int]:
    """The most jobs of a bisection of so many records: in general, and while more have worked than
    were found bad.

    The second number is what ``FOUND_ALONE`` bad records may take: two jobs for each halving, and
    one for each partition. The first is enough until as many records have worked as that many bad
    ones: before, at most ``4 FOUND_ALONE + log2(records) + 1`` jobs have run.
    """
    halvings = ceil(log2(max(1, records)))
    few = max(LEAST_JOBS, JOBS_PER_HALVING * halvings)
    return few, max(few, 2 * FOUND_ALONE * halvings + (partitions if partitions > 1 else 0))
