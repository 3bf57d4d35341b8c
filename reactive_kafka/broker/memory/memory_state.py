"""What the in-memory broker holds, shared by its clients and the tests' own face of it, and its
scripted failures.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import inf

from reactive_kafka.broker.client import Written
from reactive_kafka.broker.memory.group import Group
from reactive_kafka.broker.memory.partition_log import PartitionLog
from reactive_kafka.broker.memory.scripted_faults import BrokerFaults
from reactive_kafka.broker.memory.transaction_coordinator import TransactionCoordinator
from reactive_kafka.clock import Clock
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import RecordBytes, TopicPartition
from reactive_kafka.subscription import Subscription


def key_hash(key: bytes) -> int:
    """A number of a key, which says its partition."""
    return zlib.crc32(key)


class Signal:
    """Wakes everybody who waits for something to change."""

    def __init__(self) -> None:
        # Woken in the order in which they came.
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next change."""
        await self.wait_until(inf)

    async def wait_until(self, deadline: float) -> bool:
        """Wait for the next change; False if the loop's time reaches *deadline* first."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            async with asyncio.timeout_at(None if deadline == inf else deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
        return True


class MemoryState:
    """Topics, groups and faults of one in-memory broker; :class:`MemoryBroker` says what its
    changes do.
    """

    def __init__(self, clock: Clock, default_partitions: int, *, auto_create: bool) -> None:
        self.clock = clock
        self.default_partitions = default_partitions
        self.auto_create = auto_create
        self.logs: dict[str, list[PartitionLog]] = {}
        # Topic -> its configs. Clients can read them; the broker does not act on them.
        self.configs: dict[str, dict[str, str]] = {}
        # Of the topics that exist; one that is made anew gets another.
        self.ids: dict[str, str] = {}
        self._numbers = count(1)
        self.groups: dict[str, Group] = {}
        self.transactions = TransactionCoordinator(self)
        self.faults = BrokerFaults()
        self.changed = Signal()

    def use(self, topic: str) -> int:
        """Number of partitions of a topic; one that is not known is created, as Kafka does by
        default, else 0.
        """
        if topic not in self.logs and self.auto_create:
            self.create(topic, self.default_partitions)
        return len(self.logs.get(topic, ()))

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        logs = self.logs.setdefault(topic, [])
        self.configs.setdefault(topic, {}).update(configs or {})
        if topic not in self.ids:
            self.ids[topic] = f"id-{next(self._numbers)}"
        logs.extend(PartitionLog() for _ in range(partitions - len(logs)))
        self._rebalance_readers_of(topic)
        self.changed.notify()

    def delete(self, topic: str) -> None:
        self.logs.pop(topic, None)
        self.ids.pop(topic, None)
        self.configs.pop(topic, None)
        for group in self.groups.values():
            group.positions.forget(topic)
        self._rebalance_readers_of(topic)

    def _rebalance_readers_of(self, topic: str) -> None:
        for group in self.groups.values():
            if any(member.subscription.reads(topic) for member in group.members.values()):
                group.rebalance()

    def partitions_by_topic(self) -> dict[str, list[TopicPartition]]:
        return {
            topic: [TopicPartition(topic, at) for at in range(len(logs))]
            for topic, logs in self.logs.items()
        }

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None where there is no such partition."""
        logs = self.logs.get(partition.topic, ())
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def existing_log(self, partition: TopicPartition) -> PartitionLog:
        """The log of a partition; where there is none yet, TransientBrokerError."""
        if (log := self.log(partition)) is None:
            raise TransientBrokerError(f"{TopicPartition(*partition)} does not exist")
        return log

    def refusals(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerError]:
        """partition -> why no group may store a position of it."""
        refused: dict[TopicPartition, BrokerError] = {}
        for partition in partitions:
            if (error := self.faults.unstorable.get(partition)) is not None:
                refused[partition] = error
            elif self.log(partition) is None:
                refused[partition] = TransientBrokerError("it does not exist")
        return refused

    def led_log(self, partition: TopicPartition) -> PartitionLog:
        """The same, as its leader tells it: TransientBrokerError where that is away, too."""
        if partition in self.faults.leaders_away:
            raise TransientBrokerError(
                f"the leader of {TopicPartition(*partition)} does not answer"
            )
        return self.existing_log(partition)

    def spread(self, topic: str, key: bytes | None, turn: Iterator[int]) -> int:
        """The partition of a record: by its key, else the next in turn."""
        return (next(turn) if key is None else key_hash(key)) % (self.use(topic) or 1)

    def append(self, to: TopicPartition, record: RecordBytes, by: str | None = None) -> Written:
        """Store a record in a partition that exists, *by* a transactional id in its transaction."""
        value, key, headers, timestamp_ms = record
        at = int(self.clock.wall() * 1000) if timestamp_ms is None else timestamp_ms
        stored = self.existing_log(to).append(at, key, value, headers, by)
        self.changed.notify()
        return Written(to, stored.offset)

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(name, self)
        return self.groups[name]

    def sizes(self, read: Sequence[Subscription]) -> dict[str, int]:
        """topic -> number of partitions, of the topics that are read; those read by name are
        created.
        """
        for topic in sorted({topic for one in read for topic in one.topics}):
            self.use(topic)
        return {
            topic: len(self.logs[topic])
            for topic in sorted(self.logs)
            if any(one.reads(topic) for one in read)
        }
