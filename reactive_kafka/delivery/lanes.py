"""Which record may run next. No I/O, no clock.

A lane holds the records of one partition that no handler has yet. With ``ordering = "partition"`` one worker at a
time holds a lane; with ``"unordered"`` any number of workers take from it; with ``"key"`` a lane is divided into one
lane a key, each of which one worker at a time holds. Lanes that have work stand in a queue and go to its end
whenever a worker has turned away from one, so that neither a partition nor a key waits for another's backlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.pauses import Pauses
from reactive_kafka.records import RawRecord, TopicPartition

NO_RECORDS: Sequence[RawRecord] = ()

KeyOf = Callable[[RawRecord], Hashable]
"""What a record is ordered by."""


class Lane:
    """The waiting records of one partition: a current piece, read through ``cursor``, and those behind it.

    ``records[cursor]`` is the next record, and ``first + cursor`` its arrival number in the tracker. The cursor is kept
    as ``taken``, the arrival number of the record before that one, which workers write on the record's hot path. A
    worker that is in a lane sees by ``records`` being another object that the lane was parked, paused or dropped under
    it.
    """

    __slots__ = (
        "_behind",
        "_due",
        "_latest_due",
        "_waiting_behind",
        "arrived",
        "first",
        "low_water",
        "paused",
        "queued",
        "records",
        "revoked",
        "stopped",
        "taken",
        "tracker",
        "workers",
    )

    def __init__(self, tracker: OffsetTracker) -> None:
        self.tracker = tracker
        self.records: Sequence[RawRecord] = NO_RECORDS
        self.first = 0
        self.taken = -1
        self.arrived = 0.0  # when the current piece came
        self.workers = 0  # how many run records of this lane at the moment
        self.queued = False  # stands in the queue of lanes
        self.revoked = False  # parked: the partition goes, or has gone
        self.paused = False  # by the application
        self.stopped = False  # either of the two: nobody may take from it
        self.low_water = 0  # with no more waiting than this, new records are wanted
        self._behind: deque[tuple[Sequence[RawRecord], int, float]] = deque()
        self._waiting_behind = 0
        self._due: list[tuple[float, int, RawRecord]] = []
        self._latest_due = -inf

    @property
    def cursor(self) -> int:
        """Where in the current piece the next record is."""
        return self.taken + 1 - self.first

    @cursor.setter
    def cursor(self, at: int) -> None:
        self.taken = self.first + at - 1

    @property
    def partition_lane(self) -> Lane:
        """The lane of the partition that this one belongs to: itself."""
        return self

    def parts(self) -> Iterator[Part]:
        """The lanes that stand in the queue for this partition."""
        yield self

    def add(self, records: Sequence[RawRecord], first: int, now: float) -> Iterable[Part]:
        """Put records behind those that wait; *first* is the arrival number of the first of them.

        Returns:
            The lanes that have work by that.
        """
        if self.cursor >= len(self.records) and not self._behind:
            self.records, self.first, self.arrived, self.cursor = records, first, now, 0
        else:
            self._behind.append((records, first, now))
            self._waiting_behind += len(records)
        return (self,)

    def advance(self) -> bool:
        """Go on to the next piece when the current one has been read; False if nothing may be taken."""
        if self.cursor < len(self.records):
            return True
        if self.stopped or not self._behind:
            self.records, self.cursor = NO_RECORDS, 0  # lets go of the records
            return False
        self.records, self.first, self.arrived = self._behind.popleft()
        self._waiting_behind -= len(self.records)
        self.cursor = 0
        return True

    @property
    def waiting(self) -> int:
        """Records that no worker has taken, those that are not due yet aside."""
        return len(self.records) - self.cursor + self._waiting_behind

    # -- whole pieces, for batches

    def pieces(self) -> Iterator[Sequence[Any]]:
        """What waits, piece by piece."""
        if self.cursor < len(self.records):
            yield self.records[self.cursor :]
        for records, _, _ in self._behind:
            yield records

    def runs(self) -> Iterator[tuple[int, int]]:
        """The same as arrival number of the first record that waits, and how many there are."""
        if self.cursor < len(self.records):
            yield self.first + self.cursor, len(self.records) - self.cursor
        for records, first, _ in self._behind:
            yield first, len(records)

    def take(self, records: int, most_pieces: float = inf) -> list[Slice]:
        """Take the next records out: *records* of them, or what *most_pieces* pieces hold of these."""
        taken: list[Slice] = []
        while records > 0 and len(taken) < most_pieces and self.advance():
            part = self.records[self.cursor : self.cursor + records]
            taken.append(Slice(self, part, self.first + self.cursor))
            self.cursor += len(part)
            records -= len(part)
        return taken

    # -- records that are not due yet

    @property
    def held(self) -> int:
        """Records that are not due yet."""
        return len(self._due)

    def hold(self, record: RawRecord, index: int, due: float, *, in_order: bool = False) -> None:
        """Keep a record until *due*; *in_order*: not before those are due that were held before it."""
        if in_order:
            due = self._latest_due = max(due, self._latest_due)
        heappush(self._due, (due, index, record))

    def take_due(self, now: float) -> list[tuple[RawRecord, int]]:
        """The records that are due by *now*, with their arrival numbers, earliest first; none while parked."""
        due = []
        while self._due and self._due[0][0] <= now and not self.revoked:
            _, index, record = heappop(self._due)
            due.append((record, index))
        return due

    @property
    def next_due(self) -> float | None:
        """When the next record is due; None if nobody waits for that."""
        return self._due[0][0] if self._due and not self.revoked else None

    # -- the partition goes, and may come back

    def park(self) -> None:
        """Let nobody take from it, not even a worker that is in it; what waits stays, for it may come back."""
        self.revoked = self.stopped = True
        self.cut()

    def pause(self) -> None:
        """The application wants nothing of it handled for now: a worker that is in it turns away after its record."""
        self.paused = self.stopped = True
        self.cut()

    def resume(self) -> None:
        """The application wants it handled again; offer the lane afterwards."""
        self.paused, self.stopped = False, self.revoked

    def cut(self) -> None:
        """Make the worker that is in it turn away after its record."""
        if self.cursor < len(self.records):
            rest = self.records[self.cursor :]
            self._behind.appendleft((rest, self.first + self.cursor, self.arrived))
            self._waiting_behind += len(rest)
        self.records, self.cursor = NO_RECORDS, 0

    def unpark(self) -> None:
        """The partition came straight back; offer the lane afterwards."""
        self.revoked, self.stopped = False, self.paused

    def put_back(self, record: RawRecord, index: int) -> None:
        """A worker gives a record back that it had taken: it is the next one, also if the lane is read again by now."""
        self.cut()
        self._behind.appendleft(([record], index, self.arrived))
        self._waiting_behind += 1

    def give_back(self, records: Sequence[Any], first: int) -> None:
        """Records come back that had been taken: they wait before all that came after them."""
        self.cut()
        if len(records):
            at = next((at for at, piece in enumerate(self._behind) if piece[1] > first), len(self._behind))
            self._behind.insert(at, (records, first, self.arrived))
            self._waiting_behind += len(records)

    def drop(self) -> None:
        """Forget all that no worker has: the records are not ours any more, or are read anew."""
        self.revoked = self.stopped = True
        self.records, self.cursor = NO_RECORDS, 0
        self._behind.clear()
        self._due.clear()
        self._waiting_behind = 0


class KeyLane:
    """The waiting records of one key of one partition, each with its arrival number."""

    __slots__ = ("error", "key", "partition_lane", "queue", "queued", "tracker", "workers")

    def __init__(self, partition_lane: KeyedLane, key: Hashable, error: BaseException | None = None) -> None:
        self.partition_lane = partition_lane
        self.tracker = partition_lane.tracker
        self.key = key
        self.error = error  # why the key of its only record could not be told
        self.queue: deque[tuple[RawRecord, int]] = deque()
        self.queued = False
        self.workers = 0

    @property
    def waiting(self) -> int:
        """Records that no worker has taken."""
        return len(self.queue)

    def advance(self) -> bool:
        """Whether a record may be taken."""
        return bool(self.queue) and not self.partition_lane.stopped

    def put_back(self, record: RawRecord, index: int) -> None:
        """A worker gives a record back that it had taken: it is the next one."""
        self.queue.appendleft((record, index))
        self.partition_lane.in_keys += 1


class KeyedLane(Lane):
    """The waiting records of one partition, by key. A key has a lane only while records of it wait or run."""

    __slots__ = ("_key_of", "in_keys", "keys")

    def __init__(self, tracker: OffsetTracker, key_of: KeyOf) -> None:
        super().__init__(tracker)
        tracker.in_order = False
        self._key_of = key_of
        self.keys: dict[Hashable, KeyLane] = {}
        self.in_keys = 0  # records that wait in the lanes of all keys

    def parts(self) -> Iterator[Part]:
        """The lanes of the keys."""
        yield from self.keys.values()

    def add(self, records: Sequence[RawRecord], first: int, now: float) -> Iterable[Part]:
        """Put records behind those of their keys."""
        if not self.waiting:
            self.arrived = now
        keys, key_of = self.keys, self._key_of
        with_work = []
        for index, record in enumerate(records, first):
            try:
                key = key_of(record)
                lane = keys.get(key)
                if lane is None:
                    lane = keys[key] = KeyLane(self, key)
            except BaseException as failed:  # the function, and its keys, are the application's and may raise anything
                lane = self._without_key(failed)
            if not lane.queue:
                with_work.append(lane)
            lane.queue.append((record, index))
        self.in_keys += len(records)
        return with_work

    def _without_key(self, error: BaseException) -> KeyLane:
        """A lane for one record whose key cannot be told: it is nacked alone, when its turn comes."""
        key = object()  # like no other
        lane = self.keys[key] = KeyLane(self, key, error)
        return lane

    def advance(self) -> bool:
        """Nobody takes from the partition's lane itself."""
        return False

    @property
    def waiting(self) -> int:
        """Records that no worker has taken, those that are not due yet aside."""
        return self.in_keys

    def drop(self) -> None:
        """Forget all that no worker has."""
        super().drop()
        self.in_keys = 0
        for lane in self.keys.values():
            lane.queue.clear()
        self.keys.clear()


