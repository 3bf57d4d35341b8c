"""``max_in_flight_bytes`` and ``batch_max_bytes`` on a real Kafka, with and without compression."""

from __future__ import annotations

import uuid

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, Batch, Message
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka

SIZE = 50_000


async def topic_of_large_records(kafka: str, records: int, compression: str | None) -> str:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaProducer(bootstrap_servers=kafka, compression_type=compression) as producer:
        for number in range(records):
            await producer.send(topic, b"%d" % number * (SIZE // len(str(number))), partition=0)
    return topic


def application(kafka: str, topic: str, **orders: object) -> App:
    group = {"topic": topic, "group_id": topic, "auto_offset_reset": "earliest"}
    return App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {"orders": {**group, **orders}},
        }
    )


async def test_no_more_bytes_are_in_flight_and_all_records_are_handled(kafka: str) -> None:
    topic = await topic_of_large_records(kafka, 60, "gzip")
    app = application(
        kafka,
        topic,
        max_in_flight_bytes=5 * SIZE,
        ordering="unordered",
        concurrency=60,
        ack="manual",
        drain_timeout="1s",
    )
    held: list[Message[bytes]] = []
    offsets: list[int] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        held.append(message)
        offsets.append(message.offset)

    async with app:
        channel = app.channel("orders")
        # The topic may have other partitions, which keep a part of the room.
        await until(lambda: len(held) >= 3, "as many are held as there is room for", 30)
        while len(offsets) < 60:
            in_flight = sum(one.in_flight + one.queued for one in channel.facts().partitions)
            assert in_flight <= 5
            held.pop(0).ack()
            count = len(offsets)
            await until(lambda count=count: len(offsets) > count or len(offsets) == 60, "room", 5)
    assert offsets == list(range(60))


async def test_batches_have_no_more_bytes(kafka: str) -> None:
    topic = await topic_of_large_records(kafka, 30, None)
    app = application(kafka, topic, batch_max_bytes=4 * SIZE + 1, batch_max_wait="200ms")
    batches: list[int] = []

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batches.append(sum(map(len, batch.payloads)))

    async with app:
        await until(lambda: sum(batches) >= 30 * SIZE * 0.99, "all are handled", 30)
    assert max(batches) <= 4 * SIZE + 1
    assert len(batches) < 15
