"""H7: a send, and the producer's stop, that never return. H18: what follows a record that the
broker refuses.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.closing import STOP_DEADLINE_S
from reactive_kafka.broker.client import Producer, WrittenBatch
from reactive_kafka.errors import RejectedRecordError, TransientBrokerError
from reactive_kafka.records import RecordBytes
from tests.broker.hazards.faults import Rig, ends_within, tasks_but
from tests.broker.members import PATIENCE_S, producing
from tests.broker.test_kafka import KafkaTestCluster

SEND_TIMEOUT_S = 1.0
MARGIN_S = 0.5
LIMIT_BYTES = 5000

Send = Callable[[Producer, str, bytes], Awaitable[object]]


async def by_itself(producer: Producer, topic: str, value: bytes) -> int:
    """Send a record; its offset."""
    return (await (await producer.send(topic, value))).offset


async def in_a_batch(producer: Producer, topic: str, value: bytes) -> int:
    """The same, as a batch."""
    return (await producer.write(TopicPartition(topic, 0), [RecordBytes(value)])).offset


both_ways = pytest.mark.parametrize("send", [by_itself, in_a_batch])


async def test_h7_naive_send_and_stop_go_on_past_the_request_timeout(rig: Rig) -> None:
    topic = await rig.create_topic(1)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=rig.bootstrap_servers, enable_idempotence=True, request_timeout_ms=500
    )
    await producer.start()
    await producer.send_and_wait(topic, b"before")
    rig.proxy.hold()
    send = asyncio.ensure_future(producer.send_and_wait(topic, b"x"))
    try:
        assert not await ends_within(send, 2.0)
        stop = asyncio.ensure_future(producer.stop())
        assert not await ends_within(stop, 0.5)
        assert not send.done()
    finally:
        rig.proxy.release()
        await asyncio.wait([send, stop], timeout=10)


@pytest.mark.parametrize(
    "cut", [lambda rig: rig.proxy.hold(), lambda rig: rig.broker.go_down()], ids=["frozen", "gone"]
)
@both_ways
async def test_h7_a_send_has_a_deadline_and_the_next_one_gets_a_new_client(
    rig: Rig, cut: Callable[[Rig], None], send: Send
) -> None:
    topic = await rig.create_topic(1)
    async with producing(rig, {"send_timeout_s": SEND_TIMEOUT_S}) as producer:
        await send(producer, topic, b"before")
        first = client_of(producer)
        cut(rig)
        error, took = await failing(send, producer, topic)
        assert str(error) == f"{topic}: not confirmed within 1 s"
        assert took < SEND_TIMEOUT_S + MARGIN_S
        rig.proxy.release()
        rig.broker.come_up()
        await until_written(send, producer, topic)
        assert client_of(producer) is not first


async def test_h7_a_client_that_hangs_is_replaced_though_whoever_wrote_has_given_up(
    rig: Rig,
) -> None:
    """Row H-3 of the faults."""
    topic = await rig.create_topic(1)
    async with producing(rig, {"send_timeout_s": SEND_TIMEOUT_S}) as producer:
        await in_a_batch(producer, topic, b"before")
        first = client_of(producer)
        rig.proxy.hold()
        for _ in range(2):
            writing = asyncio.ensure_future(in_a_batch(producer, topic, b"x"))
            assert not await ends_within(writing, 0.1)
            writing.cancel()
            await asyncio.wait([writing])
        # It waits for the client to take it over.
        error, _ = await failing(in_a_batch, producer, topic)
        assert "no answer within 1 s" in str(error)
        rig.proxy.release()
        await until_written(in_a_batch, producer, topic)
        assert client_of(producer) is not first


@both_ways
async def test_h7_sends_fail_in_time_again_and_again_while_the_broker_is_frozen(
    rig: Rig, send: Send
) -> None:
    topic = await rig.create_topic(1)
    async with producing(rig, {"send_timeout_s": SEND_TIMEOUT_S}) as producer:
        await send(producer, topic, b"before")
        rig.proxy.hold()
        for _ in range(3):
            _, took = await failing(send, producer, topic)
            assert took < SEND_TIMEOUT_S + MARGIN_S
        rig.proxy.release()
        await until_written(send, producer, topic)


async def test_h7_stop_has_a_deadline_and_leaves_nothing(rig: Rig) -> None:
    topic = await rig.create_topic(1)
    before = asyncio.all_tasks()
    async with producing(rig, {"send_timeout_s": 60.0}) as producer:
        await (await producer.send(topic, b"before"))
        rig.proxy.hold()
        confirmation = await producer.send(topic, b"x")
        began = time.monotonic()
        stop = asyncio.ensure_future(producer.stop())
        assert not await ends_within(stop, 0.1)
        stop.cancel()
        await asyncio.wait([stop])
        # Waits for the one that was cancelled.
        await producer.stop()
        assert time.monotonic() - began < STOP_DEADLINE_S + 3
        assert confirmation.done()
        assert isinstance(confirmation.exception(), TransientBrokerError)
        assert not [task for task in tasks_but(before) if "aiokafka" in repr(task.get_coro())]


async def limited_topic(cluster: KafkaTestCluster) -> str:
    """A topic that takes no batch of more than LIMIT_BYTES."""
    topic = f"limited-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(topic, 2, 1, topic_configs={"max.message.bytes": str(LIMIT_BYTES)})]
        )
    finally:
        await admin.close()
    return topic


@pytest.mark.kafka
async def test_h18_naive_after_a_record_that_was_refused_nothing_is_written_to_its_partition_any_more(
    cluster: KafkaTestCluster,
) -> None:
    topic = await limited_topic(cluster)
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True
    ) as producer:
        await producer.send_and_wait(topic, b"before", partition=0)
        with pytest.raises(kafka_errors.MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 2 * LIMIT_BYTES, partition=0)
        for _ in range(3):
            with pytest.raises(kafka_errors.OutOfOrderSequenceNumber):
                await producer.send_and_wait(topic, b"after", partition=0)
        await producer.send_and_wait(topic, b"after", partition=1)


@pytest.mark.kafka
@both_ways
async def test_h18_after_a_record_that_was_refused_the_next_ones_are_written(
    cluster: KafkaTestCluster, send: Send
) -> None:
    topic = await limited_topic(cluster)
    key_of = TopicPartition(topic, 0)
    async with producing(cluster) as producer:
        await producer.write(key_of, [RecordBytes(b"before")])
        for _ in range(2):
            with pytest.raises(RejectedRecordError, match="MessageSizeTooLarge"):
                await send(producer, topic, b"x" * 2 * LIMIT_BYTES)
            for number in (0, 1):
                await producer.write(TopicPartition(topic, number), [RecordBytes(b"after")])
        assert await producer.write(key_of, [RecordBytes(b"last")]) == (3, 1)


@pytest.mark.kafka
async def test_h18_of_writes_to_one_partition_at_the_same_time_one_that_is_refused_leaves_none_hanging(
    cluster: KafkaTestCluster,
) -> None:
    topic = await limited_topic(cluster)
    to = TopicPartition(topic, 0)
    # Less than the deadline of a send.
    async with producing(cluster) as producer, asyncio.timeout(10):
        await producer.partitions(topic)
        sizes = [10, 2 * LIMIT_BYTES, *[10] * 6]
        writes = [
            asyncio.ensure_future(producer.write(to, [RecordBytes(b"x" * size)])) for size in sizes
        ]
        await asyncio.wait(writes, return_when=asyncio.FIRST_EXCEPTION)
        # With a new client: the old one is closed.
        await producer.write(TopicPartition(topic, 1), [RecordBytes(b"x")])
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
    kinds = [type(one) for one in outcomes]
    assert kinds[:2] == [WrittenBatch, RejectedRecordError]
    assert set(kinds[2:]) <= {WrittenBatch, TransientBrokerError}


@pytest.mark.kafka
async def test_a_topic_that_takes_smaller_batches_gets_them_and_one_record_that_is_too_large_is_refused_alone(
    cluster: KafkaTestCluster,
) -> None:
    topic = await limited_topic(cluster)
    to, large = TopicPartition(topic, 0), RecordBytes(b"x" * 2 * LIMIT_BYTES)
    records = [RecordBytes(f"{number:100}".encode()) for number in range(200)]
    async with producing(cluster) as producer:
        counts = [(await producer.write(to, records)).count]
        # Each refusal costs one.
        learned = client_of(producer)
        while (done := sum(counts)) < 200:
            offset, count = await producer.write(to, records[done:])
            assert offset == done
            counts.append(count)
        assert all(15 <= count <= 50 for count in counts[:-1])
        assert client_of(producer) is learned
        assert await producer.write(to, [*records[:5], large, *records[:5]]) == (200, 5)
        with pytest.raises(RejectedRecordError, match="MessageSizeTooLarge"):
            await producer.write(to, [large, *records[:5]])
        assert await producer.write(to, records[:5]) == (205, 5)


def client_of(producer: Producer) -> Any:
    return producer._clients.client  # type: ignore[attr-defined]


async def failing(send: Send, producer: Producer, topic: str) -> tuple[TransientBrokerError, float]:
    """What a send fails with, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(TransientBrokerError) as caught:
        await send(producer, topic, b"x")
    return caught.value, time.monotonic() - began


async def until_written(send: Send, producer: Producer, topic: str) -> None:
    """Send again and again, as an outgoing channel does, until the broker has it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await send(producer, topic, b"after")
            except TransientBrokerError:
                await asyncio.sleep(0.1)
            else:
                return
