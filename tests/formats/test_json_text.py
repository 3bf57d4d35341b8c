import base64
import dataclasses
import json
import pickle
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents_read import ValueAndHeaders
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.json_text import (
    TextSource,
    question_of,
    read_texts,
    schema_name,
    text_source,
)
from reactive_kafka.formats.registered.channel_schemas import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
)
from reactive_kafka.formats.registered.proto_files import schema_of_file
from reactive_kafka.formats.registered.schema_questions import ByGuid, ById, Schema, SchemaQuestion
from reactive_kafka.formats.registered.wire_format import VALUE_HEADER, prefix_of

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2},
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "rate", "type": "double"},
    ],
}
KEY = uuid.UUID(int=7)
VALUE = {
    "id": 2**62,
    "raw": b"\x00\xff\xfe",
    "at": datetime(2026, 11, 25, 12, 30, 0, 123_456, tzinfo=UTC),
    "day": date(2026, 11, 25),
    "price": Decimal("12345678901234567890123456789012345678.90"),
    "key": KEY,
    "tags": {"ü": None, "b": "x"},
    "rate": 0.1,
}


def avro(schema: Any, value: Any, id: int = 1) -> bytes:
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return prefix_of(id) + data.getvalue()


def source_of(name: str, file: str | None = None, *, finds_events: bool = True) -> TextSource:
    """As it comes to an executor, which has no file."""
    made = text_source(
        name, SchemaSource(ChannelSchemas("orders"), "orders", file=file), finds_events
    )
    sent: TextSource = pickle.loads(pickle.dumps(made))
    return sent


def answers_of(*schemas: Schema) -> dict[SchemaQuestion, Any]:
    return {ById(id): schema for id, schema in enumerate(schemas, 1)}


def avro_reader(*schemas: Any, file: str | None = None) -> Callable[..., str | None]:
    return source_of("avro", file).reader(
        answers_of(*(Schema("AVRO", json.dumps(one)) for one in schemas))
    )


def test_an_avro_record_is_json_that_loses_nothing() -> None:
    text = avro_reader(ORDER)(ValueAndHeaders(avro(ORDER, VALUE)))
    assert text is not None
    assert json.loads(text) == {
        "id": 2**62,
        "raw": base64.b64encode(b"\x00\xff\xfe").decode(),
        "at": "2026-11-25T12:30:00.123456+00:00",
        "day": "2026-11-25",
        "price": "12345678901234567890123456789012345678.90",
        "key": str(KEY),
        "tags": {"ü": None, "b": "x"},
        "rate": 0.1,
    }


def test_each_record_is_read_with_the_schema_that_it_names() -> None:
    first = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}
    second = {"type": "record", "name": "A", "fields": [{"name": "b", "type": "string"}]}
    read = avro_reader(first, second)
    values = [
        avro(second, {"b": "x"}, 2),
        avro(first, {"a": 1}, 1),
        None,
        avro(first, {"a": 2}, 3),
        b"\0\0",
        b"",
    ]
    values += [avro(second, {"b": "x"}, 3), avro(first, {"a": 2}, 4), prefix_of(2) + b"\xff"]
    found = read_texts(read, [(value, ()) for value in values])
    assert found.texts == ['{"b": "x"}', '{"a": 1}', *[None] * 7]
    # The first record that needs a schema names it, the others only wait.
    assert found.missing == [None, None, None, "3", None, None, "", "4", None]
    names_none = "it names no schema: a zero and four bytes of an id are to come first"
    assert found.problems[4:6] == [names_none, names_none]
    assert str(found.problems[8]).startswith("not data of schema 2: ")
    assert [one is None for one in found.problems] == [True] * 4 + [False] * 2 + [True] * 2 + [
        False
    ]


def test_what_the_registry_has_refused_is_what_is_wrong_with_the_record() -> None:
    read = source_of("avro").reader(
        {ById(1): DecodeError("schema registry x: schema 1: 404: no such schema")}
    )
    found = read_texts(read, [(prefix_of(1), ())])
    assert found == ([None], ["schema registry x: schema 1: 404: no such schema"], [None])


def test_the_name_of_a_schema_leads_back_to_it() -> None:
    for ask in (ById(0), ById(2**32 - 1), ByGuid(str(KEY))):
        assert question_of(schema_name(ask)) == ask


