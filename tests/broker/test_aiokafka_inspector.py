"""Looking at a cluster from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.client import Inspector
from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.subscription import Topics
from tests.broker.members import Member


@pytest.fixture
def embedded() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 3)
        yield broker.bootstrap_servers


@asynccontextmanager
async def inspecting(servers: str) -> AsyncIterator[Inspector]:
    inspector = KafkaConnector(servers).inspector(
        properties={"group_id": "passed over", "session_timeout_ms": 6000}
    )
    await inspector.start()
    try:
        yield inspector
    finally:
        await inspector.stop()


@asynccontextmanager
async def member_of(servers: str, group: str, topic: str, partitions: int) -> AsyncIterator[Member]:
    consumer = KafkaConnector(servers).consumer(
        name="one", subscription=Topics((topic,)), group_id=group, properties={}
    )
    member = Member(consumer)
    try:
        await consumer.start(member)
        await member.until_assigned(partitions)
        yield member
    finally:
        await consumer.stop()


async def test_the_embedded_broker_tells_topics_ends_and_positions(embedded: str) -> None:
    async with (
        inspecting(embedded) as inspector,
        member_of(embedded, "billing", "orders", 3) as member,
    ):
        first, second, third = partitions = [
            TopicPartition("orders", number) for number in range(3)
        ]
        assert await inspector.topics() == {"orders": partitions}
        assert await inspector.end_offsets([first, third]) == {first: 0, third: 0}
        assert await inspector.committed("billing") == {}
        await member.consumer.commit({second: Committed(0, "note")}, member.generation)
        assert await inspector.committed("billing") == {second: Committed(0, "note")}
        assert await inspector.committed("billing", [first]) == {}
        assert (await inspector.describe_group("billing")).state is None


async def test_nothing_is_asked_for_no_partitions(embedded: str) -> None:
    async with inspecting(embedded) as inspector:
        assert await inspector.end_offsets([]) == {}
        assert await inspector.committed("billing", []) == {}


@pytest.mark.kafka
async def test_kafka_tells_a_group_that_has_members_or_positions_from_one_that_has_not(
    kafka: str,
) -> None:
    topic = group = f"inspected-{uuid4().hex[:8]}"
    async with inspecting(kafka) as inspector:
        await inspector.create_topic(topic, 2)
        assert [partition.partition for partition in (await inspector.topics())[topic]] == [0, 1]
        assert (await inspector.describe_group(group)).exists is False
        async with member_of(kafka, group, topic, 2) as member:
            assert (await inspector.describe_group(group)).exists is True
            position = {TopicPartition(topic, 1): Committed(0, "note")}
            await member.consumer.commit(position, member.generation)
        assert (await inspector.describe_group(group)).exists is True
        assert await inspector.committed(group) == position


@pytest.mark.kafka
async def test_a_topic_that_exists_is_refused(kafka: str) -> None:
    topic = f"inspected-{uuid4().hex[:8]}"
    async with inspecting(kafka) as inspector:
        await inspector.create_topic(topic, 1)
        with pytest.raises(BrokerError, match="already exists"):
            await inspector.create_topic(topic, 1)


async def test_no_broker_is_an_error_that_names_it_and_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    inspector = KafkaConnector("127.0.0.1:1").inspector(properties={})
    with pytest.raises(TransientBrokerError, match=r"127\.0\.0\.1:1"):
        await inspector.start()
    assert asyncio.all_tasks() == before


async def test_asking_before_the_start_is_an_error() -> None:
    with pytest.raises(BrokerError, match="not started"):
        await KafkaConnector("127.0.0.1:1").inspector(properties={}).topics()


async def test_a_broker_that_tells_no_configs_is_no_error(embedded: str) -> None:
    async with inspecting(embedded) as inspector:
        assert await inspector.topic_configs(["orders"], ["retention.ms"]) == {}
