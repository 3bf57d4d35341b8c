"""Schemas that evolve: what the one side has written the other side reads, in both directions, in
every format.

The other side is Confluent's serialiser and deserialiser with the schema of its own version.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import AliasChoices, Field, TypeAdapter, create_model

from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.proto_files import class_of, compiled
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer

TITLE = Annotated[str, Field(validation_alias=AliasChoices("title", "name"))]
OUT = SerializationContext("orders-out", MessageField.VALUE)


class Version(NamedTuple):
    """One side: the fields of its model (name, type, perhaps a default), and of its message."""

    fields: tuple[tuple[Any, ...], ...]
    proto: str


class Change(NamedTuple):
    """What the older side says, and what the newer one reads; then the other way, where that is
    possible.
    """

    old: Version
    new: Version
    written: dict[str, Any]
    read: dict[str, Any]
    back: tuple[dict[str, Any], dict[str, Any]] | None


ID = ("id", int)
CHANGES = {
    "added": Change(
        Version((ID,), ""),
        Version((ID, ("added", str, "none yet")), "optional string added = 2;"),
        {"id": 1},
        {"id": 1, "added": "none yet"},
        ({"id": 1, "added": "it is"}, {"id": 1}),
    ),
    "removed": Change(
        Version((ID, ("gone", str, "was there")), "optional string gone = 2;"),
        Version((ID,), ""),
        {"id": 1, "gone": "x"},
        {"id": 1},
        ({"id": 1}, {"id": 1, "gone": "was there"}),
    ),
    "renamed": Change(
        Version((ID, ("name", str)), "string name = 2;"),
        Version((ID, ("title", TITLE)), "string title = 2;"),
        {"id": 1, "name": "tea"},
        {"id": 1, "title": "tea"},
        None,
    ),
    "optional": Change(
        Version((ID, ("note", str)), "string note = 2;"),
        Version((ID, ("note", str | None, None)), "optional string note = 2;"),
        {"id": 1, "note": "gift"},
        {"id": 1, "note": "gift"},
        ({"id": 1, "note": "gift"}, {"id": 1, "note": "gift"}),
    ),
    "widened": Change(
        Version((ID, ("count", int)), "int32 count = 2;"),
        Version((ID, ("count", float)), "int64 count = 2;"),
        {"id": 1, "count": 2},
        {"id": 1, "count": 2.0},
        None,
    ),
}
FORMATS = ("avro", "json-schema", "protobuf")
KINDS = ("dataclass", "pydantic", "struct")
CASES = [
    pytest.param(
        name, is_back, format, kind, id=f"{name}{' back' if is_back else ''}-{format}-{kind}"
    )
    for name, change in CHANGES.items()
    for is_back in ((False, True) if change.back is not None else (False,))
    for format in FORMATS
    for kind in KINDS
]
# Msgspec knows one name of a field, and JSON Schema renames none.
RENAMED_STRUCT_OF_JSON = "renamed-json-schema-struct"
THEIRS = [case for case in CASES if case.id != RENAMED_STRUCT_OF_JSON]
OURS = [case for case in CASES if not str(case.id).startswith("renamed-json-schema")]


def sides(change: Change, is_back: bool) -> tuple[Version, Version, dict[str, Any], dict[str, Any]]:
    """Writer, reader, and what each of them sees."""
    if not is_back:
        return change.old, change.new, change.written, change.read
    assert change.back is not None
    return change.new, change.old, *change.back


def model(version: Version, kind: str = "pydantic") -> Any:
    """The class Order of a version."""
    if kind == "struct":
        return msgspec.defstruct("Order", [tuple(field) for field in version.fields])
    if kind == "dataclass":
        return dataclasses.make_dataclass(
            "Order",
            [
                (name, of, *(dataclasses.field(default=one) for one in given))
                for name, of, *given in version.fields
            ],
        )
    fields: Any = {name: (of, *(given or (...,))) for name, of, *given in version.fields}
    return create_model("Order", **fields)


def plain(value: Any) -> Any:
    """What a model, a message or a document says."""
    if isinstance(value, dict):
        return value
    if hasattr(value, "DESCRIPTOR"):
        return {field.name: getattr(value, field.name) for field, _ in value.ListFields()}
    return (
        msgspec.to_builtins(value)
        if isinstance(value, msgspec.Struct)
        else TypeAdapter(type(value)).dump_python(value)
    )


def proto(version: Version, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "order.proto"
    file.write_text(
        f'syntax = "proto3"; package shop; message Order {{ int64 id = 1; {version.proto} }}'
    )
    return file


def avro(version: Version) -> str:
    return json.dumps(schema_of_type(model(version)))


def json_schema(version: Version) -> str:
    return json.dumps(model(version).model_json_schema(mode="serialization"))


def reader_file(format: str, version: Version, folder: Path) -> str | None:
    """The reader's schema: its aliases rename fields in Avro, and numbers do in Protobuf."""
    if format == "json-schema":
        return None
    if format == "protobuf":
        return str(proto(version, folder / "ours"))
    (folder / "order.avsc").write_text(avro(version))
    return str(folder / "order.avsc")


