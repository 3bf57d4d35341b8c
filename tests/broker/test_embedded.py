"""The embedded broker passes what one member asks of it."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import BrokerError, FatalBrokerError, MissingExtraError
from tests.broker.contract import CommitContract, ProducingContract, ReadingContract, group
from tests.broker.contract_assignments import (
    AutoCommitContract,
    InspectorContract,
    PatternContract,
    StaticContract,
)
from tests.broker.contract_topic_ids import QuietTopicIdContract
from tests.broker.contract_writing import WritingContract
from tests.broker.members import fill, joined

__all__ = ["group"]


class EmbeddedCluster:
    """The mock cluster under the suite."""

    # The mock lets who joins a group that others have left wait for a session (less one second).
    properties: Mapping[str, object] = {"heartbeat_interval_ms": 200, "session_timeout_ms": 2000}

    def __init__(self, connector: KafkaConnector, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.connector: Connector = connector

    async def create_topic(self, partitions: int, prefix: str = "topic") -> str:
        topic = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self._broker.create_topic(topic, partitions)
        return topic

    async def recreate_topic(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        raise NotImplementedError

    async def produce_and_leave_a_marker(
        self, partition: TopicPartition, values: Collection[bytes]
    ) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def connector() -> Iterator[KafkaConnector]:
    connector = KafkaConnector("embedded")
    connector.bootstrap()
    yield connector
    asyncio.run(connector.close())


@pytest.fixture
def broker(connector: KafkaConnector) -> EmbeddedBroker:
    assert connector.embedded is not None
    return connector.embedded


@pytest.fixture
async def cluster(
    connector: KafkaConnector, broker: EmbeddedBroker
) -> AsyncIterator[EmbeddedCluster]:
    yield EmbeddedCluster(connector, broker)


class TestContract(ReadingContract, CommitContract, ProducingContract):
    """What a lone member needs; the mock cluster cannot share a group among several."""


class TestWriting(WritingContract):
    """Batches."""


class TestTopicIds(QuietTopicIdContract):
    """What it tells of the incarnations of its topics."""


class TestAssignments(StaticContract, PatternContract, AutoCommitContract, InspectorContract):
    """What is read without a group, by a pattern, and what is asked; the mock cluster knows no
    offsets by time.
    """


async def test_a_consumer_joins_its_group_without_the_usual_three_seconds(
    cluster: EmbeddedCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(1, within_s=1.5)


async def test_a_topic_is_created_by_its_first_use_with_four_partitions(
    cluster: EmbeddedCluster, group: str
) -> None:
    topic = f"new-{uuid.uuid4().hex[:8]}"
    await fill(cluster, topic, {3: ["a"]})
    async with joined(cluster, topic, group) as member:
        assert len(await member.until_assigned(4)) == 4


def test_creating_a_topic_twice_is_an_error(broker: EmbeddedBroker) -> None:
    broker.create_topic("twice", 1)
    with pytest.raises(BrokerError, match=r"'twice'.*already exists"):
        broker.create_topic("twice", 1)


async def test_a_closed_broker_is_gone() -> None:
    broker = EmbeddedBroker()
    host, port = broker.bootstrap_servers.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    await writer.wait_closed()
    broker.close()
    broker.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))
    with pytest.raises(BrokerError, match="closed"):
        _ = broker.bootstrap_servers


async def test_it_has_no_transactions_and_does_not_start_to_say_so() -> None:
    connector = KafkaConnector("embedded")
    with pytest.raises(FatalBrokerError, match="the embedded broker has no transactions"):
        connector.transactional_producer(name="test", transactional_id="id", properties={})
    assert connector.embedded is None


def test_without_confluent_kafka_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[embedded\]'"):
        EmbeddedBroker()
