"""Which records make a batch fail: smaller and smaller parts of it are run until bad records are alone. Pure.

The parts of one partition run in the order of their offsets, and each is a range of its own. With *k* bad records
of *n* it takes about ``2 k log2(n / k) + 1`` jobs. Their number is limited, and the records that are then left are
given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log2
from typing import NamedTuple

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.records import TopicPartition

LEAST_JOBS, JOBS_PER_HALVING = 64, 4
"""A bisection of *n* records runs at most ``max(LEAST_JOBS, JOBS_PER_HALVING * log2(n))`` jobs."""


class FailedRange(NamedTuple):
    """The records of one partition in a failed batch."""

    partition: TopicPartition
    planned: PlannedRange
    offsets: Sequence[int]  # ascending, at least one; a ``range`` where there are no gaps


class RangePart(NamedTuple):
    """Consecutive records of one partition of the batch.

    ``first`` and ``stop`` (exclusive) count the partition's records in the batch, from 0.
    """

    partition: TopicPartition
    planned: PlannedRange  # its ``failed`` are the failed ranges that strictly held it
    first: int
    stop: int

    @property
    def records(self) -> int:
        """The number of records."""
        return self.stop - self.first


Found = tuple[RangePart, BaseException]


class Bisection:
    """Says which part of a batch is to be run next, and which records are to be nacked.

    Each record gets one result: worked, or found, which is bad (it has failed alone) or given up with others of its
    part. *wholes* are the failed batch, one range for each partition; *max_jobs* depends on their records by default.
    """

    def __init__(self, wholes: Sequence[FailedRange], reason: BaseException, *, max_jobs: int | None = None) -> None:
        self._offsets = {whole.partition: whole.offsets for whole in wholes}
        self.max_jobs = jobs_for(sum(len(whole.offsets) for whole in wholes)) if max_jobs is None else max_jobs
        self.jobs = 0  # so far
        self._found: list[Found] = []
        pieces = [RangePart(one.partition, one.planned, 0, len(one.offsets)) for one in wholes]
        self._stack: list[Found] = [(piece, reason) for piece in reversed(pieces)]  # the next one is the last
        # The parts before the first job; empty if the ranges stay as they are.
        self.first_split = self._split(reason) if len(pieces) == 1 else ()
        self._keep_the_bound()

    @property
    def left(self) -> tuple[RangePart, ...]:
        """The parts without a result, in the order in which they are run."""
        return tuple(piece for piece, _ in reversed(self._stack))

    def next(self) -> RangePart | None:
        """The part to run now, until it has worked or failed; None if every record has its result."""
        return self._stack[-1][0] if self._stack else None

    def worked(self) -> RangePart:
        """The job of the next part has worked."""
        self.jobs += 1
        piece, _ = self._stack.pop()
        self._keep_the_bound()
        return piece

    def failed(self, reason: BaseException, *, is_data_error: bool) -> tuple[RangePart, ...]:
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

    def _split(self, reason: BaseException) -> tuple[RangePart, ...]:
        if self._stack[-1][0].records == 1:
            return self._give_up(reason)
        parts = tuple(self._halves(self._stack.pop()[0]))
        self._stack += [(part, reason) for part in reversed(parts)]
        return parts

    def _halves(self, piece: RangePart) -> Iterator[RangePart]:
        middle = piece.first + (piece.records + 1) // 2
        start, until, failed = piece.planned
        cut, failed = self._offsets[piece.partition][middle], (*failed, (start, until))
        yield RangePart(piece.partition, PlannedRange(start, cut, failed), piece.first, middle)
        yield RangePart(piece.partition, PlannedRange(cut, until, failed), middle, piece.stop)

    def _give_up(self, reason: BaseException) -> tuple[()]:
        self._found.append((self._stack.pop()[0], reason))
        return ()

    def _keep_the_bound(self) -> None:
        """Give up what is left when no job is."""
        while self._stack and self.jobs >= self.max_jobs:
            self._give_up(self._stack[-1][1])


def jobs_for(records: int) -> int:
    """The most jobs of a bisection of this many records."""
    return max(LEAST_JOBS, ceil(JOBS_PER_HALVING * log2(max(1, records))))
