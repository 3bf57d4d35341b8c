"""H19: what is handed over in a transaction, and is no part of it; positions that name no
member.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiokafka
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import RecordBytes
from tests.broker.contract_transactions import reading, transacting
from tests.broker.members import joined, until_committed
from tests.broker.test_kafka import KafkaTestCluster

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def naive_producer(servers: str) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
    own_id = f"naive-{uuid.uuid4().hex[:8]}"
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=own_id
    ) as producer:
        yield producer


async def test_h19_naive_a_batch_of_ones_own_is_seen_though_its_transaction_is_aborted(
    cluster: KafkaTestCluster,
) -> None:
    at = TopicPartition(await cluster.create_topic(1), 0)
    async with (
        naive_producer(cluster.bootstrap_servers) as producer,
        reading(cluster, [at]) as member,
    ):
        await member.until_assigned(1)
        await producer.begin_transaction()
        batch = BatchBuilder(10_000, 0)
        batch.append(timestamp=None, key=None, value=b"aborted", headers=[])
        batch.close()
        await (await producer.send_batch(batch, at.topic, partition=0))
        assert [record.value for record in (await member.take(1))[at]] == [b"aborted"]
        await producer.abort_transaction()


async def test_h19_a_batch_of_ours_is_part_of_its_transaction(cluster: KafkaTestCluster) -> None:
    at = TopicPartition(await cluster.create_topic(1), 0)
    async with (
        transacting(cluster, f"ours-{at.topic}") as producer,
        reading(cluster, [at]) as member,
    ):
        await member.until_assigned(1)
        producer.begin()
        await producer.write(at, [RecordBytes(b"aborted")])
        assert await member.polls_nothing({at: 10})
        await producer.abort()
        producer.begin()
        await producer.write(at, [RecordBytes(b"committed")])
        await producer.commit()
        assert [record.value for record in (await member.take(1))[at]] == [b"committed"]


async def test_h19_naive_positions_of_a_generation_that_is_over_are_stored(
    cluster: KafkaTestCluster,
) -> None:
    at, group = TopicPartition(await cluster.create_topic(1), 0), f"group-{uuid.uuid4().hex[:8]}"
    async with (
        joined(cluster, at.topic, group) as member,
        naive_producer(cluster.bootstrap_servers) as producer,
    ):
        # Whoever had it before has lost it by now.
        await member.until_assigned(1)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({aiokafka.TopicPartition(*at): 7}, group)
        await producer.commit_transaction()
        await until_committed(cluster, group, {at: 7})


async def test_h19_positions_of_a_generation_that_is_over_are_refused(
    cluster: KafkaTestCluster,
) -> None:
    at, group = TopicPartition(await cluster.create_topic(1), 0), f"group-{uuid.uuid4().hex[:8]}"
    async with (
        joined(cluster, at.topic, group) as member,
        transacting(cluster, f"ours-{at.topic}") as producer,
    ):
        await member.until_assigned(1)
        await member.consumer.commit({at: Committed(3)}, member.generation)
        producer.begin()
        transaction = await producer.add_group(group)
        # As if it had not heard of it yet.
        member.consumer.owned.group.member.generation -= 1  # type: ignore[attr-defined]
        with pytest.raises(TransientBrokerError, match="the group may have moved on"):
            await member.consumer.commit_in(transaction, {at: Committed(7)}, member.generation)
        await producer.abort()
        await until_committed(cluster, group, {at: 3})
