"""Lanes of which only so many of one partition are worked at once: ``concurrency_per_partition``. No I/O, no clock."""

from __future__ import annotations

from collections import deque

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lane import KeyedLane, KeyLane, KeyOf, Lane, Part
from reactive_kafka.delivery.lanes import Lanes, Pauses
from reactive_kafka.delivery.states import OPEN


class CappedKeyedLane(KeyedLane):
    """A partition whose keys with work wait in a queue of its own; the channel's queue has it once for each turn."""

    __slots__ = ("turns", "with_work")

    def __init__(self, tracker: OffsetTracker, key_of: KeyOf) -> None:
        super().__init__(tracker, key_of)
        self.with_work: deque[KeyLane] = deque()
        self.turns = 0  # how often it stands in the channel's queue


class CappedLanes(Lanes):
    """Hands out no lane of a partition of which *most* are taken.

    With a key's order a partition stands in the queue as often as it may be taken from, whatever number of keys waits:
    so partitions take turns, and a partition at its cap costs nobody a look at its keys.
    """

    def __init__(self, *, most: int, shared: bool, key_of: KeyOf | None = None, pauses: Pauses | None = None) -> None:
        super().__init__(shared=shared, key_of=key_of, pauses=pauses)
        self._most = most
        self._turns: deque[CappedKeyedLane] = deque()

    def _made(self, tracker: OffsetTracker) -> Lane:
        return Lane(tracker) if self._key_of is None else CappedKeyedLane(tracker, self._key_of)

    def is_full(self, lane: Lane) -> bool:
        return lane.workers >= self._most

    @property
    def has_work(self) -> bool:
        return bool(self._turns or self._ready)

    def take(self) -> Part | None:
        while self._turns:
            whole = self._turns.popleft()
            whole.turns -= 1
            while whole.with_work:
                lane = whole.with_work.popleft()
                lane.queued = False
                if lane.advance():
                    lane.enter()
                    return lane
        return super().take()

    def release(self, lane: Part) -> None:
        if lane.leave():
            self._enqueue(lane)
        whole = lane.partition_lane
        if isinstance(whole, CappedKeyedLane):
            self._give_turn(whole)

    def _enqueue(self, lane: Part) -> None:
        whole = lane.partition_lane
        if isinstance(lane, Lane) or not isinstance(whole, CappedKeyedLane):
            if lane.workers < self._most:
                super()._enqueue(lane)
        elif not lane.queued and not lane.workers and lane.queue and whole.state is OPEN:
            lane.queued = True
            whole.with_work.append(lane)
            self._give_turn(whole)

    def _give_turn(self, whole: CappedKeyedLane) -> None:
        if whole.turns < len(whole.with_work) and whole.turns + whole.workers < self._most:
            whole.turns += 1
            self._turns.append(whole)
