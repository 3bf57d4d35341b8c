"""The formats with a schema, each with what the suite of all of them writes, reads and refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pydantic import BaseModel

from tests.schemas import protos
from tests.schemas.server import RegistryServer

pb = protos.generated()
AT = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)


@dataclasses.dataclass
class OrderData:
    id: int
    note: str | None = None


class OrderStruct(msgspec.Struct):
    id: int
    note: str | None = None


@dataclass(frozen=True)
class Referring:
    """Schemas of which the last one refers to the first, and records of it.

    Attributes:
        schemas: The arguments of :meth:`RegistryServer.add`.
        refused: A record that does not fit the referred schema, and what its letter says.
    """

    schemas: tuple[tuple[Any, ...], ...]
    record: bytes
    payload: Any
    refused: tuple[bytes, bytes] | None = None


@dataclass(frozen=True)
class Refused:
    """Records that are none of the format, or of another schema than the handler asks for.

    Attributes:
        schemas: The arguments of :meth:`RegistryServer.add`; the first one is of the topic.
        reason: What the letter of one of the records says.
    """

    schemas: tuple[tuple[Any, ...], ...]
    annotation: Any
    records: tuple[bytes, ...]
    reason: tuple[bytes, bytes] | None = None


@dataclass(frozen=True)
class Latest:
    """A plain value that is written as the latest schema of its subject says.

    Attributes:
        written: The whole record; None: Confluent's deserialiser reads the value from it.
    """

    schema: tuple[Any, ...]
    value: Any
    written: bytes | None = None


@dataclass(frozen=True)
class WithoutServer:
    """Values that a test sends to a handler, what the handler gets, and what it returns."""

    annotation: Any
    sent: tuple[Any, ...]
    payload: Any
    result: Any


@dataclass(frozen=True)
class ChannelFormat:
    """One format.

    Attributes:
        name: As settings name it.
        order: What Confluent's serialiser is given.
        read: Annotation and payload of handlers of that order.
        written: Values that emitters are given.
        check_written: Asserts what Confluent's deserialiser has read of one of them.
        versions: Schema, record of it, annotation and payload: the handler knows another version.
    """

    name: str
    order: Any
    serializer: Callable[[SchemaRegistryClient], Any]
    deserializer: Callable[[SchemaRegistryClient, Any], Any]
    serializer_of: Callable[[SchemaRegistryClient, str], Any]
    read: tuple[tuple[Any, Any], ...]
    written: tuple[Any, ...]
    check_written: Callable[[RegistryServer, Any, Any], None]
    versions: tuple[tuple[str, Any, Any, Any], ...]
    referring: Referring
    refused: Refused
    latest: Latest
    without_server: WithoutServer

    def __str__(self) -> str:
        return self.name


# -- Avro


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    id: int
    at: datetime
    lines: list[Line] = []
    note: str | None = None


class Newer(BaseModel):
    """Of a later version, which has no name any more."""

    id: int
    added: str = "none yet"


AVRO_ORDER = {"id": 7, "at": AT, "lines": [{"sku": "tea", "count": 2}], "note": "gift"}
AVRO_SCHEMA = json.dumps(
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
AVRO_FIELDS = {
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


def avro_version(version: str) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": AVRO_FIELDS[version]})


def check_written_avro(registry: RegistryServer, value: Any, read: Any) -> None:
    assert {name: read[name] for name in ("id", "note")} == {"id": 7, "note": "gift"}
    assert isinstance(value, OrderData | OrderStruct) or read == AVRO_ORDER
    assert registry.subjects.keys() == {"orders-out-value"}
    # The schema was registered once, and read once by the deserialiser.
    assert len(registry.requests) == 2


AVRO = ChannelFormat(
    name="avro",
    order=AVRO_ORDER,
    serializer=lambda confluent: AvroSerializer(confluent, AVRO_SCHEMA),
    deserializer=lambda confluent, _: AvroDeserializer(confluent),
    serializer_of=lambda confluent, schema: AvroSerializer(confluent, schema),
    read=(
        (dict, AVRO_ORDER),
        (Order, Order.model_validate(AVRO_ORDER)),
        (OrderData, OrderData(7, "gift")),
        (OrderStruct, OrderStruct(7, "gift")),
    ),
    written=(Order.model_validate(AVRO_ORDER), OrderData(7, "gift"), OrderStruct(7, "gift")),
    check_written=check_written_avro,
    versions=((avro_version("old"), {"id": 1, "name": "tea", "gone": "x"}, Newer, Newer(id=1)),),
    referring=Referring(
        schemas=(
            (
                "line",
                json.dumps(
                    {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "sku", "type": "string"}],
                    }
                ),
            ),
            (
                "orders-value",
                json.dumps(
                    {
                        "type": "record",
                        "name": "Order",
                        "fields": [{"name": "line", "type": "Line"}],
                    }
                ),
                "AVRO",
                [{"name": "Line", "subject": "line", "version": 1}],
            ),
        ),
        record=b"\0\0\0\0\2\6tea",
        payload={"line": {"sku": "tea"}},
    ),
    refused=Refused(
        schemas=(("orders-value", AVRO_SCHEMA),),
        annotation=Order,
        records=(b"", b'{"id": 1}', b"\0\0\0\0", b"\0\0\0\0\1", b"\0\0\0\0\1\xff\xff"),
    ),
    latest=Latest(("orders-out-value", AVRO_SCHEMA), AVRO_ORDER),
    without_server=WithoutServer(
        Order,
        (AVRO_ORDER, Order.model_validate(AVRO_ORDER)),
        Order.model_validate(AVRO_ORDER),
        OrderData(7),
    ),
)


# -- JSON with a schema


class JsonOrder(BaseModel):
    id: int
    lines: list[str] = []
    note: str | None = None


JSON_ORDER = {"id": 7, "lines": ["tea"], "note": "gift"}
JSON_DOCUMENT: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"]},
    },
    "required": ["id"],
}
JSON_SCHEMA = json.dumps(JSON_DOCUMENT)


def json_version(version: str, document: Iterable[str]) -> str:
    properties: dict[str, Any] = {name: {} for name in document}
    return json.dumps(
        {"title": "Order", "type": "object", "properties": properties, "description": version}
    )


def check_written_json(registry: RegistryServer, value: Any, read: Any) -> None:
    assert {name: read[name] for name in ("id", "note")} == {"id": 7, "note": "gift"}
    assert registry.schemas[1]["schemaType"] == "JSON"
    assert json.loads(registry.schemas[1]["schema"])["title"].startswith(type(value).__name__)


JSON = ChannelFormat(
    name="json-schema",
    order=JSON_ORDER,
    serializer=lambda confluent: JSONSerializer(JSON_SCHEMA, confluent),
    deserializer=lambda confluent, _: JSONDeserializer(None, schema_registry_client=confluent),
    serializer_of=lambda confluent, schema: JSONSerializer(schema, confluent),
    read=(
        (dict, JSON_ORDER),
        (Any, JSON_ORDER),
        (JsonOrder, JsonOrder.model_validate(JSON_ORDER)),
        (OrderData, OrderData(7, "gift")),
        (OrderStruct, OrderStruct(7, "gift")),
    ),
    written=(JsonOrder.model_validate(JSON_ORDER), OrderData(7, "gift"), OrderStruct(7, "gift")),
    check_written=check_written_json,
    versions=tuple(
        (json_version(version, document), document, OrderData, OrderData(1, document.get("note")))  # type: ignore[arg-type]
        for version, document in (
            ("older", {"id": 1}),
            ("newer", {"id": 1, "note": "x", "added": True}),
            ("optional", {"id": 1, "note": None}),
        )
    ),
    referring=Referring(
        schemas=(
            ("line.json", '{"type": "string"}', "JSON"),
            (
                "orders-value",
                json.dumps({"type": "object", "properties": {"line": {"$ref": "line.json"}}}),
                "JSON",
                [{"name": "line.json", "subject": "line.json", "version": 1}],
            ),
        ),
        record=b'\0\0\0\0\2{"line":"tea"}',
        payload={"line": "tea"},
        refused=(b'\0\0\0\0\2{"line":7}', b"properties/line/type"),
    ),
    refused=Refused(
        schemas=(("orders-value", JSON_SCHEMA, "JSON"), ("other", '"string"')),
        annotation=dict[str, Any],
        records=(
            b"",
            b'{"id": 1}',
            b"\0\0\0\0\1",
            b"\0\0\0\0\1{",
            b'\0\0\0\0\1{"id":"x"}',
            b'\0\0\0\0\2{"id":1}',
        ),
    ),
    latest=Latest(("orders-out-value", JSON_SCHEMA, "JSON"), JSON_ORDER),
    without_server=WithoutServer(
        JsonOrder,
        (JSON_ORDER, JsonOrder.model_validate(JSON_ORDER)),
        JsonOrder.model_validate(JSON_ORDER),
        OrderData(7),
    ),
)


# -- Protobuf


PROTO_PLAIN = {
    "id": 2**40,
    "lines": [{"sku": "tea", "count": 2}],
    "note": None,
    "state": "PAID",
    "at": AT,
    "counts": {"a": 1},
    "raw": b"\0\xff",
    "total": {"cents": 995, "currency": "EUR"},
}
PROTO_OLD = (
    'syntax = "proto3"; package shop;'
    " message Order { int32 id = 1; string gone = 9; string text = 3; }"
)


def known_to_the_model(plain: dict[str, Any]) -> protos.Order:
    return protos.Order(
        **{name: value for name, value in plain.items() if name in protos.Order.model_fields}
    )


def proto_message() -> Any:
    made = pb.Order(id=2**40, state="PAID", counts={"a": 1}, raw=b"\0\xff")
    made.lines.add(sku="tea", count=2)
    made.at.FromDatetime(AT)
    made.total.cents, made.total.currency = 995, "EUR"
    return made


def proto_serializer(confluent: SchemaRegistryClient, kind: Any) -> ProtobufSerializer:
    return ProtobufSerializer(kind, confluent, {"use.deprecated.format": False})


def proto_deserializer(confluent: SchemaRegistryClient, kind: Any) -> ProtobufDeserializer:
    return ProtobufDeserializer(kind, {"use.deprecated.format": False}, confluent)


def check_written_proto(registry: RegistryServer, value: Any, read: Any) -> None:
    assert read == value
    subjects = {"orders-out-value", "shop_line.proto"}
    assert subjects <= registry.subjects.keys() <= subjects | {"google/protobuf/timestamp.proto"}


PROTOBUF = ChannelFormat(
    name="protobuf",
    order=proto_message(),
    serializer=lambda confluent: proto_serializer(confluent, pb.Order),
    deserializer=lambda confluent, value: proto_deserializer(confluent, type(value)),
    serializer_of=lambda confluent, _: proto_serializer(confluent, pb.Order),
    read=(
        (pb.Order, proto_message()),
        (dict, PROTO_PLAIN),
        (protos.Order, known_to_the_model(PROTO_PLAIN)),
        (protos.OrderData, protos.OrderData(2**40, "PAID")),
    ),
    written=(proto_message(), pb.Order.Total(cents=5), pb.Envelope(what="x")),
    check_written=check_written_proto,
    # Fields are known by number: test_protobuf_channels.py.
    versions=(),
    referring=Referring(
        schemas=(
            ("line", protos.LINE, "PROTOBUF"),
            (
                "orders-value",
                protos.ORDER,
                "PROTOBUF",
                [{"name": "shop_line.proto", "subject": "line", "version": 1}],
            ),
        ),
        record=b"\0\0\0\0\2\2\2" + proto_message().SerializeToString(),
        payload=PROTO_PLAIN,
    ),
    refused=Refused(
        schemas=(
            ("orders-value", PROTO_OLD, "PROTOBUF"),
            ("other", '"string"'),
            ("broken", "this is no schema", "PROTOBUF"),
        ),
        annotation=pb.Envelope,
        records=(
            b"",
            b"{}",
            b"\0\0\0\0\1",
            b"\0\0\0\0\1\0",
            b"\0\0\0\0\1\2\2",
            b"\0\0\0\0\1\x80",
            b"\0\0\0\0\1\0\xff",
            b"\0\0\0\0\2\0\0",
            b"\0\0\0\0\3\0\0",
        ),
        reason=(
            b"\0\0\0\0\1\0",
            b"has a message shop.Order, but the handler asks for Envelope",
        ),
    ),
    latest=Latest(
        ("orders-out-value", PROTO_OLD, "PROTOBUF"),
        {"id": 5, "text": "tea"},
        b"\0\0\0\0\1\0\x08\x05\x1a\3tea",
    ),
    without_server=WithoutServer(
        pb.Order, (proto_message(),), proto_message(), pb.Envelope(what="x")
    ),
)

FORMATS = (AVRO, JSON, PROTOBUF)
