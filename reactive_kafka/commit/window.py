"""The records of one partition between their delivery and their settlement, numbered by arrival. No
I/O, no clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

from reactive_kafka.errors import DeliveryOrderError
from reactive_kafka.records import RawRecord, TopicPartition

OPEN = 0
SETTLED = 1
NACKED = 2
"""One byte a record: no verdict; done; nacked, and its failure strategy not carried out (yet)."""

# Of a flag, for ``translate``: whether it is not done.
NOT_SETTLED = bytes(flag != SETTLED for flag in range(256))
NOT_STARTED = -1.0
_NOT_STARTED = array("d", [NOT_STARTED])
MOST_REASONS = 255
"""Stands for a record that was handed over. So many reasons are never given for one whose clock may
run again.
"""
CLOSED_BASE = 1 << 62
"""Higher than any arrival number, so that every late verdict falls before the window."""


class Passed(Protocol):
    """Is told of records as they come, and as they leave the window."""

    def came(self, first: int, records: Sequence[RawRecord]) -> None:
        """Records were delivered, the first with arrival number *first*."""

    def passed(self, first: int, started: Sequence[float], count: int) -> None:
        """The first *count* records of the window are settled; *first* is the number of the first
        by arrival.

        *started* are the moments at which handlers got them.
        """


class RecordWindow:
    """What is delivered and not settled without a gap: a byte a record, and when a handler got it.

    Records are numbered by arrival, so that a verdict is one byte stored in a window and the first
    unsettled record is found by a scan in C. Offsets may have gaps (compaction, transaction
    markers); a gap counts as settled. Source: KafkaConsumer javadoc, "Offsets and Consumer
    Position".

    Workers write some fields on the record's hot path: ``started[index - base]`` is when a handler
    got record *index*, by the monotonic clock. And a worker that runs records one after the other,
    each done when its handler returns, only notes a *run*: from ``run_first`` on all are done
    before ``run_at``, which its handler got at ``run_since``. Whoever looks at the window has it
    brought up to that first, by :meth:`catch_up`.
    """

    __slots__ = (
        "_stood_since",
        "ages",
        "ages_in_order",
        "base",
        "failed",
        "flags",
        "in_order",
        "partition",
        "passed",
        "position",
        "run_at",
        "run_begun",
        "run_first",
        "run_since",
        "runs",
        "settled_before",
        "standing",
        "started",
    )

    def __init__(self, partition: TopicPartition, position: int) -> None:
        self.partition = partition
        # Offset of the next record to read.
        self.position = position
        self.base = 0
        self.flags = bytearray()
        self.started: array[float] = array("d")
        # One byte a record: for how many reasons its clock stands. The record does not age while
        # that is above 0.
        self.standing = bytearray()
        # Arrival number -> the moment since when its clock stands. Only where the clock may run
        # again.
        self._stood_since: dict[int, float] = {}
        self.failed = 0
        self.settled_before = 0
        # Records start in the order of their arrival.
        self.in_order = True
        # Whether of records that have started in order the first one is also the oldest. A clock
        # that has stood ends that, until the window is empty.
        self.ages_in_order = True
        self.run_first = -1
        self.run_at = -1
        self.run_since = NOT_STARTED
        self.run_begun = NOT_STARTED
        self.ages: Passed | None = None
        # (arrival number, offset): offsets go on by one until the next run.
        self.runs: list[tuple[int, int]] = []
        # Offset of the last record before the first run.
        self.passed = -1

    def deliver(self, offsets: Sequence[int], next_offset: int) -> int:
        """Take in records that were read; they wait for a handler until marked as started.

        The arrival number of the first is returned; the others count on from there.
        DeliveryOrderError: an offset is before the position, or they do not ascend.

        Args:
            offsets: Ascending; a ``range`` where there are no gaps, which costs the same for any
                length.
            next_offset: The position after them, past markers that follow.
        """
        self.compact()
        first = self.base + len(self.flags)
        count = len(offsets)
        if offsets:
            if offsets[0] < self.position:
                raise DeliveryOrderError(self.partition, offsets[0], self.position)
            self._add_runs(offsets, first)
            self.flags.extend(bytes(count))
            self.started.extend(_NOT_STARTED * count)
            self.standing.extend(bytes(count))
            self.position = offsets[-1] + 1
        self.position = max(self.position, next_offset)
        return first

    def _add_runs(self, offsets: Sequence[int], first: int) -> None:
        if isinstance(offsets, range):
            self._add_run(first, offsets[0])
            return
        previous = self.position - 1
        for index, offset in enumerate(offsets, first):
            if offset <= previous:
                del self.runs[bisect_right(self.runs, (first, -1)) :]
                raise DeliveryOrderError(self.partition, offset, previous + 1)
            # Markers may lie between the last run and the first record.
            if offset != previous + 1 or index == first:
                self._add_run(index, offset)
            previous = offset

    def _add_run(self, index: int, offset: int) -> None:
        runs = self.runs
        if not runs or runs[-1][1] - runs[-1][0] != offset - index:
            runs.append((index, offset))

    def start_range(self, first: int, count: int, now: float) -> None:
        """A handler got the records *first* and the *count* - 1 after it, at once."""
        at = first - self.base
        if at >= 0:
            self.started[at : at + count] = array("d", [now]) * count

    def unstart(self, index: int) -> None:
        """A handler has given a record back: it waits again, and those behind it may have
        started.
        """
        self.catch_up()
        at = index - self.base
        if at >= 0:
            self.started[at] = NOT_STARTED
            self.standing[at] = 0
            self.in_order = False

    def stop_clock(self, indexes: Iterable[int], since: float) -> None:
        """These records do not age from *since* on, until a :meth:`start_clock` for each call of
        this.
        """
        for index in indexes:
            at = index - self.base
            if at < 0:
                continue
            if not self.standing[at]:
                self._stood_since[index] = since
            if self.standing[at] < MOST_REASONS - 1:
                self.standing[at] += 1

    def start_clock(self, indexes: Iterable[int], now: float) -> None:
        """One reason is gone for which these records did not age; the time that they stood is not
        part of their age.
        """
        self.catch_up()
        for index in indexes:
            at = index - self.base
            if at < 0:
                # It was settled meanwhile, or its partition is gone.
                self._stood_since.pop(index, None)
                continue
            if self.standing[at] == MOST_REASONS:
                # It was handed over, and does not age again.
                self._stood_since.pop(index, None)
                continue
            if self.standing[at] > 1:
                self.standing[at] -= 1
                continue
            self.standing[at] = 0
            stood_since = self._stood_since.pop(index, now)
            if self.started[at] == NOT_STARTED:
                continue
            self.started[at] += max(0.0, now - stood_since)
            self.ages_in_order = False
            if index == self.run_at:
                self.run_since = self.started[at]

    def hand_over(self, index: int) -> None:
        """The handler of a record is done, and its output is on its way: the record ages no
        more.
        """
        at = index - self.base
        if at >= 0:
            self.standing[at] = MOST_REASONS

    def open_at_handlers(self) -> list[int]:
        """The arrival numbers of the records without a verdict that a handler or the application
        has got.
        """
        self.catch_up()
        found: list[int] = []
        at = self.flags.find(OPEN)
        while at >= 0:
            if self.started[at] != NOT_STARTED:
                found.append(self.base + at)
            at = self.flags.find(OPEN, at + 1)
        return found

    def ageing(self) -> bytes | bytearray:
        """A byte for each record of the window: 0 where it has no verdict and its clock does not
        stand.
        """
        count = len(self.flags)
        if self.standing.count(0) == count:
            return self.flags
        either = int.from_bytes(self.flags, "little") | int.from_bytes(self.standing, "little")
        return either.to_bytes(count, "little")

    def begin_run(self, first: int, now: float = NOT_STARTED) -> None:
        """A worker goes on from record *first* now, one after the other; ``run_at`` and
        ``run_since`` are its own.
        """
        self.run_first = first
        self.run_at = -1
        self.run_begun = now

    def end_run(self, until: int, since: float = NOT_STARTED) -> None:
        """The run is over, and what lies before *until* in it is done; *since* then a handler has
        *until* itself.
        """
        first = self.run_first
        self.run_first = -1
        self.run_at = -1
        if first < 0:
            return
        _begun(self, first, until)
        self._settle_window(first, until)
        if since != NOT_STARTED:
            self.start_range(until, 1, since)

    def catch_up(self) -> None:
        """Bring the window up to where the run stands; whatever reads it calls this first."""
        at = self.run_at
        if at < 0:
            return
        if at > self.run_first:
            _begun(self, self.run_first, at)
            self._settle_window(self.run_first, at)
            self.run_first = at
        if at >= self.base:
            self.started[at - self.base] = self.run_since

    def settle(self, index: int) -> bool:
        """Mark a record as done; False if it had a verdict, or the assignment is over."""
        if self.run_at >= 0:
            self.catch_up()
        at = index - self.base
        if at < 0 or self.flags[at]:
            return False
        self.flags[at] = SETTLED
        return True

    def settle_range(self, start: int, stop: int) -> int:
        """Mark the records *start* up to *stop* (exclusive) as done, those with a verdict aside;
        how many it took.
        """
        self.catch_up()
        return self._settle_window(start, stop)

    def settle_up_to(self, index: int) -> int:
        """Mark a record and those before it as done where handlers have had them without a verdict;
        how many.
        """
        self.catch_up()
        if self.in_order:
            return self._settle_window(self.base, index + 1)
        last = min(index + 1 - self.base, len(self.flags))
        open_ones = (
            at for at in range(last) if self.flags[at] == OPEN and self.started[at] != NOT_STARTED
        )
        return sum(self._settle_window(self.base + at, self.base + at + 1) for at in open_ones)

    def _settle_window(self, start: int, stop: int) -> int:
        first = start - self.base
        last = stop - self.base
        if last <= 0:
            return 0
        first = max(first, 0)
        window = self.flags[first:last]
        taken = window.count(OPEN)
        if taken == len(window):
            self.flags[first:last] = b"\x01" * taken
        elif taken:
            self.flags[first:last] = window.replace(b"\x00", b"\x01")
        return taken

    def nack(self, index: int) -> bool:
        """Give a record its verdict without settling it; False if it had one, or the assignment is
        over.
        """
        self.catch_up()
        at = index - self.base
        if at < 0 or self.flags[at]:
            return False
        self.flags[at] = NACKED
        return True

    def settle_nacked(self, index: int) -> bool:
        """Mark a nacked record as done: its failure strategy has been carried out."""
        at = index - self.base
        if at < 0 or self.flags[at] != NACKED:
            return False
        self.flags[at] = SETTLED
        self.failed += 1
        return True

    def is_open(self, index: int) -> bool:
        """Whether a verdict for the record would still count."""
        self.catch_up()
        at = index - self.base
        return 0 <= at < len(self.flags) and self.flags[at] == OPEN

    def is_settled(self, index: int) -> bool:
        """Whether a record that has been delivered is done: it is not handled again."""
        self.catch_up()
        at = index - self.base
        return at < 0 or (at < len(self.flags) and self.flags[at] == SETTLED)

    def offset_of(self, index: int) -> int:
        """The offset of the record with this arrival number, which must be in the window."""
        runs = self.runs
        arrival, offset = (
            runs[0] if len(runs) == 1 else runs[bisect_right(runs, (index, CLOSED_BASE)) - 1]
        )
        return offset + index - arrival

    def compact(self) -> None:
        """Let go of the settled records before the first unsettled one. Amortised: each is let go
        once.
        """
        self.catch_up()
        flags = self.flags
        if not flags or flags[0] != SETTLED:
            return
        done = len(flags) - len(flags.lstrip(b"\x01"))
        if self.ages is not None:
            self.ages.passed(self.base, self.started, done)
        del flags[:done]
        del self.started[:done]
        del self.standing[:done]
        if not flags:
            self.ages_in_order = True
        self.base += done
        self.settled_before += done
        behind = bisect_right(self.runs, (self.base, CLOSED_BASE)) - 1
        if behind > 0:
            self.passed = self.offset_of(self.runs[behind][0] - 1)
            del self.runs[:behind]


def _begun(window: RecordWindow, first: int, until: int) -> None:
    """All records of a run began at about the same time: a worker makes none longer than its
    stretch.
    """
    if window.run_begun != NOT_STARTED and until > first:
        window.start_range(first, until - first, window.run_begun)
