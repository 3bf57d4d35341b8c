"""Unions of Avro: a class names its branch when it is written, and the branch names the class when
it is read.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from reactive_kafka import DecodeError, EncodeError
from reactive_kafka.formats.registered.schema_questions import Reference, Schema
from tests.formats.avro_world import bytes_of, read, write

CANCELLED = {"type": "record", "name": "shop.Cancelled", "fields": [{"name": "id", "type": "long"}]}
PLACED = {
    "type": "record",
    "name": "shop.Placed",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "long", "default": 0}],
}
NOTED = {
    "type": "record",
    "name": "shop.Noted",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
UNION = [PLACED, CANCELLED, NOTED]
DATA = {"Placed": {"id": 1, "total": 0}, "Cancelled": {"id": 1}, "Noted": {"id": 1, "note": None}}
FIELDS: dict[str, list[tuple[Any, ...]]] = {
    "Placed": [("id", int), ("total", int, 0)],
    "Cancelled": [("id", int)],
    "Noted": [("id", int), ("note", str | None, None)],
}
NAMES = list(FIELDS)


def of_dataclass(name: str, fields: list[tuple[Any, ...]]) -> Any:
    return dataclasses.make_dataclass(name, fields)


def of_pydantic(name: str, fields: list[tuple[Any, ...]]) -> Any:
    made: Any = {one: (kind, *(default or (...,))) for one, kind, *default in fields}
    return pydantic.create_model(name, **made)


def of_struct(name: str, fields: list[tuple[Any, ...]]) -> Any:
    return msgspec.defstruct(name, fields)


def of_tagged_struct(name: str, fields: list[tuple[Any, ...]]) -> Any:
    return msgspec.defstruct(name, fields, tag=True)


KINDS = [of_dataclass, of_pydantic, of_struct, of_tagged_struct]
IN_UNIONS = [of_dataclass, of_pydantic, of_tagged_struct]
"""msgspec takes no union of structs without tags."""


def of_branch(name: str) -> bytes:
    """A datum of the union."""
    number = NAMES.index(name)
    return bytes([2 * number]) + bytes_of(UNION[number], DATA[name])


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_written_as_the_record_of_its_class(
    tmp_path: Path, make: Any, name: str
) -> None:
    data, _ = write(make(name, FIELDS[name])(id=1), tmp_path, UNION)
    assert data == of_branch(name)


@pytest.mark.parametrize("make", IN_UNIONS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_read_as_the_class_of_its_branch(
    make: Any, order: tuple[int, int, int], name: str
) -> None:
    kinds = {one: make(one, FIELDS[one]) for one in NAMES}
    first, second, third = (kinds[NAMES[number]] for number in order)
    assert read(first | second | third, UNION, of_branch(name)) == kinds[name](id=1)


@pytest.mark.parametrize("make", IN_UNIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["field", "list", "dict", "optional"])
def test_so_does_one_inside_of_other_types_with_the_schema_that_is_made_of_them(
    make: Any, name: str, where: str
) -> None:
    kinds = {one: make(one, FIELDS[one]) for one in NAMES}
    union = kinds["Noted"] | kinds["Placed"] | kinds["Cancelled"]
    value = kinds[name](id=1)
    annotation, held = {
        "field": (union, value),
        "list": (list[union], [value, value]),
        "dict": (dict[str, union], {"a": value}),
        "optional": (union | None, value),
    }[where]
    holder = make("Holder", [("it", annotation)])
    data, schema = write(holder(it=held))
    assert read(holder, schema, data) == holder(it=held)


def test_models_whose_fields_are_the_same_are_different_branches() -> None:
    first, second = of_dataclass("First", [("id", int)]), of_dataclass("Second", [("id", int)])
    holder = of_dataclass("Holder", [("it", first | second)])
    for kind in (first, second):
        data, schema = write(holder(kind(1)))
        assert read(holder, schema, data) == holder(kind(1))


class Base(pydantic.BaseModel):
    id: int


class Placed(Base):
    total: int = 0


class Special(Placed):
    """Called like no branch: it is the one of the class that it is derived from."""


class Cancelled(Base):
    pass


def test_a_class_that_is_derived_from_that_of_a_branch_is_written_as_that(tmp_path: Path) -> None:
    assert write(Special(id=1), tmp_path, UNION)[0] == of_branch("Placed")


def test_a_branch_is_not_read_as_a_class_of_another_one() -> None:
    class Noted(pydantic.BaseModel):
        id: int
        note: str | None = None

    for annotation in (Placed | Noted, Noted, Noted | None):
        with pytest.raises(
            DecodeError, match=r"it is a shop\.Cancelled, which .* has no class for"
        ):
            read(annotation, UNION, of_branch("Cancelled"))


def test_where_no_class_is_called_like_a_branch_the_fields_decide() -> None:
    class WithTotal(pydantic.BaseModel):
        id: int
        total: int

    class WithNote(pydantic.BaseModel):
        id: int
        note: str | None

    assert read(WithNote | WithTotal, UNION, of_branch("Placed")) == WithTotal(id=1, total=0)
    assert read(WithNote | WithTotal, UNION, of_branch("Noted")) == WithNote(id=1, note=None)


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], Any])
@pytest.mark.parametrize("name", NAMES)
def test_a_dict_is_written_as_the_branch_that_it_was_read_from(
    tmp_path: Path, annotation: Any, name: str
) -> None:
    found = read(annotation, UNION, of_branch(name))
    assert found == DATA[name]
    for one in (found, found.copy(), pickle.loads(pickle.dumps(found))):
        assert write(one, tmp_path, UNION)[0] == of_branch(name)
    assert json.loads(json.dumps(found)) == DATA[name]


def test_a_plain_dict_is_the_record_that_has_its_keys_and_the_fewest_others(tmp_path: Path) -> None:
    for name in NAMES:
        assert write(DATA[name], tmp_path, UNION)[0] == of_branch(name)
    assert write({"id": 1, "note": "x", "more": True}, tmp_path, UNION)[0][0] == 2 * NAMES.index(
        "Noted"
    )


def test_a_dict_that_fits_two_records_alike_is_refused_by_their_names(tmp_path: Path) -> None:
    twins = [{**CANCELLED, "name": "shop.One"}, {**CANCELLED, "name": "shop.Two"}]
    with pytest.raises(EncodeError, match=r"the value fits shop\.One and shop\.Two alike"):
        write({"id": 1}, tmp_path, twins)
    assert write(("shop.Two", {"id": 1}), tmp_path, twins)[0] == b"\2\2"
    assert write(("Two", {"id": 1}), tmp_path, twins)[0] == b"\2\2"
    texts = [
        {**CANCELLED, "name": "shop.One"},
        {**CANCELLED, "name": "shop.Two", "fields": [{"name": "id", "type": "string"}]},
    ]
    assert write({"id": "1"}, tmp_path, texts)[0] == b"\2\x021"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"other": 1}, "the value fits no record of the schema's union"),
        (1.5, "the value is a float, which the schema's union does not have"),
        (("shop.Gone", {"id": 1}), "the value is of a type that the schema's union does not have"),
    ],
)
def test_what_no_branch_takes_is_refused_without_its_value(
    tmp_path: Path, value: Any, said: str
) -> None:
    with pytest.raises(EncodeError, match=f"does not fit the Avro schema: {said}"):
        write(value, tmp_path, UNION)


class Color(Enum):
    RED = "RED"


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}
PLAIN = [
    "null",
    "float",
    "string",
    "int",
    "bytes",
    TIMESTAMP,
    "boolean",
    {"type": "enum", "name": "Color", "symbols": ["RED"]},
    {"type": "fixed", "name": "Pair", "size": 2},
    {"type": "array", "items": "int"},
    {"type": "map", "values": "int"},
]


@pytest.mark.parametrize(
    ("union", "value", "branch"),
    [
        (PLAIN, None, 0),
        (PLAIN, 1, 3),
        (PLAIN, True, 6),
        (PLAIN, 0.5, 1),
        (PLAIN, "RED", 2),
        (PLAIN, b"abc", 4),
        (PLAIN, MOMENT, 5),
        (PLAIN, [1], 9),
        (PLAIN, {"a": 1}, 10),
        (["float", "double"], 0.1, 1),
        (["double", "float"], 0.1, 0),
        (["float", "long"], 2**40, 1),
        (["int", "long"], 2**31, 1),
        (["int", "long"], 2**31 - 1, 0),
        (["double", {"type": "int", "logicalType": "date"}], 3, 0),
        ([{"type": "int", "logicalType": "date"}, TIMESTAMP], MOMENT, 1),
        ([TIMESTAMP, {"type": "int", "logicalType": "date"}], MOMENT.date(), 1),
        (
            ["string", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}],
            Decimal("1.5"),
            1,
        ),
        (["bytes", {"type": "string", "logicalType": "uuid"}], UUID(int=1), 1),
    ],
)
def test_a_value_goes_to_the_type_that_holds_exactly_it(
    tmp_path: Path, union: Any, value: Any, branch: int
) -> None:
    schema = {"type": "record", "name": "Holder", "fields": [{"name": "it", "type": union}]}
    data, _ = write({"it": value}, tmp_path, schema)
    assert data[0] == 2 * branch
    assert read(dict, schema, data) == {"it": value}


def test_a_member_of_an_enum_goes_to_the_enum_of_its_name_and_text_to_the_string(
    tmp_path: Path,
) -> None:
    @dataclasses.dataclass
    class Holder:
        it: Color | str

    schema = {"type": "record", "name": "Holder", "fields": [{"name": "it", "type": PLAIN}]}
    assert write(Holder(Color.RED), tmp_path, schema)[0][0] == 2 * 7
    assert write(Holder("RED"), tmp_path, schema)[0][0] == 2 * 2


REFERENCES = (
    Reference("shop.Placed", "placed", 1, Schema("AVRO", json.dumps(PLACED))),
    Reference("shop.Cancelled", "cancelled", 1, Schema("AVRO", json.dumps(CANCELLED))),
)


@pytest.mark.parametrize(
    ("schema", "data", "plain"),
    [
        (["shop.Placed", "shop.Cancelled"], b"\0\2\6", {"id": 1, "total": 3}),
        (["shop.Placed", "shop.Cancelled"], b"\2\2", {"id": 1}),
        (["null", "shop.Placed"], b"\0", None),
        ("shop.Cancelled", b"\2", {"id": 1}),
        ({"type": "array", "items": "shop.Cancelled"}, b"\2\2\0", [{"id": 1}]),
        ({"type": "map", "values": ["null", "shop.Cancelled"]}, b"\2\2a\2\2\0", {"a": {"id": 1}}),
    ],
)
def test_a_top_level_may_be_anything_that_refers_to_other_schemas(
    schema: Any, data: bytes, plain: Any
) -> None:
    """Confluent's way for several types of events in a topic is a union of references."""
    assert read(Any, schema, data, references=REFERENCES) == plain


