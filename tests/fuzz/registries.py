"""The targets of records whose schemas are in a registry, and of what a registry answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from decimal import Decimal
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

import fastavro

from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.config.tables import SchemaRegistrySettings
from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
    record_decoder_for,
)
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.proto_files import schema_of_file
from reactive_kafka.formats.registered.schema_questions import ById, LatestOf, Schema, SchemaWithId
from reactive_kafka.schemas.answers import NotFound, Refused, RegistryAway
from reactive_kafka.schemas.rest import RestRegistry
from tests.formats.types import OrderData, OrderModel, OrderStruct
from tests.fuzz import inputs
from tests.fuzz.budget import Target
from tests.schemas import protos

NAMED = (
    "orders-value",
    "type",
    "name",
    "fields",
    "items",
    "values",
    "symbols",
    "size",
    "logicalType",
    "default",
    "aliases",
    "namespace",
    "$ref",
    "properties",
    "pattern",
    "allOf",
    "enum",
    "required",
)
AVRO: Any = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {
            "name": "total",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "more", "type": {"type": "array", "items": ["null", "double", "Node"]}},
    ],
}
JSON: Any = {
    "$defs": {
        "node": {"type": "object", "properties": {"more": {"items": {"$ref": "#/$defs/node"}}}}
    },
    "properties": {"id": {"type": "integer", "multipleOf": 0.5}, "who": {"pattern": "^a+$"}},
    "allOf": [{"$ref": "#/$defs/node"}, {"uniqueItems": True}],
    "required": ["id"],
}


def _avro(value: Any) -> bytes:
    """By fastavro."""
    data = BytesIO()
    fastavro.schemaless_writer(data, AVRO, value)
    return data.getvalue()


SCHEMAS = {
    "avro": (
        Schema("AVRO", json.dumps(AVRO)),
        Schema("AVRO", json.dumps(schema_of_type(OrderModel))),
    ),
    "json-schema": (
        Schema("JSON", json.dumps(JSON)),
        Schema("JSON", json.dumps(OrderModel.model_json_schema())),
    ),
    "protobuf": (schema_of_file(protos.generated().DESCRIPTOR),) * 2,
}
HEAD = b"\0\0\0\0\1"
NODE = {
    "id": 1,
    "who": "ada",
    "at": 0,
    "day": 0,
    "clock": 0,
    "total": Decimal("1.5"),
    "key": str(UUID(int=7)),
    "kind": "a",
    "hash": b"1234",
    "counts": {"a": 1},
    "more": [None, 0.5],
}
BODIES = {
    "avro": (_avro({**NODE, "more": [NODE]}), _avro(NODE), b"\2" * 99),
    "json-schema": (b'{"id": 1, "who": "aa", "more": [{"more": []}]}', b'{"id":1}', b"[" * 999),
    "protobuf": (
        b"\0\x0a\1x",
        b"\2\2\x08\5\x12\5\x0a\3tea\x2a\2\x08\1\x3a\1a",
        b"\2\2" + b"\x42\1" * 99,
    ),
}
"""Data by the first schema, or nearly so."""
NAMES = ("__value_schema_id", "content-type", "ce_specversion", "ce_id", "ce_source", "ce_type")
EVENTS = (
    (),
    (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t")),
    (("content-type", b"application/cloudevents+json"),),
)
KEPT = (DecodeError, EncodeError, SchemaMissing)


def registered() -> AbstractContextManager[Target]:
    """Records of each format, also as the data of events: a value, DecodeError, or that another
    schema is missing.
    """
    readers = []
    for format, schemas in SCHEMAS.items():
        kinds: list[Any] = [Any, dict, OrderModel, OrderData, OrderStruct]
        for kind in [*kinds, protos.generated().Order] if format == "protobuf" else kinds:
            source = _source(*schemas)
            decode = decoder_for(kind, format, source)
            readers.append((format, record_decoder_for(kind, format, decode)))

    def check(draw: Random) -> None:
        headers = (*draw.choice(EVENTS), *inputs.headers(draw, NAMES))
        for format, read in readers:
            record = StoredRecord(0, 0, None, _data(draw, format), headers)
            try:
                read(record)
            except SchemaMissing as missing:
                assert missing.ask not in (ById(1), ById(2))
            except DecodeError as error:
                assert str(error).isprintable()

    return nullcontext(check)


def schemas() -> AbstractContextManager[Target]:
    """Schemas that anybody has registered, for records and values: the same, and EncodeError."""
    texts = {format: schemas[0].text for format, schemas in SCHEMAS.items()}

    def check(draw: Random) -> None:
        for format, (whole, other) in SCHEMAS.items():
            if draw.random() < 0.5:
                text = inputs.mutated(draw, texts[format].encode()).decode("utf-8", "replace")
            else:
                text = json.dumps(
                    _changed(draw, {"avro": AVRO, "json-schema": JSON}.get(format, {}))
                )
            source = _source(whole._replace(text=text), other)
            value = draw.choice((inputs.value(draw, NAMED), {"id": 1, "more": []}, OrderData(1)))
            with suppress(*KEPT):
                decode = decoder_for(Any, format, source)
                assert decode is not None
                decode(HEAD + draw.choice(BODIES[format]))
            with suppress(*KEPT):
                encoder_for(format, source)(value)

    return nullcontext(check)


@contextmanager
def registry_answers() -> Iterator[Target]:
    """Whatever comes from the port of a registry: a schema, or what is not its fault but the
    registry's.
    """
    answer = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    with asyncio.Runner() as runner:
        server = runner.run(asyncio.start_server(serve, "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        settings = SchemaRegistrySettings(url=(f"http://127.0.0.1:{port}",), timeout_s=5.0)

        def check(draw: Random) -> None:
            nonlocal answer
            kind = draw.choice(("AVRO", "JSON", inputs.text(draw)))
            references = (
                [{"name": "a", "subject": "a", "version": 1}] if draw.random() < 0.2 else None
            )
            told = {
                "id": 1,
                "schema": json.dumps(AVRO),
                "schemaType": kind,
                "references": references,
            }
            told["error_code"] = draw.choice((40403, 409, inputs.value(draw)))
            body = json.dumps(_changed(draw, told) if draw.random() < 0.7 else told).encode(
                "utf-8", "surrogatepass"
            )
            status = draw.choice(
                (
                    b"200 OK",
                    b"404 x",
                    b"409 x",
                    b"429 x",
                    b"204 x",
                    b"302 x",
                    b"500",
                    b"x",
                    b"9999 y",
                )
            )
            more = b"Retry-After: %d\r\n" % draw.getrandbits(70)
            length = b"Content-Length: %d\r\n" % (len(body) + draw.choice((0, 0, 0, 1, -1)))
            answer = b"HTTP/1.1 " + status + b"\r\n" + length + more + b"\r\n" + body
            if draw.random() < 0.3:
                answer = inputs.mutated(
                    draw, answer, (b"\r\n", b"Transfer-Encoding: chunked\r\n", b"Location: /a\r\n")
                )
            registry = RestRegistry(settings)
            schema = Schema("JSON", "{}")
            for call in (registry.schema(1), registry.latest("a"), registry.register("a", schema)):
                with suppress(RegistryAway, NotFound, Refused):
                    assert isinstance(runner.run(call), Schema | SchemaWithId | int)

        yield check
        server.close()


def _data(draw: Random, format: str) -> bytes:
    """A record that names a schema, most times; what follows is changed."""
    body = draw.choice(BODIES[format])
    if draw.random() < 0.3:
        return inputs.binary(draw, (HEAD + body,))
    return draw.choice((HEAD, HEAD, b"\0\0\0\0\2")) + (
        body if draw.random() < 0.1 else inputs.mutated(draw, body)
    )


def _source(first: Schema, second: Schema) -> SchemaSource:
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), first)
    schemas.answered(ById(2), second)
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, first))
    return SchemaSource(schemas, "orders", register=False)


def _changed(draw: Random, document: Any) -> Any:
    """A document with one of its parts replaced, at any depth."""
    if not isinstance(document, dict | list) or not document or draw.random() < 0.15:
        return inputs.value(draw, NAMED)
    if isinstance(document, list):
        at = draw.randrange(len(document))
        return [*document[:at], _changed(draw, document[at]), *document[at + 1 :]]
    name = draw.choice(tuple(document))
    return {**document, inputs.name(draw, (name,)): _changed(draw, document[name])}
