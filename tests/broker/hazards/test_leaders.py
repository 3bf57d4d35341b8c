"""H15: a partition without a leader, of a deleted topic for one, is looked up thousands of times a
second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from reactive_kafka import TopicPartition
from tests.broker.hazards.faults import until
from tests.broker.members import fill, joined
from tests.broker.test_kafka import KafkaTestCluster
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

WATCHED_S = 2.0
QUICKLY = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000, "metadata_max_age_ms": 300}


class Lookups:
    """Counts how often a client gets metadata."""

    def __init__(self, client: Any) -> None:
        self.count = 0
        client.cluster.add_listener(self._counted)

    def _counted(self, cluster: Any) -> None:
        self.count += 1

    async def within(self, seconds: float) -> int:
        """How many in the next so many seconds."""
        before = self.count
        await asyncio.sleep(seconds)
        return self.count - before


# Aiokafka is untyped.
@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A Kafka that creates no topic by itself: one that is deleted stays away."""
    with KafkaCluster(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
async def cluster(bare: str) -> AsyncIterator[KafkaTestCluster]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bare)
    await admin.start()
    try:
        yield KafkaTestCluster(bare, admin)
    finally:
        await admin.close()


@asynccontextmanager
async def admin_of(cluster: KafkaTestCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def test_h15_a_topic_deleted_under_work_is_looked_up_now_and_then(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    await fill(cluster, topic, {0: "abcde"})
    cluster.properties = QUICKLY
    async with admin_of(cluster) as admin, joined(cluster, topic, group) as member:
        await member.until_assigned(2)
        await member.take(5)

        async def drains() -> None:
            await asyncio.sleep(WATCHED_S + 2)

        member.while_revoked = drains
        await admin.delete_topics([topic])
        await member.until(lambda: member.events[-1][0] == "revoking")
        client: Any = member.consumer._client  # type: ignore[attr-defined]
        assert await Lookups(client).within(WATCHED_S) < 10 * WATCHED_S


async def test_h15_a_partition_that_does_not_exist_is_looked_up_now_and_then_and_read_when_it_does(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    cluster.properties = QUICKLY
    async with admin_of(cluster) as admin:
        missing = TopicPartition(topic, 1)
        async with joined(
            cluster, None, group, partitions=[missing], starts_by_itself=False
        ) as member:
            await member.until_assigned(1)
            member.consumer.start_at({missing: 0})
            client: Any = member.consumer._client  # type: ignore[attr-defined]
            assert await Lookups(client).within(WATCHED_S) < 10 * WATCHED_S
            await admin.create_partitions({topic: aiokafka.admin.NewPartitions(2)})
            await fill(cluster, topic, {1: "abc"})
            taken = await member.take(3)
            assert len(taken[missing]) == 3


async def test_h15_what_the_client_says_of_it_is_one_line_a_second(
    cluster: KafkaTestCluster, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await cluster.create_topic(1)
    cluster.properties = QUICKLY
    async with admin_of(cluster) as admin, joined(cluster, topic, group) as member:
        await member.until_assigned(1)
        await admin.delete_topics([topic])
        await member.until(lambda: not member.owned)
        caplog.clear()
        await asyncio.sleep(WATCHED_S)
        assert (
            len([record for record in caplog.records if record.levelno >= logging.WARNING])
            <= WATCHED_S + 1
        )


async def test_h15_a_leader_that_has_moved_is_looked_up_at_once(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(1)
        consumer: Any = member.consumer
        await asyncio.sleep(1.5)
        lookups = Lookups(consumer.client)
        # As an answer does that says so.
        consumer.fetcher._metadata.are_needed = True
        consumer.fetcher.changed()
        await until(lambda: lookups.count == 1, "it asks", 0.3)
