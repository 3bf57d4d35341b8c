"""Which record may run next, and why none may: pauses. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from reactive_kafka.delivery.keyed import KeyedLane
from reactive_kafka.delivery.lane import KeyOf, Lane, Slice
from reactive_kafka.delivery.states import OPEN
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker


class Pauses:
    """The pauses of one channel; they outlive assignments and restarts.

    Records flow again when every reason is gone. A reason counts once, however often it is given,
    for the whole channel and for each partition.
    """

    def __init__(self) -> None:
        # In the order in which they came.
        self._channel: dict[str, None] = {}
        # Reason -> what is paused for it; never empty.
        self._partitions: dict[str, set[TopicPartition]] = {}

    def pause(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Pause the channel, or only these partitions, whether or not they are assigned at the
        moment.
        """
        if partitions is None:
            self._channel[reason] = None
        elif paused := self._partitions.get(reason, set()).union(partitions):
            self._partitions[reason] = paused

    def resume(self, reason: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Withdraw a reason, for these partitions or, with None, wherever it was given."""
        paused = self._partitions.pop(reason, set())
        if partitions is None:
            self._channel.pop(reason, None)
        elif left := paused.difference(partitions):
            self._partitions[reason] = left

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the whole channel is paused, the oldest reason first; empty if it is not."""
        return tuple(self._channel)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are paused one by one, whether or not the whole channel is."""
        return frozenset().union(*self._partitions.values())

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition is paused: nothing of it may be fetched or handled."""
        return bool(self._channel) or any(
            partition in paused for paused in self._partitions.values()
        )

    def __bool__(self) -> bool:
        return bool(self._channel or self._partitions)


class Lanes:
    """The lanes of a channel and the order in which they are worked."""

    # Of what is taken only one record may be started: see ``rate_limit``
    is_limited = False

    def __init__(
        self,
        *,
        shared: bool,
        key_of: KeyOf | None = None,
        keys_are_total: bool = False,
        pauses: Pauses | None = None,
    ) -> None:
        self.is_keyed = key_of is not None
        # Several workers may take from one lane at once.
        self.shared = shared or self.is_keyed
        # What records are ordered by (``ordering = "key"``); None: by their partition.
        self._key_of = key_of
        # None of them can be missed: see KeyedLane.
        self._keys_are_total = keys_are_total
        self._pauses = Pauses() if pauses is None else pauses
        self._ready: deque[Lane] = deque()
        # All that is wanted has been read: what waits for a batch to fill waits in vain.
        self.is_at_end = False
        # Whose records fill their room: to wait is in vain until some are taken.
        self.out_of_room: set[object] = set()

    def new(self, tracker: OffsetTracker) -> Lane:
        """The lane of a partition whose reading begins."""
        if self._key_of is None:
            lane = Lane(tracker)
        else:
            lane = KeyedLane(tracker, self._key_of, is_total=self._keys_are_total)
        if self._pauses.has(tracker.partition):
            lane.change("pause")
        return lane

    def is_full(self, lane: Lane) -> bool:
        """Whether no more of a partition may be taken at once, whatever waits in it."""
        return False

    def look_at_pauses(self, lanes: Iterable[Lane]) -> None:
        """The channel's pauses have changed: pause or resume these lanes."""
        for lane in lanes:
            if self._pauses.has(lane.tracker.partition):
                lane.change("pause")
            elif lane.is_paused:
                lane.change("resume")
                self.offer(lane)

    def add(self, lane: Lane, records: Sequence[RawRecord], first: int, now: float) -> None:
        lane.add(records, first, now)
        self._enqueue(lane)

    def add_due(self, lane: Lane, now: float, keep: Callable[[TopicPartition, Any], Any]) -> int:
        """Queue what *keep* makes of the delayed records of a lane that are due by *now*; how many
        they are.
        """
        due = [] if lane.revoked else lane.delayed.take(now)
        for record, index in due:
            self.add(lane, keep(lane.tracker.partition, [record]), index, now)
        return len(due)

    def offer(self, lane: Lane) -> None:
        """Put a lane into the queue if it has work."""
        self._enqueue(lane)

    def take(self) -> Lane | None:
        """A lane with work, to be released when the worker turns away from it; None if there is
        none.
        """
        while self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if lane.find() if isinstance(lane, KeyedLane) else lane.advance():
                lane.enter()
                # One is for who takes it.
                if self.shared and lane.on_offer > 1:
                    self._enqueue(lane)
                return lane
        return None

    def release(self, lane: Lane) -> None:
        """A worker turns away from a lane; if it has work left it goes to the end of the queue."""
        lane.leave()
        self._enqueue(lane)

    def _enqueue(self, lane: Lane) -> None:
        if (
            lane.queued
            or (lane.workers and not self.shared)
            or lane.state is not OPEN
            or not lane.on_offer
        ):
            return
        lane.queued = True
        self._ready.append(lane)

    @property
    def ready(self) -> int:
        """How many lanes stand in the queue (the work of some may have been taken meanwhile)."""
        return len(self._ready)

    def calls_from(self, lane: Lane) -> bool:
        """Whether a lane in the queue has clearly fewer workers than this one, so that one of these
        is to go there.

        That lane is the first then. Each call looks at one lane, and the next call at the next.
        """
        ready = self._ready
        if len(ready) <= lane.queued:
            return False
        if ready[0] is lane:
            ready.rotate(-1)
        others = ready[0].workers
        # An eighth more is alike: or they would go to and fro for ever.
        if lane.workers - others > others >> 3:
            return True
        ready.rotate(-1)
        return False

    @property
    def whole_at(self) -> float:
        """When what starts as a whole may do so, by the monotonic clock."""
        return -inf

    @property
    def holds_back(self) -> bool:
        """Whether lanes with work wait only for ``rate_limit``."""
        return False

    def whole_taken(self) -> Callable[[int], None]:
        """What starts as a whole was taken. Tell what is returned how many records start, once; 0:
        it never will.
        """
        return lambda records: None

    def close(self) -> None:
        """Nothing is taken any more."""

    def batch_due(self, max_records: int, max_wait_s: float) -> float | None:
        """When a batch may be taken, by the clock that arrivals were told in: at once if enough
        wait or no more come.

        None while nothing waits that may be taken.
        """
        ready = self.whole_lanes()
        if not ready:
            return None
        arrived = min(lane.arrived for lane in ready)
        in_vain = self.is_at_end or self.out_of_room
        is_full = in_vain or sum(lane.waiting for lane in ready) >= max_records
        return arrived if is_full else arrived + max_wait_s

    def take_batch(self, max_records: int) -> list[Slice]:
        """Take up to *max_records* of the lanes that may be taken now, in turn; each lane counts as
        held.
        """
        batch: list[Slice] = []
        room = max_records
        self.out_of_room.clear()
        while room and self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            if not lane.advance():
                continue
            lane.enter()
            taken = lane.take(room)
            batch += taken
            room -= sum(len(part.records) for part in taken)
        for lane in {id(part.lane): part.lane for part in batch}.values():
            if self.shared:
                self._enqueue(lane)
        return batch

    def whole_lanes(self) -> list[Lane]:
        """The lanes of whole partitions that may be taken now, in their order; the others leave the
        queue.
        """
        found: list[Lane] = []
        for lane in self._ready:
            lane.queued = lane.advance()
            if lane.queued:
                found.append(lane)
        self._ready = deque(found)
        return found

    def hold(self, lane: Lane) -> None:
        """Somebody has taken records of a lane: it counts as held, until it is released."""
        if lane.queued:
            self._ready.remove(lane)
            lane.queued = False
        lane.enter()
        if self.shared:
            self._enqueue(lane)


class CappedLanes(Lanes):
    """Lanes of which only so many workers are in one partition at once:
    ``concurrency_per_partition``.
    """

    def __init__(self, *, most: int, **given: Any) -> None:
        super().__init__(**given)
        self._most = most

    def is_full(self, lane: Lane) -> bool:
        return lane.workers >= self._most

    def _enqueue(self, lane: Lane) -> None:
        if lane.workers < self._most:
            super()._enqueue(lane)