def test_a_schema_may_be_named_by_a_header() -> None:
    headers = ((VALUE_HEADER, b"\1" + KEY.bytes),)
    data = avro(ORDER, VALUE)[5:]
    source = source_of("avro")
    with pytest.raises(SchemaMissing) as missing:
        source.reader({})(ValueAndHeaders(data, headers))
    assert missing.value.ask == ByGuid(str(KEY))
    text = source.reader({missing.value.ask: Schema("AVRO", json.dumps(ORDER))})(
        ValueAndHeaders(data, headers)
    )
    assert text is not None
    assert json.loads(text)["id"] == 2**62


def test_the_readers_schema_goes_along_and_resolves_what_others_have_written(
    tmp_path: Path,
) -> None:
    file = tmp_path / "order.avsc"
    fields = [
        {"name": "number", "aliases": ["id"], "type": "double"},
        {"name": "note", "type": "string", "default": "none"},
    ]
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    read = avro_reader(ORDER, {"type": "record", "name": "Order", "fields": []}, file=str(file))
    file.unlink()
    text = read(ValueAndHeaders(avro(ORDER, {**VALUE, "id": 7})))
    assert text is not None
    assert json.loads(text) == {"number": 7.0, "note": "none"}
    with pytest.raises(
        DecodeError, match=r"schema 2, which it was written with, does not resolve to .*order\.avsc"
    ):
        read(ValueAndHeaders(prefix_of(2)))


@pytest.mark.parametrize(
    ("name", "suffix"), [("avro", "avsc"), ("json-schema", "json"), ("protobuf", "proto")]
)
def test_a_readers_schema_that_is_none_is_told_at_the_start(
    name: str, suffix: str, tmp_path: Path
) -> None:
    file = tmp_path / f"none.{suffix}"
    with pytest.raises(FormatError, match=r"cannot be read|Failed to load"):
        source_of(name, str(file))
    file.write_text("{")
    with pytest.raises(FormatError, match=str(file)):
        source_of(name, str(file))


