"""Which record may run next. No I/O, no clock.

A lane holds the records of one partition that wait for a handler. With ``ordering = "partition"`` one worker
at a time holds a lane; with ``"unordered"`` any number of workers take from it. Lanes that have work stand in
a queue and go to its end whenever a worker has taken one, so that no partition waits for another's backlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.records import RawRecord

NO_RECORDS: Sequence[RawRecord] = ()


class Lane:
    """The waiting records of one partition: a current piece, read through ``cursor``, and those behind it.

    ``records[cursor]`` is the next record, and ``first + cursor`` its arrival number in the tracker; workers
    read and move the cursor directly, on the record's hot path.
    """

    __slots__ = (
        "_behind",
        "_waiting_behind",
        "arrived",
        "cursor",
        "first",
        "low_water",
        "queued",
        "records",
        "revoked",
        "tracker",
        "workers",
    )

    def __init__(self, tracker: OffsetTracker) -> None:
        self.tracker = tracker
        self.records: Sequence[RawRecord] = NO_RECORDS
        self.first = 0
        self.cursor = 0
        self.arrived = 0.0  # when the current piece came
        self.workers = 0  # how many run records of this lane at the moment
        self.queued = False  # stands in the queue of lanes
        self.revoked = False
        self.low_water = 0  # with no more waiting than this, new records are wanted
        self._behind: deque[tuple[Sequence[RawRecord], int, float]] = deque()
        self._waiting_behind = 0

    def add(self, records: Sequence[RawRecord], first: int, now: float) -> None:
        """Put records behind those that wait; *first* is the arrival number of the first of them."""
        if self.cursor >= len(self.records) and not self._behind:
            self.records, self.first, self.arrived, self.cursor = records, first, now, 0
        else:
            self._behind.append((records, first, now))
            self._waiting_behind += len(records)

    def advance(self) -> bool:
        """Go on to the next piece when the current one has been read; False if none is left."""
        if self.cursor < len(self.records):
            return True
        if not self._behind:
            self.records, self.cursor = NO_RECORDS, 0  # lets go of the records
            return False
        self.records, self.first, self.arrived = self._behind.popleft()
        self._waiting_behind -= len(self.records)
        self.cursor = 0
        return True

    @property
    def waiting(self) -> int:
        """Records that no worker has taken."""
        return len(self.records) - self.cursor + self._waiting_behind

    def drop(self) -> int | None:
        """Forget the waiting records; the arrival number of the first of them, None if there was none."""
        first = self.first + self.cursor if self.advance() else None
        self.records, self.cursor = NO_RECORDS, 0
        self._behind.clear()
        self._waiting_behind = 0
        return first


class Slice(NamedTuple):
    """Part of a batch: consecutive records of one lane."""

    lane: Lane
    records: Sequence[RawRecord]
    first: int  # arrival number of the first


class Lanes:
    """The lanes of a channel and the order in which they are worked.

    Args:
        shared: Whether several workers may take from one lane at once (``ordering = "unordered"``).
    """

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self._ready: deque[Lane] = deque()

    def add(self, lane: Lane, records: Sequence[RawRecord], first: int, now: float) -> None:
        """Put records into a lane, and the lane into the queue."""
        lane.add(records, first, now)
        self._enqueue(lane)

    def take(self) -> Lane | None:
        """A lane with work, to be released when the worker turns away from it; None if there is none."""
        while self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if lane.advance():
                lane.workers += 1
                if self.shared:
                    self._enqueue(lane)
                return lane
        return None

    def release(self, lane: Lane) -> None:
        """A worker turns away from a lane; if it has work left it goes to the end of the queue."""
        lane.workers -= 1
        self._enqueue(lane)

    def _enqueue(self, lane: Lane) -> None:
        if not lane.queued and (self.shared or not lane.workers) and lane.waiting:
            lane.queued = True
            self._ready.append(lane)

    @property
    def has_work(self) -> bool:
        """Whether a lane stands in the queue (its work may have been taken meanwhile)."""
        return bool(self._ready)

    def batch_due(self, max_records: int, max_wait_s: float) -> float | None:
        """When a batch may be taken, by the clock that arrivals were told in: at once if enough records wait.

        None while nothing waits that may be taken.
        """
        ready = [lane for lane in self._ready if lane.advance()]
        if not ready:
            return None
        arrived = min(lane.arrived for lane in ready)
        return arrived if sum(lane.waiting for lane in ready) >= max_records else arrived + max_wait_s

    def take_batch(
        self, max_records: int, max_weight: float = inf, weigh: Callable[[Sequence[RawRecord]], float] | None = None
    ) -> list[Slice]:
        """Up to *max_records* of the lanes that may be taken now, in turn; each lane counts as held by a worker.

        Args:
            max_weight: The batch ends with the part that reaches this weight.
            weigh: The weight of a part; None: parts weigh nothing.
        """
        batch: list[Slice] = []
        room, weight = max_records, 0.0
        while room and weight < max_weight and self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if not lane.advance():
                continue
            lane.workers += 1
            while room and weight < max_weight and lane.advance():
                taken = lane.records[lane.cursor : lane.cursor + room]
                batch.append(Slice(lane, taken, lane.first + lane.cursor))
                lane.cursor += len(taken)
                room -= len(taken)
                weight += 0.0 if weigh is None else weigh(taken)
        for lane in {id(part.lane): part.lane for part in batch}.values():
            if self.shared:
                self._enqueue(lane)
        return batch
