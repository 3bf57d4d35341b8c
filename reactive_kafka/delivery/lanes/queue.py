"""The lanes of a channel, and which of them a worker takes next. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Protocol

from reactive_kafka.delivery.lanes.keyed import KeyedLane
from reactive_kafka.delivery.lanes.lane import KeyOf, Lane, LaneSlice
from reactive_kafka.delivery.lanes.lane_states import OPEN
from reactive_kafka.delivery.lanes.limited import LimitedLane, ValueLimit
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker


class StartGate(Protocol):
    """Says whether records may start; ``limits.py`` has the one for ``rate_limit``."""

    @property
    def is_exhausted(self) -> bool:
        """Whether no record may start at the moment."""

    def may_start(self) -> bool:
        """Return whether a record may start. If not, a worker is woken once one may."""

    def start(self, records: int) -> None:
        """Count records that start now."""

    def give_back(self, records: int) -> None:
        """Count records no more that were to start, and were skipped."""

    @property
    def batch_at(self) -> float:
        """When the next batch may be taken; infinite while another one has not started."""

    def batch_taken(self) -> Callable[[int], None]:
        """Note that a batch was taken that starts later."""

    def close(self) -> None:
        """Stop waking workers."""


class LaneQueue:
    """The lanes of a channel that have work, in the order in which workers take them.

    Args:
        shared: Several workers may take from one lane at once.
        key_of: Returns what records are ordered by, with ``ordering = "key"``. None: records are
            ordered by partition, or not at all.
        keys_are_total: ``key_of`` never fails: see :class:`KeyedLane`.
        most_per_lane: How many workers may be in one lane at once: ``concurrency_per_partition``.
        limit: The channel's ``rate_limit``.
        value_limit: Its ``rate_limit`` for each value. Then there is a ``key_of``.
        one_by_one: A worker starts one record of a lane that it takes.
    """

    def __init__(
        self,
        *,
        shared: bool,
        key_of: KeyOf | None = None,
        keys_are_total: bool = False,
        pauses: Pauses | None = None,
        most_per_lane: int | None = None,
        limit: StartGate | None = None,
        value_limit: ValueLimit | None = None,
        one_by_one: bool = False,
    ) -> None:
        self.is_keyed = key_of is not None
        # Several workers may take from one lane at once.
        self.shared = shared or self.is_keyed
        self._key_of = key_of
        self._keys_are_total = keys_are_total
        # The channel's pauses. A pause stops lanes as well as fetching, because the records in the
        # lanes have been fetched already. So each new lane asks for them.
        self._pauses = Pauses() if pauses is None else pauses
        self._most_per_lane = inf if most_per_lane is None else most_per_lane
        self._limit = limit
        self._value_limit = value_limit
        # Whether a worker may start only one record of a lane that it takes.
        self.takes_single_records = one_by_one or limit is not None
        self._ready: deque[Lane] = deque()
        # The channel has read all it wants: a batch that waits to fill waits in vain.
        self.is_at_end = False
        # Partitions whose records fill their room: a batch waits in vain until some are taken.
        self.out_of_room: set[object] = set()

    def new(self, tracker: OffsetTracker) -> Lane:
        """Make the lane of a partition whose reading begins."""
        if self._key_of is None:
            lane = Lane(tracker)
        elif self._value_limit is not None:
            lane = LimitedLane(tracker, self._key_of, self._value_limit)
        else:
            lane = KeyedLane(tracker, self._key_of, is_total=self._keys_are_total)
        if self._pauses.has(tracker.partition):
            lane.change("pause")
        return lane

    def is_full(self, lane: Lane) -> bool:
        """Return whether no further worker may enter a lane, whatever waits in it."""
        return lane.workers >= self._most_per_lane

    def look_at_pauses(self, lanes: Iterable[Lane]) -> None:
        """Pause or resume these lanes: the channel's pauses have changed."""
        for lane in lanes:
            if self._pauses.has(lane.tracker.partition):
                lane.change("pause")
            elif lane.is_paused:
                lane.change("resume")
                self.offer(lane)

    def add(self, lane: Lane, records: Sequence[RawRecord], first: int, now: float) -> None:
        """Add records to a lane, the first with arrival number *first*."""
        lane.add(records, first, now)
        self.offer(lane)

    def add_due(self, lane: Lane, now: float, keep: Callable[[TopicPartition, Any], Any]) -> int:
        """Add the delayed records of a lane that are due by *now*; return how many they are.

        Args:
            keep: Turns records into what the channel's workers keep of them.
        """
        if lane.revoked:
            return 0
        due = lane.delayed.take(now)
        for record, index in due:
            self.add(lane, keep(lane.tracker.partition, [record]), index, now)
        return len(due)

    def offer(self, lane: Lane) -> None:
        """Put a lane into the queue if a worker could take from it."""
        if lane.queued or lane.state is not OPEN or not lane.on_offer:
            return
        if lane.workers and not self.shared:
            return
        if lane.workers < self._most_per_lane:
            lane.queued = True
            self._ready.append(lane)

    def take(self) -> Lane | None:
        """Take a lane with work; None if there is none, or none may start.

        The lane is to be released when the worker turns away from it. With a rate limit the worker
        may start one record of it, which is counted here.
        """
        if self._limit is not None and not (self._ready and self._limit.may_start()):
            return None
        while self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if not lane.find():
                continue
            lane.enter()
            # One of the records is for the worker that takes the lane.
            if self.shared and lane.on_offer > 1:
                self.offer(lane)
            if self._limit is not None:
                self._limit.start(1)
            return lane
        return None

    def not_started(self, partition: TopicPartition, record: RawRecord) -> None:
        """Note that a record that was taken is skipped, so it does not count against a rate."""
        if self._limit is not None:
            self._limit.give_back(1)
        if self._value_limit is not None:
            self._value_limit.give_back(self._value_limit.value_of(partition, record))

    def release(self, lane: Lane) -> None:
        """Let go of a lane. If it has work left it goes to the end of the queue."""
        lane.leave()
        self.offer(lane)

    @property
    def ready(self) -> int:
        """How many lanes are in the queue; the work of some may have been taken meanwhile."""
        return len(self._ready)

    def wants_worker_of(self, lane: Lane) -> bool:
        """Return whether a worker of *lane* should go to another lane that has clearly fewer.

        That other lane is the first of the queue then. Each call looks at one lane, and the next
        call at the next one: otherwise a lane without workers could wait behind one that has
        enough.
        """
        ready = self._ready
        # True counts as one: the lane itself may be in the queue.
        if len(ready) <= lane.queued:
            return False
        if ready[0] is lane:
            ready.rotate(-1)
        workers_there = ready[0].workers
        # An eighth more is no clear difference, or workers would go back and forth for ever.
        if lane.workers - workers_there > workers_there >> 3:
            return True
        ready.rotate(-1)
        return False

    @property
    def batch_at(self) -> float:
        """When a batch may start as a whole, by the monotonic clock."""
        return -inf if self._limit is None else self._limit.batch_at

    def batch_taken(self) -> Callable[[int], None]:
        """Note that a batch was taken that starts later.

        Returns:
            To be called once with the number of records that start; 0: the batch never starts.
        """
        if self._limit is None:
            return _count_nothing
        return self._limit.batch_taken()

    @property
    def waits_for_limit(self) -> bool:
        """Whether lanes with work wait only for ``rate_limit``, or some of their records do."""
        if self._value_limit is not None and self._value_limit.holds:
            return True
        return self._limit is not None and bool(self._ready) and self._limit.is_exhausted

    def close(self) -> None:
        """Take nothing any more."""
        if self._value_limit is not None:
            self._value_limit.close()
        if self._limit is not None:
            self._limit.close()

    def batch_due(
        self, max_records: int, max_wait_s: float, max_bytes: int | None = None
    ) -> float | None:
        """Return when a batch may be taken, by the clock that arrivals were noted in.

        A batch is due at once if enough records or bytes wait, or if no more will come.

        Returns:
            None while no record waits that may be taken.
        """
        ready = self.takeable_lanes()
        if not ready:
            return None
        arrived = min(lane.arrived for lane in ready)
        waits_in_vain = self.is_at_end or self.out_of_room
        is_full = waits_in_vain or sum(lane.waiting for lane in ready) >= max_records
        if not is_full and max_bytes is not None:
            is_full = sum(lane.has_bytes(max_bytes) for lane in ready) >= max_bytes
        due = arrived if is_full else arrived + max_wait_s
        due = max(due, self.batch_at)
        # Infinite: a worker is woken once a batch may start.
        return None if due == inf else due

    def take_batch(self, max_records: int, max_bytes: int | None = None) -> list[LaneSlice]:
        """Take up to *max_records* records of the lanes in the queue, one lane after the other.

        Each lane is to be released when the batch is done.

        Args:
            max_bytes: The most bytes of the batch. A larger record is a batch of its own.
        """
        batch: list[LaneSlice] = []
        room = max_records
        taken_bytes = 0
        is_full = False
        self.out_of_room.clear()
        while room and self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if not lane.advance():
                continue
            wanted = room
            if max_bytes is not None:
                wanted, size = lane.fitting(room, max_bytes - taken_bytes)
                taken_bytes += size
                is_full = wanted < min(room, lane.waiting)
                if is_full and not (wanted or batch):
                    # This record alone has more bytes than a batch should have.
                    wanted = 1
                if not wanted:
                    self._ready.appendleft(lane)
                    lane.queued = True
                    break
            lane.enter()
            taken = lane.take(wanted)
            batch += taken
            room -= sum(len(part.records) for part in taken)
            if is_full:
                break
        if self.shared:
            for lane in lanes_in(batch):
                self.offer(lane)
        if self._limit is not None:
            self._limit.start(sum(len(part.records) for part in batch))
        return batch

    def takeable_lanes(self) -> list[Lane]:
        """Return the lanes that may be taken now, in their order; the others leave the queue."""
        takeable: list[Lane] = []
        for lane in self._ready:
            lane.queued = lane.advance()
            if lane.queued:
                takeable.append(lane)
        self._ready = deque(takeable)
        return takeable

    def hold(self, lane: Lane) -> None:
        """Count a worker in a lane whose records were taken without the queue; release it later."""
        if lane.queued:
            self._ready.remove(lane)
            lane.queued = False
        lane.enter()
        if self.shared:
            self.offer(lane)


def lanes_in(slices: Iterable[LaneSlice]) -> tuple[Lane, ...]:
    """Return the lanes of some slices, each once, in their order."""
    return tuple({id(part.lane): part.lane for part in slices}.values())


def _count_nothing(records: int) -> None:
    """Count the records of a batch where there is no limit."""
