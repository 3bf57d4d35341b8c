"""The records of one partition between delivery and settlement. No I/O, no clock, no locks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import sub
from typing import Protocol

from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.metadata.acks import AckMap
from reactive_kafka.tracking.metadata.codec import has_room
from reactive_kafka.tracking.metadata.user import UserMetadata
from reactive_kafka.tracking.plans import PlanBook, PlannedRange, Plans
from reactive_kafka.tracking.record_offsets import BEYOND_ALL, RecordOffsets
from reactive_kafka.tracking.record_sizes import RecordSizes

OPEN = 0
SETTLED = 1
NACKED = 2
OPEN_FLAG = bytes([OPEN])
SETTLED_FLAG = bytes([SETTLED])
"""The flag of a record, one byte: no verdict; done; nacked, and its failure strategy has not been
carried out (yet)."""

NOT_SETTLED = bytes(flag != SETTLED for flag in range(256))
"""For ``bytes.translate``: 1 for the flags of records that are not settled."""

AGES = 0
"""The byte of a record without a verdict whose clock runs."""

NOT_STARTED = -1.0
"""The start of a record that no handler has got."""

_NOT_STARTED = array("d", [NOT_STARTED])
_NOT_MOVED = array("f", [0.0])

HANDED_OVER = 255
"""The number of clock stops of a record that was handed over, whose clock never runs again. Other
records never have so many."""

CLOSED_BASE = BEYOND_ALL
"""The base of a closed tracker: higher than any arrival number, so every late verdict falls before
the window."""

NO_LIMIT = BEYOND_ALL
"""The limit of a log that is read to its end: no offset lies behind it."""


class WindowListener(Protocol):
    """Hears of records as they are delivered and as they leave the window."""

    def came(self, first: int, records: Sequence[RawRecord]) -> None:
        """Records were delivered; the first of them has arrival number *first*."""

    def passed(self, first: int, started: Sequence[float], count: int) -> None:
        """The first *count* records of the window are settled and leave it.

        Args:
            first: The arrival number of the first of them.
            started: When handlers got these records; there may be more behind them.
        """


class OffsetTracker:
    """The records of one partition, from delivery to settlement, during one assignment.

    Records are numbered by arrival. The *window* holds those from the first unsettled record on: a
    byte for the verdict, and when a handler got the record. So a verdict is one byte stored, and
    the first unsettled record is found by a scan in C. Offsets may have gaps (compaction,
    transaction markers); a gap counts as settled. Source: KafkaConsumer javadoc, "Offsets and
    Consumer Position".

    Workers write some fields directly, because the path of a record is hot:
    ``started[index - base]`` is when a handler got record *index*, by the monotonic clock. A worker
    that handles records one after the other, each done when its handler returns, only notes a
    *run*: all records from ``run_first`` up to ``run_at`` (exclusive) are done, and its handler got
    record ``run_at`` at ``run_since``. Code that reads the window calls :meth:`catch_up` first.

    Records may be *planned* to be handled in ranges. No position that is given out for a commit
    lies inside of a planned range, done or not, until the group has a position behind it: see
    :mod:`reactive_kafka.tracking.plans`.
    """

    __slots__ = (
        "_at_verdict",
        "_book",
        "_had",
        "_moved",
        "_stopped_since",
        "_unsettled_before",
        "_unsettled_indexes",
        "ages",
        "ages_in_order",
        "attempted",
        "base",
        "clock_stops",
        "committed",
        "counted",
        "failed",
        "flags",
        "in_order",
        "kept",
        "limit",
        "offsets",
        "owner",
        "partition",
        "position",
        "run_at",
        "run_begun",
        "run_first",
        "run_since",
        "settled_before",
        "sizes",
        "start",
        "started",
        "texts",
        "uncommitted_from",
    )

    LONG_WINDOW = 8192
    """A window longer than this is counted once; then its unsettled records are remembered."""

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        *,
        committed: int | None = None,
        commit_start: bool = False,
    ) -> None:
        self.partition = partition
        # Offset of the next record to read.
        self.position = position

        # -- the window
        # Arrival number of its first record.
        self.base = 0
        self.flags = bytearray()
        self.started: array[float] = array("d")
        self.offsets = RecordOffsets()
        # Records that were settled and have left the window.
        self.settled_before = 0
        # Of the settled records those whose handling failed.
        self.failed = 0
        self.ages: WindowListener | None = None
        # The bytes of the records. None: the channel has no bound in bytes.
        self.sizes: RecordSizes | None = None
        # True while records start in the order of their arrival.
        self.in_order = True

        # -- ages
        # One byte a record: for how many reasons its clock is stopped. A record does not age while
        # that is above 0.
        self.clock_stops = bytearray()
        # Arrival number -> since when its clock is stopped, where the clock may run again.
        self._stopped_since: dict[int, float] = {}
        # True if the first of the records that started in order is also the oldest one. A clock
        # that was stopped ends that, until the window is empty.
        self.ages_in_order = True
        # By how much the starts of the window's records were moved on, in seconds. None: none was.
        self._moved: array[float] | None = None

        # -- the run of a worker
        self.run_first = -1
        self.run_at = -1
        self.run_since = NOT_STARTED
        self.run_begun = NOT_STARTED

        # -- positions
        # Where reading began in this assignment.
        self.start = position
        # What the group has stored for it.
        self.committed = committed
        # The highest position that was ever sent in a commit. At the start of an assignment it is
        # the lower one, so that both what the group has and where reading starts may be committed.
        self.attempted = position if committed is None else min(committed, position)
        # A position above this one is worth a commit; -1: the start itself is.
        self.uncommitted_from = -1 if commit_start else self.attempted
        # No position above is committed, because the offsets behind it are not read.
        self.limit = NO_LIMIT

        # -- what belongs to the records
        # Acks that were counted by newly_acked().
        self.counted = 0
        # What an earlier assignment knew as done; it is not delivered again.
        self.kept: AckMap | None = None
        # The user's strings that wait to be stored.
        self.texts = UserMetadata()
        # Arrival number -> called with it at the verdict of a record that waits for another call.
        self._at_verdict: dict[int, Callable[[int], object]] = {}
        # The keys are records that handlers have had, and that were put back into their lane. An
        # empty set would be three times as large.
        self._had: dict[int, None] = {}
        # The verdicts of this partition, which answer those who wait; set where they are made.
        self.owner: object = None
        # None while nothing was planned.
        self._book: PlanBook | None = None

        # -- counting a long window, see unsettled
        # Records before this arrival number are settled, but for those in the list.
        self._unsettled_before = 0
        self._unsettled_indexes: Sequence[int] = ()

    # -- delivery

    def deliver(self, offsets: Sequence[int], next_offset: int) -> int:
        """Take in records that were read; returns the arrival number of the first one.

        The others are numbered on from there. They wait for a handler until marked as started.

        Args:
            offsets: Ascending; a ``range`` where there are no gaps, which costs the same for any
                length.
            next_offset: The position after them, past markers that follow.

        Raises:
            DeliveryOrderError: An offset is before the position, or they do not ascend.
        """
        self.compact()
        first = self.base + len(self.flags)
        count = len(offsets)
        if offsets:
            self.offsets.add(self.partition, offsets, first, self.position)
            self.flags.extend(bytes(count))
            self.started.extend(_NOT_STARTED * count)
            self.clock_stops.extend(bytes(count))
            if self._moved is not None:
                self._moved.extend(_NOT_MOVED * count)
            self.position = offsets[-1] + 1
        self.position = max(self.position, next_offset)
        return first

    def measure(self, records: Iterable[RawRecord], first: int) -> None:
        """Keep the sizes of records that were delivered, the first with arrival number *first*."""
        if self.sizes is None:
            self.sizes = RecordSizes(first)
        self.sizes.forget_before(self.base)
        self.sizes.came(records)

    def compact(self) -> None:
        """Drop the settled records before the first unsettled one from the window."""
        self.catch_up()
        flags = self.flags
        if not flags or flags[0] != SETTLED:
            return
        done = len(flags) - len(flags.lstrip(b"\x01"))
        if self.ages is not None:
            self.ages.passed(self.base, self._first_starts(done), done)
        del flags[:done]
        del self.started[:done]
        del self.clock_stops[:done]
        if self._moved is not None:
            del self._moved[:done]
        if not flags:
            self.ages_in_order = True
            self._moved = None
        self.base += done
        self.settled_before += done
        self.offsets.forget_before(self.base)
        if self._had:
            self._had = {index: None for index in self._had if index >= self.base}
        if self._stopped_since:
            # A record may be settled while its clock is stopped, which nothing starts again then.
            self._stopped_since = {
                index: since for index, since in self._stopped_since.items() if index >= self.base
            }

    def _first_starts(self, count: int) -> array[float]:
        """When handlers got the first *count* records at least, whatever their clocks did since."""
        if self._moved is None:
            return self.started
        return array("d", map(sub, self.started[:count], self._moved))

    def close(self) -> None:
        """End the assignment: nothing is tracked any more, and every later verdict is refused."""
        if self.base == CLOSED_BASE:
            return
        self.compact()
        self.settled_before = self.settled
        self.run_first = -1
        self.run_at = -1
        # Every verdict compares its arrival number with the base anyway. So a late one is refused
        # on the same path as one that comes twice, and the hot path needs no check of its own for
        # an assignment that is over.
        self.base = CLOSED_BASE
        self.flags = bytearray()
        self.started = array("d")
        self.clock_stops = bytearray()
        self._stopped_since = {}
        self._moved = None
        self.offsets = RecordOffsets()
        self.sizes = None
        self._at_verdict = {}
        self._had = {}
        self._book = None

    @property
    def is_closed(self) -> bool:
        """Whether the assignment is over."""
        return self.base == CLOSED_BASE

    # -- starts, and the ages that follow from them

    def start_range(self, first: int, count: int, now: float) -> None:
        """A handler got *count* records at once, from arrival number *first* on."""
        place = first - self.base
        if place >= 0:
            self.started[place : place + count] = array("d", [now]) * count
            if self._moved is not None:
                self._moved[place : place + count] = _NOT_MOVED * count

    def has_started(self, index: int) -> bool:
        """Return whether a handler has a record of the window, or the application kept it."""
        self.catch_up()
        place = index - self.base
        return 0 <= place < len(self.started) and self.started[place] != NOT_STARTED

    def has_had(self, index: int) -> bool:
        """Return whether a handler has had a record that was put back into its lane since."""
        return index in self._had

    def put_back(self, index: int, at_verdict: Callable[[int], object]) -> None:
        """A record waits in its lane again, though later ones may have started.

        If a handler has had it, the application may have kept its message.

        Args:
            at_verdict: As for :meth:`call_at_verdict`.
        """
        if self.has_started(index):
            self._had[index] = None
        self.unstart(index)
        self.call_at_verdict(index, at_verdict)

    def unstart(self, index: int) -> None:
        """A record waits as if no handler had got it, though later ones may have started."""
        self.catch_up()
        place = index - self.base
        if place >= 0:
            self.start_range(index, 1, NOT_STARTED)
            self.clock_stops[place] = 0
            self.in_order = False

    def stop_clock(self, indexes: Iterable[int], since: float) -> None:
        """These records do not age from *since* on, until :meth:`start_clock` was called as often.

        There may be several reasons at once; the clock runs again when all of them are gone.
        """
        for index in indexes:
            place = index - self.base
            if place < 0:
                continue
            if not self.clock_stops[place]:
                self._stopped_since[index] = since
            if self.clock_stops[place] < HANDED_OVER - 1:
                self.clock_stops[place] += 1

    def start_clock(self, indexes: Iterable[int], now: float) -> None:
        """One reason is gone for which these records did not age.

        When it was the last one, the start is moved on by the time for which the clock was stopped:
        that time is not part of the record's age.
        """
        self.catch_up()
        for index in indexes:
            place = index - self.base
            if place < 0:
                # It was settled meanwhile, or its partition is gone.
                self._stopped_since.pop(index, None)
                continue
            if self.clock_stops[place] == HANDED_OVER:
                # It does not age again.
                self._stopped_since.pop(index, None)
                continue
            if self.clock_stops[place] > 1:
                self.clock_stops[place] -= 1
                continue
            self.clock_stops[place] = 0
            stopped_since = self._stopped_since.pop(index, now)
            if self.started[place] == NOT_STARTED:
                continue
            moved_s = max(0.0, now - stopped_since)
            self.started[place] += moved_s
            if self._moved is None:
                self._moved = _NOT_MOVED * len(self.flags)
            self._moved[place] += moved_s
            self.ages_in_order = False
            if index == self.run_at:
                self.run_since = self.started[place]

    def hand_over(self, index: int) -> None:
        """A record's handler is done and its output is on its way: the record ages no more."""
        place = index - self.base
        if place >= 0:
            self.clock_stops[place] = HANDED_OVER

    def open_at_handlers(self) -> list[int]:
        """The arrival numbers of the records that were handed out and have no verdict."""
        self.catch_up()
        found: list[int] = []
        place = self.flags.find(OPEN)
        while place >= 0:
            if self.started[place] != NOT_STARTED:
                found.append(self.base + place)
            place = self.flags.find(OPEN, place + 1)
        return found

    def ageing(self) -> bytes | bytearray:
        """Return a byte for each record of the window: ``AGES`` if it has no verdict and ages."""
        count = len(self.flags)
        if self.clock_stops.count(0) == count:
            return self.flags
        # One "or" of two long numbers is far faster than a loop over the bytes.
        flags = int.from_bytes(self.flags, "little")
        clock_stops = int.from_bytes(self.clock_stops, "little")
        return (flags | clock_stops).to_bytes(count, "little")

    # -- the run of a worker

    def begin_run(self, first: int, now: float = NOT_STARTED) -> None:
        """A worker handles records one after the other from *first* on.

        From here on it writes ``run_at`` and ``run_since`` itself.
        """
        self.run_first = first
        self.run_at = -1
        self.run_begun = now

    def end_run(self, until: int, since: float = NOT_STARTED) -> None:
        """The run is over: the records before *until* in it are done.

        Args:
            since: When a handler got the record *until* itself, if one has it.
        """
        first = self.run_first
        self.run_first = -1
        self.run_at = -1
        if first < 0:
            return
        self._start_run(first, until)
        self._settle_window(first, until)
        place = until - self.base
        if since != NOT_STARTED and place >= 0:
            self.started[place] = since

    def catch_up(self) -> None:
        """Bring the window up to where the run is. Call it before reading the window."""
        run_at = self.run_at
        if run_at < 0:
            return
        if run_at > self.run_first:
            first = self.run_first
            self.run_first = run_at
            self._start_run(first, run_at)
            self._settle_window(first, run_at)
        if run_at >= self.base:
            self.started[run_at - self.base] = self.run_since

    def _start_run(self, first: int, until: int) -> None:
        # One time for all records of a run is exact enough: a worker ends its run after 5 ms.
        if self.run_begun != NOT_STARTED and until > first:
            self.start_range(first, until - first, self.run_begun)

    # -- verdicts

    def settle(self, index: int) -> bool:
        """Mark a record as done; False if it had a verdict, or the assignment is over."""
        if self.run_at >= 0:
            self.catch_up()
        place = index - self.base
        if place < 0 or self.flags[place]:
            return False
        self.flags[place] = SETTLED
        if self._at_verdict:
            self._tell_verdict(index)
        return True

    def settle_range(self, start: int, stop: int) -> int:
        """Mark the open records from *start* up to *stop* (exclusive) as done; returns how many."""
        self.catch_up()
        return self._settle_window(start, stop)

    def settle_up_to(self, index: int) -> int:
        """Mark the open records up to and including *index* as done, if handlers have had them.

        Returns how many.
        """
        self.catch_up()
        if self.in_order:
            return self._settle_window(self.base, index + 1)
        settled = 0
        for place in range(min(index + 1 - self.base, len(self.flags))):
            was_had = self.started[place] != NOT_STARTED or self.base + place in self._had
            if self.flags[place] == OPEN and was_had:
                self.flags[place] = SETTLED
                settled += 1
        self._tell_verdicts(self.base, index + 1)
        return settled

    def _settle_window(self, start: int, stop: int) -> int:
        """Mark the open records with arrival numbers from *start* to before *stop* as settled.

        Nacked records stay nacked. Returns how many were settled.
        """
        first = start - self.base
        last = stop - self.base
        # The records have left the window. A negative end of the slice would count from the end of
        # the window, and settle records that were not handled.
        if last <= 0:
            return 0
        first = max(first, 0)
        window = self.flags[first:last]
        taken = window.count(OPEN)
        # Slices, because a batch settles many records at once. The first form needs no search.
        if taken == len(window):
            self.flags[first:last] = SETTLED_FLAG * taken
        elif taken:
            self.flags[first:last] = window.replace(OPEN_FLAG, SETTLED_FLAG)
        if self._at_verdict:
            self._tell_verdicts(start, stop)
        return taken

    def call_at_verdict(self, index: int, told: Callable[[int], object]) -> None:
        """Call *told* once with the arrival number of a record, at its verdict.

        The record waits for another call, which a verdict makes needless.
        """
        self._at_verdict[index] = told

    def forget_at_verdict(self, index: int) -> None:
        """Call nothing at the verdict of a record: it waits no more."""
        self._at_verdict.pop(index, None)

    def _tell_verdict(self, index: int) -> None:
        told = self._at_verdict.pop(index, None)
        if told is not None:
            told(index)

    def _tell_verdicts(self, start: int, stop: int) -> None:
        """Tell of those records from *start* to before *stop* that have their verdict."""
        for index in [index for index in self._at_verdict if start <= index < stop]:
            if self.flags[index - self.base] != OPEN:
                self._tell_verdict(index)

    def nack(self, index: int) -> bool:
        """Mark a record as nacked, not as settled; False if it had a verdict, or it is too late."""
        self.catch_up()
        place = index - self.base
        if place < 0 or self.flags[place]:
            return False
        self.flags[place] = NACKED
        if self._at_verdict:
            self._tell_verdict(index)
        return True

    def settle_nacked(self, index: int) -> bool:
        """Mark a nacked record as done: its failure strategy has been carried out."""
        place = index - self.base
        if place < 0 or self.flags[place] != NACKED:
            return False
        self.flags[place] = SETTLED
        self.failed += 1
        return True

    def is_open(self, index: int) -> bool:
        """Whether a verdict for the record would still count."""
        self.catch_up()
        place = index - self.base
        return 0 <= place < len(self.flags) and self.flags[place] == OPEN

    def is_settled(self, index: int) -> bool:
        """Whether a record that has been delivered is done, so that it is not handled again."""
        self.catch_up()
        place = index - self.base
        return place < 0 or (place < len(self.flags) and self.flags[place] == SETTLED)

    def has_settled(self, start: int, stop: int) -> bool:
        """Whether all records from *start* up to *stop* (exclusive) are settled.

        False when the assignment is over.
        """
        self.catch_up()
        if self.is_closed:
            return False
        first = max(0, start - self.base)
        last = stop - self.base
        return last <= 0 or self.flags.count(SETTLED, first, last) == last - first

    # -- positions

    @property
    def committable(self) -> int:
        """The highest position that may be committed.

        No unsettled record lies before it. It lies inside of no planned range, and not behind
        offsets that are not read.
        """
        return min(self.outside_plans(self.safe), self.limit)

    @property
    def safe(self) -> int:
        """The highest position with no unsettled record before it, whatever is planned."""
        self.compact()
        return self.offset_of(self.base) if self.flags else self.position

    @property
    def highest(self) -> int:
        """The position after the highest settled record; never below ``committable``."""
        safe = self.committable
        last = self.flags.rfind(SETTLED)
        if last < 0:
            return safe
        return self.outside_plans(self.offset_of(self.base + last) + 1)

    def sent(self, position: int) -> None:
        """A commit of this position is sent: the group may have it from here on."""
        self.attempted = max(self.attempted, position)

    def confirmed(self, position: int) -> None:
        """The group has this position."""
        self.committed = position
        self.uncommitted_from = position

    @property
    def stored(self) -> int:
        """The position that the group has of what was read here; else where reading began."""
        return max(self.start, self.uncommitted_from)

    def offset_of(self, index: int) -> int:
        """The offset of the record with this arrival number, which must be in the window."""
        return self.offsets.offset_of(index)

    def index_of(self, offset: int) -> int | None:
        """The arrival number of the record with this offset; None: the window does not have it."""
        index = self.offsets.index_of(offset, self.base + len(self.flags))
        return None if index is None or index < self.base else index

    # -- planned ranges

    @property
    def plans(self) -> Plans:
        """The ranges that are planned and not done, ascending."""
        return self._book.plans if self._book else ()

    def plan(self, planned: PlannedRange) -> None:
        """Plan that these records are handled as one range; they may not have been delivered yet.

        Once the assignment is over this does nothing, like the two methods that follow.

        Raises:
            ValueError: It overlaps another range, or begins before a position that may have been
                committed.
        """
        if self.is_closed:
            return
        if planned.start < self.committable:
            raise ValueError(
                f"{self.partition}: {planned} begins before the position {self.committable}"
            )
        if self._book is None:
            self._book = PlanBook()
        self._book.add(planned)

    def replan(self, old: PlannedRange, *new: PlannedRange) -> None:
        """Handle a planned range in parts from here on. Raises as :meth:`PlanBook.split` does."""
        if not self.is_closed:
            (self._book or PlanBook()).split(old, new)

    def plan_done(self, planned: PlannedRange, *, remember: bool = True) -> None:
        """A planned range is settled. Remember it until the group has a position behind it.

        Args:
            remember: False where nothing is ever committed.
        """
        if not self.is_closed:
            reached = self.uncommitted_from if remember else planned.until
            (self._book or PlanBook()).finish(planned, reached)

    def planned_beyond(self, position: int) -> Plans:
        """The ranges, done or not, that a reader from *position* on has to keep to."""
        return self._book.beyond(position) if self._book else ()

    def has_room_for(self, planned: PlannedRange) -> bool:
        """Whether one more plan can be stored with the position; without room it is left out."""
        position = self.committable
        return has_room(position, self.planned_beyond(position), planned)

    def outside_plans(self, position: int) -> int:
        """The position, or the start of the planned range that it lies inside of."""
        return self._book.outside(position) if self._book else position

    # -- counts

    @property
    def settled(self) -> int:
        """Records settled in this assignment, in any way."""
        self.catch_up()
        return self.settled_before + self.flags.count(SETTLED)

    def newly_acked(self) -> int:
        """Records acked since the last call, without those that a failure strategy has settled.

        So the hot path does not have to count.
        """
        acked = self.settled - self.failed
        new = acked - self.counted
        self.counted = acked
        return new

    def unsettled_bytes(self) -> int:
        """The bytes of the records without a verdict, or whose nack is being carried out.

        0 where the sizes of records are not kept.
        """
        self.compact()
        if self.sizes is None:
            return 0
        sizes = self.sizes
        sizes.forget_before(self.base)
        if not self.unsettled:
            return 0
        # A long window is not scanned each time: see `unsettled`.
        since = max(self._unsettled_before, self.base)
        remembered = sum(sizes.of(index, 1)[0] for index in self._unsettled_indexes)
        flags = self.flags[since - self.base :]
        return remembered + sizes.selected(since, flags.translate(NOT_SETTLED))

    @property
    def unsettled(self) -> int:
        """Records delivered (or queued) and not settled.

        Each poll asks for it. Behind one slow record the window can have a million records of which
        all but a few are settled, and counting would scan them each time. A settled record stays
        settled. So a long window is looked at once, the unsettled records found are remembered, and
        the next count looks at these and at what has come since.
        """
        self.catch_up()
        flags = self.flags
        base = self.base
        remembered = self._unsettled_indexes
        if remembered:
            remembered = [
                index for index in remembered if index >= base and flags[index - base] != SETTLED
            ]
            self._unsettled_indexes = remembered
        since = max(self._unsettled_before - base, 0)
        count = len(remembered) + len(flags) - since - flags.count(SETTLED, since)
        if len(flags) - since > max(self.LONG_WINDOW, 8 * count):
            end = base + len(flags)
            found = compress(range(base + since, end), flags[since:].translate(NOT_SETTLED))
            self._unsettled_indexes = [*remembered, *found]
            self._unsettled_before = end
        return count

    def unsettled_up_to(self, index: int) -> int:
        """Records that are not settled, up to and including the one with this arrival number."""
        self.catch_up()
        until = min(max(0, index + 1 - self.base), len(self.flags))
        return until - self.flags.count(SETTLED, 0, until)

    @property
    def window(self) -> int:
        """Records in the window: unsettled ones, and those settled behind the first of them."""
        return len(self.flags)

    @property
    def open(self) -> int:
        """Records without a verdict, waiting or with a handler."""
        self.catch_up()
        return self.flags.count(OPEN)
