"""Records that are settled without a call of a handler: counted one by one, and told together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Literal

from reactive_kafka.observe.events import RecordsSkipped
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.nack import VerdictParts

SkipReason = Literal["filter", "age", "unmatched"]

TOLD_EVERY_S = 10.0
"""How long skipped records are counted before an event tells how many they are."""


class Skips:
    """Those of one channel. A filter may skip most records, so that an event for each would cost
    more than it says.
    """

    def __init__(self, parts: VerdictParts, settled: Callable[[OffsetTracker], None]) -> None:
        self._parts = parts
        # Told of each.
        self._settled = settled
        self._untold: Counter[SkipReason] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def skip(self, delivery: Delivery, why: SkipReason) -> None:
        """No handler is called for a record: settle it, and count that, unless it had its verdict.
        On the loop.
        """
        tracker = delivery.tracker
        if not tracker.settle(delivery.index):
            return
        # So that it is none of the acks that are new.
        tracker.counted += 1
        skipped = self._parts.totals(delivery.topic_partition).skipped
        skipped[why] = skipped.get(why, 0) + 1
        self._untold[why] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOLD_EVERY_S, self.tell)
        self._settled(tracker)

    def tell(self) -> None:
        """Tell what has been counted since the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for why, records in self._untold.items():
            self._parts.observer.on(
                RecordsSkipped(channel=self._parts.settings.name, why=why, records=records)
            )
        self._untold.clear()
