"""CloudEvents whose data is in a format with schemas, in both modes and both directions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from reactive_kafka import App, Batch, CloudEvent, Message
from reactive_kafka.testing import TestApp
from tests.schemas import protos
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer
from tests.schemas.test_headers import serializer

FORMATS = ("avro", "json-schema", "protobuf")
EVENTS = {"type": "order.placed", "source": "/shop"}
BINARY = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order.placed"),
]


@dataclass
class Order:
    id: int


def order(format: str) -> Any:
    return protos.generated().Order(id=7) if format == "protobuf" else Order(7)


def piped(format: str, mode: str, **outgoing: Any) -> App:
    """What goes out comes in again."""
    events = {**EVENTS, "mode": mode}
    return make_app(format, outgoing={"topic": "orders", "cloud_events": events, **outgoing})


def reading(app: App, shape: str, seen: list[tuple[Any, Any]]) -> None:
    """A handler of this shape notes the payload of each record, and the event that it was."""
    if shape == "message":

        @app.incoming("orders")
        async def handle(message: Message[Order]) -> None:
            seen.append((message.payload, message.cloud_event))

    else:

        @app.incoming("orders")
        async def handle_batch(batch: Batch[Order]) -> None:
            seen.extend((message.payload, message.cloud_event) for message in batch)


@pytest.mark.parametrize("shape", ["message", "batch"])
@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize("format", FORMATS)
async def test_an_event_is_written_and_read_with_its_schema_while_the_registry_is_slow_to_tell(
    registry: RegistryServer, format: str, mode: str, shape: str
) -> None:
    app, seen = piped(format, mode), list[tuple[Any, Any]]()
    reading(app, shape, seen)
    emitter = app.emitter("out")
    registry.fault, registry.times = 500, 1
    async with running(app, registry) as test:
        await emitter.send(order(format), key=b"k")
        await test.settled()
        (record,) = test.records("orders")
    ((payload, event),) = seen
    assert payload == Order(7)
    assert (event.type, event.source, event.data) == ("order.placed", "/shop", payload)
    assert record.key == b"k"
    assert (b"data_base64" in (record.value or b"")) == (mode == "structured")


@pytest.mark.parametrize("format", FORMATS)
async def test_confluents_deserialisers_read_the_data_of_an_event_in_binary_mode(
    registry: RegistryServer, confluent: SchemaRegistryClient, format: str
) -> None:
    app = make_app(format, outgoing={"cloud_events": EVENTS})
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(order(format))
        (record,) = test.records("out")
    read: Any = {
        "avro": lambda: AvroDeserializer(confluent),
        "json-schema": lambda: JSONDeserializer(None, schema_registry_client=confluent),
        "protobuf": lambda: ProtobufDeserializer(
            type(order(format)), {"use.deprecated.format": False}, confluent
        ),
    }[format]()
    found = await serialized(
        read, record.value, SerializationContext("orders-out", MessageField.VALUE)
    )
    assert found == (order(format) if format == "protobuf" else {"id": 7})
    assert dict(record.headers)["ce_type"] == b"order.placed"
    assert "content-type" not in dict(record.headers)


@pytest.mark.parametrize("cloud_events", [True, False])
@pytest.mark.parametrize("format", FORMATS)
async def test_the_schema_of_an_events_data_may_be_named_by_a_header(
    registry: RegistryServer, confluent: SchemaRegistryClient, format: str, cloud_events: bool
) -> None:
    app, seen = make_app(format, {"cloud_events": cloud_events}), list[tuple[Any, Any]]()
    reading(app, "message", seen)
    headers: list[tuple[str, bytes]] = [*BINARY]
    serialize, value = serializer(format, confluent)
    data = await serialized(
        serialize, value, SerializationContext("orders", MessageField.VALUE, headers)
    )
    async with running(app, registry) as test:
        test.broker.produce("orders", data, headers=headers)
        await test.settled()
    ((payload, event),) = seen
    assert payload == Order(7)
    assert (None if event is None else event.type) == ("order.placed" if cloud_events else None)


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_the_data_of_an_event_may_be_text_with_a_schema(
    registry: RegistryServer, mode: str, tmp_path: Path
) -> None:
    (tmp_path / "text.avsc").write_text('{"type": "string"}')
    app, seen = (
        piped("avro", mode, schema={"file": str(tmp_path / "text.avsc")}),
        list[tuple[Any, Any]](),
    )
    emitter = app.emitter("out")

    @app.incoming("orders")
    async def handle(message: Message[Any]) -> None:
        seen.append((message.payload, message.cloud_event))

    async with running(app, registry) as test:
        await emitter.send("paid")
        await test.settled()
    ((payload, event),) = seen
    assert (payload, event.type) == ("paid", "order.placed")


@pytest.mark.parametrize("data", [Order(7), {"id": 7}], ids=["model", "dict"])
@pytest.mark.parametrize("format", ["avro", "json-schema"])
async def test_what_a_test_sends_as_an_event_has_the_schema_of_its_data(
    format: str, data: object
) -> None:
    app, seen = make_app(format), list[tuple[Any, Any]]()
    reading(app, "message", seen)
    async with TestApp(app) as test:
        await test.send("orders", CloudEvent(data=data, type="order.placed", source="/shop"))
        await test.settled()
    ((payload, event),) = seen
    assert payload == Order(7)
    assert (event.type, event.data) == ("order.placed", payload)


async def test_an_event_whose_data_names_no_schema_cannot_be_decoded(
    registry: RegistryServer,
) -> None:
    app, seen = make_app("avro", {"failure_strategy": "dead-letter-queue"}), list[tuple[Any, Any]]()
    reading(app, "message", seen)
    async with running(app, registry) as test:
        test.broker.produce("orders", b'{"id": 7}', headers=BINARY)
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    assert letter.value == b'{"id": 7}'
    assert seen == []


async def test_a_reply_may_be_an_event(registry: RegistryServer) -> None:
    app = App(
        {
            "schema_registry": {"url": "memory://"},
            "incoming": {"orders": {"group_id": "g", "value_deserializer": "avro"}},
            "outgoing": {
                "asks": {"topic": "orders", "value_serializer": "avro", "reply_topic": "replies"},
                "answers": {"topic": "replies", "value_serializer": "avro", "cloud_events": EVENTS},
            },
        }
    )
    emitter = app.emitter("asks")

    @app.incoming("orders")
    @app.outgoing("answers")
    async def answer(order: Order) -> Order:
        return Order(2 * order.id)

    registry.fault, registry.times = 500, 2
    async with running(app, registry):
        assert await emitter.request(Order(21), reply_type=Order, timeout=10) == Order(42)
