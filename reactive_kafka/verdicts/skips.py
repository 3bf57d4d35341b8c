"""Settles records without calling a handler, counts them, and reports them together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Literal

from reactive_kafka.observe.events import RecordsSkipped
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery, is_called_again

SkipReason = Literal["filter", "age", "unmatched", "operator"]

REPORTED_EVERY_S = 10.0
"""For how long, in seconds, skipped records are counted before an event reports the number."""


class Skips:
    """The skipped records of one channel.

    A filter may skip most records: an event for each would cost more than it is worth.

    Args:
        settled: Called with the tracker of each record that was skipped.
        not_started: Called with each record that was taken for a handler, and is skipped instead.
            None: nothing counts the records that start.
    """

    def __init__(
        self,
        channel: ChannelContext,
        settled: Callable[[OffsetTracker], None],
        not_started: Callable[[Delivery], None] | None,
    ) -> None:
        self._channel = channel
        self._settled = settled
        self._not_started = not_started
        # How many records no event has reported yet.
        self._unreported: Counter[SkipReason] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def skip(self, delivery: Delivery, why: SkipReason) -> None:
        """Settle a record that no handler gets, and count it, unless it had its verdict.

        It is called on the loop.
        """
        self.settle(delivery.tracker, delivery.index, why)
        # A record that a handler has had has started.
        if self._not_started is not None and not is_called_again(delivery):
            self._not_started(delivery)

    def settle(self, tracker: OffsetTracker, index: int, why: SkipReason) -> None:
        """Skip the record with this arrival number, as :meth:`skip` does."""
        if not tracker.settle(index):
            return
        # The tracker counts it as settled, and the next count of acks must leave it out.
        tracker.counted += 1
        self.count(tracker.partition, why, 1)
        self._settled(tracker)

    def count(self, partition: TopicPartition, why: SkipReason, records: int) -> None:
        """Count records that were skipped, for the metrics and the next report."""
        skipped = self._channel.totals(partition).skipped
        skipped[why] = skipped.get(why, 0) + records
        self._unreported[why] += records
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORTED_EVERY_S, self.tell)

    def tell(self) -> None:
        """Report what has been counted since the last report."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for why, records in self._unreported.items():
            self._channel.observer.on(
                RecordsSkipped(channel=self._channel.settings.name, why=why, records=records)
            )
        self._unreported.clear()
