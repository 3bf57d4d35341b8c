"""The in-memory broker passes the contract, and fails where a test tells it to."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Connector
from reactive_kafka.testing import MemoryBroker
from tests.broker.contract import (
    CommitContract,
    EagerGroupContract,
    LogContract,
    ProducingContract,
    ReadingContract,
    group,
)
from tests.broker.contract_assignments import (
    AutoCommitContract,
    EagerPatternContract,
    InspectorContract,
    SharedGroupContract,
    StaticContract,
    TimesContract,
    WholeTopicContract,
)
from tests.broker.contract_topic_ids import TopicIdContract
from tests.broker.contract_transactions import (
    FencingContract,
    PositionsContract,
    TransactionContract,
)
from tests.broker.contract_writing import WritingContract

__all__ = ["group"]


class MemoryCluster:
    """The in-memory broker under the suite."""

    properties: Mapping[str, object] = {}

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.connector: Connector = broker.connector()

    async def create_topic(self, partitions: int, prefix: str = "topic") -> str:
        topic = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.broker.create_topic(topic, partitions)
        return topic

    async def grow(self, topic: str, partitions: int) -> None:
        self.broker.create_topic(topic, partitions)

    async def recreate_topic(self, topic: str, partitions: int) -> None:
        self.broker.delete_topic(topic)
        self.broker.create_topic(topic, partitions)

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        self.broker.delete_records(partition, before)

    async def produce_and_leave_a_marker(
        self, partition: TopicPartition, values: Collection[bytes]
    ) -> None:
        for value in values:
            self.broker.produce(partition.topic, value, partition=partition.partition)
        self.broker.append_markers(partition)


@pytest.fixture
async def cluster(memory_broker: MemoryBroker) -> AsyncIterator[MemoryCluster]:
    yield MemoryCluster(memory_broker)
    await memory_broker.close()


class TestContract(
    ReadingContract, CommitContract, ProducingContract, EagerGroupContract, LogContract
):
    """One group, one topic."""


class TestWriting(WritingContract):
    """Batches."""


class TestTopicIds(TopicIdContract):
    """What the broker tells of the incarnations of its topics."""


class TestTransactions(TransactionContract, FencingContract, PositionsContract):
    """Records and positions that are there together, or not at all."""


class TestAssignments(
    StaticContract,
    WholeTopicContract,
    EagerPatternContract,
    TimesContract,
    AutoCommitContract,
    SharedGroupContract,
    InspectorContract,
):
    """What is read without a group, by a pattern, and what is asked."""
