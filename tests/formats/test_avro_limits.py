"""Avro data that would fill the stack or the memory is refused, and what only looks like it is
read.
"""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.avro_limits import has_weightless_items, is_recursive
from reactive_kafka.formats.registered.schema_questions import (
    ById,
    IdOf,
    LatestOf,
    Schema,
    SchemaWithId,
)

FIRST = b"\0\0\0\0\1"
NODE: Any = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
FAR: Any = {
    "type": "record",
    "name": "Tree",
    "namespace": "far.away",
    "fields": [
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "Tree"}}}
    ],
}
EMPTY: Any = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}
FIXED: Any = {"type": "fixed", "name": "None", "size": 0}
TWICE: Any = {
    "type": "record",
    "name": "Twice",
    "fields": [
        {"name": "a", "type": {**NODE, "fields": [{"name": "id", "type": "int"}]}},
        {"name": "b", "type": "Node"},
    ],
}


def source(schema: Any) -> SchemaSource:
    """Schema 1, also the latest, is the one given."""
    schemas, known = ChannelSchemas("orders"), Schema("AVRO", json.dumps(schema))
    schemas.answered(ById(1), known)
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, known))
    return SchemaSource(schemas, "orders", register=False)


def decode(schema: Any, data: bytes) -> Any:
    decoder = decoder_for(Any, "avro", source(schema))
    assert decoder is not None
    return decoder(FIRST + data)


def nested(depth: int) -> Any:
    value: Any = {"next": None}
    for _ in range(depth):
        value = {"next": value}
    return value


def test_data_that_is_nested_as_deep_as_it_likes_cannot_be_decoded() -> None:
    assert decode(NODE, b"\2" * 100 + b"\0") == nested(100)
    with pytest.raises(DecodeError, match="nested too deeply"):
        # The compiled code of fastavro would end the process.
        decode(NODE, b"\2" * 1_000_000)
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode(
            {"type": "record", "name": "Node", "fields": [{"name": "next", "type": "Node"}]}, b""
        )


def test_what_is_nested_too_deeply_is_not_written_either() -> None:
    encode = encoder_for("avro", source(NODE))
    assert encode(nested(100)) == FIRST + b"\2" * 100 + b"\0"
    with pytest.raises(EncodeError, match="dict does not fit the Avro schema: RecursionError"):
        encode(nested(100_000))


def test_a_file_may_hold_a_schema_that_refers_to_itself(tmp_path: Any) -> None:
    file = tmp_path / "Node.avsc"
    file.write_text(json.dumps(NODE))
    schemas = ChannelSchemas("orders")
    encode = encoder_for("avro", SchemaSource(schemas, "orders", file=str(file)))
    with pytest.raises(SchemaMissing) as missing:
        encode(nested(1))
    assert isinstance(missing.value.ask, IdOf)
    schemas.answered(missing.value.ask, 1)
    with pytest.raises(EncodeError, match="RecursionError"):
        encode(nested(100_000))


@pytest.mark.parametrize("items", ["null", EMPTY, FIXED, {"type": "null"}], ids=str)
def test_an_array_of_items_that_take_no_bytes_is_not_read(items: Any) -> None:
    with pytest.raises(
        DecodeError, match="schema 1 of the registry has an array of items that take no bytes"
    ):
        decode({"type": "array", "items": items}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0")


@pytest.mark.parametrize(
    ("schema", "recursive", "weightless"),
    [
        ("string", False, False),
        (NODE, True, False),
        (FAR, True, False),
        (TWICE, False, False),
        (EMPTY, False, False),
        ({"type": "map", "values": "null"}, False, False),
        ({"type": "array", "items": ["null"]}, False, False),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, False, False),
        ({"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["A"]}}, False, False),
        ({"type": "array", "items": TWICE}, False, False),
        ({"type": "array", "items": NODE}, True, False),
        ({"type": "map", "values": [{"type": "array", "items": EMPTY}, "int"]}, False, True),
        ([EMPTY, {"type": "array", "items": "Empty"}], False, True),
    ],
    ids=str,
)
def test_what_a_schema_is_known_by(schema: Any, recursive: bool, weightless: bool) -> None:
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named_schemas=named)
    assert (is_recursive(parsed, named), has_weightless_items(parsed, named)) == (
        recursive,
        weightless,
    )