def proto_of(*fields: tuple[str, int, int], name: str = "Order") -> tuple[Any, Schema]:
    """A class of messages, and its schema."""
    proto = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = proto.message_type.add(name=name)
    for field, number, kind in fields:
        message.field.add(name=field, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(proto.SerializeToString())
    file = pool.FindFileByName("order.proto")
    return message_factory.GetMessageClass(file.message_types_by_name[name]), schema_of_file(file)


INT64, STRING, BYTES = 3, 9, 12


def test_a_protobuf_message_is_json_under_the_names_of_its_fields(tmp_path: Path) -> None:
    kind, schema = proto_of(("order_id", 1, INT64), ("note", 2, STRING), ("raw", 3, BYTES))
    value = prefix_of(1) + b"\0" + kind(order_id=2**60, raw=b"\xff").SerializeToString()
    text = source_of("protobuf").reader(answers_of(schema))(ValueAndHeaders(value))
    assert text is not None
    assert json.loads(text) == {"order_id": 2**60, "note": "", "raw": "/w=="}
    file = tmp_path / "order.proto"
    file.write_text('syntax = "proto3"; package shop; message Order { int64 number = 1; }')
    source = source_of("protobuf", str(file))
    file.unlink()
    assert source.reader(answers_of(schema))(ValueAndHeaders(value)) == f'{{"number": {2**60}}}'
    _, other = proto_of(("order_id", 1, INT64), name="Other")
    with pytest.raises(
        DecodeError, match=r"a message shop\.Other, which .*order\.proto does not have"
    ):
        source.reader(answers_of(other))(ValueAndHeaders(value))


def test_json_with_a_schema_stays_as_it_is(tmp_path: Path) -> None:
    written = b'{"price": 12.3400000000000000000000001, "price": 1e400}'
    wants = Schema("JSON", '{"type": "object", "required": ["nothing"]}')
    read = source_of("json-schema").reader(answers_of(wants, Schema("AVRO", '"string"')))
    # The model's columns say what is to be there.
    assert read(ValueAndHeaders(prefix_of(1) + written)) == written.decode()
    with pytest.raises(DecodeError, match="schema 2 is no JSON Schema, but one of AVRO"):
        read(ValueAndHeaders(prefix_of(2) + written))
    with pytest.raises(DecodeError, match="not valid JSON: invalid start byte at byte 1"):
        read(ValueAndHeaders(prefix_of(1) + b"{\xff"))
    file = tmp_path / "order.json"
    file.write_text('{"type": "object", "required": ["id"]}')
    source = source_of("json-schema", str(file))
    file.unlink()
    read = source.reader(answers_of(wants))
    assert read(ValueAndHeaders(prefix_of(1) + b'{"id": 1}')) == '{"id": 1}'
    assert read(ValueAndHeaders(prefix_of(1) + b'{"id": 1')) == '{"id": 1'
    with pytest.raises(DecodeError, match=r"does not fit the JSON Schema, .*order\.json: required"):
        read(ValueAndHeaders(prefix_of(1) + b"{}"))


EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
BINARY = tuple((f"ce_{name}", text.encode()) for name, text in EVENT.items())
STRUCTURED = (("content-type", b"application/cloudevents+json"),)


def test_the_data_of_a_cloud_event_is_read_in_both_modes() -> None:
    read = source_of("cloudevents").reader({})
    envelope = (
        json.dumps({**EVENT, "data": {"price": 0.5}})
        .replace("0.5", "12.3400000000000000000000001")
        .encode()
    )
    whole = '{"price": 12.3400000000000000000000001}'
    assert read(ValueAndHeaders(envelope, STRUCTURED)) == read(ValueAndHeaders(envelope)) == whole
    assert read(ValueAndHeaders(whole.encode(), BINARY)) == whole
    assert read(ValueAndHeaders(b"", BINARY)) is None
    assert read(ValueAndHeaders(None)) is None
    encoded = json.dumps({**EVENT, "data_base64": base64.b64encode(b"{}").decode()}).encode()
    assert read(ValueAndHeaders(encoded, STRUCTURED)) == "{}"
    for value, headers in ((b'{"price": 1}', ()), (whole.encode(), BINARY[:1])):
        with pytest.raises(DecodeError, match="not a valid CloudEvent"):
            read(ValueAndHeaders(value, headers))


def test_events_of_a_format_with_schemas_are_read_too_unless_they_count_as_none() -> None:
    data = avro(ORDER, VALUE)
    answers = answers_of(Schema("AVRO", json.dumps(ORDER)))
    envelope = json.dumps({**EVENT, "data_base64": base64.b64encode(data).decode()}).encode()
    read = source_of("avro").reader(answers)
    plain = read(ValueAndHeaders(data))
    assert plain is not None
    assert (
        plain == read(ValueAndHeaders(data, BINARY)) == read(ValueAndHeaders(envelope, STRUCTURED))
    )
    assert read(ValueAndHeaders(None, BINARY)) is None
    read = source_of("avro", finds_events=False).reader(answers)
    assert read(ValueAndHeaders(data, BINARY[:1])) == plain
    with pytest.raises(DecodeError, match="it names no schema"):
        read(ValueAndHeaders(envelope, STRUCTURED))


def test_what_is_nested_too_deeply_for_json_is_wrong_with_the_record() -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    data = prefix_of(1) + b"\2" * 100_000 + b"\0"
    found = read_texts(avro_reader(schema), [(data, ())])
    assert found.texts == [None]
    assert found.problems[0] is not None


def test_a_source_says_whether_its_bytes_are_base64() -> None:
    made = [
        text_source(name, SchemaSource(ChannelSchemas(""), ""), True)
        for name in ("avro", "protobuf", "json-schema")
    ]
    assert [one.is_binary for one in made] == [True, True, False]
    assert dataclasses.replace(made[0], format="cloudevents").is_binary is False


def test_a_pattern_that_cannot_be_checked_is_known_where_the_readers_are_made(
    tmp_path: Path,
) -> None:
    file = tmp_path / "order.json"
    file.write_text(
        json.dumps({"properties": {"note": {"pattern": r"^\p{Script=Greek}$", "type": "string"}}})
    )
    where = SchemaSource(ChannelSchemas("orders"), "orders", file=str(file))
    made = pickle.loads(pickle.dumps(text_source("json-schema", where, finds_events=False)))
    (told,) = where.schemas.remarks
    assert told.startswith(
        f"{file}: the pattern '^\\p{{Script=Greek}}$' at properties/note/pattern is not checked"
    )
    read = made.reader({ById(1): Schema("JSON", "{}")})
    assert read(ValueAndHeaders(prefix_of(1) + b'{"note": "tea"}')) == '{"note": "tea"}'
    with pytest.raises(DecodeError, match="properties/note/type"):
        read(ValueAndHeaders(prefix_of(1) + b'{"note": 7}'))
