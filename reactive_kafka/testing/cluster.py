"""The broker under a :class:`TestApp`: the interface that TestApp uses, and the one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reactive_kafka.app import App
from reactive_kafka.broker.client import Connector, Written
from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.records import RecordFields, TopicPartition


class Cluster(Protocol):
    """What an application under test runs on: a broker in memory, or a real one."""

    # Seconds between two looks at the offsets of the cluster.
    poll_interval_s: float

    @property
    def connector(self) -> Connector | None:
        """Makes the application's clients. None: the application connects by its settings."""

    async def overrides(self) -> Mapping[str, Any]:
        """Return the settings that make the application use this cluster."""

    async def open(self, app: App) -> None:
        """Prepare for an application that is configured and not started."""

    async def close(self) -> None:
        """Release what `open` took, after the application has stopped."""

    async def write(self, topic: str, record: RecordFields, partition: int | None) -> Written:
        """Write a record."""

    async def ends(self) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition that the application reads or writes.

        Partitions of other topics may be left out.
        """

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of a group."""

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of a group, without awaiting."""

    def records(self, topic: str) -> Sequence[StoredRecord]:
        """Return the records that the test has written, partition by partition.

        Records of transactions are included once they are committed.
        """


class InMemory:
    """A cluster in memory. It is closed at the end unless several tests share it."""

    poll_interval_s = 0.005

    def __init__(self, broker: MemoryBroker, *, is_shared: bool) -> None:
        self.broker = broker
        self._is_shared = is_shared

    @property
    def connector(self) -> Connector:
        return self.broker.connector()

    async def overrides(self) -> Mapping[str, Any]:
        return {}

    async def open(self, app: App) -> None:
        """Do nothing: the broker creates topics at their first use."""

    async def close(self) -> None:
        if not self._is_shared:
            await self.broker.close()

    async def write(self, topic: str, record: RecordFields, partition: int | None) -> Written:
        return self.broker.produce(
            topic, record.value, key=record.key, headers=record.headers, partition=partition
        )

    async def ends(self) -> Mapping[TopicPartition, int]:
        return {partition: self.broker.end(partition) for partition in self._partitions()}

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        return self.committed(group_id)

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        return {
            partition: committed.offset
            for partition, committed in self.broker.committed(group_id).items()
        }

    def records(self, topic: str) -> Sequence[StoredRecord]:
        partitions = (partition for partition in self._partitions() if partition.topic == topic)
        return [
            record for partition in partitions for record in self.broker.committed_log(partition)
        ]

    def _partitions(self) -> list[TopicPartition]:
        topics = self.broker.topics().items()
        return [TopicPartition(topic, number) for topic, count in topics for number in range(count)]
