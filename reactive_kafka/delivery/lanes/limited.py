"""Lanes in which each value of the records has a rate, and when held records may start."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count

from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lanes.keyed import KeyedLane, SoleWorker
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.lanes.rates_by_value import BucketsByValue
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker


class ValueLimit:
    """Tells the lanes of one session which records may start, and when those held back may.

    Records of one value start in the order in which they were held back, whatever their lanes.

    Args:
        offer: Puts a lane into the queue of those that have work.
        wake: Has workers look for work.
    """

    def __init__(
        self,
        buckets: BucketsByValue,
        clock: Clock,
        offer: Callable[[LimitedLane], None],
        wake: Callable[[], None],
    ) -> None:
        self._buckets = buckets
        self._clock = clock
        self._offer = offer
        self._wake = wake
        self.value_of = buckets.value_of
        # Value -> where its records are held back, the next one first.
        self._held: dict[Hashable, deque[tuple[LimitedLane, Hashable]]] = {}
        # When records of a held value may start. Of a value the entry with the number that
        # ``_current`` has counts, and earlier ones do not.
        self._times: list[tuple[float, int, Hashable]] = []
        self._current: dict[Hashable, int] = {}
        self._numbers = count()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def holds(self) -> bool:
        """Whether records are held back."""
        return bool(self._held)

    def may_start(self, value: Hashable, *, is_called: bool) -> bool:
        """Return whether a record may start.

        Args:
            is_called: It was held back, and is the next of its value. Others wait behind those
                that are held back.
        """
        if value in self._held and not is_called:
            return False
        return self._buckets.ready_at(value) <= self._clock.monotonic()

    def start(self, value: Hashable) -> None:
        """Count a record that starts now."""
        self._buckets.take(value, self._clock.monotonic())

    def give_back(self, value: Hashable) -> None:
        """Count a record no more that was to start, and was skipped: another one may start."""
        now = self._clock.monotonic()
        self._buckets.give_back(value, now)
        if value in self._held:
            self._call_at(max(now, self._buckets.ready_at(value)), value)

    def hold_back(
        self, value: Hashable, lane: LimitedLane, key: Hashable, *, is_next: bool
    ) -> None:
        """Have a lane called with *key* when the next record of it may start.

        Args:
            is_next: It comes before the others of its value.
        """
        held = self._held.get(value)
        if held is None:
            held = self._held[value] = deque()
            self._call_at(self._buckets.ready_at(value), value)
        if is_next:
            held.appendleft((lane, key))
        else:
            held.append((lane, key))

    def _call_at(self, at: float, value: Hashable) -> None:
        number = next(self._numbers)
        self._current[value] = number
        heappush(self._times, (at, number, value))
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._times:
            return
        at = self._times[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._time_is_up)
        self._timer_at = at

    def _time_is_up(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._times and self._times[0][0] <= now:
            _, number, value = heappop(self._times)
            if self._current.get(value) == number:
                self._call(value, now)
        self._set_timer()
        self._wake()

    def _call(self, value: Hashable, now: float) -> None:
        """Call as many records of a value as may start now."""
        held = self._held[value]
        tokens = max(1, self._buckets.tokens(value, now))
        while held and tokens:
            lane, key = held.popleft()
            if lane.call(key):
                self._offer(lane)
                tokens -= 1
        if held:
            # Those that were called take their tokens later, or never if their lanes are paused.
            self._call_at(now + 1 / self._buckets.per_second, value)
        else:
            del self._held[value]
            del self._current[value]

    def close(self) -> None:
        """Call nothing any more."""
        self._held.clear()
        self._current.clear()
        self._times.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LimitedLane(KeyedLane):
    """The queued records of one partition, which start no faster than the rates of their values.

    A record that may not start yet keeps its key *busy*, as one that runs does. So those of its
    key wait behind it, and others may start. Where the order is by partition all records have the
    same key; without an order each record has its own.
    """

    __slots__ = ("_called", "_held", "_limit")

    def __init__(self, tracker: OffsetTracker, key_of: KeyOf, limit: ValueLimit) -> None:
        super().__init__(tracker, key_of)
        self._limit = limit
        # Busy keys whose next record is held back.
        self._held: set[Hashable] = set()
        # Keys whose next record was held back, and may start now.
        self._called: set[Hashable] = set()

    def begin_alone(self, worker: SoleWorker) -> bool:
        """Return False: each record is looked at before it starts."""
        return False

    def find(self) -> bool:
        """Return whether a record may start; hold back those on the way that may not."""
        found = self._next_startable()
        if found is None:
            return False
        key, index, record = found
        self.put_back(record, index, key)
        self.freed.appendleft(key)
        return True

    def next_record(self) -> tuple[Hashable, int, RawRecord] | None:
        """Take the next record that may start, which counts against the rate of its value."""
        found = self._next_startable()
        if found is not None:
            key, _, record = found
            self._called.discard(key)
            self._limit.start(self._limit.value_of(self.tracker.partition, record))
        return found

    def _next_startable(self) -> tuple[Hashable, int, RawRecord] | None:
        while (found := super().next_record()) is not None:
            key, index, record = found
            value = self._limit.value_of(self.tracker.partition, record)
            is_called = key in self._called
            if self._limit.may_start(value, is_called=is_called):
                return found
            self._called.discard(key)
            self.put_back(record, index, key)
            self._held.add(key)
            self._limit.hold_back(value, self, key, is_next=is_called)
        return None

    def call(self, key: Hashable) -> bool:
        """Let the next record of a key start; False if none is held back with it any more."""
        if key not in self._held:
            return False
        self._held.discard(key)
        self._called.add(key)
        self.freed.append(key)
        return True

    def _remove_from_key(self, key: Hashable, place: int) -> None:
        super()._remove_from_key(key, place)
        if key in self._held and not self.busy[key]:
            # Nothing of the key runs or waits any more.
            self._held.discard(key)
            del self.busy[key]
        if key not in self.busy:
            # The next record of the key was not held back.
            self._called.discard(key)

    def clear(self) -> None:
        """As in every lane; also forget what was held back."""
        super().clear()
        self._held.clear()
        self._called.clear()
