"""What an application under test runs on, as its :class:`TestApp` uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reactive_kafka.app import App
from reactive_kafka.broker.client import Connector, Written
from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.records import RecordFields, TopicPartition


class Cluster(Protocol):
    """A broker in memory, or a real one."""

    # How often it may be asked where everything stands.
    look_s: float

    @property
    def connector(self) -> Connector | None:
        """Makes the application's clients; None: its settings say where to."""

    async def overrides(self) -> Mapping[str, Any]:
        """What the application's configuration must say to lead there."""

    async def open(self, app: App) -> None:
        """Make ready for an application, which is configured and not started."""

    async def close(self) -> None:
        """The application has stopped."""

    async def write(self, topic: str, record: RecordFields, partition: int | None) -> Written:
        """Write a record."""

    async def ends(self) -> Mapping[TopicPartition, int]:
        """Where the log of each partition ends that the application reads or writes; others may be
        left out.
        """

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        """What a group has committed."""

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        """The same at once."""

    def records(self, topic: str) -> Sequence[StoredRecord]:
        """What the test has made of a topic, partition by partition; of transactions, what is
        committed.
        """


class InMemory:
    """A broker in memory; closed at the end if it belongs to this test."""

    look_s = 0.005

    def __init__(self, broker: MemoryBroker, *, is_shared: bool) -> None:
        self.broker = broker
        self._is_shared = is_shared

    @property
    def connector(self) -> Connector:
        return self.broker.connector()

    async def overrides(self) -> Mapping[str, Any]:
        return {}

    async def open(self, app: App) -> None:
        """Nothing to do: topics are made when they are used first."""

    async def close(self) -> None:
        if not self._is_shared:
            await self.broker.close()

    async def write(self, topic: str, record: RecordFields, partition: int | None) -> Written:
        key = record.key
        value = record.value
        headers = record.headers
        return self.broker.produce(topic, value, key=key, headers=headers, partition=partition)

    async def ends(self) -> Mapping[TopicPartition, int]:
        return {partition: self.broker.end(partition) for partition in self._partitions()}

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        return self.committed(group_id)

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        return {
            partition: kept.offset for partition, kept in self.broker.committed(group_id).items()
        }

    def records(self, topic: str) -> Sequence[StoredRecord]:
        partitions = (partition for partition in self._partitions() if partition.topic == topic)
        return [
            record for partition in partitions for record in self.broker.committed_log(partition)
        ]

    def _partitions(self) -> list[TopicPartition]:
        topics = self.broker.topics().items()
        return [TopicPartition(topic, number) for topic, count in topics for number in range(count)]
