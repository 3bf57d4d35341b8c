"""Schemas that hypothesis draws, with values of them: what one library writes, each other one reads
as the same.

Avro with fastavro, Apache's package and Confluent's serialiser; JSON Schema and Protobuf with
Confluent's serialisers, python-jsonschema and google.protobuf's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

import avro.io
import fastavro
import jsonschema
import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import ChannelSchemas, SchemaSource, decoder_for, encoder_for
from reactive_kafka.formats.registered.proto_files import class_of, file_of, text_of
from reactive_kafka.formats.registered.schema_questions import ById, LatestOf, Schema, SchemaWithId
from tests.formats.avro_world import apache
from tests.schemas.codecs import CONTEXT, World

Drawn = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and its values."""
HEAD = b"\0\0\0\0\1"


class Ours:
    """Our codecs with one schema, which has the id 1."""

    def __init__(self, format: str, kind: Any, text: str) -> None:
        schema = Schema(kind, text)
        schemas = ChannelSchemas("orders")
        schemas.answered(ById(1), schema)
        schemas.answered(LatestOf("orders-value"), SchemaWithId(1, schema))
        source = SchemaSource(schemas, "orders", register=False)
        decode = decoder_for(Any, format, source)
        assert decode is not None
        self.decode: Callable[[bytes], Any] = decode
        self._encode = encoder_for(format, source)

    def encode(self, value: Any) -> bytes:
        data = self._encode(value)
        assert data is not None
        return data


def exactly(value: Any) -> Any:
    """A value with the type of everything in it."""
    if isinstance(value, dict):
        return {key: exactly(one) for key, one in value.items()}
    if isinstance(value, list):
        return [exactly(one) for one in value]
    return type(value), value


# -- Avro

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
MICROS = st.datetimes(datetime(1950, 1, 1), datetime(2200, 1, 1))
MILLIS = MICROS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "string": st.text(max_size=5),
}
LOGICAL: dict[str, Drawn] = {
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda number: Decimal(number).scaleb(-3)),
    ),
    "date": ({"type": "int", "logicalType": "date"}, st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    "time-millis": (
        {"type": "int", "logicalType": "time-millis"},
        st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    "time-micros": ({"type": "long", "logicalType": "time-micros"}, st.times()),
    "timestamp-millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        MILLIS.map(lambda at: at.replace(tzinfo=UTC)),
    ),
    "timestamp-micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        MICROS.map(lambda at: at.replace(tzinfo=UTC)),
    ),
    "local-timestamp-millis": ({"type": "long", "logicalType": "local-timestamp-millis"}, MILLIS),
    "local-timestamp-micros": ({"type": "long", "logicalType": "local-timestamp-micros"}, MICROS),
}
EXAMPLES = {
    "decimal": Decimal("1.500"),
    "date": date(2026, 11, 28),
    "uuid": UUID(int=7),
    "timestamp-millis": datetime(2026, 11, 28, tzinfo=UTC),
    "local-timestamp-micros": datetime(2026, 11, 28),
}
NESTED = ("array", "map", "record", "union")
NOT_READ_BY_APACHE = ("local-timestamp", "uuid")
"""As other values than these are of."""
NOT_WRITTEN_BY_APACHE = (*NOT_READ_BY_APACHE, "boolean")
"""In a union with an int, a bool becomes one."""
GROUPS = (
    ("boolean",),
    ("int", "long", "date", "timestamp-millis", "timestamp-micros", "float", "double"),
    ("bytes", "fixed", "decimal"),
    ("string", "enum", "uuid"),
    ("array",),
    ("map", "record"),
)
"""Of each group a union has one type, so that a value of Python says which branch it is of."""


class Place(NamedTuple):
    """Where a type is drawn."""

    names: Iterator[int]
    depth: int = 0

    def inside(self) -> Place:
        return Place(self.names, self.depth + 1)


@st.composite
def avro_types(draw: st.DrawFn, place: Place, kinds: tuple[str, ...]) -> Drawn:
    kind = draw(st.sampled_from([one for one in kinds if place.depth < 3 or one not in NESTED]))
    if kind in PLAIN:
        return kind, PLAIN[kind]
    if kind in LOGICAL:
        return LOGICAL[kind]
    if kind == "enum":
        symbols = draw(st.permutations(["A", "B", "C"]))
        return {
            "type": "enum",
            "name": f"E{next(place.names)}",
            "symbols": symbols,
        }, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 5))
        schema = {"type": "fixed", "name": f"F{next(place.names)}", "size": size}
        return schema, st.binary(min_size=size, max_size=size)
    if kind == "record":
        return draw(avro_records(place.inside()))
    if kind == "union":
        return draw(avro_unions(place.inside()))
    inside, values = draw(avro_types(place.inside(), ALL))
    if kind == "array":
        return {"type": "array", "items": inside}, st.lists(values, max_size=2)
    return {"type": "map", "values": inside}, st.dictionaries(
        st.text(max_size=3), values, max_size=2
    )


