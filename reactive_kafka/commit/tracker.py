"""Which position of one partition is safe to commit. No I/O, no clock, no locks."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from reactive_kafka.commit.metadata.acks import AckMap
from reactive_kafka.commit.metadata.codec import has_room
from reactive_kafka.commit.metadata.user import UserMetadata
from reactive_kafka.commit.plans import PlanBook, PlannedRange, Plans
from reactive_kafka.errors import DeliveryOrderError
from reactive_kafka.records import TopicPartition

OPEN, SETTLED, NACKED = 0, 1, 2
"""One byte a record: no verdict; done; nacked, and its failure strategy not carried out (yet)."""

NOT_STARTED = -1.0
_NOT_STARTED = array("d", [NOT_STARTED])
_CLOSED_BASE = 1 << 62
"""Higher than any arrival number, so that every late verdict falls before the window."""


class OffsetTracker:
    """The records of one partition, from delivery to settlement, during one assignment.

    Records are numbered by arrival, so that a verdict is one byte stored in a window and the first
    unsettled record is found by a scan in C. Offsets may have gaps (compaction, transaction markers); a
    gap counts as settled. Source: KafkaConsumer javadoc, "Offsets and Consumer Position".

    Records may be *planned* to be handled in ranges. No position that is given out for a commit lies inside of a
    planned range, done or not, until the group has a position behind it: see :mod:`reactive_kafka.commit.plans`.

    Some fields are open to the dispatcher, which writes them on the record's hot path:
    ``started[index - base]`` is when a handler got record *index*, by the monotonic clock. And a worker that
    runs records one after the other, each done when its handler returns, only notes a *run*: from
    ``run_first`` on all are done before ``run_at``, which its handler got at ``run_since``. Whoever asks the
    tracker anything has the window brought up to that first.

    Args:
        partition: Whose records these are.
        position: Offset of the next record to read, where reading begins.
        committed: What the group has stored for it; None if nothing.
        commit_start: The start itself is worth a commit (the group has nothing and must not forget it).
    """

    __slots__ = (
        "_book",
        "_passed",
        "_runs",
        "attempted",
        "base",
        "committed",
        "counted",
        "failed",
        "flags",
        "in_order",
        "kept",
        "owner",
        "partition",
        "position",
        "run_at",
        "run_first",
        "run_since",
        "settled_before",
        "start",
        "started",
        "texts",
        "uncommitted_from",
    )

    def __init__(
        self, partition: TopicPartition, position: int, *, committed: int | None = None, commit_start: bool = False
    ) -> None:
        self.partition = partition
        self.start = position
        self.position = position
        self.committed = committed
        self.attempted = position if committed is None else min(committed, position)
        self.uncommitted_from = -1 if commit_start else position if committed is None else min(committed, position)
        self.base = 0
        self.flags = bytearray()
        self.started: array[float] = array("d")
        self.failed = 0
        self.counted = 0
        self.settled_before = 0
        self.in_order = True  # records start in the order of their arrival
        self.run_first = -1
        self.run_at = -1
        self.run_since = NOT_STARTED
        self.kept: AckMap | None = None  # what an earlier assignment knew as done; it is not delivered again
        self.texts = UserMetadata()  # the user's strings that wait to be stored; the engine's kind once it is tracked
        self.owner: object = None  # the shell's handle, for a message that is settled
        self._book: PlanBook | None = None  # none while nothing was planned
        self._runs: list[tuple[int, int]] = []  # (arrival number, offset): offsets go on by one until the next run
        self._passed = -1  # offset of the last record before the first run

    # -- delivery

    def deliver(self, offsets: Sequence[int], next_offset: int) -> int:
        """Take in records that were read; they wait for a handler until marked as started.

        Args:
            offsets: Ascending; a ``range`` where there are no gaps, which costs the same for any length.
            next_offset: The position after them, past markers that follow.

        Returns:
            The arrival number of the first; the others count on from there.

        Raises:
            DeliveryOrderError: An offset is before the position, or they do not ascend.
        """
        self._catch_up()
        self._compact()
        first = self.base + len(self.flags)
        if offsets:
            if offsets[0] < self.position:
                raise DeliveryOrderError(self.partition, offsets[0], self.position)
            self._add_runs(offsets, first)
            count = len(offsets)
            self.flags.extend(bytes(count))
            self.started.extend(_NOT_STARTED * count)
            self.position = offsets[-1] + 1
        self.position = max(self.position, next_offset)
        return first

    def _add_runs(self, offsets: Sequence[int], first: int) -> None:
        runs = self._runs
        if isinstance(offsets, range):
            self._add_run(first, offsets[0])
            return
        previous = self.position - 1
        for index, offset in enumerate(offsets, first):
            if offset <= previous:
                del runs[bisect_right(runs, (first, -1)) :]
                raise DeliveryOrderError(self.partition, offset, previous + 1)
            if offset != previous + 1 or index == first:  # markers may lie between the last run and the first record
                self._add_run(index, offset)
            previous = offset

    def _add_run(self, index: int, offset: int) -> None:
        runs = self._runs
        if not runs or runs[-1][1] - runs[-1][0] != offset - index:
            runs.append((index, offset))

    def start_range(self, first: int, count: int, now: float) -> None:
        """A handler got the records *first* and the *count* - 1 after it, at once."""
        at = first - self.base
        if at >= 0:
            self.started[at : at + count] = array("d", [now]) * count

    def unstart(self, index: int) -> None:
        """A handler has given a record back: it waits again, and those behind it may have started."""
        self._catch_up()
        at = index - self.base
        if at >= 0:
            self.started[at] = NOT_STARTED
            self.in_order = False

    def stop_clock(self, indexes: Sequence[int]) -> list[float]:
        """Handlers wait for something that is not theirs: these records do not age until :meth:`start_clock`.

        Returns:
            When handlers got them.
        """
        self._catch_up()
        since = [NOT_STARTED if index < self.base else self.started[index - self.base] for index in indexes]
        self.start_clock(indexes, NOT_STARTED)
        return since

    def start_clock(self, indexes: Iterable[int], now: float) -> None:
        """Handlers go on with these records; they are as old as those that started *now*."""
        self._catch_up()
        for index in indexes:
            if index == self.run_at:
                self.run_since = now
            if index >= self.base:
                self.started[index - self.base] = now

    def begin_run(self, first: int) -> None:
        """A worker goes on from record *first*, one after the other; ``run_at`` and ``run_since`` are its own."""
        self.run_first = first
        self.run_at = -1

    def end_run(self, until: int, since: float = NOT_STARTED) -> None:
        """The run is over: what lies before *until* in it is done.

        Args:
            since: When a handler got the record *until* itself, which is not done.
        """
        first, self.run_first, self.run_at = self.run_first, -1, -1
        if first < 0:
            return
        self._settle_window(first, until)
        if since != NOT_STARTED:
            self.start_range(until, 1, since)

    def _catch_up(self) -> None:
        """Bring the window up to where the run stands."""
        at = self.run_at
        if at < 0:
            return
        if at > self.run_first:
            self._settle_window(self.run_first, at)
            self.run_first = at
        if at >= self.base:
            self.started[at - self.base] = self.run_since

    # -- verdicts

    def settle(self, index: int) -> bool:
        """Mark a record as done; False if it had a verdict, or the assignment is over."""
        self._catch_up()
        at = index - self.base
        if at < 0 or self.flags[at]:
            return False
        self.flags[at] = SETTLED
        return True

    def settle_range(self, start: int, stop: int) -> int:
        """Mark the records *start* up to *stop* (exclusive) as done, those with a verdict aside; how many it took."""
        self._catch_up()
        return self._settle_window(start, stop)

    def settle_up_to(self, index: int) -> int:
        """Mark a record and those before it as done, as far as a handler or the application has had them.

        Those with a verdict stay as they are, and those that wait stay to be handled; how many it took.
        """
        self._catch_up()
        if self.in_order:
            return self._settle_window(self.base, index + 1)
        last = min(index + 1 - self.base, len(self.flags))
        open_ones = (at for at in range(last) if self.flags[at] == OPEN and self.started[at] != NOT_STARTED)
        return sum(self._settle_window(self.base + at, self.base + at + 1) for at in open_ones)

    def _settle_window(self, start: int, stop: int) -> int:
        first, last = start - self.base, stop - self.base
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
        """Give a record its verdict without settling it; False if it had one, or the assignment is over."""
        self._catch_up()
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
        self._catch_up()
        at = index - self.base
        return 0 <= at < len(self.flags) and self.flags[at] == OPEN

    def has_settled(self, start: int, stop: int) -> bool:
        """Whether the records *start* up to *stop* (exclusive) are all settled; False when the assignment is over."""
        self._catch_up()
        first, last = max(0, start - self.base), stop - self.base
        return not self.is_closed and (last <= 0 or self.flags.count(SETTLED, first, last) == last - first)

    def close(self) -> None:
        """End the assignment: nothing is tracked any more, and every later verdict is refused."""
        if self.base == _CLOSED_BASE:
            return
        self.settled_before = self.settled
        self.run_first = self.run_at = -1
        self.base = _CLOSED_BASE
        self.flags = bytearray()
        self.started = array("d")
        self._runs = []
        self._book = None

    @property
    def is_closed(self) -> bool:
        """Whether the assignment is over."""
        return self.base == _CLOSED_BASE

    # -- plans

    @property
    def plans(self) -> Plans:
        """The ranges that are planned and not done, ascending."""
        return self._book.plans if self._book else ()

    def plan(self, planned: PlannedRange) -> None:
        """Records are to be handled as one range; they need not have been delivered yet.

        Nothing is planned once the assignment is over, as for the two methods that follow.

        Raises:
            ValueError: It overlaps another one, or begins before a position that may have been committed.
        """
        if self.is_closed:
            return
        if planned.start < self.committable:
            raise ValueError(f"{self.partition}: {planned} begins before the position {self.committable}")
        self._book = self._book or PlanBook()
        self._book.add(planned)

    def replan(self, old: PlannedRange, *new: PlannedRange) -> None:
        """A planned range is handled in parts from here on: *new*, which in their order are all of it.

        Raises:
            ValueError: They are not, or *old* is not planned.
        """
        if not self.is_closed:
            (self._book or PlanBook()).split(old, new)

    def plan_done(self, planned: PlannedRange, *, remember: bool = True) -> None:
        """Everything in a planned range is settled. It is remembered until the group has a position behind it.

        Args:
            remember: False where nothing is ever committed.

        Raises:
            ValueError: It is not planned.
        """
        if not self.is_closed:
            (self._book or PlanBook()).finish(planned, self.uncommitted_from if remember else planned.until)

    def planned_beyond(self, position: int) -> Plans:
        """The ranges that whoever goes on from *position* must keep to: those that are done, too."""
        return self._book.beyond(position) if self._book else ()

    def has_room_for(self, planned: PlannedRange) -> bool:
        """Whether one more plan would be stored beside the others: what is too much is left out, from the end."""
        position = self.committable
        return has_room(position, self.planned_beyond(position), planned)

    def outside_plans(self, position: int) -> int:
        """The position, or the start of the planned range that it lies inside of."""
        return self._book.outside(position) if self._book else position

    # -- what is known

    @property
    def committable(self) -> int:
        """The highest position with no unsettled record before it that lies inside of no planned range."""
        self._catch_up()
        self._compact()
        return self._book.outside(self._safe) if self._book else self._safe

    @property
    def safe(self) -> int:
        """The highest position with no unsettled record before it, planned ranges or not."""
        self._catch_up()
        self._compact()
        return self._safe

    @property
    def _safe(self) -> int:
        return self.offset_of(self.base) if self.flags else self.position

    @property
    def highest(self) -> int:
        """The position after the highest settled record, whatever lies before it; ``committable`` or higher."""
        safe = self.committable
        last = self.flags.rfind(SETTLED)
        return safe if last < 0 else self.outside_plans(self.offset_of(self.base + last) + 1)

    @property
    def settled(self) -> int:
        """Records settled in this assignment, in any way."""
        self._catch_up()
        return self.settled_before + self.flags.count(SETTLED)

    def newly_acked(self) -> int:
        """Records acked since this was asked last; those that a failure strategy settled are not among them."""
        acked = self.settled - self.failed
        new, self.counted = acked - self.counted, acked
        return new

    @property
    def unsettled(self) -> int:
        """Records delivered (or queued) and not settled."""
        self._catch_up()
        return len(self.flags) - self.flags.count(SETTLED)

    def unsettled_up_to(self, index: int) -> int:
        """Records that are not settled, up to the one with this arrival number."""
        self._catch_up()
        behind = max(0, index + 1 - self.base)
        return len(self.flags[:behind]) - self.flags.count(SETTLED, 0, behind)

    @property
    def window(self) -> int:
        """Records held in memory: the unsettled ones and those settled behind the first of them."""
        return len(self.flags)

    def offset_of(self, index: int) -> int:
        """The offset of the record with this arrival number, which must be in the window."""
        runs = self._runs
        arrival, offset = runs[0] if len(runs) == 1 else runs[bisect_right(runs, (index, _CLOSED_BASE)) - 1]
        return offset + index - arrival

    def last_before(self, position: int) -> int:
        """Offset of the last record before a position that is committed; where none is known, the one before it."""
        runs = self._runs
        at = bisect_left(runs, position, key=itemgetter(1)) - 1
        if at < 0:
            return self._passed if 0 <= self._passed < position else position - 1
        arrival, offset = runs[at]
        ends = runs[at + 1][0] if at + 1 < len(runs) else self.base + len(self.flags)
        return min(position, offset + ends - arrival) - 1

    def offsets(self) -> Iterator[range]:
        """The offsets of the records in the window, ascending."""
        behind = self.base + len(self.flags)
        for (arrival, offset), (end, _) in pairwise((*self._runs, (behind, 0))):
            first = max(arrival, self.base)
            if first < end:
                yield range(offset + first - arrival, offset + end - arrival)

    def oldest_started(self) -> tuple[int, float] | None:
        """The record without a verdict that a handler has had for longest: its arrival number, and since when."""
        oldest = min(((since, index) for index, since in self._with_a_handler()), default=None)
        return None if oldest is None else (oldest[1], oldest[0])

    def overdue(self, before: float) -> tuple[int, float] | None:
        """The lowest record without a verdict that a handler has had since *before* or longer."""
        return next((found for found in self._with_a_handler() if found[1] <= before), None)

    def _with_a_handler(self) -> Iterator[tuple[int, float]]:
        """Arrival number and start of the records that a handler has, ascending.

        Where records start in order, none has been started behind the first one that waits.
        """
        self._catch_up()
        at = self.flags.find(OPEN)
        while at >= 0:
            since = self.started[at]
            if since != NOT_STARTED:
                yield self.base + at, since
                if self.in_order:  # and so no other can be older
                    return
            elif self.in_order:
                return
            at = self.flags.find(OPEN, at + 1)

    @property
    def open(self) -> int:
        """Records without a verdict, waiting or with a handler."""
        self._catch_up()
        return self.flags.count(OPEN)

    def _compact(self) -> None:
        """Let go of the settled records before the first unsettled one. Amortised: each is let go once."""
        flags = self.flags
        if not flags or flags[0] != SETTLED:
            return
        done = len(flags) - len(flags.lstrip(b"\x01"))
        del flags[:done]
        del self.started[:done]
        self.base += done
        self.settled_before += done
        behind = bisect_right(self._runs, (self.base, _CLOSED_BASE)) - 1
        if behind > 0:
            self._passed = self.offset_of(self._runs[behind][0] - 1)
            del self._runs[:behind]
