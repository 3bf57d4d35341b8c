"""Avro schemas that are made of types: enums, unions, and collections in them, there and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum, IntFlag, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import avro.schema
import msgspec
import pydantic
import pytest
from pydantic import Field

from reactive_kafka import App, ConfigError, Record
from reactive_kafka.formats import (
    ChannelSchemas,
    FormatError,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.avro_types import schema_of_type
from reactive_kafka.formats.registered.schema_questions import ById, IdOf


class Color(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Name(StrEnum):
    RED = "RED"


class Step(Enum):
    """Its values cannot be symbols of Avro."""

    BEGUN = "in-progress"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Grade(IntEnum):
    A = 1


class Rights(IntFlag):
    READ = 1
    WRITE = 2


def of_dataclass(annotation: Any) -> Any:
    return dataclasses.make_dataclass("Thing", [("it", annotation)])


def of_pydantic(annotation: Any) -> Any:
    return pydantic.create_model("Thing", it=(annotation, ...))


def of_struct(annotation: Any) -> Any:
    return msgspec.defstruct("Thing", [("it", annotation)])


KINDS = [of_dataclass, of_pydantic, of_struct]


def written(value: Any, file: Path | None = None) -> tuple[bytes, Any]:
    """What is written of a value by its own schema, or that of a file, and the source that knows
    it.
    """
    source = SchemaSource(
        ChannelSchemas("orders"), "orders", file=None if file is None else str(file)
    )
    encode = encoder_for("avro", source)
    with pytest.raises(SchemaMissing) as missing:
        encode(value)
    ask = missing.value.ask
    assert isinstance(ask, IdOf)
    source.schemas.answered(ask, 1)
    source.schemas.answered(ById(1), ask.schema)
    # Apache's own package refuses what the specification does.
    avro.schema.parse(ask.schema.text)
    return encode(value) or b"", source


def there_and_back(value: Any) -> Any:
    data, source = written(value)
    decode = decoder_for(type(value), "avro", source)
    assert decode is not None
    return decode(data)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("annotation", "value", "type"),
    [
        (Color, Color.BLUE, {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}),
        (Name, Name.RED, {"type": "enum", "name": "Name", "symbols": ["RED"]}),
        (Step, Step.BEGUN, "string"),
        (Level, Level.HIGH, "long"),
        (Grade, Grade.A, "long"),
        (Rights, Rights.READ | Rights.WRITE, "long"),
    ],
)
def test_an_enum_is_written_by_its_values_and_read_as_its_members(
    make: Callable[[Any], Any], annotation: Any, value: Any, type: Any
) -> None:
    kind = make(annotation)
    assert schema_of_type(kind)["fields"] == [{"name": "it", "type": type}]
    assert there_and_back(kind(it=value)) == kind(it=value)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[Color], [Color.RED, Color.BLUE]),
        (dict[str, Color], {"a": Color.RED}),
        (Color | None, Color.RED),
        (Color | None, None),
        (Color | int, Color.RED),
        (Level | str, Level.LOW),
        (frozenset[Color] | None, frozenset([Color.RED])),
        (tuple[Color, ...], (Color.RED,)),
        (tuple[str, ...] | None, ("a", "b")),
        (list[tuple[int, ...] | None], [(1, 2), None]),
    ],
)
def test_enums_and_tuples_are_written_inside_of_other_types(
    make: Callable[[Any], Any], annotation: Any, value: Any
) -> None:
    kind = make(annotation)
    assert there_and_back(kind(it=value)) == kind(it=value)


FILE = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {
            "name": "it",
            "type": ["null", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, "int"],
        }
    ],
}


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("annotation", "value"), [(Color, Color.BLUE), (Level, Level.LOW), (Color | Level, Level.LOW)]
)
def test_an_enum_is_written_by_the_schema_of_a_file(
    tmp_path: Path, make: Callable[[Any], Any], annotation: Any, value: Any
) -> None:
    file = tmp_path / "thing.avsc"
    file.write_text(json.dumps(FILE))
    data, source = written(make(annotation)(it=value), file)
    plain = decoder_for(dict, "avro", dataclasses.replace(source, file=None))
    assert plain is not None
    assert plain(data) == {"it": value.value}


def test_two_enums_of_one_name_are_refused() -> None:
    other = Enum("Color", {"GREEN": "GREEN"})
    kind = dataclasses.make_dataclass("Thing", [("one", Color), ("two", other)])
    with pytest.raises(
        FormatError, match=r"Thing\.two: two classes of one schema are called Color"
    ):
        schema_of_type(kind)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (int | datetime, "int and datetime are both Avro's long"),
        (datetime | int | None, "datetime and int are both Avro's long"),
        (str | UUID, "str and UUID are both Avro's string"),
        (int | time, "int and time are both Avro's long"),
        (datetime | time, "datetime and time are both Avro's long"),
        (datetime | Level, "datetime and Level are both Avro's long"),
        (list[int] | list[str], "list[int] and list[str] are both Avro's array"),
        (list[int] | set[str], "list[int] and set[str] are both Avro's array"),
        (dict[str, int] | dict[str, str], "dict[str, int] and dict[str, str] are both Avro's map"),
        (list[int | datetime], "int and datetime are both Avro's long"),
        (dict[str, str | UUID], "str and UUID are both Avro's string"),
    ],
)
@pytest.mark.parametrize("make", [of_dataclass, of_pydantic])
def test_a_union_that_would_have_a_type_of_avro_twice_is_refused_with_model_and_field(
    make: Callable[[Any], Any], annotation: Any, said: str
) -> None:
    with pytest.raises(FormatError) as raised:
        schema_of_type(make(annotation))
    assert str(raised.value) == (
        f"Thing.it: {said}, and a union has each type once: keep one of them, or make a field of each"
    )


@dataclasses.dataclass
class One:
    a: int


@dataclasses.dataclass
class Two:
    b: int


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (date | datetime, [date(2026, 1, 1), datetime(2026, 1, 1, 5, tzinfo=UTC)]),
        (datetime | date, [date(2026, 1, 1), datetime(2026, 1, 1, 5, tzinfo=UTC)]),
        (float | int, [1, 1.5, 1.0]),
        (int | float | None, [1, 1.5, 1.0, None]),
        (date | int, [5, date(2026, 1, 1)]),
        (bool | int, [True, 1]),
        (int | bool, [True, 1]),
        (str | bytes, ["a", b"a"]),
        (Literal["a"] | str, ["a", "b"]),
        (Annotated[int, Field(gt=5)] | int, [1, 9]),
        (Grade | int, [5]),
        (Step | str, ["x"]),
        (One | Two | str | None, [One(1), Two(1), "x", None]),
        (list[int] | dict[str, int] | str, [[1], {"a": 1}, "x"]),
    ],
)
def test_a_value_of_a_union_comes_back_with_its_type(annotation: Any, values: list[Any]) -> None:
    kind = of_dataclass(annotation)
    for value in values:
        read = there_and_back(kind(value)).it
        assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("annotation", "default", "has_default"),
    [
        (int | str, 0, True),
        (int | str, "x", False),
        (float | int, 1, True),
        (float | int, 1.5, False),
        (bool | int, True, True),
    ],
)
def test_a_default_is_in_the_schema_where_it_is_of_the_first_type_of_a_union(
    annotation: Any, default: Any, has_default: bool
) -> None:
    kind = dataclasses.make_dataclass(
        "Thing", [("it", annotation, dataclasses.field(default=default))]
    )
    (field,) = schema_of_type(kind)["fields"]
    assert ("default" in field) == has_default
    assert there_and_back(kind()) == kind()


@dataclasses.dataclass
class Bad:
    when: int | datetime


@dataclasses.dataclass
class Holder:
    bad: list[Bad]


SETTINGS = {
    "schema_registry": {"url": "memory://"},
    "incoming": {"orders": {"group_id": "billing"}},
    "outgoing": {"out": {"topic": "orders-out", "value_serializer": "avro"}},
}


def app_of(returned: Any, **schema: Any) -> App:
    app = App({**SETTINGS, "outgoing": {"out": {**SETTINGS["outgoing"]["out"], "schema": schema}}})

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(order: dict[str, Any]) -> returned:
        raise AssertionError("it is not called")

    return app


@pytest.mark.parametrize("returned", [Bad, Bad | None, One | Bad, Holder, Annotated[Bad, "x"]])
def test_a_model_that_avro_cannot_write_is_refused_at_the_start(returned: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        app_of(returned).configure()
    assert "@app.outgoing('out') of " in str(raised.value)
    assert "Bad.when: int and datetime are both Avro's long, and a union has each type once" in str(
        raised.value
    )


@pytest.mark.parametrize(
    "returned", [One, dict[str, Any], Any, Record, list[Record], "Unknown", None, bytes, list[Bad]]
)
def test_what_has_a_schema_or_none_of_its_own_is_no_problem_at_the_start(returned: Any) -> None:
    app_of(returned).configure()


def test_with_a_schema_file_a_model_needs_no_schema_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "bad.avsc"
    file.write_text(
        '{"type": "record", "name": "Bad", "fields": [{"name": "when", "type": "long"}]}'
    )
    app_of(Bad, file=str(file)).configure()


def test_a_middleware_may_make_another_value_of_what_is_returned() -> None:
    app = app_of(Bad)

    @app.send_middleware
    async def as_dict(record: Any, call_next: Any) -> None:
        await call_next(record)

    app.configure()
