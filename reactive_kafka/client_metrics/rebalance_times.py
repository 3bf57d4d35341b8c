"""Times the rebalances of a consumer."""

from __future__ import annotations

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.client_metrics import Latencies
from reactive_kafka.clock import Clock
from reactive_kafka.records import TopicPartition


class TimedRebalances:
    """A listener that passes everything on, and notes how long each rebalance takes.

    A rebalance begins when partitions are taken away, or with the assignment if none are. It ends
    when the new partitions are taken over.
    """

    def __init__(self, inner: RebalanceListener, latencies: Latencies, clock: Clock) -> None:
        self._inner = inner
        self._latencies = latencies
        self._clock = clock
        # None: no rebalance is under way.
        self._began_at: float | None = None

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._begin()
        await self._inner.on_revoked(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        began_at = self._begin()
        await self._inner.on_assigned(partitions, generation)
        self._began_at = None
        self._latencies.note(self._clock.monotonic() - began_at)

    def _begin(self) -> float:
        if self._began_at is None:
            self._began_at = self._clock.monotonic()
        return self._began_at
