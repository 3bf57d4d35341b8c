"""Avro channels beside Confluent's own serialisers, on one registry, in both directions."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

from reactive_kafka import Message, Record
from reactive_kafka.testing import TestApp
from tests.app.helpers import until
from tests.schemas.helpers import VALUE, make_app, running, serialized
from tests.schemas.server import RegistryServer


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    id: int
    at: datetime
    lines: list[Line] = []
    note: str | None = None


@dataclasses.dataclass
class OrderData:
    id: int
    note: str | None = None


class OrderStruct(msgspec.Struct):
    id: int
    note: str | None = None


AT = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)
ORDER = {"id": 7, "at": AT, "lines": [{"sku": "tea", "count": 2}], "note": "gift"}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [
                            {"name": "sku", "type": "string"},
                            {"name": "count", "type": "int"},
                        ],
                    },
                },
            },
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (dict, ORDER),
        (Order, Order.model_validate(ORDER)),
        (OrderData, OrderData(7, "gift")),
        (OrderStruct, OrderStruct(7, "gift")),
    ],
)
async def test_what_confluents_serialiser_writes_is_read(
    registry: RegistryServer, confluent: SchemaRegistryClient, annotation: Any, payload: object
) -> None:
    app = make_app("avro")
    seen: list[object] = []

    @app.incoming("orders")
    async def handle(order: annotation) -> None:  # type: ignore[valid-type]
        seen.append(order)

    async with running(app, registry) as test:
        written = await serialized(AvroSerializer(confluent, SCHEMA), ORDER)
        for _ in range(3):
            await test.send("orders", written)
        await test.settled()
    assert seen == [payload] * 3
    assert registry.requests.count("GET /schemas/ids/1") == 1


@pytest.mark.parametrize(
    "value",
    [Order.model_validate(ORDER), OrderData(7, "gift"), OrderStruct(7, "gift")],
    ids=lambda one: type(one).__name__,
)
async def test_confluents_deserialiser_reads_what_is_written(
    registry: RegistryServer, confluent: SchemaRegistryClient, value: Any
) -> None:
    app = make_app("avro")
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(value)
        await emitter.send(value)
        (record, _) = test.records("out")
    read = await serialized(AvroDeserializer(confluent), record.value)
    assert {name: read[name] for name in ("id", "note")} == {"id": 7, "note": "gift"}
    assert isinstance(value, OrderData | OrderStruct) or read == ORDER
    assert registry.subjects.keys() == {"orders-out-value"}
    # The schema was registered once, and read once by the deserialiser.
    assert len(registry.requests) == 2


async def test_a_file_is_the_schema_of_what_is_written_and_its_named_types_stand_in_files_beside_it(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path
) -> None:
    order, line = json.loads(SCHEMA), {}
    line = order["fields"][2]["type"]["items"]
    order["fields"][2]["type"]["items"] = "shop.Line"
    (tmp_path / "shop.Line.avsc").write_text(json.dumps({**line, "namespace": "shop"}))
    (tmp_path / "shop.Order.avsc").write_text(json.dumps(order))
    app = make_app("avro", outgoing={"schema": {"file": str(tmp_path / "shop.Order.avsc")}})
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(ORDER)
        await emitter.send(Order.model_validate(ORDER))
        records = test.records("out")
    read = AvroDeserializer(confluent)
    assert [await serialized(read, record.value) for record in records] == [ORDER, ORDER]


@pytest.mark.parametrize(
    ("subject", "strategy", "name"),
    [
        ("topic", None, "orders-out-value"),
        ("record", record_subject_name_strategy, "shop.Order"),
        ("topic-record", topic_record_subject_name_strategy, "orders-out-shop.Order"),
    ],
)
async def test_subjects_are_named_as_confluents_serialiser_names_them(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    tmp_path: Path,
    subject: str,
    strategy: Any,
    name: str,
) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(SCHEMA)
    app = make_app("avro", outgoing={"schema": {"file": str(file), "subject": subject}})
    emitter = app.emitter("out")
    async with running(app, registry):
        await emitter.send(ORDER)
    ours = list(registry.subjects)
    theirs = AvroSerializer(
        confluent, SCHEMA, conf={} if strategy is None else {"subject.name.strategy": strategy}
    )
    await serialized(theirs, ORDER, SerializationContext("orders-out", MessageField.VALUE))
    assert (ours, list(registry.subjects)) == ([name], [name])


async def test_keys_have_a_schema_of_their_own(
    registry: RegistryServer, confluent: SchemaRegistryClient
) -> None:
    app = make_app("avro", {"key_deserializer": "avro"}, {"key_serializer": "avro"})
    emitter, seen = app.emitter("out"), []

    @app.incoming("orders")
    async def handle(message: Message[OrderData]) -> None:
        seen.append((message.key, message.payload))

    key = SerializationContext("orders", MessageField.KEY)
    async with running(app, registry) as test:
        await emitter.send(Record(OrderData(1), key=OrderData(2)))
        (record,) = test.records("out")
        written = await serialized(AvroSerializer(confluent, '"string"'), "k", key)
        value = await serialized(AvroSerializer(confluent, SCHEMA), ORDER)
        test.broker.produce("orders", value, key=written)
        await test.settled()
    assert seen == [("k", OrderData(7, "gift"))]
    assert (await serialized(AvroDeserializer(confluent), record.key, key))["id"] == 2
    assert set(registry.subjects) == {
        "orders-out-value",
        "orders-out-key",
        "orders-key",
        "orders-value",
    }


FIELDS = {
    "old": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "gone", "type": "string"},
    ],
    "new": [
        {"name": "id", "type": "long"},
        {"name": "title", "type": ["null", "string"], "aliases": ["name"], "default": None},
        {"name": "added", "type": "string", "default": "none yet"},
    ],
    "newest": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "gone", "type": "string", "default": "it is"},
    ],
}


def evolved(version: str) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": FIELDS[version]})


@pytest.mark.parametrize(
    ("writer", "reader", "value", "read"),
    [
        (
            "old",
            "new",
            {"id": 1, "name": "tea", "gone": "x"},
            {"id": 1, "title": "tea", "added": "none yet"},
        ),
        (
            "newest",
            "new",
            {"id": 1, "name": "tea", "gone": "x"},
            {"id": 1, "title": "tea", "added": "none yet"},
        ),
        (
            "old",
            "newest",
            {"id": 1, "name": "tea", "gone": "x"},
            {"id": 1, "name": "tea", "gone": "x"},
        ),
    ],
)
async def test_a_file_is_the_readers_schema_and_resolves_as_confluents_does(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    tmp_path: Path,
    writer: str,
    reader: str,
    value: Any,
    read: Any,
) -> None:
    file = tmp_path / "reader.avsc"
    file.write_text(evolved(reader))
    app = make_app("avro", {"schema": {"file": str(file)}})
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        written = await serialized(AvroSerializer(confluent, evolved(writer)), value)
        await test.send("orders", written)
        await test.settled()
    theirs = await serialized(AvroDeserializer(confluent, evolved(reader)), written)
    assert seen == [read] == [theirs]


async def test_a_model_takes_what_it_knows_of_records_of_other_versions(
    registry: RegistryServer, confluent: SchemaRegistryClient
) -> None:
    app = make_app("avro")
    seen: list[object] = []

    class Newer(BaseModel):
        id: int
        added: str = "none yet"

    @app.incoming("orders")
    async def handle(order: Newer) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send(
            "orders",
            await serialized(
                AvroSerializer(confluent, evolved("old")), {"id": 1, "name": "tea", "gone": "x"}
            ),
        )
        await test.settled()
    assert seen == [Newer(id=1)]


async def test_types_that_are_in_other_subjects_are_fetched_with_the_schema(
    registry: RegistryServer,
) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
    registry.add("line", json.dumps(line))
    order = {"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}
    reference = {"name": "Line", "subject": "line", "version": 1}
    registry.add("orders-value", json.dumps(order), references=[reference])
    app = make_app("avro")
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send("orders", b"\0\0\0\0\2\6tea")
        await test.settled()
    assert seen == [{"line": {"sku": "tea"}}]


async def test_without_registering_a_schema_is_looked_up_and_plain_data_has_the_latest(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
) -> None:
    app = make_app("avro", outgoing={"schema": {"register": False}})
    emitter = app.emitter("out")
    registry.add("orders-out-value", SCHEMA)
    async with running(app, registry) as test:
        await emitter.send(ORDER)
        (record,) = test.records("out")
    assert await serialized(AvroDeserializer(confluent), record.value, VALUE) == ORDER
    assert list(registry.schemas) == [1]


async def test_an_incompatible_schema_is_an_error_with_the_registrys_words_and_a_nack(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
) -> None:
    registry.compatible = False
    registry.add("orders-out-value", SCHEMA)
    app = make_app("avro", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(order: dict[str, Any]) -> OrderData:
        return OrderData(order["id"])

    async with running(app, registry) as test:
        written = await serialized(AvroSerializer(confluent, SCHEMA), ORDER)
        await test.send("orders", written)
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    told = dict(letter.headers)["dead-letter-reason"] or b""
    assert letter.value == written
    assert b"409: Schema being registered is incompatible" in told
    assert b"'orders-out-value'" in told


async def test_a_record_that_is_not_avro_is_dead_lettered_with_its_bytes(
    registry: RegistryServer,
) -> None:
    """Row F13 of the faults."""
    id = registry.add("orders-value", SCHEMA)
    app = make_app("avro", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: Order) -> None:
        raise AssertionError("not a record of its own")

    bad = [
        b"",
        b'{"id": 1}',
        bytes([0, 0, 0, 0]),
        bytes([0, 0, 0, 0, id]),
        bytes([0, 0, 0, 0, id, 255, 255]),
    ]
    async with running(app, registry) as test:
        for value in bad:
            await test.send("orders", value)
        await test.settled()
        letters = test.records("dead-letter-topic-orders")
    assert [letter.value for letter in letters] == bad


async def test_iterating_without_a_handler_waits_for_the_schema_too(
    registry: RegistryServer, confluent: SchemaRegistryClient
) -> None:
    app = make_app("avro")
    seen: list[Any] = []
    written = await serialized(AvroSerializer(confluent, SCHEMA), ORDER)
    registry.fault, registry.times = 500, 2
    async with running(app, registry) as test:

        async def consume() -> None:
            async for message in app.channel("orders"):
                seen.append(message.payload)
                message.ack()

        consuming = asyncio.create_task(consume())
        await until(lambda: app.channel("orders").is_ready)
        for _ in range(2):
            await test.send("orders", written)
        await until(lambda: len(seen) == 2)
        assert registry.requests.count("GET /schemas/ids/1") == 3
    await consuming
    assert seen == [ORDER, ORDER]


async def test_a_test_without_a_server_sends_models_and_dicts_in_the_handlers_own_type() -> None:
    app = make_app("avro")
    seen: list[Order] = []

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(order: Order) -> OrderData:
        seen.append(order)
        return OrderData(order.id)

    async with TestApp(app) as test:
        await test.send("orders", ORDER)
        await test.send("orders", Order.model_validate(ORDER))
        await test.settled()
        assert len(test.records("out")) == 2
    assert seen == [Order.model_validate(ORDER)] * 2
