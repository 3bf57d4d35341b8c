"""On a real broker: a service of Avro whose registry fails in every way, and one of CloudEvents in
both modes.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.structs import TopicPartition as Partition
from cloudevents.core.bindings import kafka as binding
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

from reactive_kafka import App, Message, Record
from reactive_kafka.backoff import Backoff
from reactive_kafka.schemas import schema_registry as asking
from tests.app.helpers import until
from tests.faults.driver import create_topics
from tests.schemas.helpers import reasons, serialized
from tests.schemas.server import RegistryServer

pytestmark = pytest.mark.kafka

PARTITIONS = 3
EACH = 12
"""Records of each version of the schema, and of each mode."""
PAGE = "default backend - 404"
"""What an ingress without its backend answers. A 404 of the registry itself says that it has no
such schema.
"""
FAULTS: list[tuple[int | str, str]] = [
    ("away", "away: [Errno 111] Connection refused"),
    ("slow", "slow: no answer within 0.3 s"),
    ("noise", "its answer is not the JSON of a schema registry"),
    (401, "401: it refuses these credentials"),
    (404, "404: no schema registry answers at this path"),
    (429, "429: too many requests"),
    (500, "500: told to answer 500"),
]


class Order(BaseModel):
    id: int


class Invoice(BaseModel):
    order: int


def schema(version: int) -> str:
    """Each version is another schema: a field is added, with a default."""
    added = [{"name": f"added_{number}", "type": "int", "default": 0} for number in range(version)]
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *added]}
    )


def begin(registry: RegistryServer, fault: int | str) -> None:
    if fault == "away":
        registry.stop()
    else:
        registry.fault = fault
        registry.body = PAGE if fault == 404 else None


def repair(registry: RegistryServer) -> None:
    registry.fault = registry.body = None
    registry.stop()
    registry.start()


async def topics_of(bootstrap: str) -> tuple[str, str, str]:
    """Names of two new topics and of a group."""
    name = uuid.uuid4().hex[:8]
    topic, out = f"orders-{name}", f"out-{name}"
    await create_topics(bootstrap, [NewTopic(topic, PARTITIONS, 1), NewTopic(out, 1, 1)])
    return topic, out, f"g-{name}"


async def records(bootstrap: str, topic: str, count: int) -> list[Any]:
    """The first records of a topic."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    found: list[Any] = []
    async with asyncio.timeout(60), consumer:
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
    return found


async def committed(bootstrap: str, group: str, topic: str) -> int:
    """The sum of a group's positions."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    async with consumer:
        found = [await consumer.committed(Partition(topic, number)) for number in range(PARTITIONS)]
    return sum(position or 0 for position in found)


async def test_a_service_outlives_every_fault_of_its_registry_and_loses_nothing(
    kafka: str,
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row F17 of the faults."""
    monkeypatch.setattr(asking, "NOT_READY_S", 0.5)
    monkeypatch.setattr(asking, "BACKOFF", Backoff(0.05, 0.2))
    topic, out, group = await topics_of(kafka)
    orders = {
        "topic": topic,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "commit_interval": "100ms",
    }
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "schema_registry": {"url": registry.url, "timeout": "300ms"},
            "incoming": {"orders": {**orders, "value_deserializer": "avro"}},
            "outgoing": {"out": {"topic": out, "value_serializer": "avro"}},
        }
    )
    seen: list[tuple[int, int]] = []

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(message: Message[Order]) -> Invoice:
        seen.append((message.payload.id, message.attempt))
        return Invoice(order=message.payload.id)

    async def written(version: int) -> list[bytes]:
        serialize, context = (
            AvroSerializer(confluent, schema(version)),
            SerializationContext(topic, MessageField.VALUE),
        )
        ids = range(version * EACH, (version + 1) * EACH)
        return [await serialized(serialize, {"id": id}, context) for id in ids]

    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer, app:
        for version, (fault, reason) in enumerate(FAULTS):
            values, handled = await written(version), version * EACH
            begin(registry, fault)
            for number, value in enumerate(values):
                await producer.send_and_wait(topic, value, partition=number % PARTITIONS)
            await until(lambda: reason in reasons(app, "orders"))  # noqa: B023
            assert f"schema registry {registry.url}: schema" in reasons(app, "orders")
            assert (len(seen), app.health().live.is_up) == (handled, True)
            assert await committed(kafka, group, topic) == handled
            repair(registry)
            await until(lambda: len(seen) == handled + EACH)  # noqa: B023
            await until(lambda: not reasons(app, "orders"))
        total = len(FAULTS) * EACH
    assert sorted(seen) == [(id, 1) for id in range(total)]
    assert await committed(kafka, group, topic) == total
    deserialize, context = (
        AvroDeserializer(confluent),
        SerializationContext(out, MessageField.VALUE),
    )
    read = [
        await serialized(deserialize, record.value, context)
        for record in await records(kafka, out, total)
    ]
    assert sorted(one["order"] for one in read) == list(range(total))


async def test_a_service_of_cloud_events_reads_and_writes_both_modes(kafka: str) -> None:
    topic, out, group = await topics_of(kafka)
    invoices = {
        "topic": out,
        "cloud_events": {"mode": "structured", "type": "invoice.made", "source": "/billing"},
    }
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "orders": {"topic": topic, "group_id": group, "auto_offset_reset": "earliest"}
            },
            "outgoing": {
                "structured": invoices,
                "binary": {
                    **invoices,
                    "cloud_events": {**invoices["cloud_events"], "mode": "binary"},
                },  # type: ignore[dict-item]
            },
        }
    )

    @app.incoming("orders")
    @app.outgoing("structured")
    @app.outgoing("binary")
    async def handle(message: Message[Order]) -> AsyncIterator[Record[Invoice]]:
        event = message.cloud_event
        assert event is not None
        for channel in ("structured", "binary"):
            yield Record(Invoice(order=message.payload.id), key=event.id.encode(), channel=channel)

    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for id in range(2 * EACH):
            attributes = {
                "id": f"e{id}",
                "source": "/shop",
                "type": "placed",
                "datacontenttype": "application/json",
            }
            to_record = binding.to_structured if id % 2 else binding.to_binary
            made = to_record(SdkEvent(attributes, {"id": id}), JSONFormat())
            headers = [(name, value) for name, value in made.headers.items()]
            await producer.send_and_wait(
                topic, made.value, headers=headers, partition=id % PARTITIONS
            )
    async with app:
        found = await records(kafka, out, 4 * EACH)
    assert await committed(kafka, group, topic) == 2 * EACH
    events = [
        binding.from_kafka(
            binding.KafkaMessage(dict(one.headers), one.key, one.value), JSONFormat()
        )
        for one in found
    ]
    assert {(event.get_type(), event.get_source()) for event in events} == {
        ("invoice.made", "/billing")
    }
    read = sorted(
        (record.key, event.get_data()["order"]) for record, event in zip(found, events, strict=True)
    )
    assert read == sorted((b"e%d" % id, id) for id in (*range(2 * EACH), *range(2 * EACH)))
    types = [dict(one.headers)["content-type"] for one in found]
    assert sum(one.startswith(b"application/cloudevents+json") for one in types) == 2 * EACH
