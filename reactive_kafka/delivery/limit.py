"""``rate_limit``: how many records may start when, and the lanes that keep to it."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from math import inf
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lane import Lane, Slice
from reactive_kafka.delivery.lanes import CappedLanes, Lanes


class Bucket:
    """A bucket of tokens, one for each record that starts: *per_second* flow in, as many as one
    second's fit in. Pure.

    It holds one token at least, or nothing would ever start at ``1/h``. So in any *t* seconds at
    most ``per_second * t + max(1, per_second)`` single records start. What starts as a whole waits
    until the bucket is full, and may take more than is in it: what comes next waits until that has
    flowed in again.
    """

    __slots__ = ("_burst", "_missing", "_per_second", "_since")

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second)
        # Tokens that it lacked to be full, at.
        self._missing = 0.0
        # By the monotonic clock.
        self._since = -inf

    @property
    def ready_at(self) -> float:
        """When the next record may start, by the monotonic clock; it may have passed."""
        return self._since + (self._missing - self._burst + 1) / self._per_second

    @property
    def full_at(self) -> float:
        """When what starts as a whole may do so."""
        return self._since + self._missing / self._per_second

    def take(self, records: int, now: float) -> None:
        """So many records start *now*."""
        self._missing = max(0.0, self._missing - (now - self._since) * self._per_second) + records
        self._since = now


class LimitedLanes(Lanes):
    """Lanes out of which no record is given before it may start: where none may, there is nothing
    to take.

    So nobody waits who has a record or a place, and a stop or a revocation finds records that
    nobody has taken.
    """

    is_limited = True

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        wake: Callable[[], None],
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self._bucket = bucket
        self._clock = clock
        # Called when records that were asked for may start.
        self._wake = wake
        self._timer: TimerHandle | None = None
        # How many were taken as a whole, and have not started.
        self._to_start = 0

    def take(self) -> Lane | None:
        """As of all lanes; of what it gives one record is to be started, and only that."""
        if not self.ready or self._is_early():
            return None
        lane = super().take()
        if lane is not None:
            self._started(1)
        return lane

    def _is_early(self) -> bool:
        """Whether no record may start yet; if so, somebody is woken when one may."""
        at = self._bucket.ready_at
        if at <= self._clock.monotonic():
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(at, self._may_start)
        return True

    def _may_start(self) -> None:
        self._timer = None
        self._wake()

    @property
    def whole_at(self) -> float:
        return inf if self._to_start else self._bucket.full_at

    def whole_taken(self) -> Callable[[int], None]:
        self._to_start += 1
        return self._whole_starts

    def _whole_starts(self, records: int) -> None:
        self._to_start -= 1
        self._started(records)

    def _started(self, records: int) -> None:
        self._bucket.take(records, self._clock.monotonic())

    def batch_due(self, max_records: int, max_wait_s: float) -> float | None:
        due = super().batch_due(max_records, max_wait_s)
        return None if due is None else max(due, self.whole_at)

    def take_batch(self, max_records: int) -> list[Slice]:
        batch = super().take_batch(max_records)
        self._started(sum(len(part.records) for part in batch))
        return batch

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def holds_back(self) -> bool:
        return bool(self.ready) and self._bucket.ready_at > self._clock.monotonic()


class LimitedCappedLanes(LimitedLanes, CappedLanes):
    """Lanes that keep to both."""
