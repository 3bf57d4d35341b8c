import dataclasses
import enum
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NewType
from uuid import UUID

import msgspec
import pydantic
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.payload_schema import KAFKA_COLUMNS, PayloadSchema, payload_schema

UserId = NewType("UserId", int)


class Kind(enum.StrEnum):
    VIEW = "view"
    BUY = "it's bought"


@dataclasses.dataclass
class Place:
    lat: float
    name: str | None


@dataclasses.dataclass(slots=True)
class Everything:
    count: ClassVar[int] = 0
    user: UserId
    page: str
    rate: float
    is_new: bool
    raw: bytes
    at: datetime
    day: date
    price: Decimal
    exact: Annotated[Decimal, Field(max_digits=10, decimal_places=2)]
    session: UUID
    kind: Kind
    device: Literal["phone", "desk"]
    place: Place
    places: list[Place]
    by_name: dict[str, Place]
    tags: set[str]
    path: tuple[int, ...]
    maybe: int | None
    note: str = ""
    labels: list[str | None] = dataclasses.field(default_factory=list)
    computed: int = dataclasses.field(init=False, default=0)


def schema_of(model: Any) -> PayloadSchema:
    return payload_schema(model, "@app.spark('clicks')")


def reasons_of(model: Any) -> list[str]:
    return [one.reason for one in schema_of(model).misfits("_value", "_made")]


