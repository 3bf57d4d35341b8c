"""A writer's schema and the reader's: what is resolved, what is not, and Apache's package as the
judge.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import avro.errors
import avro.io
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import DecodeError, EncodeError
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.registered.avro_schemas import loaded
from tests.formats.avro_world import apache, bytes_of, read, write


def record(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ID = {"name": "id", "type": "long"}
ONE = bytes_of(record(ID), {"id": 1})

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED_DECIMAL = {
    "type": "fixed",
    "name": "Money",
    "size": 4,
    "logicalType": "decimal",
    "precision": 6,
    "scale": 2,
}
DATE = {"type": "int", "logicalType": "date"}
INNER = record(
    {"name": "price", "type": DECIMAL, "default": "\u0001"},
    {"name": "day", "type": DATE},
    name="Inner",
)
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff\u0000", b"\xff\0"),
    ({"type": "fixed", "name": "Pair", "size": 2}, "\u00ffa", b"\xffa"),
    (DECIMAL, "\u0001\u0000", Decimal("2.56")),
    (FIXED_DECIMAL, "\u00ff\u00ff\u00ff\u00ff", Decimal("-0.01")),
    (DATE, 1, date(1970, 1, 2)),
    ({"type": "int", "logicalType": "time-millis"}, 1000, time(0, 0, 1)),
    ({"type": "long", "logicalType": "time-micros"}, 1, time(0, 0, 0, 1)),
    ({"type": "long", "logicalType": "timestamp-millis"}, 0, datetime(1970, 1, 1, tzinfo=UTC)),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        1,
        datetime(1970, 1, 1, microsecond=1, tzinfo=UTC),
    ),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 0, datetime(1970, 1, 1)),
    ({"type": "string", "logicalType": "uuid"}, str(UUID(int=1)), UUID(int=1)),
    ({"type": "long", "logicalType": "of-nobody"}, 5, 5),
    ("double", 1, 1.0),
    ({"type": "double"}, 0.0, 0.0),
    (["null", DECIMAL], None, None),
    ([DECIMAL, "null"], "\u0001", Decimal("0.01")),
    (["null", DECIMAL], "\u0001", Decimal("0.01")),
    ({"type": "array", "items": DATE}, [1, 2], [date(1970, 1, 2), date(1970, 1, 3)]),
    ({"type": "map", "values": DECIMAL}, {"a": "\u0001"}, {"a": Decimal("0.01")}),
    ({"type": "enum", "name": "Color", "symbols": ["RED"]}, "RED", "RED"),
    (INNER, {"day": 0}, {"price": Decimal("0.01"), "day": date(1970, 1, 1)}),
    (["null", INNER], {"day": 0}, {"price": Decimal("0.01"), "day": date(1970, 1, 1)}),
]


@pytest.mark.parametrize(("type", "default", "value"), DEFAULTS)
def test_a_default_of_the_readers_schema_is_a_value(type: Any, default: Any, value: Any) -> None:
    reader = record(ID, {"name": "more", "type": type, "default": default})
    assert read(dict, record(ID), ONE, reader=reader) == {"id": 1, "more": value}


@pytest.mark.parametrize(("type", "default", "value"), DEFAULTS)
def test_a_field_that_is_missing_is_written_with_its_default(
    tmp_path: Path, type: Any, default: Any, value: Any
) -> None:
    schema = record(ID, {"name": "more", "type": type, "default": default})
    data, written = write({"id": 1}, tmp_path, schema)
    assert read(dict, schema, data) == {"id": 1, "more": value}
    assert json.loads(json.dumps(written)) == schema, "it is registered as it stands in the file"


def test_each_record_has_its_own_list_and_dict_of_a_default() -> None:
    reader = record(
        ID,
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "more", "type": {"type": "map", "values": "string"}, "default": {}},
    )
    first = read(dict, record(ID), ONE, reader=reader)
    first["tags"].append("x")
    first["more"]["a"] = "x"
    assert read(dict, record(ID), ONE, reader=reader) == {"id": 1, "tags": [], "more": {}}


@pytest.mark.parametrize(
    ("type", "default"),
    [
        ("int", 2**31 - 1),
        ("long", -(2**63)),
        ("float", 3.4028235e38),
        ("double", 1.7976931348623157e308),
    ],
)
def test_the_largest_number_of_a_type_may_be_a_default(
    tmp_path: Path, type: Any, default: Any
) -> None:
    schema = record(ID, {"name": "more", "type": type, "default": default})
    data = bytes_of(schema, {"id": 1, "more": default})
    assert write({"id": 1}, tmp_path, schema)[0] == data


def test_a_model_gets_the_values_of_defaults() -> None:
    class Order(pydantic.BaseModel):
        id: int
        price: Decimal
        day: date

    reader = record(
        ID,
        {"name": "price", "type": DECIMAL, "default": "\u0001"},
        {"name": "day", "type": DATE, "default": 1},
    )
    assert read(Order, record(ID), ONE, reader=reader) == Order(
        id=1, price=Decimal("0.01"), day=date(1970, 1, 2)
    )


@pytest.mark.parametrize(
    ("type", "default", "said"),
    [
        ("long", "x", "Order.more: the default of a field of type long does not match it"),
        ("int", 2**31, "type int does not match"),
        ("long", 2**63, "type long does not match"),
        ("long", 1e300, "type long does not match"),
        ("float", 3.4028236e38, "type float does not match"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            10**18,
            "the default of a field of type timestamp-millis is too large",
        ),
        (DATE, 2**31 - 1, "the default of a field of type date is too large"),
        ("bytes", "\u1234", "type bytes does not match"),
        ({"type": "fixed", "name": "Pair", "size": 2}, "abc", "type fixed does not match"),
        (["null", "int"], "x", "the default of a union matches none of its types"),
        (INNER, {}, "the default of a record has no day"),
        ({"type": "enum", "name": "Color", "symbols": ["RED"]}, "BLUE", "type enum does not match"),
        ({"type": "bytes", "logicalType": "decimal"}, "", "a decimal needs a precision"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
            "",
            "the scale of a decimal is",
        ),
        (
            {"type": "string", "logicalType": "decimal", "precision": 2},
            "",
            "a decimal is of bytes or fixed",
        ),
        ({**FIXED_DECIMAL, "precision": 60}, "", "a decimal of precision 60 does not fit 4 bytes"),
    ],
)
def test_a_schema_of_ours_that_is_not_right_is_refused_at_the_start(
    tmp_path: Path, type: Any, default: Any, said: str
) -> None:
    schema = record(ID, {"name": "more", "type": type, "default": default})
    with pytest.raises(FormatError, match=said):
        read(dict, record(ID), ONE, reader=schema)
    with pytest.raises(FormatError, match=r"(has|is) no Avro schema"):
        write({"id": 1}, tmp_path, schema)


@pytest.mark.parametrize(
    ("type", "default", "data", "value"),
    [
        ("string", None, b"\2x", "x"),
        (["null", "string"], "x", b"\0", None),
        ("double", "none", bytes(8), 0.0),
        (INNER, None, b"\2\1\0", {"price": Decimal("0.01"), "day": date(1970, 1, 1)}),
        ({"type": "bytes", "logicalType": "decimal"}, 0, b"\2\1", b"\1"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
            "",
            b"\2\1",
            b"\1",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, "", b"\2\1", b"\1"),
        ({**FIXED_DECIMAL, "precision": 60}, "", b"\0\0\0\1", b"\0\0\0\1"),
        ({"type": "string", "logicalType": "decimal", "precision": 2}, "", b"\2x", "x"),
        ({"type": "string", "logicalType": "timestamp-millis"}, "", b"\2x", "x"),
        (
            {"type": "array", "items": {"type": "bytes", "logicalType": "decimal"}},
            "",
            b"\2\2\1\0",
            [b"\1"],
        ),
        (["null", {"type": "bytes", "logicalType": "decimal"}], 7, b"\2\2\1", b"\1"),
        ({"type": {"type": "string", "avro.java.string": "String"}}, 1, b"\2x", "x"),
    ],
)
def test_a_writers_schema_is_read_as_leniently_as_javas_library_does(
    type: Any, default: Any, data: bytes, value: Any
) -> None:
    """The default is not needed for reading, and a logical type that is not valid is ignored."""
    schema = record(ID, {"name": "more", "type": type, "default": default})
    assert read(dict, schema, b"\2" + data) == {"id": 1, "more": value}
    reader = record(ID)
    assert read(dict, schema, b"\2" + data, reader=reader) == {"id": 1}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 1, 1),
        ("int", "double", 1, 1.0),
        ("long", "float", 3, 3.0),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "x", b"x"),
        ("bytes", "string", b"x", "x"),
        ("int", ["null", "long", "double"], 1, 1),
        ("int", ["double", "int"], 1, 1),
        (["null", "int"], ["null", "double"], 1, 1.0),
        (["null", "int"], "double", 1, 1.0),
        (["int", "string"], ["string", "long"], "x", "x"),
        (
            "long",
            {"type": "long", "logicalType": "timestamp-millis"},
            0,
            datetime(1970, 1, 1, tzinfo=UTC),
        ),
        (
            "int",
            {"type": "long", "logicalType": "timestamp-millis"},
            0,
            datetime(1970, 1, 1, tzinfo=UTC),
        ),
        ("bytes", DECIMAL, b"\1", Decimal("0.01")),
        ("string", DECIMAL, "\1", Decimal("0.01")),
        (DECIMAL, "bytes", Decimal("0.01"), Decimal("0.01")),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1], [1.0]),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": ["null", "double"]},
            {"a": 1},
            {"a": 1.0},
        ),
    ],
)
def test_data_is_promoted_to_the_type_that_the_reader_asks_for(
    writer: Any, reader: Any, value: Any, expected: Any
) -> None:
    written, asked = record({"name": "it", "type": writer}), record({"name": "it", "type": reader})
    found = read(dict, written, bytes_of(written, {"it": value}), reader=asked)["it"]
    assert (found, type(found)) == (expected, type(expected))


COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "said"),
    [
        ("string", "int", "secret", "string is no int"),
        ("double", "long", 1.5, "double is no long"),
        (["null", "string"], "int", "secret", "string is no int"),
        ("string", ["null", "int"], "secret", "string is in no type of the reader's union"),
        (
            COLOR,
            {**COLOR, "symbols": ["RED"]},
            "BLUE",
            "a symbol of Color is unknown to the reader",
        ),
        (COLOR, {**COLOR, "name": "Paint"}, "RED", "Color is no Paint"),
        (
            INNER,
            {**INNER, "name": "Other"},
            {"price": Decimal("1.00"), "day": date(2026, 1, 1)},
            "Inner is no Other",
        ),
        (
            {"type": "fixed", "name": "F", "size": 1},
            {"type": "fixed", "name": "F", "size": 2},
            b"a",
            "F is no F",
        ),
        (DATE, "double", date(2026, 1, 1), "date is no double"),
    ],
)
def test_what_does_not_resolve_is_refused_by_its_types(
    writer: Any, reader: Any, value: Any, said: str
) -> None:
    written, asked = record({"name": "it", "type": writer}), record({"name": "it", "type": reader})
    with pytest.raises(DecodeError, match=f"does not resolve to reader.avsc: {said}") as raised:
        read(dict, written, bytes_of(written, {"it": value}), reader=asked)
    assert "secret" not in str(raised.value)


def test_only_data_that_does_not_resolve_is_refused() -> None:
    written = record({"name": "it", "type": ["null", "string"]})
    asked = record({"name": "it", "type": ["null", "int"]})
    assert read(dict, written, bytes_of(written, {"it": None}), reader=asked) == {"it": None}
    color = record({"name": "it", "type": {**COLOR, "symbols": ["RED"], "default": "RED"}})
    assert read(dict, record({"name": "it", "type": COLOR}), b"\2", reader=color) == {"it": "RED"}


def test_a_field_without_a_default_that_the_writer_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(
        DecodeError, match=r"Order\.more is not in the writer's schema and has no default"
    ):
        read(dict, record(ID), ONE, reader=record(ID, {"name": "more", "type": "int"}))


@pytest.mark.parametrize("alias", ["Order", "shop.Order"])
def test_fields_and_records_have_aliases(alias: str) -> None:
    written = {**record(ID), "namespace": "shop"}
    reader = {
        **record({"name": "number", "type": "long", "aliases": ["id"]}, name="Purchase"),
        "aliases": [alias],
    }
    assert read(dict, written, ONE, reader=reader) == {"number": 1}


def test_a_reader_with_a_union_knows_which_record_the_writer_has_written() -> None:
    class Small(pydantic.BaseModel):
        id: int

    class Large(pydantic.BaseModel):
        id: int
        note: str | None = None

    class Holder(pydantic.BaseModel):
        it: Large | Small

    small, large = (
        record(ID, name="Small"),
        record(ID, {"name": "note", "type": ["null", "string"]}, name="Large"),
    )
    written, asked = (
        record({"name": "it", "type": small}),
        record({"name": "it", "type": [large, small]}),
    )
    assert read(Holder, written, ONE, reader=asked) == Holder(it=Small(id=1))


def test_a_linked_list_is_resolved_at_any_depth() -> None:
    written = record({"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Order"]})
    asked = record({"name": "n", "type": "double"}, {"name": "next", "type": ["null", "Order"]})
    value = {"n": 1, "next": {"n": 2, "next": {"n": 3, "next": None}}}
    found = read(dict, written, bytes_of(written, value), reader=asked)
    assert found == value
    assert type(found["next"]["next"]["n"]) is float


@pytest.mark.parametrize("union", [False, True])
@pytest.mark.parametrize("kind", ["timestamp-millis", "timestamp-micros"])
def test_a_time_without_a_zone_is_refused_on_an_instant(
    tmp_path: Path, kind: str, union: bool
) -> None:
    """It would be a time of the zone of the host, and another one elsewhere."""
    type: Any = {"type": "long", "logicalType": kind}
    schema = record({"name": "at", "type": ["null", type] if union else type})
    with pytest.raises(EncodeError, match=r"Order\.at has no time zone"):
        write({"at": datetime(2026, 1, 1)}, tmp_path, schema)
    aware = datetime(2026, 1, 1, tzinfo=UTC)
    assert read(dict, schema, write({"at": aware}, tmp_path, schema)[0]) == {"at": aware}


@pytest.mark.parametrize(
    ("type", "aware", "naive", "called"),
    [
        (
            "local-timestamp-millis",
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1),
            "a local timestamp",
        ),
        (
            "local-timestamp-micros",
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1),
            "a local timestamp",
        ),
        ("time-micros", time(1, tzinfo=UTC), time(1), "a time of day"),
    ],
)
def test_a_time_with_a_zone_is_refused_where_the_zone_would_be_lost(
    tmp_path: Path, type: str, aware: Any, naive: Any, called: str
) -> None:
    schema = record(
        {"name": "at", "type": {"type": "array", "items": {"type": "long", "logicalType": type}}}
    )
    with pytest.raises(EncodeError, match=rf"Order\.at has a time zone, and {called} has none"):
        write({"at": [naive, aware]}, tmp_path, schema)
    assert read(dict, schema, write({"at": [naive]}, tmp_path, schema)[0]) == {"at": [naive]}


def test_a_model_with_a_time_without_a_zone_is_refused_at_any_depth() -> None:
    class Line(pydantic.BaseModel):
        at: datetime

    class Order(pydantic.BaseModel):
        lines: dict[str, list[Line]]

    with pytest.raises(
        EncodeError, match=r"Order does not fit the Avro schema: Line\.at has no time zone"
    ):
        write(Order(lines={"a": [Line(at=datetime(2026, 1, 1))]}))


def test_the_types_beside_a_file_become_part_of_its_schema(tmp_path: Path) -> None:
    (tmp_path / "shop.Line.avsc").write_text(json.dumps(record(ID, name="shop.Line")))
    (tmp_path / "order.avsc").write_text(
        json.dumps(["null", {"type": "array", "items": "shop.Line"}])
    )
    assert loaded(str(tmp_path / "order.avsc")) == [
        "null",
        {"type": "array", "items": record(ID, name="shop.Line")},
    ]


PROMOTED: dict[str, list[str]] = {
    "int": ["int", "long", "float", "double"],
    "long": ["long", "float", "double"],
    "float": ["float", "double"],
    "double": ["double"],
    "string": ["string"],
    "boolean": ["boolean"],
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "boolean": st.booleans(),
}


@st.composite
def changed(
    draw: st.DrawFn, names: Iterator[int], depth: int = 0, *, inside: bool = False
) -> tuple[Any, Any, Any]:
    """A writer's type, what a reader may make of it, and a value of the writer's.

    *inside* of arrays and maps Apache's package promotes nothing, though the specification does.
    """
    kinds = [
        "plain",
        "plain",
        "optional",
        *(("array", "map", "record", "enum") if depth < 3 else ()),
    ]
    kind = draw(st.sampled_from(kinds))
    if kind == "plain":
        written = draw(st.sampled_from(sorted(PROMOTED)))
        asked = written if inside else draw(st.sampled_from(PROMOTED[written]))
        return written, asked, draw(VALUES[written])
    if kind == "enum":
        name, symbols = f"E{next(names)}", draw(st.permutations(["A", "B", "C"]))
        enum = {"type": "enum", "name": name, "symbols": symbols}
        return (
            enum,
            {**enum, "symbols": draw(st.permutations(["A", "B", "C", "D"]))},
            draw(st.sampled_from(symbols)),
        )
    if kind == "record":
        return draw(changed_record(names, depth + 1))
    written, asked, value = draw(changed(names, depth + 1, inside=inside or kind != "optional"))
    if kind == "array":
        return (
            {"type": "array", "items": written},
            {"type": "array", "items": asked},
            [value] * draw(st.integers(0, 2)),
        )
    if kind == "map":
        return {"type": "map", "values": written}, {"type": "map", "values": asked}, {"a": value}
    if isinstance(written, list):
        return written, asked, value
    return ["null", written], ["null", asked], draw(st.sampled_from([None, value]))


@st.composite
def changed_record(draw: st.DrawFn, names: Iterator[int], depth: int = 0) -> tuple[Any, Any, Any]:
    """A record of which the reader leaves fields out, has further ones with defaults, and another
    order.
    """
    name, written, asked, value = f"R{next(names)}", [], [], {}
    for number in range(draw(st.integers(1, 4))):
        before, after, one = draw(changed(names, depth))
        field = f"f{number}"
        written.append({"name": field, "type": before})
        value[field] = one
        if draw(st.booleans()):
            asked.append({"name": field, "type": after})
    asked.append({"name": "added", "type": ["null", "int"], "default": None})
    return record(*written, name=name), record(*draw(st.permutations(asked)), name=name), value


@given(st.data())
def test_a_changed_schema_is_read_as_by_apaches_package(data: st.DataObject) -> None:
    written, asked, value = data.draw(changed_record(iter(range(1000))))
    encoded = bytes_of(written, value)
    judge = avro.io.DatumReader(apache(written), apache(asked))
    expected = judge.read(avro.io.BinaryDecoder(BytesIO(encoded)))
    assert read(dict, written, encoded, reader=asked) == with_floats(expected, asked)
    assert read(dict, written, encoded) == value or any_float(value)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_a_long_that_no_double_holds_is_read_as_the_nearest_double(kind: str, number: int) -> None:
    written = record({"name": "n", "type": "long"}, name="R")
    asked = record({"name": "n", "type": ["null", kind]}, name="R")
    found = read(dict, written, bytes_of(written, {"n": number}), reader=asked)
    assert type(found["n"]) is float
    assert found == {"n": float(number)}


def with_floats(value: Any, asked: Any) -> Any:
    """What Apache's package read, with floats where *asked* has them: it leaves promoted integers
    as they are.
    """
    if isinstance(asked, list):
        return None if value is None else with_floats(value, asked[1])
    if asked in ("float", "double"):
        return float(value)
    if isinstance(asked, str) or asked["type"] == "enum":
        return value
    if asked["type"] == "array":
        return [with_floats(item, asked["items"]) for item in value]
    if asked["type"] == "map":
        return {key: with_floats(item, asked["values"]) for key, item in value.items()}
    return {
        field["name"]: with_floats(value[field["name"]], field["type"]) for field in asked["fields"]
    }


def any_float(value: Any) -> bool:
    """Whether a float of four bytes may be in it, which is another number there and back."""
    if isinstance(value, dict | list):
        return any(map(any_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


DATE = {"type": "int", "logicalType": "date"}
INSTANT = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("written", "branch", "encoded", "asked", "expected"),
    [
        (["int", "boolean"], "boolean", b"\x01", ["double", "boolean"], True),
        (["int", "boolean"], "int", b"\x02", ["double", "boolean"], 1.0),
        (
            [DATE, INSTANT],
            INSTANT,
            b"\x02",
            [DATE, "string", INSTANT],
            datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        ),
        ([DATE, INSTANT], DATE, b"\x02", [DATE, "string", INSTANT], date(1970, 1, 2)),
    ],
)
def test_a_value_of_a_union_takes_the_branch_of_its_own_class_and_not_of_a_class_above_it(
    written: list[Any], branch: Any, encoded: bytes, asked: list[Any], expected: Any, order: int
) -> None:
    """A bool is an int in Python, and a datetime is a date."""
    branches = written[::order]
    number = bytes([2 * branches.index(branch)])
    union = record({"name": "v", "type": branches}, name="R")
    reader = record({"name": "v", "type": asked}, name="R")
    found = read(dict, union, number + encoded, reader=reader)["v"]
    assert found == expected
    assert type(found) is type(expected)
