"""An outgoing topic that is deleted on a real Kafka, and comes back with fewer partitions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from reactive_kafka import App, Record
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka

HEALED_S = 60.0


async def recreate(client: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    """Delete a topic, and create it as soon as its name is free, unless the broker does first."""
    await client.delete_topics([topic])
    code = None
    while code not in (0, TopicAlreadyExistsError.errno):
        answer = await client.create_topics([NewTopic(topic, partitions, 1)])
        ((_, code, *_),) = answer.topic_errors
        await asyncio.sleep(0.05)


async def produce(servers: str, topic: str, values: Iterable[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def read(servers: str, topic: str, count: int) -> set[bytes]:
    """Return the values of a topic, once there are so many different ones."""
    values = set[bytes]()
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(HEALED_S):
            while len(values) < count:
                values.add((await consumer.getone()).value)
    return values


@pytest.mark.parametrize("output", [{}, {"transactional_id": "invoices"}])
async def test_what_waited_for_partitions_that_are_gone_goes_to_the_others(
    kafka: str, output: dict[str, str]
) -> None:
    orders, invoices = f"orders-{uuid.uuid4().hex[:8]}", f"invoices-{uuid.uuid4().hex[:8]}"
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "orders": {
                    "topics": [orders],
                    "group_id": f"group-{orders}",
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "bytes",
                }
            },
            "outgoing": {"invoices": {"topic": invoices, "send_timeout": "3s", **output}},
        }
    )
    handled = list[bytes]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> Record[bytes]:
        handled.append(value)
        return Record(value, key=value)

    before = {b"before-%d" % number for number in range(50)}
    after = {b"after-%d" % number for number in range(50)}
    client = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await client.start()
    try:
        await client.create_topics([NewTopic(orders, 1, 1), NewTopic(invoices, 8, 1)])
        await produce(kafka, orders, before)
        async with app:
            assert await read(kafka, invoices, len(before)) == before
            await recreate(client, invoices, 2)
            await produce(kafka, orders, after)
            assert await read(kafka, invoices, len(after)) == after
            await until(lambda: app.health().status == "UP", "it is well again")
            described = await client.describe_topics([invoices])
            assert len(described[0]["partitions"]) <= 2
    finally:
        await client.close()
    assert set(handled) == before | after
