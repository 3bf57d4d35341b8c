"""``rate_limit`` of a whole channel: how many records may start, and when."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from math import inf

from reactive_kafka.clock import Clock


class TokenBucket:
    """A bucket of tokens, one for each record that starts. It knows no clock.

    *per_second* tokens flow in, and those of one second fit in, or one token if that is more:
    otherwise nothing would ever start at ``1/h``. So in *t* seconds at most
    ``per_second * t + max(1, per_second)`` single records start.

    A batch starts as a whole. It waits until the bucket is full, and may take more tokens than are
    in it. What comes next waits until those have flowed in again.
    """

    __slots__ = ("_burst", "_missing", "_per_second", "_since")

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second)
        # How many tokens the bucket lacked to be full at the time of ``_since``.
        self._missing = 0.0
        # A time of the monotonic clock.
        self._since = -inf

    @property
    def ready_at(self) -> float:
        """When the next record may start, by the monotonic clock; that may be in the past."""
        return self._since + (self._missing - self._burst + 1) / self._per_second

    @property
    def full_at(self) -> float:
        """When a batch may start as a whole, by the monotonic clock."""
        return self._since + self._missing / self._per_second

    def tokens(self, now: float) -> int:
        """How many records may start *now*."""
        # Rounding must not hide a token that is there.
        return int(self._burst - self._missing_at(now) + 1e-6)

    def take(self, records: int, now: float) -> None:
        """Take the tokens of records that start *now*."""
        self._missing = self._missing_at(now) + records
        self._since = now

    def give_back(self, records: int, now: float) -> None:
        """Put the tokens of records back that have not started after all."""
        self._missing = max(0.0, self._missing_at(now) - records)
        self._since = now

    def _missing_at(self, now: float) -> float:
        return max(0.0, self._missing - (now - self._since) * self._per_second)


class StartLimit:
    """Tells the queue of a channel's lanes whether records may start.

    A record that may not start yet stays in its lane. So no worker and no place is held by it, and
    a stop or a revocation finds a record that no worker has taken.
    """

    def __init__(self, bucket: TokenBucket, clock: Clock, wake: Callable[[], None]) -> None:
        self._bucket = bucket
        self._clock = clock
        # Called when a record may start that a worker has asked for in vain.
        self._wake = wake
        self._timer: TimerHandle | None = None
        # How many batches were taken and have not started.
        self._unstarted_batches = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether no record may start at the moment."""
        return self._bucket.ready_at > self._clock.monotonic()

    def may_start(self) -> bool:
        """Return whether a record may start. If not, ``wake`` is called once one may."""
        ready_at = self._bucket.ready_at
        if ready_at <= self._clock.monotonic():
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(ready_at, self._time_is_up)
        return False

    def _time_is_up(self) -> None:
        self._timer = None
        self._wake()

    def start(self, records: int) -> None:
        """Count records that start now."""
        self._bucket.take(records, self._clock.monotonic())

    def give_back(self, records: int) -> None:
        """Count records no more that were to start, and were skipped."""
        self._bucket.give_back(records, self._clock.monotonic())
        if self._timer is not None:
            # It was set for a time that is too late now.
            self._timer.cancel()
            self._time_is_up()

    @property
    def batch_at(self) -> float:
        """When the next batch may be taken; infinite while another one has not started."""
        return inf if self._unstarted_batches else self._bucket.full_at

    def batch_taken(self) -> Callable[[int], None]:
        """Note that a batch was taken that starts later.

        Returns:
            To be called once with the number of records that start; 0: the batch never starts.
        """
        self._unstarted_batches += 1
        return self._batch_starts

    def _batch_starts(self, records: int) -> None:
        self._unstarted_batches -= 1
        self.start(records)

    def close(self) -> None:
        """Stop waking workers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
