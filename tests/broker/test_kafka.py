"""A real Apache Kafka, through aiokafka, passes the contract."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.metadata import MetadataRequest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.records import RecordBytes
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
from tests.broker.members import PATIENCE_S, inspecting, joined, producing
from tests.harness.kafka import KafkaCluster

__all__ = ["group"]

pytestmark = pytest.mark.kafka


class KafkaTestCluster:
    """A real Kafka under the suite."""

    # A member hears of a rebalance with its next heartbeat.
    properties: Mapping[str, object] = {
        "group_protocol": "classic",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
    }

    def __init__(self, bootstrap_servers: str, admin: AIOKafkaAdminClient) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.connector: Connector = KafkaConnector(bootstrap_servers)
        self._admin = admin

    async def create_topic(self, partitions: int, prefix: str = "topic") -> str:
        topic = f"{prefix}-{uuid.uuid4().hex[:8]}"
        await self._admin.create_topics([NewTopic(topic, partitions, 1)])
        async with asyncio.timeout(PATIENCE_S):
            for node in [broker.nodeId for broker in self._admin._client.cluster.brokers()]:
                # Nobody tells.
                while not await self._is_known(topic, node):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        return topic

    async def _is_known(self, topic: str, node: int) -> bool:
        """Whether a node knows of all partitions; the others hear of them after the one that has
        made them.
        """
        answer = await self._admin._client.send(node, MetadataRequest([topic], False))
        [(error, _, _, partitions)] = answer.topics
        return not error and all(leader >= 0 for _, _, leader, *_ in partitions)

    async def grow(self, topic: str, partitions: int) -> None:
        await self._admin.create_partitions({topic: NewPartitions(partitions)})

    async def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        await self._admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)]
        )

    async def delete_topic(self, topic: str) -> None:
        await self._admin.delete_topics([topic])

    async def recreate_topic(self, topic: str, partitions: int) -> None:
        await self.delete_topic(topic)
        answer = await self._admin.create_topics([NewTopic(topic, partitions, 1)])
        # A member that asked for it was faster: the broker has made it.
        assert answer.topic_errors[0][1] in (0, 36)

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        await self._admin.delete_records(
            {aiokafka.TopicPartition(*partition): RecordsToDelete(before)}
        )

    async def produce_and_leave_a_marker(
        self, partition: TopicPartition, values: Collection[bytes]
    ) -> None:
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


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """``host:port`` of a Kafka that creates no topics by itself."""
    with KafkaCluster(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka.bootstrap_servers


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


async def test_a_send_to_a_topic_that_can_never_be_is_refused(cluster: KafkaTestCluster) -> None:
    async with producing(cluster, {"send_timeout_s": 1}) as producer:
        with pytest.raises(RejectedRecordError, match="'no topic!': no topic can be called so"):
            await (await producer.send("no topic!", b"x"))
        topic = await cluster.create_topic(1)
        assert (await (await producer.send(topic, b"x"))).offset == 0


async def test_a_pattern_goes_on_with_others_while_a_deleted_topic_is_asked_for(
    cluster: KafkaTestCluster, group: str
) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    kept = TopicPartition(await cluster.create_topic(1, prefix), 0)
    deleted = TopicPartition(await cluster.create_topic(1, prefix), 0)
    # The member hears of the deletion only from the leader that it asks.
    properties = {"metadata_max_age_ms": 3_600_000}
    async with joined(
        cluster, None, group, pattern=f"{prefix}-.*", properties=properties
    ) as member:
        await member.until_assigned(2)
        member.consumer.pause([deleted])
        await cluster.delete_topic(deleted.topic)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(TransientBrokerError, match=f"no such partition: {deleted}"):
                while True:
                    await member.consumer.end_offsets([deleted])
        assert await member.until_assigned(1) == {kept}
        async with producing(cluster) as producer:
            await (await producer.send(kept.topic, b"x", partition=0))
        taken = await member.take(1)
        assert taken.keys() == {kept}
    async with inspecting(cluster) as inspector:
        assert deleted.topic not in await inspector.topics()


async def test_a_topic_deleted_under_a_producer_is_an_error_in_time_and_written_to_once_it_is_back(
    bare: str,
) -> None:
    unhandled: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: unhandled.append(context)
    )
    admin = AIOKafkaAdminClient(bootstrap_servers=bare)
    await admin.start()
    cluster = KafkaTestCluster(bare, admin)
    try:
        async with (
            inspecting(cluster) as inspector,
            producing(cluster, {"send_timeout_s": 1}) as producer,
        ):
            await inspector.create_topic("letters", 1)
            await (await producer.send("letters", b"x"))
            await admin.delete_topics(["letters"])
            while "letters" in await inspector.topics():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            with pytest.raises(
                BrokerError, match=r"not confirmed within 1 s|'letters' does not exist"
            ):
                # The client may know of the topic, or not any more.
                await (await producer.send("letters", b"y"))
            with pytest.raises(FatalBrokerError, match="'letters' does not exist"):
                await (await producer.send("letters", b"y"))
            await inspector.create_topic("letters", 1)
            # Perhaps not the first: a failed one may land, too.
            await (await producer.send("letters", b"z"))
    finally:
        await admin.close()
    # An error that nobody has looked at is told when it goes.
    gc.collect()
    assert unhandled == []


async def test_a_batch_for_a_topic_that_the_broker_does_not_create_is_an_error_that_says_so(
    bare: str,
) -> None:
    missing = "topic 'notes' does not exist, and the broker does not create it"
    cluster = KafkaTestCluster(bare, AIOKafkaAdminClient(bootstrap_servers=bare))
    async with (
        inspecting(cluster) as inspector,
        producing(cluster, {"send_timeout_s": 1}) as producer,
    ):
        with pytest.raises(FatalBrokerError, match=missing):
            await producer.partitions("notes")
        with pytest.raises(FatalBrokerError, match=missing):
            await producer.write(TopicPartition("notes", 0), [RecordBytes(b"x")])
        assert producer.known_partitions("notes") == 0
        await inspector.create_topic("notes", 2)
        assert await producer.partitions("notes") == 2
        assert await producer.write(TopicPartition("notes", 1), [RecordBytes(b"x")]) == (0, 1)


async def test_without_acks_nobody_is_told_an_offset(cluster: KafkaTestCluster) -> None:
    topic = await cluster.create_topic(1)
    async with producing(cluster, {"acks": 0}) as producer, asyncio.timeout(5):
        assert await (await producer.send(topic, b"x")) == (TopicPartition(topic, -1), -1)
        assert await producer.write(TopicPartition(topic, 0), [RecordBytes(b"x")] * 2) == (-1, 2)
    async with inspecting(cluster) as inspector:
        to = TopicPartition(topic, 0)
        assert await inspector.end_offsets([to]) == {to: 3}
