"""What an object must be to pass a handler's annotation, and what it is made into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypedDict

import msgspec
import pydantic
import pytest

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import checker_for


@dataclass
class Data:
    x: int


class Model(pydantic.BaseModel):
    x: int


class Struct(msgspec.Struct):
    x: int


class Plain:
    pass


class Table(TypedDict):
    x: int


class Shape(Protocol):
    def area(self) -> int: ...


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Data, Data(1)),
        (Model, Model(x=1)),
        (Struct, Struct(1)),
        (Plain, Plain()),
        (Plain | None, Plain()),
        (Data | Model, Model(x=1)),
        (Data | Plain, Plain()),
        (dict, {"a": Plain()}),
        (list, [Plain()]),
        (Data | None, None),
        (Any, Plain()),
        (object, None),
        # Nothing can tell.
        (Shape, 3),
        (Table | Plain, 3),
    ],
)
def test_what_fits_passes_as_it_is(annotation: Any, value: object) -> None:
    check = checker_for(annotation)
    assert (value if check is None else check(value)) is value  # type: ignore[arg-type]


def test_what_no_library_can_read_lets_anything_pass() -> None:
    assert checker_for({"id": int}) is None


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (Data, {"x": "2"}, Data(2)),
        (Model, {"x": 2}, Model(x=2)),
        (Struct, {"x": 2}, Struct(2)),
        (Table, {"x": 2}, {"x": 2}),
        (float, 2, 2.0),
        (list[Data], [{"x": 1}, Data(2)], [Data(1), Data(2)]),
    ],
)
def test_what_can_be_made_into_it_is(annotation: Any, value: Any, made: object) -> None:
    check = checker_for(annotation)
    assert check is not None
    assert check(value) == made
    assert type(check(value)) is type(made)


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (
            Data,
            Model(x=1),
            "does not fit Data: Input should be a dictionary or an instance of Data",
        ),
        (Model, {"x": "secret"}, "does not fit Model: x: Input should be a valid integer"),
        (Struct, {"x": "secret"}, "does not fit Struct: Expected `int`, got `str`"),
        (Plain, 3, "does not fit Plain: Input should be an instance of Plain"),
        (
            list[Plain],
            [Plain(), 4],
            "does not fit list[Plain]: 1: Input should be an instance of Plain",
        ),
        (
            Annotated[int, pydantic.Field(gt=3)],
            2,
            "does not fit int: Input should be greater than 3",
        ),
        (Literal["a"], "b", "does not fit Literal['a']: Input should be 'a'"),
        (Table, {}, "does not fit Table: x: Field required"),
        (Data, None, "annotate Data | None to get None"),
    ],
)
def test_what_does_not_fit_is_refused_without_being_quoted(
    annotation: Any, value: Any, why: str
) -> None:
    check = checker_for(annotation)
    assert check is not None
    with pytest.raises(DecodeError) as refused:
        check(value)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)
