"""What the in-memory broker holds, shared by its clients and the tests' own face of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from reactive_kafka.broker.memory_faults import Faults
from reactive_kafka.broker.memory_group import Group
from reactive_kafka.broker.memory_log import PartitionLog
from reactive_kafka.clock import Clock
from reactive_kafka.records import TopicPartition


class Signal:
    """Wakes everybody who waits for something to change."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake who waits now."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until(self, deadline: float) -> bool:
        """Wait for the next change; False if the loop's time reaches *deadline* first."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True


class MemoryState:
    """Topics, groups and faults of one in-memory broker."""

    def __init__(self, clock: Clock, default_partitions: int) -> None:
        self.clock = clock
        self.default_partitions = default_partitions
        self.logs: dict[str, list[PartitionLog]] = {}
        self.groups: dict[str, Group] = {}
        self.faults = Faults()
        self.changed = Signal()

    def partitions_of(self, topic: str) -> int:
        """Number of partitions of a topic; one that is not known is created, as Kafka does by default."""
        return len(self._topic(topic))

    def all_partitions(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """The partitions of some topics."""
        return frozenset(
            TopicPartition(topic, number) for topic in topics for number in range(self.partitions_of(topic))
        )

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None where the topic has no such partition."""
        logs = self._topic(partition.topic)
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def group(self, name: str) -> Group:
        """The group of this name, new if there was none."""
        if name not in self.groups:
            self.groups[name] = Group(name, self.partitions_of, self.clock.monotonic, self.changed.notify)
        return self.groups[name]

    def now_ms(self) -> int:
        """The clock's wall time, in milliseconds since the epoch."""
        return int(self.clock.wall() * 1000)

    def _topic(self, topic: str) -> list[PartitionLog]:
        if topic not in self.logs:
            self.logs[topic] = [PartitionLog() for _ in range(self.default_partitions)]
        return self.logs[topic]