@st.composite
def avro_unions(draw: st.DrawFn, place: Place) -> Drawn:
    groups = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True))
    if place.depth >= 2:
        groups = [group for group in groups if group[0] not in NESTED]
    branches = [draw(avro_types(place.inside(), group)) for group in groups]
    if not branches or draw(st.booleans()):
        branches.insert(draw(st.integers(0, len(branches))), ("null", st.none()))
    return [schema for schema, _ in branches], st.one_of([values for _, values in branches])


@st.composite
def avro_records(draw: st.DrawFn, place: Place) -> Drawn:
    """A record; some refer to themselves."""
    name = f"shop.R{next(place.names)}"
    is_recursive = draw(st.booleans())
    fields: list[dict[str, Any]] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for number in range(draw(st.integers(1, 4))):
        schema, of_field = draw(avro_types(place.inside(), ALL))
        fields.append({"name": f"f{number}", "type": schema})
        values[f"f{number}"] = of_field
    if not is_recursive:
        return {"type": "record", "name": name, "fields": fields}, st.fixed_dictionaries(values)
    fields.append({"name": "next", "type": ["null", name]})
    last = st.fixed_dictionaries({**values, "next": st.none()})
    one = st.fixed_dictionaries({**values, "next": st.none() | last})
    return {"type": "record", "name": name, "fields": fields}, one


ALL = (*PLAIN, *LOGICAL, "enum", "fixed", *NESTED)


@st.composite
def avro_data(draw: st.DrawFn) -> tuple[Any, Any]:
    """A record, or a top level of another kind, and a value."""
    place = Place(iter(range(1000)))
    is_record = draw(st.integers(0, 3)) > 0
    schema, values = draw(
        avro_records(place) if is_record else avro_types(place, ("array", "map", "enum", "union"))
    )
    return schema, draw(values)


def by_fastavro(schema: Any, value: Any) -> bytes:
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return data.getvalue()


def is_ambiguous_for_fastavro(schema: Any, value: Any) -> bool:
    """Whether fastavro may take an empty text or bytes for another branch of a union.

    It writes ``b""`` as an empty array, and reads ``""`` as a date, which fails.
    """
    if isinstance(schema, list):
        kinds = [kind if isinstance(kind, str) else kind["type"] for kind in schema]
        has_other = any(isinstance(kind, dict) for kind in schema)
        if has_other and {"string", "bytes"}.intersection(kinds) and has_empty_text(value):
            return True
        return any(is_ambiguous_for_fastavro(branch, value) for branch in schema)
    if isinstance(schema, dict):
        inner = [field["type"] for field in schema.get("fields", ())]
        inner += [schema[key] for key in ("type", "items", "values") if key in schema]
        return any(is_ambiguous_for_fastavro(kind, value) for kind in inner)
    return False


def has_empty_text(value: Any) -> bool:
    """Whether an empty text or bytes is anywhere in a value."""
    if isinstance(value, dict):
        return any(map(has_empty_text, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_empty_text, value))
    return value in ("", b"")


