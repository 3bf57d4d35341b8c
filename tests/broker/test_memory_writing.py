"""Batches meet the faults of the in-memory broker as one call, and are stored together or not at
all.
"""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Producer, WrittenBatch
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import RecordBytes
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.members import producing
from tests.broker.test_memory import MemoryCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = [RecordBytes(b"a"), RecordBytes(b"b"), RecordBytes(b"c")]


def cluster_with(partitions: int, *, auto_create: bool = True) -> MemoryCluster:
    cluster = MemoryCluster(MemoryBroker(auto_create=auto_create))
    if partitions:
        cluster.broker.create_topic("t", partitions)
    return cluster


async def failure_of(producer: Producer) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await producer.write(P0, BATCH)
    return caught.value


async def test_a_batch_uses_up_one_fault_and_nothing_of_it_is_stored() -> None:
    cluster = cluster_with(1)
    async with producing(cluster) as producer:
        cluster.broker.fail_next("send", TransientBrokerError("no"), times=2)
        for _ in range(2):
            assert str(await failure_of(producer)) == "no"
            assert cluster.broker.end(P0) == 0
        assert await producer.write(P0, BATCH) == (0, 3)


async def test_of_a_batch_whose_answer_is_lost_everything_is_stored() -> None:
    cluster = cluster_with(1)
    async with producing(cluster) as producer:
        cluster.broker.fail_next("send", OutcomeUnknownError("lost"), stored=True)
        assert isinstance(await failure_of(producer), OutcomeUnknownError)
        assert [record.value for record in cluster.broker.log(P0)] == [b"a", b"b", b"c"]


async def test_a_batch_that_was_held_and_given_up_is_stored_when_it_arrives() -> None:
    before = asyncio.all_tasks()
    cluster = cluster_with(1)
    async with producing(cluster) as producer:
        hold = cluster.broker.hold("send")
        writing = asyncio.ensure_future(producer.write(P0, BATCH))
        await hold.arrived()
        writing.cancel()
        await asyncio.wait([writing])
        assert writing.cancelled()
        assert cluster.broker.end(P0) == 0
        hold.release()
        async with asyncio.timeout(5):
            while not cluster.broker.end(P0):  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert await producer.write(P0, BATCH) == (3, 3)
    await cluster.broker.close()
    assert asyncio.all_tasks() == before


def test_a_batch_that_is_not_answered_fails_in_time() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        cluster.broker.answer_timeout_s = 7
        async with producing(cluster) as producer:
            cluster.broker.hold("send")
            began = clock.monotonic()
            assert isinstance(await failure_of(producer), OutcomeUnknownError)
            assert clock.monotonic() - began == pytest.approx(7)
        await cluster.broker.close()

    run_in_virtual_time(main)


async def test_a_leader_that_is_away_keeps_batches_from_its_partition_alone() -> None:
    cluster = cluster_with(2)
    async with producing(cluster) as producer:
        cluster.broker.leader_away(P0)
        assert isinstance(await failure_of(producer), TransientBrokerError)
        assert await producer.write(P1, BATCH) == (0, 3)
        cluster.broker.leader_back(P0)
        assert await producer.write(P0, BATCH) == (0, 3)


async def test_nothing_is_written_or_told_while_it_is_down_and_nothing_into_a_topic_that_is_away() -> (
    None
):
    cluster = cluster_with(2)
    async with producing(cluster) as producer:
        cluster.broker.down = True
        assert isinstance(await failure_of(producer), TransientBrokerError)
        with pytest.raises(TransientBrokerError):
            await producer.partitions("t")
        cluster.broker.down = False
        cluster.broker.topic_away("t")
        assert await producer.partitions("t") == 2
        assert isinstance(await failure_of(producer), TransientBrokerError)
        cluster.broker.topic_back("t")
        assert await producer.write(P0, BATCH) == WrittenBatch(0, 3)


async def test_a_topic_that_the_broker_does_not_create_is_an_error_until_it_is_there() -> None:
    cluster = cluster_with(0, auto_create=False)
    async with producing(cluster) as producer:
        with pytest.raises(
            FatalBrokerError, match="'t' does not exist, and the broker does not create it"
        ):
            await producer.partitions("t")
        assert isinstance(await failure_of(producer), FatalBrokerError)
        cluster.broker.create_topic("t", 2)
        assert await producer.partitions("t") == 2
        assert await producer.write(P0, BATCH) == (0, 3)
        cluster.broker.delete_topic("t")
        assert producer.known_partitions("t") == 0