Part = Lane | KeyLane
"""What stands in the queue, and what a worker holds."""


class Slice(NamedTuple):
    """Part of a batch: consecutive records of one lane."""

    lane: Lane
    records: Sequence[Any]  # raw records, or what a dispatcher keeps of them
    first: int  # arrival number of the first


class Lanes:
    """The lanes of a channel and the order in which they are worked.

    Args:
        shared: Whether several workers may take from one lane at once (``ordering = "unordered"``).
        key_of: What records are ordered by (``ordering = "key"``); None: by their partition.
        pauses: Of the channel; see :meth:`look_at_pauses`.
    """

    def __init__(self, *, shared: bool, key_of: KeyOf | None = None, pauses: Pauses | None = None) -> None:
        self.shared = shared
        self._key_of = key_of
        self._pauses = Pauses() if pauses is None else pauses
        self._ready: deque[Part] = deque()

    def new(self, tracker: OffsetTracker) -> Lane:
        """The lane of a partition whose reading begins."""
        lane = Lane(tracker) if self._key_of is None else KeyedLane(tracker, self._key_of)
        if self._pauses.has(tracker.partition):
            lane.pause()
        return lane

    def look_at_pauses(self, lanes: Iterable[Lane]) -> None:
        """The channel's pauses have changed: let these lanes be taken from, or not."""
        for lane in lanes:
            if self._pauses.has(lane.tracker.partition):
                lane.pause()
            elif lane.paused:
                lane.resume()
                self.offer(lane)

    def add(self, lane: Lane, records: Sequence[RawRecord], first: int, now: float) -> None:
        """Put records into a lane, and the lane into the queue."""
        for part in lane.add(records, first, now):
            self._enqueue(part)

    def add_due(self, lane: Lane, now: float, keep: Callable[[TopicPartition, Any], Any]) -> int:
        """Let the records of a lane that are due by *now* be taken; how many those are.

        Args:
            keep: What of records is kept while they wait.
        """
        due = lane.take_due(now)
        for record, index in due:
            self.add(lane, keep(lane.tracker.partition, [record]), index, now)
        return len(due)

    def offer(self, lane: Lane) -> None:
        """Put into the queue what of a partition's lane has work."""
        for part in lane.parts():
            self._enqueue(part)

    def take(self) -> Part | None:
        """A lane with work, to be released when the worker turns away from it; None if there is none."""
        while self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if lane.advance():
                self._hold(lane)
                if self.shared:
                    self._enqueue(lane)
                return lane
        return None

    def _hold(self, lane: Part) -> None:
        lane.workers += 1
        if isinstance(lane, KeyLane):
            lane.partition_lane.workers += 1

    def release(self, lane: Part) -> None:
        """A worker turns away from a lane; if it has work left it goes to the end of the queue."""
        lane.workers -= 1
        if isinstance(lane, KeyLane):
            whole = lane.partition_lane
            whole.workers -= 1
            if not lane.queue and not lane.workers and whole.keys.get(lane.key) is lane:
                del whole.keys[lane.key]
                return
        self._enqueue(lane)

    def _enqueue(self, lane: Part) -> None:
        if lane.queued or (lane.workers and not self.shared) or not lane.waiting or lane.partition_lane.stopped:
            return
        lane.queued = True
        self._ready.append(lane)

    @property
    def is_keyed(self) -> bool:
        """Whether records are ordered by a key."""
        return self._key_of is not None

    @property
    def has_work(self) -> bool:
        """Whether a lane stands in the queue (its work may have been taken meanwhile)."""
        return bool(self._ready)

    # -- batches: the lanes of whole partitions

    def batch_due(self, max_records: int, max_wait_s: float) -> float | None:
        """When a batch may be taken, by the clock that arrivals were told in: at once if enough records wait.

        None while nothing waits that may be taken.
        """
        ready = self.whole_lanes()
        if not ready:
            return None
        arrived = min(lane.arrived for lane in ready)
        return arrived if sum(lane.waiting for lane in ready) >= max_records else arrived + max_wait_s

    def take_batch(self, max_records: int) -> list[Slice]:
        """Up to *max_records* of the lanes that may be taken now, in turn; each lane counts as held by a worker."""
        batch: list[Slice] = []
        room = max_records
        while room and self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if not isinstance(lane, Lane) or not lane.advance():
                continue
            lane.workers += 1
            taken = lane.take(room)
            batch += taken
            room -= sum(len(part.records) for part in taken)
        for lane in {id(part.lane): part.lane for part in batch}.values():
            if self.shared:
                self._enqueue(lane)
        return batch

    def whole_lanes(self) -> list[Lane]:
        """The lanes of whole partitions that may be taken now, in their order; the others leave the queue."""
        found: list[Lane] = []
        for lane in self._ready:
            lane.queued = isinstance(lane, Lane) and lane.advance()
            if isinstance(lane, Lane) and lane.queued:
                found.append(lane)
        self._ready = deque(found)
        return found

    def hold(self, lane: Lane) -> None:
        """Somebody has taken records of a lane: it counts as held, until it is released."""
        if lane.queued:
            self._ready.remove(lane)
            lane.queued = False
        lane.workers += 1
        if self.shared:
            self._enqueue(lane)
