"""Which records make a batch fail: smaller and smaller parts of it are run until bad records are alone. Pure.

The parts of one partition run in the order of their offsets, and each is a range of its own, whose ``failed`` are the
ranges that held it. With *k* bad records
of *n* it takes about ``2 k log2(n / k) + 1`` jobs. Their number is limited, and the records that are then left are
given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log2

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.batches.runs import RecordRun

LEAST_JOBS, JOBS_PER_HALVING = 64, 4


Found = tuple[RecordRun, OffloadError]


class Bisection:
    """Says which part of a batch is to be run next, and which records are to be nacked.

    Each record gets one result: worked, or found, which is bad (it has failed alone) or given up with others of its
    part. *wholes* are the failed batch, one range for each partition; *max_jobs* depends on their records by default.
    """

    def __init__(self, wholes: Sequence[RecordRun], reason: OffloadError, *, max_jobs: int | None = None) -> None:
        # Kept, because a tracker that is closed meanwhile has no offsets any more.
        self._offsets = {whole.tracker.partition: (whole.first, whole.offsets) for whole in wholes}
        self.max_jobs = jobs_for(sum(whole.records for whole in wholes)) if max_jobs is None else max_jobs
        self.jobs = 0  # so far
        self._found: list[Found] = []
        self._stack: list[Found] = [(whole, reason) for whole in reversed(wholes)]  # the next one is the last
        # The parts before the first job; empty if the ranges stay as they are.
        self.first_split = self._split(reason) if len(wholes) == 1 else ()
        self._keep_the_bound()

    @property
    def left(self) -> tuple[RecordRun, ...]:
        """The parts without a result, in the order in which they are run."""
        return tuple(piece for piece, _ in reversed(self._stack))

    def next(self) -> RecordRun | None:
        """The part to run now, until it has worked or failed; None if every record has its result."""
        return self._stack[-1][0] if self._stack else None

    def worked(self) -> RecordRun:
        """The job of the next part has worked."""
        self.jobs += 1
        piece, _ = self._stack.pop()
        self._keep_the_bound()
        return piece

    def failed(self, reason: OffloadError, *, is_data_error: bool) -> tuple[RecordRun, ...]:
        """The job of the next part has failed; a data error is one for which some of its records may be to blame.

        Returns:
            The parts that are run instead, in order; empty if it has its result, or no job is left for it.
        """
        self.jobs += 1
        parts = self._split(reason) if is_data_error and self.jobs < self.max_jobs else self._give_up(reason)
        self._keep_the_bound()
        return parts

    def take_found(self) -> list[Found]:
        """The parts found bad or given up since the last call, with their error or that of the range that held them."""
        taken, self._found = self._found, []
        return taken

    def _split(self, reason: OffloadError) -> tuple[RecordRun, ...]:
        if self._stack[-1][0].records == 1:
            return self._give_up(reason)
        parts = tuple(self._halves(self._stack.pop()[0]))
        self._stack += [(part, reason) for part in reversed(parts)]
        return parts

    def _halves(self, piece: RecordRun) -> Iterator[RecordRun]:
        middle = piece.first + (piece.records + 1) // 2
        first, offsets = self._offsets[piece.tracker.partition]
        start, until, failed = piece.planned
        cut, failed = offsets[middle - first], (*failed, (start, until))
        yield piece.between(piece.first, middle, PlannedRange(start, cut, failed))
        yield piece.between(middle, piece.end, PlannedRange(cut, until, failed))

    def _give_up(self, reason: OffloadError) -> tuple[()]:
        self._found.append((self._stack.pop()[0], reason))
        return ()

    def _keep_the_bound(self) -> None:
        """Give up what is left when no job is."""
        while self._stack and self.jobs >= self.max_jobs:
            self._give_up(self._stack[-1][1])


def jobs_for(records: int) -> int:
    """The most jobs of a bisection of this many records."""
    return max(LEAST_JOBS, ceil(JOBS_PER_HALVING * log2(max(1, records))))
