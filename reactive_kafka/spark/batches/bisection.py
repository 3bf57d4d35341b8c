"""Searches a failed batch for bad records, by running smaller and smaller parts of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log2

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.tracking.plans import PlannedRange

LEAST_JOBS = 64
JOBS_PER_HALVING = 4
# So many bad records can be found one by one, wherever they are.
FOUND_ALONE = 10
# A part of a batch, and why it failed.
Found = tuple[RecordRun, OffloadError]


class Bisection:
    """Finds the bad records of a failed batch by running halves of it, and halves of those.

    It says which part must run next, and which records must be nacked. Each record gets one result:
    it worked, or it was found. A found record has failed alone, or was given up together with
    others of its part.

    The parts of one partition run in the order of their offsets. With several partitions, each runs
    once as a whole before a failed one is searched. Otherwise a partition that is all bad would use
    up the jobs of the others.

    For *k* bad records of *n* it takes about ``2 k log2(n / k) + 1`` jobs. :func:`jobs_for` limits
    their number.

    Args:
        wholes: The failed batch, one range for each partition.
        reason: The error of the batch.
        max_jobs: The limit of jobs. None: it depends on the number of records, and on how many of
            them turn out to be bad.
    """

    def __init__(
        self, wholes: Sequence[RecordRun], reason: OffloadError, *, max_jobs: int | None = None
    ) -> None:
        # Copied here, because a tracker that is closed meanwhile has no offsets any more.
        self._offsets = {whole.tracker.partition: (whole.first, whole.offsets) for whole in wholes}
        few_jobs, many_jobs = jobs_for(sum(whole.records for whole in wholes), len(wholes))
        self._few_jobs = few_jobs if max_jobs is None else max_jobs
        self._many_jobs = many_jobs if max_jobs is None else max_jobs
        # Jobs that have run.
        self.jobs = 0
        # Records that have worked.
        self._good = 0
        # Records that have failed alone.
        self._bad = 0
        self._found: list[Found] = []
        # The parts without a result. The last one runs next.
        self._stack: list[Found] = [(whole, reason) for whole in reversed(wholes)]
        # The parts of a single range, which has failed as a whole already. Empty: several ranges
        # run unchanged first.
        self.first_split = self._split(reason) if len(wholes) == 1 else ()
        self._enforce_limit()

    @property
    def max_jobs(self) -> int:
        """The limit of jobs, from the results so far."""
        # In a batch that is all bad, more jobs would only find one bad record after the other. More
        # jobs are worth it once more records have worked than were found bad.
        return self._many_jobs if self._good > self._bad else self._few_jobs

    @property
    def left(self) -> tuple[RecordRun, ...]:
        """The parts without a result, in the order in which they run."""
        return tuple(piece for piece, _ in reversed(self._stack))

    def next(self) -> RecordRun | None:
        """Return the part to run now, or None if every record has its result."""
        return self._stack[-1][0] if self._stack else None

    def worked(self) -> RecordRun:
        """Note that the job of the next part has worked."""
        self.jobs += 1
        piece, _ = self._stack.pop()
        self._good += piece.records
        self._enforce_limit()
        return piece

    def failed(self, reason: OffloadError, *, is_data_error: bool) -> tuple[RecordRun, ...]:
        """Note that the job of the next part has failed.

        Return the parts that run instead, in order; none if the records of the part were found.
        """
        self.jobs += 1
        if self._stack[-1][0].records == 1:
            self._bad += 1
        parts: tuple[RecordRun, ...] = ()
        if is_data_error and self.jobs < self.max_jobs:
            parts = self._split(reason)
        else:
            self._give_up(reason)
        self._enforce_limit()
        return parts

    def take_found(self) -> list[Found]:
        """Return the parts that were found since the last call.

        Each has its own error, or that of the range that contained it.
        """
        taken = self._found
        self._found = []
        return taken

    def _split(self, reason: OffloadError) -> tuple[RecordRun, ...]:
        if self._stack[-1][0].records == 1:
            self._give_up(reason)
            return ()
        piece, _ = self._stack.pop()
        parts = tuple(self._halves(piece))
        is_whole = piece.records == len(self._offsets[piece.tracker.partition][1])
        # The halves of a whole range wait until the other whole ranges have run. Halves of a part
        # run next.
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

    def _give_up(self, reason: OffloadError) -> None:
        self._found.append((self._stack.pop()[0], reason))

    def _enforce_limit(self) -> None:
        """Give up the parts that are left when no more job may run."""
        while self._stack and self.jobs >= self.max_jobs:
            self._give_up(self._stack[-1][1])


def jobs_for(records: int, partitions: int = 1) -> tuple[int, int]:
    """Return two limits for the jobs of a bisection of so many records.

    The second one counts while more records have worked than were found bad. It is enough for
    ``FOUND_ALONE`` bad records: two jobs for each halving, and one for each partition. The first
    one counts otherwise. It is enough to get to that state with that many bad records, which takes
    at most ``4 FOUND_ALONE + log2(records) + 1`` jobs.
    """
    halvings = ceil(log2(max(1, records)))
    few = max(LEAST_JOBS, JOBS_PER_HALVING * halvings)
    whole_runs = partitions if partitions > 1 else 0
    return few, max(few, 2 * FOUND_ALONE * halvings + whole_runs)
