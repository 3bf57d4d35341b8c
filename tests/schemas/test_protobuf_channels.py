"""Protobuf channels beside Confluent's own serialisers, on one registry, in both directions."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pydantic import BaseModel

from reactive_kafka import EncodeError
from reactive_kafka.testing import TestApp
from tests.schemas import protos
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer

pb = protos.generated()
AT = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)
PLAIN = {
    "id": 2**40,
    "lines": [{"sku": "tea", "count": 2}],
    "note": None,
    "state": "PAID",
    "at": AT,
    "counts": {"a": 1},
    "raw": b"\0\xff",
    "total": {"cents": 995, "currency": "EUR"},
}


class Line(BaseModel):
    sku: str
    count: int


class Order(BaseModel):
    id: int
    lines: list[Line] = []
    note: str | None = None
    state: str = "NEW"
    at: datetime | None = None
    raw: bytes = b""


@dataclasses.dataclass
class OrderData:
    id: int
    state: str = "NEW"


def message() -> Any:
    made = pb.Order(id=2**40, state="PAID", counts={"a": 1}, raw=b"\0\xff")
    made.lines.add(sku="tea", count=2)
    made.at.FromDatetime(AT)
    made.total.cents, made.total.currency = 995, "EUR"
    return made


def serializer(confluent: SchemaRegistryClient, kind: Any) -> ProtobufSerializer:
    return ProtobufSerializer(kind, confluent, {"use.deprecated.format": False})


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (pb.Order, message()),
        (dict, PLAIN),
        (
            Order,
            Order(**{name: value for name, value in PLAIN.items() if name in Order.model_fields}),
        ),
        (OrderData, OrderData(2**40, "PAID")),
    ],
)
async def test_what_confluents_serialiser_writes_is_read(
    registry: RegistryServer, confluent: SchemaRegistryClient, annotation: Any, payload: object
) -> None:
    app = make_app("protobuf")
    seen: list[object] = []

    @app.incoming("orders")
    async def handle(order: annotation) -> None:  # type: ignore[valid-type]
        seen.append(order)

    async with running(app, registry) as test:
        written = await serialized(serializer(confluent, pb.Order), message())
        for _ in range(2):
            await test.send("orders", written)
        await test.settled()
    assert seen == [payload] * 2


@pytest.mark.parametrize(
    "value", [message(), pb.Order.Total(cents=5), pb.Envelope(what="x")], ids=lambda one: type(one)
)
async def test_confluents_deserialiser_reads_generated_classes_as_its_own_serialiser_writes_them(
    registry: RegistryServer, confluent: SchemaRegistryClient, value: Any
) -> None:
    app = make_app("protobuf")
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(value)
        await emitter.send(value)
        (record, _) = test.records("out")
    read = ProtobufDeserializer(type(value), {"use.deprecated.format": False}, confluent)
    assert await serialized(read, record.value) == value
    subjects = {"orders-out-value", "shop_line.proto"}
    assert subjects <= registry.subjects.keys() <= subjects | {"google/protobuf/timestamp.proto"}


@pytest.mark.parametrize(
    "value", [PLAIN, Order(id=2**40, raw=b"\1"), OrderData(7, "PAID")], ids=lambda one: type(one)
)
async def test_a_proto_file_is_the_schema_of_models_and_dicts(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path, value: Any
) -> None:
    schema = {"file": str(protos.write(tmp_path)), "subject": "record"}
    app = make_app("protobuf", outgoing={"schema": schema})
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        if isinstance(value, dict):
            with pytest.raises(EncodeError, match="it has a key that is no field of"):
                # The first message of the file is another one.
                await emitter.send(value)
            value = Order(
                **{name: one for name, one in value.items() if name in Order.model_fields}
            )
        elif isinstance(value, OrderData):
            value = dataclasses.make_dataclass("Order", [("id", int), ("state", str)])(7, "PAID")
        await emitter.send(value)
        (record,) = test.records("out")
    read = ProtobufDeserializer(pb.Order, {"use.deprecated.format": False}, confluent)
    assert (await serialized(read, record.value)).id == value.id
    assert "shop.Order" in registry.subjects


OLD = 'syntax = "proto3"; package shop; message Order { int32 id = 1; string gone = 9; string text = 3; }'


async def test_fields_are_known_by_number_whatever_the_other_side_calls_them(
    registry: RegistryServer, tmp_path: Path
) -> None:
    # As text: not every registry has it serialized.
    registry.add("orders-value", OLD, "PROTOBUF")
    file = tmp_path / "new.proto"
    file.write_text(
        'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string note = 3; bool added = 4; }'
    )
    seen: list[Any] = []
    for settings in ({}, {"schema": {"file": str(file)}}):
        app = make_app("protobuf", settings)

        @app.incoming("orders")
        async def handle(order: dict[str, Any]) -> None:
            seen.append(order)

        async with running(app, registry) as test:
            await test.send("orders", b"\0\0\0\0\1\0\x08\x05\x1a\3tea\x4a\1x")
            await test.settled()
    app = make_app("protobuf")

    @app.incoming("orders")
    async def handle_generated(order: pb.Order) -> None:
        seen.append((order.id, order.note))

    async with running(app, registry) as test:
        await test.send("orders", b"\0\0\0\0\1\0\x08\x05\x1a\3tea\x4a\1x")
        await test.settled()
    assert seen == [
        {"id": 5, "gone": "x", "text": "tea"},
        {"id": 5, "note": "tea", "added": False},
        (5, "tea"),
    ]


async def test_text_with_imports_is_compiled_with_what_the_registry_has_for_them(
    registry: RegistryServer,
) -> None:
    registry.add("line", protos.LINE, "PROTOBUF")
    reference = {"name": "shop_line.proto", "subject": "line", "version": 1}
    registry.add("orders-value", protos.ORDER, "PROTOBUF", [reference])
    app = make_app("protobuf")
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send("orders", b"\0\0\0\0\2\2\2" + message().SerializeToString())
        await test.settled()
    assert seen == [PLAIN]


async def test_without_registering_a_dict_is_written_as_the_latest_schema_says(
    registry: RegistryServer,
) -> None:
    registry.add("orders-out-value", OLD, "PROTOBUF")
    app = make_app("protobuf", outgoing={"schema": {"register": False}})
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send({"id": 5, "text": "tea"})
        assert [record.value for record in test.records("out")] == [
            b"\0\0\0\0\1\0\x08\x05\x1a\3tea"
        ]


async def test_a_record_that_is_none_or_another_message_is_dead_lettered_with_its_bytes(
    registry: RegistryServer,
) -> None:
    """Row F13 of the faults."""
    registry.add("orders-value", OLD, "PROTOBUF")
    registry.add("other", '"string"')
    registry.add("broken", "this is no schema", "PROTOBUF")
    app = make_app("protobuf", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: pb.Envelope) -> None:
        raise AssertionError("not a record of its own")

    start = b"\0\0\0\0\1"
    bad = [
        b"",
        b"{}",
        start,
        start + b"\0",
        start + b"\2\2",
        start + b"\x80",
        start + b"\0\xff",
        b"\0\0\0\0\2\0\0",
        b"\0\0\0\0\3\0\0",
    ]
    async with running(app, registry) as test:
        for value in bad:
            await test.send("orders", value)
        await test.settled()
        letters = test.records("dead-letter-topic-orders")
    assert [letter.value for letter in letters] == bad
    assert b"has a message shop.Order, but the handler asks for Envelope" in (
        dict(letters[3].headers)["dead-letter-reason"] or b""
    )


async def test_a_test_needs_no_server() -> None:
    app = make_app("protobuf")
    seen: list[Any] = []

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(order: pb.Order) -> Any:
        seen.append(order)
        return pb.Envelope(what=str(order.id))

    async with TestApp(app) as test:
        await test.send("orders", message())
        await test.settled()
        assert len(test.records("out")) == 1
    assert seen == [message()]
