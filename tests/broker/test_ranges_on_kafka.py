"""A consumer of offsets on a real Apache Kafka: the contract, its membership, and that no record
travels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from reactive_kafka import TopicPartition
from reactive_kafka.broker.ranges import RangesConnector
from tests.broker.contract import CommitContract, GroupContract, LogContract, ReadingContract, group
from tests.broker.contract_assignments import PatternContract, StaticContract
from tests.broker.members import fill, joined
from tests.broker.reading_ranges import ReadingConnector
from tests.broker.test_kafka import KafkaTestCluster

__all__ = ["group"]

pytestmark = pytest.mark.kafka


@pytest.fixture
async def cluster(kafka: str) -> AsyncIterator[KafkaTestCluster]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        cluster = KafkaTestCluster(kafka, admin)
        cluster.connector = ReadingConnector(cluster.connector)
        yield cluster
    finally:
        await admin.close()


class TestContract(
    ReadingContract, CommitContract, GroupContract, LogContract, StaticContract, PatternContract
):
    """Read again by their offsets the records are those that any other consumer brings."""


def ranges(cluster: KafkaTestCluster) -> KafkaTestCluster:
    """The same, without the records."""
    assert isinstance(cluster.connector, ReadingConnector)
    cluster.connector = RangesConnector(cluster.connector.inner)
    return cluster


async def test_no_record_is_ever_asked_for(
    cluster: KafkaTestCluster, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await cluster.create_topic(2)
    await fill(cluster, topic, {0: ["x"] * 300, 1: ["x"] * 300})
    caplog.set_level(logging.DEBUG, logger="reactive_kafka.connections")

    def fetches() -> int:
        lines = [
            record.getMessage()
            for record in caplog.records
            if record.name == "reactive_kafka.connections"
        ]
        # Requests are seen at all.
        assert any("ListOffsetsRequest" in line for line in lines)
        return sum("FetchRequest" in line and "OffsetFetch" not in line for line in lines)

    plain = KafkaTestCluster(cluster.bootstrap_servers, cluster._admin)
    async with joined(ranges(cluster), topic, group) as member:
        await member.until_assigned(2)
        assert sum(map(len, (await member.take(600)).values())) == 600
        assert await member.polls_nothing(dict.fromkeys(member.owned, 9), 1.0)
        assert fetches() == 0
    async with joined(plain, topic, group) as member:
        await member.until_assigned(2)
        await member.take(600)
        # It would have been seen.
        assert fetches() > 0


async def test_it_stays_in_its_group_with_nothing_to_hand_out_for_longer_than_the_longest_time_between_polls(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    impatient = {
        "max_poll_interval_ms": 1_000,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,
    }
    loop = asyncio.get_running_loop()
    async with joined(ranges(cluster), topic, group, properties=impatient) as member:
        await member.until_assigned(2)
        joined_with = member.events[:]
        for budgets in ({}, dict.fromkeys(member.owned, 9)):
            until = loop.time() + 2.5
            while loop.time() < until:
                assert (await member.consumer.poll(budgets, 0.5)).chunks == []
        assert member.events == joined_with
        await fill(cluster, topic, {1: ["late"]})
        taken: dict[TopicPartition, Any] = dict(await member.take(1))
        assert taken == {TopicPartition(topic, 1): [0]}
