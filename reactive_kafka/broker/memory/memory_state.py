"""The state of one in-memory broker, shared by its clients and by :class:`MemoryBroker`."""

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

TOPIC_ID_LENGTH = 16


def key_hash(key: bytes) -> int:
    """Return a hash of a key, which decides about its partition."""
    return zlib.crc32(key)


class Signal:
    """Wakes everybody who waits for a change, in the order in which they came."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next change."""
        await self.wait_until(inf)

    async def wait_until(self, deadline: float) -> bool:
        """Wait for the next change. False if the loop's time reaches *deadline* first."""
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
    """Topics, groups and faults. :class:`MemoryBroker` documents what the changes do."""

    def __init__(self, clock: Clock, default_partitions: int, *, auto_create: bool) -> None:
        self.clock = clock
        self.default_partitions = default_partitions
        self.auto_create = auto_create
        self.logs: dict[str, list[PartitionLog]] = {}
        # Topic -> its configs. Clients can read them; the broker does not act on them.
        self.configs: dict[str, dict[str, str]] = {}
        # Topic -> its id. A topic that is created again gets another id.
        self.ids: dict[str, str] = {}
        self._numbers = count(1)
        self.groups: dict[str, Group] = {}
        self.transactions = TransactionCoordinator(self)
        self.faults = BrokerFaults()
        self.changed = Signal()

    def use(self, topic: str) -> int:
        """Return a topic's number of partitions. Creates it if that is allowed, else returns 0."""
        if topic not in self.logs and self.auto_create:
            self.create(topic, self.default_partitions)
        return len(self.logs.get(topic, ()))

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        logs = self.logs.setdefault(topic, [])
        self.configs.setdefault(topic, {}).update(configs or {})
        if topic not in self.ids:
            self.ids[topic] = f"id-{next(self._numbers)}"
        logs.extend(PartitionLog() for _ in range(partitions - len(logs)))
        self._topic_changed(topic)
        self.changed.notify()

    def delete(self, topic: str) -> None:
        self.logs.pop(topic, None)
        self.ids.pop(topic, None)
        self.configs.pop(topic, None)
        for group in self.groups.values():
            group.positions.forget(topic)
        self._topic_changed(topic)

    def _topic_changed(self, topic: str) -> None:
        for group in self.groups.values():
            group.topic_changed(topic)

    def topic_ids(self) -> dict[str, tuple[bytes, int]]:
        """Return topic -> its id as Kafka's messages have it, and the number of its partitions."""
        return {
            topic: (self.ids[topic].encode().ljust(TOPIC_ID_LENGTH, b"."), len(logs))
            for topic, logs in self.logs.items()
        }

    def partitions_by_topic(self) -> dict[str, list[TopicPartition]]:
        return {
            topic: [TopicPartition(topic, number) for number in range(len(logs))]
            for topic, logs in self.logs.items()
        }

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if there is no such partition."""
        logs = self.logs.get(partition.topic, ())
        return logs[partition.partition] if 0 <= partition.partition < len(logs) else None

    def existing_log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition. TransientBrokerError: it does not exist (yet)."""
        if (log := self.log(partition)) is None:
            raise TransientBrokerError(f"{TopicPartition(*partition)} does not exist")
        return log

    def refusals(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerError]:
        """Return partition -> why no group may store a position of it."""
        refused: dict[TopicPartition, BrokerError] = {}
        for partition in partitions:
            if (error := self.faults.refused_positions.get(partition)) is not None:
                refused[partition] = error
            elif self.log(partition) is None:
                refused[partition] = TransientBrokerError("it does not exist")
        return refused

    def led_log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log as its leader has it. TransientBrokerError also if the leader is away."""
        if partition in self.faults.leaders_away:
            raise TransientBrokerError(
                f"the leader of {TopicPartition(*partition)} does not answer"
            )
        return self.existing_log(partition)

    def spread(self, topic: str, key: bytes | None, turn: Iterator[int]) -> int:
        """Return the partition of a record: by its key, or the next in turn."""
        return (next(turn) if key is None else key_hash(key)) % (self.use(topic) or 1)

    def append(self, to: TopicPartition, record: RecordBytes, by: str | None = None) -> Written:
        """Store a record in an existing partition. *by*: the transactional id, if it has one."""
        value, key, headers, timestamp_ms = record
        timestamp = int(self.clock.wall() * 1000) if timestamp_ms is None else timestamp_ms
        stored = self.existing_log(to).append(timestamp, key, value, headers, by)
        self.changed.notify()
        return Written(to, stored.offset)

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(name, self)
        return self.groups[name]

    def sizes(self, subscriptions: Sequence[Subscription]) -> dict[str, int]:
        """Return topic -> number of partitions, of topics that are read.

        Creates missing topics that are read by name.
        """
        for topic in sorted(
            {topic for subscription in subscriptions for topic in subscription.topics}
        ):
            self.use(topic)
        return {
            topic: len(self.logs[topic])
            for topic in sorted(self.logs)
            if any(subscription.reads(topic) for subscription in subscriptions)
        }