def problems_of(model: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        schema_of(model)
    return refused.value.problems


def test_each_type_has_its_column() -> None:
    place = "STRUCT<`lat`: DOUBLE, `name`: STRING>"
    assert schema_of(Everything).struct.column == (
        "STRUCT<`user`: BIGINT, `page`: STRING, `rate`: DOUBLE, `is_new`: BOOLEAN, `raw`: BINARY, `at`: TIMESTAMP_LTZ, "
        "`day`: DATE, `price`: DECIMAL(38,18), `exact`: DECIMAL(10,2), `session`: STRING, `kind`: STRING, "
        f"`device`: STRING, `place`: {place}, `places`: ARRAY<{place}>, `by_name`: MAP<STRING, {place}>, "
        "`tags`: ARRAY<STRING>, `path`: ARRAY<BIGINT>, `maybe`: BIGINT, `note`: STRING, `labels`: ARRAY<STRING>>"
    )


def test_what_may_be_wrong_with_a_row_is_known_by_name() -> None:
    assert reasons_of(Everything) == [
        "user is missing or null",
        "page is missing or null",
        "page is no text",
        "rate is missing or null",
        "is_new is missing or null",
        "raw is missing or null",
        "raw is no text",
        "at is missing or null",
        "at is no text with a full date, or whole number of seconds or milliseconds",
        "day is missing or null",
        "day is no date (YYYY-MM-DD)",
        "price is missing or null",
        "price is no decimal number with at most 20 digits before the point and 18 after it",
        "exact is missing or null",
        "exact is no decimal number with at most 8 digits before the point and 2 after it",
        "session is missing or null",
        "session is no UUID of 36 characters",
        "kind is missing or null",
        "kind is no text",
        "kind is none of 'view', \"it's bought\"",
        "device is missing or null",
        "device is no text",
        "device is none of 'phone', 'desk'",
        "place is missing or null",
        "place.lat is missing or null",
        "place.name is no text",
        "places is missing or null",
        "places[] is missing or null",
        "places[].lat is missing or null",
        "places[].name is no text",
        "by_name is missing or null",
        "by_name has a key twice",
        "by_name[] is missing or null",
        "by_name[].lat is missing or null",
        "by_name[].name is no text",
        "tags is missing or null",
        "tags[] is missing or null",
        "tags[] is no text",
        "path is missing or null",
        "path[] is missing or null",
        "note is no text",
        "labels[] is no text",
    ]


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    user_id: int
    place_of_work: Place | None = None
    other: str = Field(alias="x-y`'", default="")


class CamelStruct(msgspec.Struct, rename="camel"):
    user_id: int
    raw_bytes: bytes
    may_miss: int | msgspec.UnsetType = msgspec.UNSET


@pydantic.dataclasses.dataclass
class WithAlias:
    user_id: int = Field(alias="userId")


class ByName(BaseModel):
    model_config = ConfigDict(
        validate_by_name=True, validate_by_alias=False, val_json_bytes="base64"
    )
    user_id: bytes = Field(alias="userId")


@pytest.mark.parametrize(
    ("model", "json", "column"),
    [
        (
            Camel,
            "`userId`: BIGINT, `placeOfWork`: STRUCT<`lat`: DOUBLE, `name`: VARIANT>, `x-y``'`: VARIANT",
            "`user_id`: BIGINT, `place_of_work`: STRUCT<`lat`: DOUBLE, `name`: STRING>, `other`: STRING",
        ),
        (
            CamelStruct,
            "`userId`: BIGINT, `rawBytes`: VARIANT, `mayMiss`: BIGINT",
            "`user_id`: BIGINT, `raw_bytes`: BINARY, `may_miss`: BIGINT",
        ),
        (WithAlias, "`userId`: BIGINT", "`user_id`: BIGINT"),
        (ByName, "`user_id`: VARIANT", "`user_id`: BINARY"),
    ],
)
def test_a_column_has_the_fields_name_and_is_read_from_its_alias(
    model: type, json: str, column: str
) -> None:
    struct = schema_of(model).struct
    assert (struct.json, struct.column) == (f"STRUCT<{json}>", f"STRUCT<{column}>")


def test_fields_with_a_default_may_be_missing() -> None:
    assert [one for one in reasons_of(Camel) if one.endswith("is missing or null")] == [
        "user_id is missing or null",
        # If there is one.
        "place_of_work.lat is missing or null",
    ]
    assert [one for one in reasons_of(CamelStruct) if one.endswith("is missing or null")] == [
        "user_id is missing or null",
        "raw_bytes is missing or null",
    ]


def test_a_record_without_a_value_fits_an_optional_model_only() -> None:
    assert not schema_of(Place).accepts_none
    assert schema_of(Place | None).accepts_none
    assert schema_of(Place | None).struct == schema_of(Place).struct


class Circle(BaseModel):
    inner: list["Circle"]


class Choices(BaseModel):
    user_id: int = Field(validation_alias=AliasChoices("a", "b"))


class Rows(msgspec.Struct, array_like=True):
    user_id: int


class Root(pydantic.RootModel[list[int]]):
    pass


@dataclasses.dataclass
class Unknown:
    user: "Nobody"  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Empty:
    pass


@dataclasses.dataclass
class Outer:
    inner: list[Empty]


@dataclasses.dataclass
class Cases:
    user: int
    User: int


class CasesInJson(BaseModel):
    one: int = Field(alias="id")
    other: int = Field(alias="ID")


class Twice(BaseModel):
    one: int = Field(alias="id")
    other: int = Field(alias="id")


class TooExact(BaseModel):
    price: Decimal = Field(max_digits=39, decimal_places=2)


WRONG: list[tuple[Any, str]] = [
    (dict, "expected a dataclass, a pydantic model or a msgspec Struct"),
    (Place(1.0, ""), "expected a dataclass"),
    (str, "expected a dataclass"),
    (Circle, "field 'inner[]' holds itself (Circle)"),
    (Choices, "field 'user_id' has an alias that is no single name"),
    (Rows, "array_like"),
    (Root, "RootModel, and has no fields"),
    (Unknown, "its annotations cannot be read: name 'Nobody' is not defined"),
    (Empty, "Empty has no fields"),
    (Outer, "field 'inner[]' Empty has no fields"),
    (Cases, "columns 'user' and 'User' are the same to Spark"),
    (CasesInJson, "names in JSON 'id' and 'ID' are the same to Spark"),
    (Twice, "names in JSON 'id' and 'id' are the same to Spark"),
    (TooExact, "field 'price' has 39 digits, 2 of them decimal; a column has 38 at most"),
]


@pytest.mark.parametrize(("model", "problem"), WRONG)
def test_a_model_without_columns_is_refused(model: Any, problem: str) -> None:
    (found,) = problems_of(model)
    assert found.startswith("@app.spark('clicks'), payload = ")
    assert problem in found


@pytest.mark.parametrize(
    ("annotation", "written"),
    [
        (time, "time"),
        (Any, "Any"),
        (object, "Any"),
        (dict, "dict"),
        (list, "list"),
        (dict[int, str], "dict[int, str]"),
        (Sequence[str], "Sequence[str]"),
        (int | str, "int | str"),
        (tuple[int, str], "tuple[int, str]"),
        (Literal[1, 2], "Literal[1, 2]"),
        (enum.IntEnum("Level", ["LOW"]), "Level"),
    ],
)
def test_a_field_without_a_column_type_is_refused_with_its_type_and_what_is_allowed(
    annotation: Any, written: str
) -> None:
    inner = dataclasses.make_dataclass("Inner", [("bad", annotation)])
    outer = dataclasses.make_dataclass("Outer", [("good", int), ("inner", dict[str, inner])])  # type: ignore[valid-type]
    (problem,) = problems_of(outer)
    assert (
        f"payload = Outer: field 'inner[].bad' is of type {written}, which no column has; "
        in problem
    )
    assert "allowed are str, int, float, bool, bytes, datetime, date, Decimal" in problem


def test_all_problems_come_at_once() -> None:
    problems = problems_of(
        dataclasses.make_dataclass("Bad", [("one", time), ("two", Any), ("key", str)])
    )
    assert len(problems) == 3


@pytest.mark.parametrize("name", [*KAFKA_COLUMNS, "Key"])
def test_a_field_that_is_called_like_a_column_of_a_record_is_refused(name: str) -> None:
    fields: Any = {name: (str, Field(alias="x"))}
    (problem,) = problems_of(pydantic.create_model("Model", **fields))
    assert f"field {name!r} would be a second column" in problem
    assert "timestampType" in problem


def test_the_name_that_the_parser_puts_corrupt_texts_under_is_refused() -> None:
    (problem,) = problems_of(Named)
    assert "would be a second column '_corrupt'" in problem


class Named(BaseModel):
    corrupt: str = Field(alias="_corrupt")


def test_an_alias_may_be_called_like_a_column_of_a_record() -> None:
    class Aliased(BaseModel):
        event_key: str = Field(alias="key")

    assert schema_of(Aliased).struct.json == "STRUCT<`key`: VARIANT>"
