"""The queued records of one partition. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from reactive_kafka.delivery.delayed import Delayed
from reactive_kafka.delivery.states import (
    LANE_TRANSITIONS,
    OPEN,
    PAUSED_LANES,
    REVOKED_LANES,
    LaneState,
    after,
)
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker

NO_RECORDS: Sequence[RawRecord] = ()

UNKEYED = object()
"""The key of a worker that holds none."""

KeyOf = Callable[[RawRecord], Hashable]
"""What a record is ordered by."""


class Lane:
    """The queued records of one partition: a current piece, read through ``cursor``, and those
    behind it.

    ``records[cursor]`` is the next record, and ``first + cursor`` its arrival number in the
    tracker. The cursor is kept as ``taken``, the arrival number of the record before that one,
    which workers write on the record's hot path.
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
        self.first = 0
        self.taken = -1
        # When the current piece came.
        self.arrived = 0.0
        # How many run records of this lane at the moment.
        self.workers = 0
        # In the queue of lanes; no state: if suspended it stays there until a worker finds it.
        self.queued = False
        # With no more waiting than this, new records are wanted.
        self.low_water = 0
        # When a worker that stays in it is to look at it next.
        self.look_at = -inf
        # Records that are not due yet.
        self.delayed = Delayed()
        # How many records were queued when a Spark channel weighed them last.
        self.weighed = 0
        # Their bytes.
        self.weight = 0
        self._behind: deque[tuple[Sequence[RawRecord], int, float]] = deque()
        self._waiting_behind = 0
        # The current piece: see :meth:`read`
        self.reading: Iterator[tuple[int, RawRecord]] | None = None

    @property
    def cursor(self) -> int:
        """Where in the current piece the next record is."""
        return self.taken + 1 - self.first

    @cursor.setter
    def cursor(self, at: int) -> None:
        self.taken = self.first + at - 1

    def add(self, records: Sequence[RawRecord], first: int, now: float) -> None:
        """Queue records, the first with arrival number *first*."""
        # Of a lane that is not open nothing may be current: a worker that is still in it would go
        # on with that.
        if self.state is OPEN and self.cursor >= len(self.records) and not self._behind:
            self.records = records
            self.first = first
            self.arrived = now
            self.cursor = 0
            self.reading = None
        else:
            self._behind.append((records, first, now))
            self._waiting_behind += len(records)

    def advance(self) -> bool:
        """Go on to the next piece when the current one has been read; False if nothing may be
        taken.
        """
        if self.cursor < len(self.records):
            return True
        if self.state is not OPEN or not self._behind:
            # Lets go of the records.
            self.records = NO_RECORDS
            self.cursor = 0
            self.reading = None
            return False
        self.records, self.first, self.arrived = self._behind.popleft()
        self._waiting_behind -= len(self.records)
        self.cursor = 0
        self.reading = None
        return True

    @property
    def waiting(self) -> int:
        """Records that no worker has taken, without those that are not due yet."""
        return len(self.records) - self.cursor + self._waiting_behind

    @property
    def on_offer(self) -> int:
        """Of these, those that a worker may find when it looks."""
        return self.waiting

    def read(self) -> Iterator[tuple[int, RawRecord]]:
        """What is left of the current piece, with arrival numbers: all who ask take from one and
        the same iterator.

        Whoever takes a record out writes ``taken``, and asks anew when ``reading`` is another
        iterator, or none.
        """
        if self.reading is None:
            self.reading = enumerate(
                self.records[self.cursor :] if self.cursor else self.records, self.taken + 1
            )
        return self.reading

    @property
    def next_due(self) -> float | None:
        """When the next delayed record is due; None if none is held, or none may be taken."""
        return None if self.revoked else self.delayed.next

    def enter(self) -> None:
        """A worker begins to take records."""
        self.workers += 1

    def leave(self) -> None:
        """A worker turns away."""
        self.workers -= 1

    def pieces(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """The queued records piece by piece, each with the arrival number of its first record."""
        if self.cursor < len(self.records):
            yield self.first + self.cursor, self.records[self.cursor :]
        for records, first, _ in self._behind:
            yield first, records

    def take(self, records: int, most_pieces: float = inf) -> list[Slice]:
        """Take the next records out: *records* of them, or what *most_pieces* pieces hold of
        these.
        """
        taken: list[Slice] = []
        while records > 0 and len(taken) < most_pieces and self.advance():
            part = self.records[self.cursor : self.cursor + records]
            taken.append(Slice(self, part, self.first + self.cursor))
            self.cursor += len(part)
            records -= len(part)
        return taken

    @property
    def revoked(self) -> bool:
        """Whether the partition is suspended or gone."""
        return self.state in REVOKED_LANES

    @property
    def is_paused(self) -> bool:
        return self.state in PAUSED_LANES

    def change(self, event: str) -> None:
        """Follow the table of lane states; offer the lane afterwards where it may be open by
        that.
        """
        self.state = after(LANE_TRANSITIONS, self.state, event)
        if self.state is LaneState.DROPPED:
            self.clear()
        elif self.state is not OPEN:
            self.cut()

    def clear(self) -> None:
        """Forget all that no worker has."""
        self.records = NO_RECORDS
        self.cursor = 0
        self.reading = None
        self._behind.clear()
        self.delayed.clear()
        self._waiting_behind = 0

    def cut(self) -> None:
        """Make the worker that is in it turn away after its record."""
        # The worker loops over the piece that it found in ``records``, and looks after each record
        # whether that is still the same object: all that suspending, pausing and dropping a lane
        # cost on the hot path. So the rest of the piece goes back to where it waited, and the
        # worker, finding another object, asks for the next piece: there is none if the lane is not
        # open, or else it goes on with what was put back.
        if self.cursor < len(self.records):
            rest = self.records[self.cursor :]
            self._behind.appendleft((rest, self.first + self.cursor, self.arrived))
            self._waiting_behind += len(rest)
        self.records = NO_RECORDS
        self.cursor = 0
        self.reading = None

    def put_back(self, record: RawRecord, index: int, key: Hashable = UNKEYED) -> None:
        """Return a taken record to the head of the lane, even if newer records were read
        meanwhile.
        """
        self.cut()
        self._behind.appendleft(([record], index, self.arrived))
        self._waiting_behind += 1

    def give_back(self, records: Sequence[Any], first: int) -> None:
        """Return taken records to their place, before all that arrived after them."""
        self.cut()
        if len(records):
            at = next(
                (at for at, piece in enumerate(self._behind) if piece[1] > first), len(self._behind)
            )
            self._behind.insert(at, (records, first, self.arrived))
            self._waiting_behind += len(records)


class Slice(NamedTuple):
    """Consecutive records of one lane (or what is kept of them), the first with arrival number
    ``first``.
    """

    lane: Lane
    records: Sequence[Any]
    first: int
