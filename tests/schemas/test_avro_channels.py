"""What only Avro channels have, beside Confluent's own serialisers: names, files and versions.

``test_channels.py`` has what every format has.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from reactive_kafka import Message, Record
from tests.app.helpers import until
from tests.schemas.channel_formats import AVRO_ORDER as ORDER
from tests.schemas.channel_formats import AVRO_SCHEMA as SCHEMA
from tests.schemas.channel_formats import Order, OrderData
from tests.schemas.channel_formats import avro_version as evolved
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer


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


async def test_iterating_goes_on_with_other_partitions_while_the_registry_does_not_give_a_schema(
    registry: RegistryServer, confluent: SchemaRegistryClient
) -> None:
    app = make_app("avro")
    seen: list[int] = []
    goes_on = asyncio.Event()
    known = await serialized(AvroSerializer(confluent, SCHEMA), ORDER)
    other = json.dumps({**json.loads(SCHEMA), "doc": "another schema"})
    new = await serialized(AvroSerializer(confluent, other), ORDER)
    async with running(app, registry) as test:
        test.broker.create_topic("orders", 2)

        async def consume() -> None:
            async for message in app.channel("orders"):
                seen.append(message.partition)
                message.ack()
                await goes_on.wait()

        def queued() -> list[int]:
            return [partition.queued for partition in app.channel("orders").facts().partitions]

        consuming = asyncio.create_task(consume())
        await until(lambda: app.channel("orders").is_ready)
        await test.send("orders", known, partition=1)
        await until(lambda: seen == [1])
        registry.fault = 500
        await test.send("orders", new, partition=0)
        await until(lambda: queued() == [1, 0])
        for _ in range(3):
            await test.send("orders", known, partition=1)
        await until(lambda: queued() == [1, 3])
        goes_on.set()
        await until(lambda: seen == [1] * 4)
        registry.fault = None
        await until(lambda: seen == [1, 1, 1, 1, 0])
    await consuming