def from_fastavro(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(
        BytesIO(data), fastavro.parse_schema(json.loads(json.dumps(schema))), None
    )


def by_apache(schema: Any, value: Any) -> bytes:
    data = BytesIO()
    avro.io.DatumWriter(apache(schema)).write(value, avro.io.BinaryEncoder(data))
    return data.getvalue()


def from_apache(schema: Any, data: bytes) -> Any:
    return avro.io.DatumReader(apache(schema)).read(avro.io.BinaryDecoder(BytesIO(data)))


def has_none_of(schema: Any, names: tuple[str, ...]) -> bool:
    return not any(name in json.dumps(schema) for name in names)


@given(avro_data())
def test_avro_that_others_write_is_read_as_it_was(drawn: tuple[Any, Any]) -> None:
    schema, value = drawn
    assume(not is_ambiguous_for_fastavro(schema, value))
    ours = Ours("avro", "AVRO", json.dumps(schema))
    assert exactly(ours.decode(HEAD + by_fastavro(schema, value))) == exactly(value)
    if has_none_of(schema, NOT_WRITTEN_BY_APACHE):
        assert exactly(ours.decode(HEAD + by_apache(schema, value))) == exactly(value)


@given(avro_data())
def test_others_read_avro_as_we_wrote_it(drawn: tuple[Any, Any]) -> None:
    schema, value = drawn
    if value is None:
        # a value that is None is a tombstone
        return
    data = Ours("avro", "AVRO", json.dumps(schema)).encode(value)[len(HEAD) :]
    assert from_fastavro(schema, data) == value
    if has_none_of(schema, NOT_READ_BY_APACHE):
        assert from_apache(schema, data) == value


@settings(max_examples=30)
@given(st.data())
def test_avro_goes_through_confluents_serialisers_and_back(data: st.DataObject) -> None:
    schema, values = data.draw(avro_records(Place(iter(range(1000)))))
    value = data.draw(values)
    world = World()
    theirs = AvroSerializer(world.client, TheirSchema(json.dumps(schema), "AVRO"))(value, CONTEXT)
    assert exactly(world.decode(Any, "avro", theirs)) == exactly(value)
    ours = Ours("avro", "AVRO", json.dumps(schema)).encode(value)
    assert world.their_value("avro", "", ours) == value


@pytest.mark.parametrize(
    "kind", ["decimal", "date", "uuid", "timestamp-millis", "local-timestamp-micros"]
)
def test_a_union_inside_of_a_record_of_a_union_is_written(kind: str) -> None:
    type, _ = LOGICAL[kind]
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "it", "type": ["boolean", type]}],
    }
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "inner", "type": ["null", inner]}],
    }
    value = {"inner": {"it": EXAMPLES[kind]}}
    ours = Ours("avro", "AVRO", json.dumps(outer))
    assert exactly(ours.decode(ours.encode(value))) == exactly(value)


# -- JSON Schema


@st.composite
def json_types(draw: st.DrawFn, depth: int = 0) -> Drawn:
    kinds = [
        "string",
        "integer",
        "number",
        "boolean",
        "null",
        "enum",
        *(("array", "object", "anyOf") * (depth < 3)),
    ]
    kind = draw(st.sampled_from(kinds))
    if kind == "string":
        least = draw(st.integers(0, 3))
        return {"type": "string", "minLength": least}, st.text(min_size=least, max_size=6)
    if kind == "integer":
        least = draw(st.integers(-5, 5))
        return {"type": "integer", "minimum": least, "maximum": 2**53}, st.integers(least, 2**53)
    if kind == "number":
        return {"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)
    if kind == "enum":
        allowed = draw(st.lists(st.text(max_size=3), min_size=1, max_size=3, unique=True))
        return {"enum": allowed}, st.sampled_from(allowed)
    if kind == "array":
        inside, values = draw(json_types(depth + 1))
        return {"type": "array", "items": inside, "maxItems": 3}, st.lists(values, max_size=3)
    if kind == "anyOf":
        branches = [draw(json_types(depth + 1)) for _ in range(2)]
        return {"anyOf": [schema for schema, _ in branches]}, st.one_of(
            [values for _, values in branches]
        )
    if kind == "object":
        fields = {
            f"f{number}": draw(json_types(depth + 1)) for number in range(draw(st.integers(1, 3)))
        }
        needed = draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
        schema = {
            "type": "object",
            "properties": {name: inside for name, (inside, _) in fields.items()},
            "required": sorted(needed),
            "additionalProperties": draw(st.booleans()),
        }
        return schema, st.fixed_dictionaries(
            {name: values for name, (_, values) in fields.items() if name in needed},
            optional={name: values for name, (_, values) in fields.items() if name not in needed},
        )
    return {"type": kind}, st.booleans() if kind == "boolean" else st.none()


@settings(max_examples=60)
@given(st.data())
def test_json_goes_through_confluents_serialisers_and_back(data: st.DataObject) -> None:
    schema, values = data.draw(json_types().filter(lambda drawn: drawn[0].get("type") == "object"))
    value = data.draw(values)
    world = World()
    text = json.dumps({"title": "Order", **schema})
    theirs = JSONSerializer(TheirSchema(text, "JSON"), world.client)(value, CONTEXT)
    assert exactly(world.decode(Any, "json-schema", theirs)) == exactly(value)
    assert (
        world.their_value("json-schema", "", Ours("json-schema", "JSON", text).encode(value))
        == value
    )


@given(json_types(), json_types(), st.data())
def test_what_jsonschema_refuses_is_neither_read_nor_written(
    first: Drawn, second: Drawn, data: st.DataObject
) -> None:
    schema, (_, values) = first[0], second
    value = data.draw(values)
    fits = jsonschema.Draft202012Validator(schema).is_valid(value)
    ours = Ours("json-schema", "JSON", json.dumps(schema))
    encoded = HEAD + json.dumps(value).encode()
    if fits:
        assert exactly(ours.decode(encoded)) == exactly(value)
        assert value is None or json.loads(ours.encode(value)[len(HEAD) :]) == value
        return
    with pytest.raises(DecodeError, match="does not fit the JSON Schema, schema 1: "):
        ours.decode(encoded)
    if value is not None:
        with pytest.raises(EncodeError, match="does not fit the JSON Schema: "):
            ours.encode(value)


# -- Protobuf

SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptorProto.TYPE_DOUBLE: st.floats(allow_nan=False),
    FieldDescriptorProto.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    FieldDescriptorProto.TYPE_INT64: LONGS,
    FieldDescriptorProto.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptorProto.TYPE_INT32: INTS,
    FieldDescriptorProto.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    FieldDescriptorProto.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    FieldDescriptorProto.TYPE_BOOL: st.booleans(),
    FieldDescriptorProto.TYPE_STRING: st.text(max_size=5),
    FieldDescriptorProto.TYPE_BYTES: st.binary(max_size=5),
    FieldDescriptorProto.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptorProto.TYPE_SFIXED32: INTS,
    FieldDescriptorProto.TYPE_SFIXED64: LONGS,
    FieldDescriptorProto.TYPE_SINT32: INTS,
    FieldDescriptorProto.TYPE_SINT64: LONGS,
}


