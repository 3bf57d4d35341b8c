"""What is read and written fits the schema of its type."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from jsonschema import Draft7Validator
from pydantic import BaseModel, Field, computed_field

from reactive_kafka.formats import decoder_for
from reactive_kafka.formats.annotation_schemas import DescribedType, schemas_of_types
from reactive_kafka.formats.encoders import write_json

WHERE = "#/definitions/"


def validator(asked: DescribedType) -> Draft7Validator:
    (schema,), models = schemas_of_types([asked], WHERE)
    whole = {"allOf": [schema], "definitions": models}
    Draft7Validator.check_schema(whole)
    return Draft7Validator(whole)


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    article: str
    count: int = Field(gt=0)


class Order(BaseModel):
    id: int = Field(alias="orderId")
    lines: list[Line] = []
    place: tuple[float, str] = (0.5, "here")
    colour: Colour = Colour.RED

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.lines)


@dataclass
class Invoice:
    order: int
    amount: Decimal
    at: datetime
    tags: dict[str, int] = field(default_factory=dict)


class Click(TypedDict, total=False):
    page: str
    id: UUID


class Point(NamedTuple):
    x: int
    y: float


class Card(msgspec.Struct, tag="card", rename="camel"):
    card_number: str
    place: tuple[int, str] = (1, "a")


class Cash(msgspec.Struct, tag="cash"):
    amount: int | None = None


class Tree(BaseModel):
    inner: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    default: int = 1


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
AT = datetime(2026, 11, 21, tzinfo=UTC)
VALUES: list[tuple[Any, Any, Any]] = [
    (Order, Order(orderId=1, lines=[Line(article="a", count=2)]), {"orderId": "x"}),
    (Invoice, Invoice(1, Decimal("1.5"), AT, {"a": 1}), {"order": 1}),
    (Click, Click(page="a"), {"page": 5}),
    (Point, Point(1, 2.5), [1]),
    (tuple[int, str], (1, "a"), ["a", 1]),
    (Card | Cash, Card("12"), {"type": "card"}),
    (Card, Card("12"), {"type": "card", "cardNumber": "12", "place": ["a", 1]}),
    (Card, Card("12"), {"type": "card", "cardNumber": "12", "place": [1, "a", "b"]}),
    (list[Cash], [Cash(5), Cash()], [{"type": "card"}]),
    (Tree, Tree(inner=[Tree(), Tree(inner=[Tree()])]), {"inner": 5}),
    (Pet, Dog(), {"kind": "cow"}),
    (dict[str, list[int]], {"a": [1]}, {"a": ["x"]}),
    (Annotated[int, Field(ge=5)], 5, 4),
    (Order | None, None, 5),
]


@pytest.mark.parametrize(
    ("kind", "value", "wrong"), VALUES, ids=[str(kind) for kind, _, _ in VALUES]
)
def test_what_is_written_fits_and_what_does_not_fit_is_not_read(
    kind: Any, value: Any, wrong: Any
) -> None:
    written = write_json(value) or b"null"
    assert validator(DescribedType(kind, "serialization")).is_valid(json.loads(written))
    read = validator(DescribedType(kind, "validation"))
    decode = decoder_for(kind, "json")
    assert decode is not None
    decode(written)
    assert read.is_valid(json.loads(written))
    with pytest.raises(ValueError, match="does not fit"):
        decode(json.dumps(wrong).encode())
    assert not read.is_valid(wrong)


def test_types_of_one_name_are_kept_apart_whoever_describes_them() -> None:
    theirs = dataclass(type("Cash", (), {"__annotations__": {"euros": int}}))
    asked = [
        DescribedType(Cash, "validation"),
        DescribedType(theirs, "validation"),
        DescribedType(theirs, "validation"),
    ]
    (struct, one, two), models = schemas_of_types(asked, WHERE)
    assert one == two != struct
    assert set(models[one["$ref"].removeprefix(WHERE)]["properties"]) == {"euros"}
    assert set(models[struct["$ref"].removeprefix(WHERE)]["properties"]) == {"type", "amount"}


def test_a_model_that_is_written_in_another_way_than_it_is_read_has_two_schemas() -> None:
    (read, written), models = schemas_of_types(
        [DescribedType(Order, "validation"), DescribedType(Order, "serialization")], WHERE
    )
    assert "size" not in models[read["$ref"].removeprefix(WHERE)]["properties"]
    assert "size" in models[written["$ref"].removeprefix(WHERE)]["properties"]


class Handle:
    """Something that no library knows."""


class Raising(BaseModel):
    @classmethod
    def __get_pydantic_json_schema__(cls, *_: Any) -> Any:
        raise RuntimeError("nobody knows")


class WithHandle(msgspec.Struct):
    handle: Handle


@pytest.mark.parametrize("kind", [Any, object, Handle, Raising, WithHandle, list[Handle]])
def test_what_nobody_can_describe_fits_everything_and_disturbs_no_other(kind: Any) -> None:
    (unknown, known), models = schemas_of_types(
        [DescribedType(kind, "validation"), DescribedType(Line, "validation")], WHERE
    )
    assert unknown == {}
    assert set(models) == {"Line"}
    assert known == {"$ref": f"{WHERE}Line"}


def test_a_field_may_be_called_like_a_word_of_schemas() -> None:
    class Odd(BaseModel):
        discriminator: dict[str, int] = {}
        prefixItems: list[int] = Field(default=[1], examples=[{"prefixItems": [1]}])

    (_,), models = schemas_of_types([DescribedType(Odd, "validation")], WHERE)
    assert set(models["Odd"]["properties"]) == {"discriminator", "prefixItems"}
    assert models["Odd"]["properties"]["prefixItems"]["examples"] == [{"prefixItems": [1]}]
