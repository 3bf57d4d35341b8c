"""The queued records of one partition. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from reactive_kafka.delivery.lanes.lane_states import (
    LANE_TRANSITIONS,
    OPEN,
    PAUSED_LANES,
    REVOKED_LANES,
    LaneState,
)
from reactive_kafka.delivery.lanes.not_due import NotDue
from reactive_kafka.records import RawRecord
from reactive_kafka.state_table import next_state
from reactive_kafka.tracking.tracker import OffsetTracker

NO_RECORDS: Sequence[RawRecord] = ()

UNKEYED = object()
"""The key of a worker that holds no key."""

KeyOf = Callable[[RawRecord], Hashable]
"""Returns the ordering key of a record."""


_Piece = tuple[Sequence[RawRecord], int, float]
"""Records, the arrival number of the first, and when they came."""


class Lane:
    """The queued records of one partition: a current piece, and the pieces behind it.

    ``records`` is the current piece. ``records[cursor]`` is the next record, and ``first + cursor``
    its arrival number in the tracker. The cursor is stored as ``taken``, the arrival number of the
    record before the next one, because workers write that number for each record.
    """

    __slots__ = (
        "_behind",
        "_waiting_behind",
        "arrived",
        "delayed",
        "first",
        "look_at",
        "low_water",
        "queued",
        "reading",
        "records",
        "state",
        "taken",
        "tracker",
        "weighed",
        "weight",
        "workers",
    )

    def __init__(self, tracker: OffsetTracker) -> None:
        self.tracker = tracker
        self.state = OPEN
        self.records: Sequence[RawRecord] = NO_RECORDS
        # The arrival number of the current piece's first record.
        self.first = 0
        self.taken = -1
        # When the current piece came.
        self.arrived = 0.0
        # How many workers run records of this lane at the moment.
        self.workers = 0
        # True while the lane is in the queue. This is no state: a lane that is suspended stays in
        # the queue until a worker finds it there.
        self.queued = False
        # New records are wanted when no more than this many wait.
        self.low_water = 0
        # When a worker that stays in the lane has to look for lanes with fewer workers.
        self.look_at = -inf
        # Records of a retry topic that are not due yet.
        self.delayed = NotDue()
        # How many records were queued when a Spark channel last measured their size.
        self.weighed = 0
        # The size of those records in bytes.
        self.weight = 0
        # The next piece first. A deque takes 700 bytes even if it is empty, so a lane that has
        # never had a piece behind its current one has no deque: see :meth:`_queue_behind`.
        self._behind: deque[_Piece] | tuple[()] = ()
        self._waiting_behind = 0
        # Iterates over the current piece: see :meth:`read`.
        self.reading: Iterator[tuple[int, RawRecord]] | None = None

    @property
    def cursor(self) -> int:
        """Where in the current piece the next record is."""
        return self.taken + 1 - self.first

    @cursor.setter
    def cursor(self, position: int) -> None:
        self.taken = self.first + position - 1

    def add(self, records: Sequence[RawRecord], first: int, now: float) -> None:
        """Queue records, the first with arrival number *first*."""
        # A lane that is not open must have no current piece: a worker that is still in it would
        # read on in that piece.
        if self.state is OPEN and self.cursor >= len(self.records) and not self._behind:
            self._make_current(records, first, now)
        else:
            self._queue_behind().append((records, first, now))
            self._waiting_behind += len(records)

    def advance(self) -> bool:
        """Go to the next piece if the current one is used up; False if nothing may be taken."""
        if self.cursor < len(self.records):
            return True
        if self.state is not OPEN or not self._behind:
            self._drop_current()
            return False
        self._make_current(*self._queue_behind().popleft())
        self._waiting_behind -= len(self.records)
        return True

    def _queue_behind(self) -> deque[_Piece]:
        """Return the pieces behind the current one, to change them."""
        if isinstance(self._behind, tuple):
            self._behind = deque()
        return self._behind

    def _make_current(self, records: Sequence[RawRecord], first: int, arrived: float) -> None:
        self.records = records
        self.first = first
        self.arrived = arrived
        self.cursor = 0
        self.reading = None

    def _drop_current(self) -> None:
        """Have no current piece; its records are not kept in memory by the lane any more."""
        self.records = NO_RECORDS
        self.cursor = 0
        self.reading = None

    @property
    def waiting(self) -> int:
        """How many records no worker has taken, without those that are not due yet."""
        return len(self.records) - self.cursor + self._waiting_behind

    @property
    def on_offer(self) -> int:
        """How many of the waiting records a worker may find when it looks."""
        return self.waiting

    def find(self) -> bool:
        """Return whether a worker may take a record now."""
        return self.advance()

    def read(self) -> Iterator[tuple[int, RawRecord]]:
        """Iterate over the rest of the current piece: pairs of arrival number and record.

        All workers of the lane get one and the same iterator, so each record goes to one of them.
        A worker that takes a record from it writes ``taken``, and calls this again once ``reading``
        is another iterator or None.
        """
        if self.reading is None:
            rest = self.records[self.cursor :] if self.cursor else self.records
            self.reading = enumerate(rest, self.taken + 1)
        return self.reading

    @property
    def next_due(self) -> float | None:
        """When the next delayed record is due; None if none is held, or none may be taken."""
        return None if self.revoked else self.delayed.next

    def enter(self) -> None:
        """Count a worker that begins to take records."""
        self.workers += 1

    def leave(self) -> None:
        """Stop counting a worker that turns away from the lane."""
        self.workers -= 1

    def pieces(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the queued records by piece, each with the arrival number of its first record."""
        if self.cursor < len(self.records):
            yield self.first + self.cursor, self.records[self.cursor :]
        for records, first, _ in self._behind:
            yield first, records

    def take(self, records: int, most_pieces: float = inf) -> list[LaneSlice]:
        """Take the next *records* records, out of at most *most_pieces* pieces."""
        taken: list[LaneSlice] = []
        while records > 0 and len(taken) < most_pieces and self.advance():
            part = self.records[self.cursor : self.cursor + records]
            taken.append(LaneSlice(self, part, self.first + self.cursor))
            self.cursor += len(part)
            records -= len(part)
        return taken

    def fitting(self, most_records: int, most_bytes: int) -> tuple[int, int]:
        """Return how many of the next records have no more bytes than that, and their bytes."""
        sizes = self.tracker.sizes
        if sizes is None:
            return min(most_records, self.waiting), 0
        count = 0
        size = 0
        for first, records in self.pieces():
            for record_size in sizes.of(first, min(len(records), most_records - count)):
                if size + record_size > most_bytes:
                    return count, size
                count += 1
                size += record_size
        return count, size

    def has_bytes(self, wanted: int) -> int:
        """Return how many bytes the waiting records have.

        It stops counting once *wanted* is reached.
        """
        sizes = self.tracker.sizes
        size = 0
        if sizes is None:
            return size
        for first, records in self.pieces():
            size += sum(sizes.of(first, len(records)))
            if size >= wanted:
                break
        return size

    @property
    def revoked(self) -> bool:
        """Whether the partition is suspended or gone."""
        return self.state in REVOKED_LANES

    @property
    def is_dropped(self) -> bool:
        """Whether its records belong to another member, or are read again."""
        return self.state is LaneState.DROPPED

    @property
    def is_paused(self) -> bool:
        """Whether the application has paused the partition or the channel."""
        return self.state in PAUSED_LANES

    def change(self, event: str) -> None:
        """Follow the table of lane states. A lane that may be open now has to be offered again."""
        self.state = next_state(LANE_TRANSITIONS, self.state, event)
        if self.state is LaneState.DROPPED:
            self.clear()
        elif self.state is not OPEN:
            self.cut()

    def clear(self) -> None:
        """Forget all records that no worker has."""
        self._drop_current()
        self._behind = ()
        self.delayed.clear()
        self._waiting_behind = 0

    def cut(self) -> None:
        """Make the workers in the lane look at it again after the record that they have.

        A worker iterates over the piece that it found, and checks after each record whether
        ``reading`` is still the same iterator. That check is all that suspending, pausing and
        dropping a lane cost on the hot path. So the rest of the piece goes back to the pieces
        behind. The worker asks for the next piece: it finds none if the lane is not open.
        """
        if self.cursor < len(self.records):
            rest = self.records[self.cursor :]
            self._queue_behind().appendleft((rest, self.first + self.cursor, self.arrived))
            self._waiting_behind += len(rest)
        self._drop_current()

    def put_back(self, record: RawRecord, index: int, key: Hashable = UNKEYED) -> None:
        """Return a taken record to the head of the lane, before all newer records."""
        self.cut()
        self._queue_behind().appendleft(([record], index, self.arrived))
        self._waiting_behind += 1

    def wait_again(self, record: RawRecord, index: int, key: Hashable = UNKEYED) -> None:
        """Return a record that a worker has had, as :meth:`put_back` does.

        The application may have kept its message. A verdict on it takes the record out of the lane.
        """
        self.put_back(record, index, key)
        self.tracker.put_back(index, self._has_verdict)

    def _has_verdict(self, index: int) -> None:
        """Take a record out that has its verdict now, unless a worker has taken it.

        Otherwise a worker would find a record here that has left the window.
        """
        if not self.tracker.has_started(index):
            self.remove(index)

    def remove(self, index: int) -> RawRecord | None:
        """Take one waiting record out of the lane; None if it does not wait here."""
        self.cut()
        for place, (records, first, arrived) in enumerate(self._behind):
            found = index - first
            if not 0 <= found < len(records):
                continue
            rest = [
                (records[:found], first, arrived),
                (records[found + 1 :], index + 1, arrived),
            ]
            pieces = list(self._behind)
            pieces[place : place + 1] = [piece for piece in rest if len(piece[0])]
            self._behind = deque(pieces)
            self._waiting_behind -= 1
            record: RawRecord = records[found]
            return record
        return self.delayed.remove(index)

    def give_back(self, records: Sequence[Any], first: int) -> None:
        """Return taken records to their place, before all that arrived after them."""
        self.cut()
        if not len(records):
            return
        position = len(self._behind)
        for i, (_, first_of_piece, _) in enumerate(self._behind):
            if first_of_piece > first:
                position = i
                break
        self._queue_behind().insert(position, (records, first, self.arrived))
        self._waiting_behind += len(records)


class LaneSlice(NamedTuple):
    """Consecutive records of one lane, or what is kept of them.

    ``first`` is the arrival number of the first record.
    """

    lane: Lane
    records: Sequence[Any]
    first: int