def test_a_union_of_references_is_read_as_the_classes_of_these_names() -> None:
    schema = ["shop.Placed", "shop.Cancelled"]
    assert read(Placed | Cancelled, schema, b"\2\2", references=REFERENCES) == Cancelled(id=1)
    assert read(Cancelled | Placed, schema, b"\0\2\0", references=REFERENCES) == Placed(id=1)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("string", "text"),
        ("long", 7),
        ("null", None),
        ({"type": "enum", "name": "Color", "symbols": ["RED"]}, "RED"),
        ({"type": "fixed", "name": "Pair", "size": 2}, b"ab"),
        ({"type": "array", "items": ["null", PLACED]}, [None, DATA["Placed"]]),
        (
            {"type": "map", "values": {"type": "int", "logicalType": "date"}},
            {"a": date(2026, 1, 1)},
        ),
        (["null", {"type": "map", "values": "int"}, PLACED], {"a": 1}),
        (["null", {"type": "map", "values": "int"}, PLACED], DATA["Placed"]),
    ],
)
def test_every_other_top_level_is_written_and_read(tmp_path: Path, schema: Any, value: Any) -> None:
    if value is None:
        assert read(Any, schema, b"") is None
    else:
        data, _ = write(value, tmp_path, schema)
        assert read(Any, schema, data) == value


@dataclasses.dataclass
class Leaf:
    id: int


@dataclasses.dataclass
class Other:
    id: int


@dataclasses.dataclass
class Tree:
    it: Leaf | Other
    kids: list[Tree]


def test_a_record_inside_of_itself_has_unions_at_any_depth() -> None:
    tree = Tree(Other(1), [Tree(Leaf(2), []), Tree(Other(3), [Tree(Leaf(4), [])])])
    data, schema = write(tree)
    assert read(Tree, schema, data) == tree


def test_aliases_and_roots_do_not_hide_the_class_of_a_branch(tmp_path: Path) -> None:
    class Wrapped(pydantic.RootModel[Placed | Cancelled]):
        pass

    class Event(pydantic.BaseModel):
        it: Wrapped = pydantic.Field(alias="payload")

    schema = {"type": "record", "name": "Event", "fields": [{"name": "payload", "type": UNION}]}
    value = Event(payload=Wrapped(Cancelled(id=1)))
    data, _ = write(value, tmp_path, schema)
    assert data == of_branch("Cancelled")
    assert read(Event, schema, data) == value
