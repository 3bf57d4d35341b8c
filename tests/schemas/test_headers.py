"""Schemas that are named by the GUID in a header of the record, as Confluent's newer serialisers
may write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from reactive_kafka import Batch, Message, Record
from tests.schemas import protos
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
JSON_SCHEMA = '{"title": "Order", "type": "object"}'
IN_HEADER: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer}


@dataclass
class Order:
    id: int


@dataclass
class Answer:
    doubled: int


def serializer(format: str, client: SchemaRegistryClient) -> tuple[Any, Any]:
    """Confluent's, which writes the schema's GUID into a header; and a value for it."""
    if format == "avro":
        return AvroSerializer(client, SCHEMA, conf=IN_HEADER), {"id": 7}
    if format == "json-schema":
        return JSONSerializer(JSON_SCHEMA, client, conf=IN_HEADER), {"id": 7}
    kind = protos.generated().Order
    return ProtobufSerializer(kind, client, {"use.deprecated.format": False, **IN_HEADER}), kind(
        id=7
    )


@pytest.mark.parametrize("shape", ["payload", "batch", "iteration"])
@pytest.mark.parametrize("format", ["avro", "json-schema", "protobuf"])
async def test_a_schema_may_be_named_by_a_guid_in_a_header(
    registry: RegistryServer, confluent: SchemaRegistryClient, format: str, shape: str
) -> None:
    app = make_app(format)
    seen: list[Any] = []
    if shape == "payload":

        @app.incoming("orders")
        async def handle(order: Order) -> None:
            seen.append(order.id)

    elif shape == "batch":

        @app.incoming("orders")
        async def handle_batch(orders: Batch[Order]) -> None:
            seen.extend(order.id for order in orders.payloads)

    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    serialize, value = serializer(format, confluent)
    data = await serialized(serialize, value, context)
    assert [name for name, _ in headers] == ["__value_schema_id"]
    registry.fault, registry.times = 500, 1
    async with running(app, registry) as test:
        if shape == "iteration":
            messages = aiter(app.channel("orders"))
            test.broker.produce("orders", data, headers=headers)
            message: Any = await anext(messages)
            seen.append(message.payload["id"])
            await message.ack()
        else:
            test.broker.produce("orders", data, headers=headers)
            await test.settled()
    assert seen == [7]


async def test_a_record_whose_schema_is_in_a_header_is_dead_lettered_as_it_was(
    registry: RegistryServer, confluent: SchemaRegistryClient
) -> None:
    app = make_app("avro", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: Order) -> None:
        raise ValueError("no")

    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    serialize, value = serializer("avro", confluent)
    data = await serialized(serialize, value, context)
    async with running(app, registry) as test:
        test.broker.produce("orders", data, headers=headers)
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    assert letter.value == data
    assert headers[0] in letter.headers


@pytest.mark.parametrize("shape", ["message", "batch", "iteration"])
@pytest.mark.parametrize("format", ["avro", "json-schema", "protobuf"])
async def test_the_schema_of_a_key_may_be_named_by_a_header_of_its_own(
    registry: RegistryServer, confluent: SchemaRegistryClient, format: str, shape: str
) -> None:
    app = make_app(format, {"key_deserializer": format})
    seen: list[Any] = []
    if shape == "message":

        @app.incoming("orders")
        async def handle_message(order: Message[Order]) -> None:
            seen.append((order.key["id"], order.payload.id))

    elif shape == "batch":

        @app.incoming("orders")
        async def handle_batch(orders: Batch[Order]) -> None:
            seen.extend((order.key["id"], order.payload.id) for order in orders)

    headers: list[tuple[str, bytes]] = []
    serialize, value = serializer(format, confluent)
    key = await serialized(
        serialize, value, SerializationContext("orders", MessageField.KEY, headers)
    )
    serialize, value = serializer(format, confluent)
    data = await serialized(
        serialize, value, SerializationContext("orders", MessageField.VALUE, headers)
    )
    assert [name for name, _ in headers] == ["__key_schema_id", "__value_schema_id"]
    async with running(app, registry) as test:
        for _ in range(2):
            test.broker.produce("orders", data, key=key, headers=headers)
        if shape == "iteration":
            async for message in app.channel("orders"):
                seen.append((message.key["id"], message.payload["id"]))
                await message.ack()
                if len(seen) == 2:
                    break
        else:
            await test.settled()
    assert seen == [(7, 7)] * 2


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("name", [b"", b"\1short", b"\2" + bytes(16), b"\0\0\0"])
async def test_a_header_that_names_no_schema_makes_the_record_unreadable(
    registry: RegistryServer, part: str, name: bytes
) -> None:
    registry.add("orders-value", SCHEMA)
    app = make_app("avro", {"key_deserializer": "avro", "failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: Order) -> None:
        raise AssertionError("not a record of its own")

    data = b"\0\0\0\0\1\2"
    async with running(app, registry) as test:
        test.broker.produce("orders", data, key=data, headers=[(f"__{part}_schema_id", name)])
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    assert (letter.value, letter.key) == (data, data)
    assert b"it names no schema" in (dict(letter.headers)["dead-letter-reason"] or b"")


async def test_the_header_of_what_was_read_does_not_name_the_schema_of_what_is_sent(
    registry: RegistryServer, confluent: SchemaRegistryClient
) -> None:
    app = make_app("avro", outgoing={"propagate_headers": ["trace", "__value_schema_id"]})

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(message: Message[Order]) -> Record[Answer]:
        return Record(Answer(2 * message.payload.id), headers=list(message.headers))

    headers: list[tuple[str, bytes]] = [("trace", b"t")]
    serialize, value = serializer("avro", confluent)
    data = await serialized(
        serialize, value, SerializationContext("orders", MessageField.VALUE, headers)
    )
    async with running(app, registry) as test:
        test.broker.produce("orders", data, headers=headers)
        await test.settled()
        (record,) = test.records("out")
    assert record.headers == (("trace", b"t"),)
    context = SerializationContext("orders-out", MessageField.VALUE, list(record.headers))
    assert await serialized(AvroDeserializer(confluent), record.value, context) == {"doubled": 14}
