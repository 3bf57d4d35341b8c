"""Plain data of Avro and Protobuf means what the same data means in JSON, to strict models and in
unions too.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cache
from io import BytesIO
from typing import Annotated, Any, Literal

import fastavro
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, Strict, create_model, field_validator

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import ChannelSchemas, SchemaSource, decoder_for
from reactive_kafka.formats.models import Model, model_for
from reactive_kafka.formats.object_checker import checker_for
from reactive_kafka.formats.payload_type import payload_type_of
from reactive_kafka.formats.registered.proto_files import class_of, compiled_text, file_of
from reactive_kafka.formats.registered.schema_questions import ById, Schema

ID = "00000000-0000-0000-0000-000000000001"
MOMENT = "2026-01-01T00:00:00Z"


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class StrictBase(BaseModel):
    model_config = ConfigDict(strict=True)


@dataclasses.dataclass
class Point:
    x: int
    id: uuid.UUID


class Tree(StrictBase):
    id: uuid.UUID
    children: list[Tree] = []
    colour: Colour = Colour.RED


class ById1(StrictBase):
    id: uuid.UUID


class ByText(StrictBase):
    id: str


class WithInit(StrictBase):
    id: uuid.UUID

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)


class Cat(StrictBase):
    kind: Literal["cat"]
    born: date


class Dog(StrictBase):
    kind: Literal["dog"]
    ids: frozenset[uuid.UUID]


class Checked(StrictBase):
    id: uuid.UUID

    @field_validator("id")
    @classmethod
    def _not_two(cls, value: uuid.UUID) -> uuid.UUID:
        if value.int == 2:
            raise ValueError("not the second")
        return value


def of_field(inner: Any) -> Any:
    return create_model("Holder", __base__=StrictBase, it=(inner, ...))


PARTS = (
    uuid.UUID,
    Colour,
    Level,
    datetime,
    date,
    time,
    timedelta,
    Decimal,
    bytes,
    int,
    str,
    float,
    bool,
    tuple[int, ...],
    tuple[uuid.UUID, str],
    set[int],
    frozenset[str],
    list[uuid.UUID],
    dict[str, uuid.UUID],
    dict[int, date],
    dict[uuid.UUID, int],
    Literal[Colour.RED],
    Literal["red"],
    ipaddress.IPv4Address,
    pydantic.AnyUrl,
    uuid.UUID | None,
    uuid.UUID | str,
    str | uuid.UUID,
    datetime | str,
    Colour | str,
    Decimal | str,
    Decimal | float,
    float | Decimal,
    Decimal | int,
    list[uuid.UUID] | str,
    set[int] | list[int],
    bytes | str,
    date | datetime,
    uuid.UUID | int | None,
    Point,
    Tree,
    list[Tree],
    ById1 | ByText,
    WithInit,
    Checked,
    Cat | Dog,
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Annotated[Tree, Field(strict=True)],
)
STRICT_ALONE = (
    uuid.UUID,
    Colour,
    Level,
    datetime,
    date,
    time,
    timedelta,
    Decimal,
    bytes,
    tuple[int, ...],
    set[int],
)
DATA: tuple[Any, ...] = (
    None,
    True,
    1,
    0,
    1.5,
    -2.0,
    "",
    "red",
    "1",
    "1.5",
    "1.2.3.4",
    "http://a/",
    "PT1S",
    "12:00",
    "2026-01-01",
    MOMENT,
    ID,
    [],
    [1],
    [1, 1],
    ["a"],
    [ID],
    [ID, "x"],
    {},
    {"x": ID},
    {"1": "2026-01-01"},
    {ID: 1},
    {"x": 1, "id": ID},
    {"id": ID},
    {"id": "x"},
    {"id": ID, "children": [{"id": ID}, {"id": ID, "colour": "red"}]},
    [{"id": ID}],
    {"kind": "cat", "born": "2026-01-01"},
    {"kind": "dog", "ids": [ID]},
    {"kind": "dog", "ids": [ID, 1]},
    {"id": "00000000-0000-0000-0000-000000000002"},
)


def outcome(read: Any, value: Any) -> object:
    try:
        return read(value)
    except pydantic.ValidationError:
        return "refused"


def assert_alike(model: Model, value: Any) -> None:
    expected = outcome(model.careful, json.dumps(value).encode())
    found = outcome(model.from_value, value)
    assert (found, type(found)) == (expected, type(expected)), value


@pytest.mark.parametrize("part", PARTS)
def test_a_strict_model_reads_plain_data_as_its_json(part: Any) -> None:
    model = model_for(payload_type_of(of_field(part)))
    for value in DATA:
        assert_alike(model, {"it": value})


# Where it reads objects, pydantic takes True for one second without strictness.
@pytest.mark.parametrize("part", [part for part in PARTS if part is not timedelta])
def test_a_type_that_is_not_strict_reads_plain_data_as_its_json(part: Any) -> None:
    model = model_for(payload_type_of(part))
    for value in DATA:
        assert_alike(model, value)


@pytest.mark.parametrize("part", STRICT_ALONE)
def test_a_type_may_be_strict_alone(part: Any) -> None:
    model = model_for(payload_type_of(Annotated[part, Strict()]))
    for value in DATA:
        assert_alike(model, value)


@pytest.mark.parametrize("part", [int, float, bool, str, uuid.UUID, date, Level])
def test_the_keys_of_a_dict_may_be_strict_alone(part: Any) -> None:
    model = model_for(payload_type_of(dict[Annotated[part, Strict()], int]))
    for key in ("1", "1.0", "true", "x", ID, "2026-01-01"):
        assert_alike(model, {key: 1})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, 1),
        (int, "1"),
        (bool, 1),
        (bool, "true"),
        (int, 1.0),
        (uuid.UUID, 1),
        (tuple[int, ...], ["1"]),
        (str, b"x"),
    ],
)
def test_strict_is_strict_still(annotation: Any, value: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        model_for(payload_type_of(of_field(annotation))).from_value({"it": value})


def test_objects_that_json_has_no_form_for_are_taken_as_they_are() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    holder = create_model(
        "Holder",
        __base__=StrictBase,
        raw=(bytes, ...),
        at=(datetime | str, ...),
        id=(uuid.UUID, ...),
        of=(set[bytes], ...),
    )
    read: Any = model_for(payload_type_of(holder)).from_value(
        {"raw": b"\xff", "at": at, "id": ID, "of": [b"\xfe"]}
    )
    assert (read.raw, read.at, read.id, read.of) == (b"\xff", at, uuid.UUID(ID), {b"\xfe"})


def test_a_types_own_reading_is_kept_where_nothing_differs() -> None:
    for annotation in (
        ByText,
        create_model("Lax", it=(uuid.UUID, ...)),
        int | str,
        list[dict[str, int | None]],
    ):
        model = model_for(payload_type_of(annotation))
        assert model.from_value == model.from_object


def test_objects_of_the_application_stay_what_they_are() -> None:
    check = checker_for(uuid.UUID | str)
    assert check is not None
    assert check(ID) == ID  # type: ignore[arg-type]


def test_a_refusal_quotes_nothing_and_names_the_place() -> None:
    schema = {"type": "record", "name": "Tree", "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(
        DecodeError, match=r"^does not fit Tree: id: Input should be a valid UUID"
    ) as refused:
        avro(Tree, schema, {"id": "SECRET"})
    assert "SECRET" not in f"{refused.value} {refused.value.__cause__}"


class Everything(StrictBase):
    id: uuid.UUID
    colour: Colour
    at: datetime
    day: date
    ids: tuple[uuid.UUID, ...]
    names: frozenset[str]
    either: uuid.UUID | str
    raw: bytes


DATA_OF_ALL = {
    "id": ID,
    "colour": "red",
    "at": MOMENT,
    "day": "2026-01-01",
    "ids": [ID],
    "names": ["a"],
    "either": ID,
}
TEXTS = ("id", "colour", "at", "day", "either")


def avro(annotation: Any, schema: Any, value: Any) -> Any:
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), Schema("AVRO", json.dumps(schema)))
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    decode = decoder_for(annotation, "avro", SchemaSource(schemas, "orders"))
    assert decode is not None
    return decode(b"\0\0\0\0\1" + data.getvalue())


@cache
def message() -> Any:
    texts = "".join(f"string {name} = {number}; " for number, name in enumerate(TEXTS, 1))
    lists = "repeated string ids = 8; repeated string names = 9;"
    text = f'syntax = "proto3"; message Everything {{ {texts} {lists} bytes raw = 10; }}'
    return Schema("PROTOBUF", compiled_text(Schema("PROTOBUF", text)))


def protobuf(annotation: Any, value: dict[str, Any]) -> Any:
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), message())
    written = class_of(file_of(message()).message_types_by_name["Everything"])(**value)
    decode = decoder_for(annotation, "protobuf", SchemaSource(schemas, "orders"))
    assert decode is not None
    return decode(b"\0\0\0\0\1\0" + written.SerializeToString())


def test_a_strict_model_takes_from_avro_and_protobuf_what_it_takes_from_json() -> None:
    texts: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in TEXTS]
    lists = [
        {"name": name, "type": {"type": "array", "items": "string"}} for name in ("ids", "names")
    ]
    schema = {
        "type": "record",
        "name": "Everything",
        "fields": [*texts, *lists, {"name": "raw", "type": "bytes"}],
    }
    value = {**DATA_OF_ALL, "raw": b"\xff"}
    decode = decoder_for(Everything, None)
    assert decode is not None
    expected: Any = decode(json.dumps({**DATA_OF_ALL, "raw": ""}).encode())
    expected = expected.model_copy(update={"raw": b"\xff"})
    assert avro(Everything, schema, value) == expected
    assert protobuf(Everything, value) == expected
