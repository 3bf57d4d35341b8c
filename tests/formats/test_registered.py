"""Codecs whose schemas are in a registry: whatever the bytes, a value or a DecodeError; and schemas
made from types.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, StrEnum
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import fastavro
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    FormatError,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.proto_files import (
    compiled_text,
    read_indexes,
    schema_of_file,
    write_indexes,
)
from reactive_kafka.formats.registered.schema_questions import (
    ById,
    IdOf,
    LatestOf,
    Reference,
    Schema,
    SchemaWithId,
)
from tests.schemas import protos


class Color(StrEnum):
    RED = "RED"
    BLUE = "BLUE"


class Hard(Enum):
    ONE = 1
    TWO = "two"


class Inner(BaseModel):
    sku: str
    count: int = 1


class Everything(BaseModel):
    text: str
    number: int
    share: float = 0.5
    flag: bool = False
    raw: bytes = b""
    at: datetime
    day: date
    clock: time
    id: UUID
    maybe: int | None = None
    named: str | None = "x"
    either: int | str = 0
    lines: list[Inner] = []
    more: dict[str, Inner] = {}
    color: Color = Color.RED
    kind: Literal["a", "b"] = "a"
    short: Annotated[str, Field(max_length=5)] = ""
    wire: str = Field("w", serialization_alias="onWire", validation_alias="onWire")


EVERYTHING = Everything(
    text="t",
    number=2**40,
    at=datetime(2026, 1, 1, tzinfo=UTC),
    day=date(2026, 1, 1),
    clock=time(1),
    id=UUID(int=7),
    maybe=3,
    either="e",
    lines=[Inner(sku="a")],
    more={"k": Inner(sku="b", count=2)},
    color=Color.BLUE,
    onWire="o",
    raw=b"\0\xff",
)


def source(schema: Schema | None = None) -> SchemaSource:
    """Schema 1 is the one given."""
    schemas = ChannelSchemas("orders")
    if schema is not None:
        schemas.answered(ById(1), schema)
    return SchemaSource(schemas, "orders")


def round_trip(value: Any, format: str) -> Any:
    where = source()
    encode, decode = encoder_for(format, where), decoder_for(type(value), format, where)
    assert decode is not None
    with pytest.raises(SchemaMissing) as missing:
        encode(value)
    ask = missing.value.ask
    assert isinstance(ask, IdOf)
    where.schemas.answered(ask, 1)
    where.schemas.answered(ById(1), ask.schema)
    return decode(encode(value))


@pytest.mark.parametrize("format", ["avro", "json-schema"])
def test_a_model_with_fields_of_every_plain_type_comes_back(format: str) -> None:
    value = EVERYTHING if format == "avro" else EVERYTHING.model_copy(update={"raw": b"plain"})
    assert round_trip(value, format) == value


def test_the_schema_of_a_model_has_its_defaults_where_avro_can_say_them() -> None:
    schema = schema_of_type(Everything)
    fastavro.parse_schema(json.loads(json.dumps(schema)))
    fields = {field["name"]: field for field in schema["fields"]}
    assert fields["maybe"] == {"name": "maybe", "type": ["null", "long"], "default": None}
    assert fields["named"] == {"name": "named", "type": ["string", "null"], "default": "x"}
    assert fields["share"]["default"] == 0.5
    assert fields["lines"]["default"] == []
    assert fields["more"]["type"] == {"type": "map", "values": "Inner"}
    assert "default" not in fields["text"]
    assert "onWire" in fields


def test_dataclasses_and_structs_have_schemas_too() -> None:
    @dataclasses.dataclass
    class Data:
        id: int
        tags: list[str] = dataclasses.field(default_factory=list)

    class Struct(msgspec.Struct, rename="camel"):
        order_id: int
        tags: list[str] = []

    assert schema_of_type(Data)["fields"][1]["default"] == []
    assert [field["name"] for field in schema_of_type(Struct)["fields"]] == ["orderId", "tags"]
    assert round_trip(Struct(1), "avro") == Struct(1)


@pytest.mark.parametrize(
    "annotation", [Decimal, Any, Hard, dict[int, str], tuple[int, str], object]
)
def test_a_type_that_says_too_little_is_refused_with_what_to_do(annotation: Any) -> None:
    kind = dataclasses.make_dataclass("Order", [("total", annotation)])
    with pytest.raises(FormatError, match=r"Order\.total: .*write the schema into a file"):
        schema_of_type(kind)
    with pytest.raises(EncodeError, match="write the schema into a file"):
        encoder_for("avro", source())(kind(1))


class Step(StrEnum):
    IN_PROGRESS = "in-progress"


@dataclasses.dataclass
class Small:
    id: int


@dataclasses.dataclass
class Large:
    id: int
    note: str | None = None


@dataclasses.dataclass
class Holder:
    one: Large | str | Small
    step: Step = Step.IN_PROGRESS


@pytest.mark.parametrize("one", [Small(1), Large(1), Large(1, "x"), "text"])
def test_of_two_records_in_a_union_the_right_one_is_written(one: Any) -> None:
    where = source()
    encode = encoder_for("avro", where)
    with pytest.raises(SchemaMissing) as missing:
        encode(Holder(one))
    ask = missing.value.ask
    assert isinstance(ask, IdOf)
    where.schemas.answered(ask, 1)
    data = BytesIO((encode(Holder(one)) or b"")[5:])
    schema = fastavro.parse_schema(json.loads(ask.schema.text))
    read: Any = fastavro.schemaless_reader(data, schema, None, return_record_name=True)
    assert read["step"] == "in-progress"
    named = (type(one).__name__, dataclasses.asdict(one)) if dataclasses.is_dataclass(one) else one
    assert read["one"] == named


@pytest.mark.parametrize(
    ("annotation", "default", "said"),
    [
        (int | datetime, 1, "int and datetime are both Avro's long"),
        (
            int,
            1.5,
            "Order has no Avro schema: Order.it: the default of a field of type long does not match it",
        ),
    ],
)
def test_a_schema_that_would_say_something_else_is_refused(
    annotation: Any, default: Any, said: str
) -> None:
    kind = dataclasses.make_dataclass("Order", [("it", annotation, default)])
    with pytest.raises(EncodeError, match=said):
        encoder_for("avro", source())(kind())


@pytest.mark.parametrize("format", ["avro", "json-schema", "protobuf"])
def test_plain_data_without_a_schema_is_refused_with_what_to_do(format: str) -> None:
    with pytest.raises(EncodeError, match="no schema is known for dict: name one with `file`"):
        encoder_for(format, source())({"id": 1})


@pytest.mark.parametrize("format", ["avro", "json-schema", "protobuf"])
def test_a_tombstone_has_no_schema(format: str) -> None:
    assert encoder_for(format, source())(None) is None
    decode = decoder_for(dict[str, Any] | None, format, source())
    assert decode is not None and decode(None) is None


@pytest.mark.parametrize(
    ("format", "kind", "why"),
    [
        ("avro", bytearray, "yields what the schema says, and its bytes as bytes"),
        ("json-schema", bytes, "yields what the JSON holds, never bytes"),
        ("protobuf", str, "yields a message or its fields, never text or bytes alone"),
        ("protobuf", bytes | None, "yields a message or its fields, never text or bytes alone"),
    ],
)
def test_what_a_format_never_yields_is_refused_at_the_start(
    format: str, kind: Any, why: str
) -> None:
    with pytest.raises(FormatError, match=why):
        decoder_for(kind, format, source())


PRIMITIVES: list[tuple[str, str, Any, Any]] = [
    ("avro", '"string"', str, "grün"),
    ("avro", '"string"', str | None, "x"),
    ("avro", '"string"', Annotated[str, Field(max_length=3)], "x"),
    ("avro", '["null", "string"]', str, "x"),
    ("avro", '"bytes"', bytes, b"\xff"),
    ("avro", '{"type": "fixed", "name": "Two", "size": 2}', bytes, b"\xff\0"),
    ("json-schema", '{"type": "string"}', str, "grün"),
]


def written(format: str, schema: str, value: Any, folder: Path) -> tuple[bytes, SchemaSource]:
    """The record that the schema of a file makes of a value, and what reads it."""
    file = folder / "schema.json"
    file.write_text(schema)
    schemas = ChannelSchemas("orders")
    encode = encoder_for(format, SchemaSource(schemas, "orders", file=str(file)))
    with pytest.raises(SchemaMissing) as missing:
        encode(value)
    assert isinstance(missing.value.ask, IdOf)
    schemas.answered(missing.value.ask, 1)
    schemas.answered(ById(1), missing.value.ask.schema)
    data = encode(value)
    assert data is not None
    return data, SchemaSource(schemas, "orders")


@pytest.mark.parametrize(("format", "schema", "kind", "value"), PRIMITIVES)
def test_text_and_bytes_are_payloads_where_the_schema_is_of_them(
    format: str, schema: str, kind: Any, value: Any, tmp_path: Path
) -> None:
    data, where = written(format, schema, value, tmp_path)
    decode = decoder_for(kind, format, where)
    assert decode is not None
    assert decode(data) == value


NO_TEXT = [
    ("avro", '"long"', str, 1),
    (
        "avro",
        '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}',
        bytes,
        {"id": 1},
    ),
    ("json-schema", "{}", str, {"id": 1}),
]


@pytest.mark.parametrize(("format", "schema", "kind", "value"), NO_TEXT)
def test_a_record_that_is_something_else_is_refused_with_what_is_expected(
    format: str, schema: str, kind: Any, value: Any, tmp_path: Path
) -> None:
    data, where = written(format, schema, value, tmp_path)
    decode = decoder_for(kind, format, where)
    assert decode is not None
    with pytest.raises(
        DecodeError, match=rf"^does not fit {kind.__name__}: Input should be a valid "
    ):
        decode(data)


@pytest.mark.parametrize("value", ["text", b"bytes", 5, [1]])
def test_protobuf_writes_nothing_that_has_no_fields(value: Any) -> None:
    schemas = ChannelSchemas("orders")
    text = compiled_text(Schema("PROTOBUF", 'syntax = "proto3"; message Order { int64 id = 1; }'))
    schemas.answered(LatestOf("orders-value"), SchemaWithId(1, Schema("PROTOBUF", text)))
    encode = encoder_for("protobuf", SchemaSource(schemas, "orders", register=False))
    why = "does not fit the Protobuf message: it takes a message, a model or a dict, not "
    with pytest.raises(EncodeError, match=why):
        encode(value)


@pytest.mark.parametrize(
    ("format", "name", "text", "said"),
    [
        ("avro", "x.avsc", "{", "is no Avro schema"),
        ("avro", "x.avsc", None, "cannot be read|is no Avro schema"),
        ("json-schema", "x.json", "{", "is no JSON"),
        ("json-schema", "x.json", '{"type": 5}', "is no JSON Schema"),
        ("json-schema", "x.json", '{"$ref": "x.json"}', "refers to itself"),
        ("json-schema", "x.json", None, "cannot be read"),
        ("protobuf", "x.proto", "nonsense", "as a .proto file: "),
        ("protobuf", "x.proto", None, "there is no such file"),
    ],
)
def test_a_file_that_is_no_schema_is_told_at_the_start(
    tmp_path: Any, format: str, name: str, text: str | None, said: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    where = dataclasses.replace(source(), file=str(file))
    with pytest.raises(FormatError, match=said):
        decoder_for(dict, format, where)
    with pytest.raises(FormatError, match=said):
        encoder_for(format, where)


AVRO = Schema("AVRO", json.dumps(schema_of_type(Everything)))
JSON = Schema("JSON", json.dumps(Everything.model_json_schema()))
PROTO = schema_of_file(protos.generated().DESCRIPTOR)
SCHEMAS = {"avro": AVRO, "json-schema": JSON, "protobuf": PROTO}
DECODERS = {
    (format, kind): decoder_for(kind, format, source(schema))
    for format, schema in SCHEMAS.items()
    for kind in (Any, dict, Everything)
}
GENERATED = decoder_for(protos.generated().Order, "protobuf", source(PROTO))


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"\0\0\0\0\1" + data))
@example(b"\0\0\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
@example(b'\0\0\0\0\1{"text": NaN}')
def test_no_bytes_raise_anything_but_a_decode_error_or_that_a_schema_is_missing(
    value: bytes,
) -> None:
    for decode in (*DECODERS.values(), GENERATED):
        assert decode is not None
        try:
            decode(value)
        except SchemaMissing as missing:
            assert missing.ask != ById(1)
        except DecodeError:
            pass


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "rows", "type": {"type": "array", "items": "Row"}}],
}
PAIR = {
    "type": "record",
    "name": "Pair",
    "fields": [
        {
            "name": "one",
            "type": {
                "type": "record",
                "name": "One",
                "fields": [{"name": "pair", "type": {"type": "map", "values": ["null", "Pair"]}}],
            },
        },
        {"name": "two", "type": ["null", "One"]},
    ],
}
REFERRING = {"type": "record", "name": "A", "fields": [{"name": "node", "type": "Node"}]}
REFERRED = (Reference("Node", "node", 1, Schema("AVRO", json.dumps(NODE))),)


@pytest.mark.parametrize(
    ("schema", "level", "references"),
    [
        (NODE, b"\2", ()),
        (ROW, b"\2", ()),
        (PAIR, b"\2\2x\2", ()),
        (REFERRING, b"\2", REFERRED),
    ],
)
def test_data_that_is_nested_without_an_end_cannot_be_decoded(
    schema: dict[str, Any], level: bytes, references: tuple[Reference, ...]
) -> None:
    decode = decoder_for(Any, "avro", source(Schema("AVRO", json.dumps(schema), references)))
    assert decode is not None
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode(b"\0\0\0\0\1" + level * 1_000_000)


def test_data_of_a_type_that_holds_itself_is_read() -> None:
    decode = decoder_for(Any, "avro", source(Schema("AVRO", json.dumps(NODE))))
    assert decode is not None
    assert decode(b"\0\0\0\0\1\2\2\0") == {"next": {"next": {"next": None}}}


def test_the_text_of_an_error_does_not_quote_the_record() -> None:
    secret = b"4711-0815"
    for key, data in (
        (("avro", Everything), b"\x12" + secret),
        (("json-schema", dict), b'{"text": "%s", "number": "%s"}' % (secret, secret)),
        (("json-schema", Everything), b'{"text": "%s", "number": "%s"}' % (secret, secret)),
        (("protobuf", Everything), b"\2\2" + b"\x1a\x09" + secret),
    ):
        decode = DECODERS[key]
        assert decode is not None
        with pytest.raises(DecodeError) as raised:
            decode(b"\0\0\0\0\1" + data)
        assert secret.decode() not in f"{raised.value} {raised.value.__cause__}"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_the_place_of_a_message_comes_back(indexes: list[int]) -> None:
    written = write_indexes(indexes)
    assert read_indexes(b"12345" + written + b"rest", 5) == (tuple(indexes), 5 + len(written))