def serializer(format: str, version: Version, client: SchemaRegistryClient, folder: Path) -> Any:
    """Confluent's, of dicts."""
    if format == "avro":
        return AvroSerializer(client, avro(version))
    if format == "json-schema":
        return JSONSerializer(json_schema(version), client)
    kind = class_of(
        next(iter(compiled(str(proto(version, folder))).message_types_by_name.values()))
    )
    serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    return lambda value, context: serialize(kind(**value), context)


def deserializer(format: str, version: Version, client: SchemaRegistryClient, folder: Path) -> Any:
    """Confluent's, with its own version of the schema."""
    if format == "avro":
        return AvroDeserializer(client, avro(version))
    if format == "json-schema":
        return JSONDeserializer(json_schema(version), schema_registry_client=client)
    kind = class_of(
        next(iter(compiled(str(proto(version, folder))).message_types_by_name.values()))
    )
    return ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)


@pytest.mark.parametrize(("name", "is_back", "format", "kind"), THEIRS)
async def test_a_model_reads_what_confluents_serialiser_has_written_with_another_version(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    tmp_path: Path,
    name: str,
    is_back: bool,
    format: str,
    kind: str,
) -> None:
    writer, reader, written, read = sides(CHANGES[name], is_back)
    app = make_app(
        format,
        {"schema": {"file": reader_file(format, reader, tmp_path)}} if name == "renamed" else {},
    )
    wanted: Any = model(reader, kind)
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: wanted) -> None:  # type: ignore[valid-type]
        seen.append(order)

    async with running(app, registry) as test:
        data = await serialized(serializer(format, writer, confluent, tmp_path / "theirs"), written)
        await test.send("orders", data)
        await test.settled()
    assert [type(one) for one in seen] == [wanted]
    assert plain(seen[0]) == read


@pytest.mark.parametrize("kind", ["dataclass", "pydantic"])
@pytest.mark.parametrize("format", ["avro", "json-schema"])
async def test_a_model_that_knows_the_old_name_of_a_field_needs_no_file(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    tmp_path: Path,
    format: str,
    kind: str,
) -> None:
    writer, reader, written, read = sides(CHANGES["renamed"], False)
    app = make_app(format)
    wanted: Any = model(reader, kind)
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: wanted) -> None:  # type: ignore[valid-type]
        seen.append(plain(order))

    async with running(app, registry) as test:
        await test.send(
            "orders", await serialized(serializer(format, writer, confluent, tmp_path), written)
        )
        await test.settled()
    assert seen == [read]


@pytest.mark.parametrize(("name", "is_back", "format", "kind"), OURS)
async def test_confluents_deserialiser_reads_with_another_version_what_a_model_was_written_as(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    tmp_path: Path,
    name: str,
    is_back: bool,
    format: str,
    kind: str,
) -> None:
    writer, reader, written, read = sides(CHANGES[name], is_back)
    file = {"file": str(proto(writer, tmp_path / "ours"))} if format == "protobuf" else {}
    app = make_app(format, outgoing={"schema": file})
    emitter = app.emitter("out")
    order = model(writer, kind)(**written)
    async with running(app, registry) as test:
        await emitter.send(order)
        (record,) = test.records("out")
    theirs = await serialized(
        deserializer(format, reader, confluent, tmp_path / "theirs"), record.value, OUT
    )
    if format == "json-schema":
        # It checks the document, and changes nothing.
        read = written
    elif format == "protobuf":
        # A message has no defaults.
        read = {name: value for name, value in read.items() if value in written.values()}
    assert plain(theirs) == read
