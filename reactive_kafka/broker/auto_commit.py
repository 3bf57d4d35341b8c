"""``enable_auto_commit``: what polls have handed out is committed from time to time, whether or not it is settled.

It is done here for every client. aiokafka's own would also commit the positions of partitions that have not begun
yet, and would try for ever while the broker is away: in the middle of a rebalance, and at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from reactive_kafka.broker.client import Consumer, RebalanceListener
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tasks import Handle

DEFAULT_INTERVAL_MS = 5_000

logger = logging.getLogger(__name__)


def auto_commit_interval_s(properties: Mapping[str, object]) -> float | None:
    """Seconds between two commits of the client itself; None where it commits nothing."""
    if str(properties.get("enable_auto_commit", False)).lower() != "true":
        return None
    interval_ms = properties.get("auto_commit_interval_ms", DEFAULT_INTERVAL_MS)
    return float(str(interval_ms)) / 1000


class AutoCommit:
    """Commits the positions of a consumer: every interval, at a revocation, and when it is closed.

    It stands between the consumer and its listener.

    Args:
        consumer: Whose positions are committed.
        listener: Is told about rebalances, of a revocation before the commit.
        interval_s: Seconds between two commits.
    """

    def __init__(self, consumer: Consumer, listener: RebalanceListener, interval_s: float) -> None:
        self._consumer = consumer
        self._listener = listener
        self._interval_s = interval_s
        self._generation = 0
        self._stored: dict[TopicPartition, int] = {}
        self._one_at_a_time = asyncio.Lock()
        self._ticking: Handle | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin to commit."""
        self._ticking = Handle(self._tick, "auto-commit", self._failed)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Pass it on, then commit what goes."""
        await self._listener.on_revoked(partitions)
        await self.commit()

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Pass it on."""
        self._generation = generation
        for partition in partitions:  # another member may have committed them meanwhile; those that stayed are ours
            self._stored.pop(partition, None)
        await self._listener.on_assigned(partitions, generation)

    async def commit(self) -> None:
        """One attempt for the positions that have moved; what fails is logged, and sent again at the next one."""
        async with self._one_at_a_time:
            positions = self._consumer.positions()
            moved = {partition: at for partition, at in positions.items() if self._stored.get(partition) != at}
            if not moved:
                return
            offsets = {partition: Committed(at) for partition, at in moved.items()}
            try:
                await self._consumer.commit(offsets, self._generation)
            except BrokerError as error:
                logger.warning("auto commit: %s: %s", type(error).__name__, error)
            else:
                self._stored.update(moved)

    async def close(self) -> None:
        """Commit a last time; nothing of it goes on."""
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            ticking.cancel()
            await asyncio.wait([ticking.task])
            await self.commit()

    def check(self) -> None:
        """Raise what has ended the commits, if anything has: polls ask, or nobody would hear of it."""
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: BaseException) -> None:
        self._failure = error

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.commit()
