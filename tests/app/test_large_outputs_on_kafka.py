"""Exactly once on a real Kafka: outputs that are too large for their topic, together or alone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from reactive_kafka import App, Batch, Message, Record, TopicPartition
from reactive_kafka.events import RecordIgnored, TransactionAborted
from tests.app.helpers import Recorder
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka

LIMIT_BYTES = 3_000
"""The largest batch that the outgoing topic takes."""


class Topics(NamedTuple):
    orders: str
    invoices: str


@pytest.fixture
async def topics(kafka: str) -> Topics:
    """One order in the first topic; the second one takes no batch of more than LIMIT_BYTES."""
    name = uuid.uuid4().hex[:8]
    made = Topics(f"orders-{name}", f"invoices-{name}")
    limit = {"max.message.bytes": str(LIMIT_BYTES)}
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(made.orders, 1, 1), NewTopic(made.invoices, 3, 1, topic_configs=limit)],
            timeout_ms=30_000,
        )
    finally:
        await admin.close()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(made.orders, b"order", partition=0)
    return made


def application(kafka: str, topics: Topics, recorder: Recorder) -> App:
    orders = {
        "topic": topics.orders,
        "group_id": topics.orders,
        "auto_offset_reset": "earliest",
        "failure_strategy": "ignore",
        "commit_interval": "200ms",
        "retry": {"max_attempts": 2, "backoff": "10ms"},
    }
    tables = {
        "kafka": {"bootstrap_servers": kafka},
        "http": {"enabled": False},
        "incoming": {"orders": orders},
        "outgoing": {"invoices": {"topic": topics.invoices, "transactional_id": topics.invoices}},
    }
    return App(tables, observer=recorder)


async def until_committed(app: App, positions: Mapping[TopicPartition, int]) -> None:
    """Wait until the group of the incoming channel stands there."""
    async with asyncio.timeout(30):
        while (  # noqa: ASYNC110
            not app.channel("orders").is_ready
            or await app.channel("orders").committed() != positions
        ):  # noqa: ASYNC110, RUF100
            await asyncio.sleep(0.05)


async def committed_values(kafka: str, topic: str, records: int) -> list[bytes]:
    """What readers of committed records see in all partitions, once there are that many."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    values = list[bytes]()
    async with consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        while [one for one, end in ends.items() if await consumer.position(one) < end]:
            for some in (await consumer.getmany(timeout_ms=200)).values():
                values += [record.value for record in some]
    assert len(values) == records
    return values


@pytest.mark.parametrize("partitions", [1, 3])
async def test_outputs_that_are_too_large_for_one_batch_take_one_call_of_the_handler(
    kafka: str, topics: Topics, partitions: int
) -> None:
    recorder, calls = Recorder(), list[int]()
    app = application(kafka, topics, recorder)
    outputs = [b"%04d" % number + b"x" * 100 for number in range(300)]

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[Record]:
        calls.append(message.attempt)
        for number, output in enumerate(outputs):
            yield Record(output, partition=number % partitions)

    async with app:
        await until_committed(app, {TopicPartition(topics.orders, 0): 1})
    assert sorted(await committed_values(kafka, topics.invoices, len(outputs))) == outputs
    assert calls == [1]
    assert not recorder.of(TransactionAborted)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_an_output_that_is_too_large_among_others_costs_as_many_calls_as_there_are_attempts(
    kafka: str, topics: Topics, partitions: int
) -> None:
    recorder, calls = Recorder(), list[int]()
    app = application(kafka, topics, recorder)
    sizes = [10, 10, 2 * LIMIT_BYTES, 10, 10, 10]

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[Record]:
        calls.append(message.attempt)
        for number, size in enumerate(sizes):
            yield Record(b"x" * size, partition=number % partitions)

    async with app:
        await until(lambda: recorder.of(RecordIgnored), "the order is ignored", 30)
    assert calls == [1, 2]
    assert "MessageSizeTooLarge" in recorder.of(RecordIgnored)[0].reason
    assert not recorder.of(TransactionAborted)
    await committed_values(kafka, topics.invoices, 0)


async def test_only_the_origin_of_an_output_that_is_too_large_is_nacked(
    kafka: str, topics: Topics
) -> None:
    recorder = Recorder()
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "orders": {
                    "topic": topics.orders,
                    "group_id": topics.orders,
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "bytes",
                    "failure_strategy": "ignore",
                    "batch_max_records": 4,
                    "batch_max_wait": "5s",
                }
            },
            "outgoing": {"invoices": {"topic": topics.invoices}},
        },
        observer=recorder,
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def invoice(batch: Batch[bytes]) -> list[Record]:
        return [
            Record(
                b"x" * 2 * LIMIT_BYTES if each.payload == b"large" else each.payload, origin=each
            )
            for each in batch
        ]

    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for value in (b"1", b"large", b"2"):
            await producer.send_and_wait(topics.orders, value, partition=0)
    async with app:
        await until_committed(app, {TopicPartition(topics.orders, 0): 4})
    assert [ignored.offset for ignored in recorder.of(RecordIgnored)] == [2]
    assert sorted(await committed_values(kafka, topics.invoices, 3)) == [b"1", b"2", b"order"]
