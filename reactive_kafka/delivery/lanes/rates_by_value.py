"""``rate_limit = { rate, by }``: a rate for each value of a header, each key or each partition.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from reactive_kafka.delivery.lanes.limits import TokenBucket
from reactive_kafka.records import RawRecord, TopicPartition

ValueOf = Callable[[TopicPartition, RawRecord], Hashable]
"""Returns what the rate of a record goes by. It never raises."""

FIRST_SWEEP_AT = 64
"""Full buckets are first forgotten when there are so many buckets."""


class BucketsByValue:
    """The token buckets of a channel, one for each value of which a record has started lately.

    A full bucket says no more than none, so full ones are forgotten: each time when there are
    twice as many buckets as after the last time.
    """

    def __init__(self, per_second: float, value_of: ValueOf) -> None:
        self.per_second = per_second
        self.value_of = value_of
        self._buckets: dict[Hashable, TokenBucket] = {}
        self._sweep_at = FIRST_SWEEP_AT

    def __len__(self) -> int:
        return len(self._buckets)

    def ready_at(self, value: Hashable) -> float:
        """When a record of a value may start, by the monotonic clock; that may be in the past."""
        return self._of(value).ready_at

    def tokens(self, value: Hashable, now: float) -> int:
        """How many records of a value may start *now*."""
        return self._of(value).tokens(now)

    def take(self, value: Hashable, now: float) -> None:
        """Note that a record of a value starts *now*."""
        bucket = self._of(value)
        bucket.take(1, now)
        self._buckets[value] = bucket
        if len(self._buckets) >= self._sweep_at:
            self._forget_full(now)

    def give_back(self, value: Hashable, now: float) -> None:
        """Note that a record of a value has not started after all."""
        bucket = self._buckets.get(value)
        if bucket is not None:
            bucket.give_back(1, now)

    def _of(self, value: Hashable) -> TokenBucket:
        return self._buckets.get(value) or TokenBucket(self.per_second)

    def _forget_full(self, now: float) -> None:
        full = [value for value, bucket in self._buckets.items() if bucket.full_at <= now]
        for value in full:
            del self._buckets[value]
        self._sweep_at = max(FIRST_SWEEP_AT, 2 * len(self._buckets))
