"""A real Apache Kafka, through aiokafka, passes the contract."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection, Mapping

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from reactive_kafka.broker.aiokafka_client import AiokafkaConnector
from reactive_kafka.broker.client import Connector
from reactive_kafka.records import TopicPartition
from tests.broker.contract import CommitContract, GroupContract, LogContract, ProducingContract, ReadingContract, group

__all__ = ["group"]

pytestmark = pytest.mark.kafka


class KafkaTestCluster:
    """A real Kafka under the suite."""

    # A member hears of a rebalance with its next heartbeat.
    properties: Mapping[str, object] = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000}

    def __init__(self, bootstrap_servers: str, admin: AIOKafkaAdminClient) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.connector: Connector = AiokafkaConnector(bootstrap_servers)
        self._admin = admin

    async def create_topic(self, partitions: int) -> str:
        topic = f"topic-{uuid.uuid4().hex[:8]}"
        await self._admin.create_topics([NewTopic(topic, partitions, 1)])
        return topic

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        await self._admin.delete_records({aiokafka.TopicPartition(*partition): RecordsToDelete(before)})

    async def produce_and_leave_a_marker(self, partition: TopicPartition, values: Collection[bytes]) -> None:
        transactional_id = f"test-{uuid.uuid4().hex[:8]}"
        async with (
            aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap_servers, transactional_id=transactional_id
            ) as producer,
            producer.transaction(),
        ):
            for value in values:
                await producer.send_and_wait(partition.topic, value, partition=partition.partition)


@pytest.fixture
async def cluster(kafka: str) -> AsyncIterator[KafkaTestCluster]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        yield KafkaTestCluster(kafka, admin)
    finally:
        await admin.close()


class TestContract(ReadingContract, CommitContract, ProducingContract, GroupContract, LogContract):
    """The whole suite."""