@st.composite
def messages(
    draw: st.DrawFn, name: str, depth: int = 0
) -> tuple[DescriptorProto, st.SearchStrategy[Any]]:
    """A message of scalars, of optional and repeated ones, of messages, and maybe of itself; and
    what is said in it.
    """
    made = DescriptorProto(name=name)
    values: dict[str, st.SearchStrategy[Any]] = {}
    for number in range(1, draw(st.integers(2, 6))):
        field = made.field.add(
            name=f"f{number}",
            number=draw(st.just(number)),
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        is_message = depth < 2 and draw(st.booleans())
        if is_message:
            inner, inside = draw(messages(f"M{number}", depth + 1))
            made.nested_type.append(inner)
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f"M{number}"
        else:
            field.type = draw(st.sampled_from(sorted(SCALARS)))
            inside = SCALARS[field.type]
        presence = draw(st.sampled_from(["plain", "optional", "repeated"]))
        if presence == "repeated":
            field.label = FieldDescriptorProto.LABEL_REPEATED
            values[field.name] = st.lists(inside, max_size=3)
        elif presence == "optional" and not is_message:
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")
            values[field.name] = st.none() | inside
        else:
            values[field.name] = st.none() | inside if is_message else inside
    return made, st.fixed_dictionaries(values)


def filled(message: Any, plain: dict[str, Any]) -> Any:
    """A message that says what plain data says, without code of ours."""
    for name, value in plain.items():
        place = getattr(message, name)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    filled(place.add(), one)
                else:
                    place.append(one)
        elif isinstance(value, dict):
            place.SetInParent()
            filled(place, value)
        elif value is not None:
            setattr(message, name, value)
    return message


@settings(max_examples=60)
@given(messages("Order"), st.data())
def test_protobuf_goes_through_googles_and_confluents_serialisers_and_back(
    drawn: tuple[DescriptorProto, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    made, values = drawn
    plain = data.draw(values)
    file = FileDescriptorProto(
        name="order.proto", package="wild", syntax="proto3", message_type=[made]
    )
    text = text_of(file.SerializeToString())
    kind = class_of(file_of(Schema("PROTOBUF", text)).message_types_by_name["Order"])
    message = filled(kind(), plain)
    ours = Ours("protobuf", "PROTOBUF", text)
    assert exactly(ours.decode(HEAD + b"\0" + message.SerializeToString())) == exactly(plain)
    encoded = ours.encode(plain)
    assert kind.FromString(encoded[len(HEAD) + 1 :]) == message
    world = World()
    theirs = ProtobufSerializer(kind, world.client, {"use.deprecated.format": False})(
        message, CONTEXT
    )
    assert exactly(world.decode(Any, "protobuf", theirs)) == exactly(plain)
    assert (
        ProtobufDeserializer(kind, {"use.deprecated.format": False}, world.client)(encoded, CONTEXT)
        == message
    )
