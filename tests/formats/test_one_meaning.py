"""Every cell of the tables in docs/types.md: what is written of a value, and what data is read
as.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import create_model

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
    record_decoder_for,
)
from reactive_kafka.formats.cloudevents import CloudEvent
from reactive_kafka.formats.cloudevents_read import ValueAndHeaders
from reactive_kafka.formats.cloudevents_write import EventDefaults, EventWriter
from reactive_kafka.formats.registered.proto_files import compiled_text
from reactive_kafka.formats.registered.schema_questions import (
    ById,
    IdOf,
    LatestOf,
    Schema,
    SchemaWithId,
)
from tests.formats import meaning
from tests.formats.meaning import READINGS, REFUSED, ROWS, SAME, Cell, Reading, Row

PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
enum Colour { red = 0; blue = 1; }
"""

WAYS: dict[str, Callable[[Any], Any]] = {
    "pydantic": lambda annotation: create_model("Holder", held=(annotation, ...)),
    "dataclass": lambda annotation: dataclasses.make_dataclass("Holder", [("held", annotation)]),
    "msgspec": lambda annotation: msgspec.defstruct("Holder", [("held", annotation)]),
}

Write = Callable[[object], Any]
Read = Callable[[Any], Any]


def of_json(kind: Any, _: Cell, __: Path) -> tuple[Write, Read]:
    decode = decoder_for(kind, "json")
    assert decode is not None
    return encoder_for("json"), decode


def of_event(mode: Any) -> Callable[[Any, Cell, Path], tuple[Write, Read]]:
    def made(kind: Any, _: Cell, __: Path) -> tuple[Write, Read]:
        defaults = EventDefaults(mode=mode, type="t", source="s", insert_timestamp=False)
        writer = EventWriter("out", defaults, encoder_for("json"), "json")
        decode = record_decoder_for(kind, "json", decoder_for(kind, "json"))

        def write(value: object) -> ValueAndHeaders:
            record = writer.write(CloudEvent(data=value, id="1"), (), 0.0)
            return ValueAndHeaders(record.value, record.headers)

        return write, decode

    return made


def of_json_schema(kind: Any, _: Cell, __: Path) -> tuple[Write, Read]:
    schemas = ChannelSchemas("orders")
    source = SchemaSource(schemas, "orders")
    return registering(encoder_for("json-schema", source), schemas), decoder(
        kind, "json-schema", source
    )


def of_avro(kind: Any, cell: Cell, folder: Path) -> tuple[Write, Read]:
    file = folder / "holder.avsc"
    file.write_text(json.dumps(avro_schema(cell.form)))
    schemas = ChannelSchemas("orders")
    encode = encoder_for("avro", SchemaSource(schemas, "orders", file=str(file)))
    return registering(encode, schemas), decoder(kind, "avro", SchemaSource(schemas, "orders"))


def of_protobuf(kind: Any, cell: Cell, _: Path) -> tuple[Write, Read]:
    schema = proto_schema(cell.form)
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), schema)
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, schema))
    source = SchemaSource(schemas, "orders", register=False)
    return encoder_for("protobuf", source), decoder(kind, "protobuf", source)


def avro_schema(field: Any) -> Any:
    return {"type": "record", "name": "Holder", "fields": [{"name": "held", "type": field}]}


@cache
def proto_schema(field: str) -> Schema:
    text = f"{PROTO}message Holder {{ {field} held = 1; }}\nmessage Inner {{ int64 id = 1; }}\n"
    return Schema("PROTOBUF", compiled_text(Schema("PROTOBUF", text)))


def decoder(kind: Any, format: str, source: SchemaSource) -> Read:
    made = decoder_for(kind, format, source)
    assert made is not None
    return made


def registering(encode: Write, schemas: ChannelSchemas) -> Write:
    """An encoder whose schema gets the id 1."""

    def write(value: object) -> Any:
        try:
            return encode(value)
        except SchemaMissing as missing:
            assert isinstance(missing.ask, IdOf)
            schemas.answered(missing.ask, 1)
            schemas.answered(ById(1), missing.ask.schema)
        return encode(value)

    return write


FORMATS = {
    "json": of_json,
    "json-schema": of_json_schema,
    "binary event": of_event("binary"),
    "structured event": of_event("structured"),
    "avro": of_avro,
    "protobuf": of_protobuf,
}

PLAYED = [
    pytest.param(row, format, way, id=f"{row.name}-{format}-{way}")
    for row in ROWS
    for format in FORMATS
    for way in row.ways
]


@pytest.mark.parametrize(("row", "format", "way"), PLAYED)
def test_a_value_means_what_the_table_says(row: Row, format: str, way: str, tmp_path: Path) -> None:
    cell = row.cells[format]
    kind = WAYS[way](row.annotation)
    write, read = FORMATS[format](kind, cell, tmp_path)
    value = kind(held=row.value)
    if cell.refused is not None and not cell.is_read:
        with pytest.raises(EncodeError, match=cell.refused):
            write(value)
        return
    written = write(value)
    if format in ("json", "binary event"):
        data = written if format == "json" else written.value
        assert data.decode() == f'{{"held":{cell.form}}}'
    if cell.refused is not None:
        with pytest.raises(DecodeError, match=cell.refused):
            read(written)
        return
    found = read(written).held
    expected = row.value if cell.read is SAME else cell.read
    assert (found, type(found)) == (expected, type(expected))


def plain_writer(format: str, reading: Reading, folder: Path) -> Write:
    """What writes data that somebody else has made."""
    if format == "json":
        return encoder_for("json")
    schemas = ChannelSchemas("orders")
    if format == "avro":
        file = folder / "plain.avsc"
        file.write_text(json.dumps(avro_schema(reading.avro)))
        return registering(
            encoder_for("avro", SchemaSource(schemas, "orders", file=str(file))), schemas
        )
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, proto_schema(reading.protobuf)))
    return encoder_for("protobuf", SchemaSource(schemas, "orders", register=False))


def plain_reader(format: str, kind: Any, reading: Reading) -> Read:
    if format == "json":
        made = decoder_for(kind, "json")
        assert made is not None
        return made
    schemas = ChannelSchemas("orders")
    of_avro = Schema("AVRO", json.dumps(avro_schema(reading.avro)))
    schemas.answered(ById(1), of_avro if format == "avro" else proto_schema(reading.protobuf))
    return decoder(kind, format, SchemaSource(schemas, "orders"))


READ = [
    pytest.param(reading, format, way, id=f"{reading.name}-{reading.data}-{format}-{way}")
    for reading in READINGS
    for format in ("json", "avro", "protobuf")
    for way in reading.ways
]


@pytest.mark.parametrize(("reading", "format", "way"), READ)
def test_data_is_read_as_the_table_says(
    reading: Reading, format: str, way: str, tmp_path: Path
) -> None:
    kind = WAYS[way](reading.annotation)
    written = plain_writer(format, reading, tmp_path)({"held": reading.data})
    read = plain_reader(format, kind, reading)
    if reading.read is REFUSED:
        with pytest.raises(DecodeError, match="does not fit Holder"):
            read(written)
        return
    found = read(written).held
    assert (found, type(found)) == (reading.read, type(reading.read))


def test_the_page_has_the_tables() -> None:
    path = Path(__file__).parents[2] / "docs" / "types.md"
    page = path.read_text(encoding="utf-8")
    assert page == meaning.written_into(page), "python -m tests.formats.meaning docs/types.md"
