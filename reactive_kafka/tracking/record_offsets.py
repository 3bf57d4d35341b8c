"""The offsets of numbered records, kept as runs of consecutive offsets. No I/O, no clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from reactive_kafka.errors import DeliveryOrderError
from reactive_kafka.records import TopicPartition

BEYOND_ALL = 1 << 62
"""Higher than any arrival number and any offset of a log."""


class RecordOffsets:
    """Maps the arrival numbers of a partition's records to their offsets.

    Offsets may have gaps (compaction, transaction markers), arrival numbers have none. A run is an
    arrival number and its offset; the offsets rise by one until the next run. So gaps cost memory,
    and records do not.
    """

    __slots__ = ("last_forgotten", "runs")

    def __init__(self) -> None:
        # (arrival number, offset), ascending.
        self.runs: list[tuple[int, int]] = []
        # Offset of the last record before the first run.
        self.last_forgotten = -1

    def add(
        self, partition: TopicPartition, offsets: Sequence[int], first: int, position: int
    ) -> None:
        """Add records from arrival number *first* on; *position* is the least offset they may have.

        Raises:
            DeliveryOrderError: The offsets do not ascend from *position* on; nothing was added.
        """
        if offsets[0] < position:
            raise DeliveryOrderError(partition, offsets[0], position)
        if isinstance(offsets, range):
            self._add_run(first, offsets[0])
            return
        previous = position - 1
        for index, offset in enumerate(offsets, first):
            if offset <= previous:
                del self.runs[bisect_right(self.runs, (first, -1)) :]
                raise DeliveryOrderError(partition, offset, previous + 1)
            # The first record needs a look too: markers may lie between it and the last run.
            if offset != previous + 1 or index == first:
                self._add_run(index, offset)
            previous = offset

    def _add_run(self, index: int, offset: int) -> None:
        if self.runs:
            last_index, last_offset = self.runs[-1]
            if offset - last_offset == index - last_index:
                # It continues the last run.
                return
        self.runs.append((index, offset))

    def offset_of(self, index: int) -> int:
        """The offset of the record with this arrival number, which must not be forgotten."""
        runs = self.runs
        run = runs[0] if len(runs) == 1 else runs[bisect_right(runs, (index, BEYOND_ALL)) - 1]
        return run[1] + index - run[0]

    def index_of(self, offset: int, until: int) -> int | None:
        """The arrival number of a record, of those before number *until*; None: not among them."""
        number = bisect_right(self.runs, offset, key=itemgetter(1)) - 1
        if number < 0:
            return None
        index, first_offset = self.runs[number]
        is_last_run = number + 1 == len(self.runs)
        next_index = until if is_last_run else self.runs[number + 1][0]
        found = index + offset - first_offset
        return found if found < next_index else None

    def ranges(self, first: int, until: int) -> Iterator[range]:
        """The offsets of the records *first* up to *until* (exclusive), ascending."""
        start = bisect_right(self.runs, (first, BEYOND_ALL)) - 1
        runs = self.runs[start : bisect_left(self.runs, (until, -1))]
        for (index, offset), (next_index, _) in pairwise((*runs, (until, 0))):
            yield range(offset + max(index, first) - index, offset + next_index - index)

    def last_before(self, position: int, until: int) -> int:
        """The offset of the last record before *position*, of the records before number *until*.

        Where no record is known there, it is the offset before the position.
        """
        number = bisect_left(self.runs, position, key=itemgetter(1)) - 1
        if number < 0:
            is_before = 0 <= self.last_forgotten < position
            return self.last_forgotten if is_before else position - 1
        index, offset = self.runs[number]
        is_last_run = number + 1 == len(self.runs)
        next_index = until if is_last_run else self.runs[number + 1][0]
        return min(position, offset + next_index - index) - 1

    def forget_before(self, index: int) -> None:
        """Forget the runs that lie wholly before this arrival number."""
        behind = bisect_right(self.runs, (index, BEYOND_ALL)) - 1
        if behind > 0:
            self.last_forgotten = self.offset_of(self.runs[behind][0] - 1)
            del self.runs[:behind]
