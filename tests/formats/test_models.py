"""How types are read, and what is said of a record that does not fit: enough to find it, and none
of its content.
"""

from __future__ import annotations

import traceback
import typing
from typing import Annotated, Any, Literal

import msgspec
import pytest
import typing_extensions
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import decoder_for
from tests.formats.types import OrderModel, OrderStruct, StrictModel


class Line(typing.TypedDict, total=False):
    article: str


class Base(typing.TypedDict):
    id: int


class Order(Base):
    lines: typing.NotRequired[list[Line]]
    note: Annotated[str, "free text"] | None


class Portable(typing_extensions.TypedDict):
    id: int


def decode(payload_type: object, value: bytes) -> Any:
    decoder = decoder_for(payload_type, None)
    assert decoder is not None
    return decoder(value)


@pytest.mark.parametrize(
    "payload_type",
    [Order, Order | None, typing.Optional[Order], Annotated[Order, "x"]],  # noqa: UP045
)  # noqa: RUF100, UP045
def test_required_and_optional_fields_are_told_apart(payload_type: object) -> None:
    assert decode(payload_type, b'{"id": "1", "note": null}') == {"id": 1, "note": None}
    assert decode(payload_type, b'{"id": 1, "note": "x", "lines": [{}]}')["lines"] == [{}]
    with pytest.raises(DecodeError, match=r"id: Field required; note: Field required$"):
        decode(payload_type, b"{}")


@pytest.mark.parametrize("payload_type", [list[Base], typing.List[Base], tuple[Base, ...]])  # noqa: UP006
def test_a_typed_dict_may_stand_inside_of_other_types(payload_type: object) -> None:
    assert list(decode(payload_type, b'[{"id": "1"}]')) == [{"id": 1}]


def test_nested_ones_are_checked_too() -> None:
    with pytest.raises(DecodeError, match=r"lines\.0.article: Input should be a valid string"):
        decode(Order, b'{"id": 1, "note": null, "lines": [{"article": 1}]}')


def test_those_of_typing_extensions_work_as_they_are() -> None:
    assert decode(Portable, b'{"id": "1"}') == {"id": 1}


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def refusal(payload_type: object, value: bytes, deserializer: str | None = None) -> DecodeError:
    decode = decoder_for(payload_type, deserializer)
    assert decode is not None
    with pytest.raises(DecodeError) as raised:
        decode(value)
    return raised.value


@pytest.mark.parametrize(
    ("payload_type", "value", "expected"),
    [
        (
            StrictModel,
            b'{"SECRET": 1}',
            "does not fit StrictModel: *: Extra inputs are not permitted",
        ),
        (
            StrictModel,
            b'{"kind": "SECRET"}',
            "does not fit StrictModel: kind: Input should be 'a' or 'b'",
        ),
        (StrictModel, b'{"number": 6}', "does not fit StrictModel: number: Value error, no sixes"),
        (
            OrderModel,
            b'{"id": 1, "at": "SECRET"}',
            "does not fit OrderModel: at: Input should be a valid datetime or",
        ),
        (
            OrderModel,
            b'{"id": 1, "counts": {"SECRET": "x"}}',
            "does not fit OrderModel: counts.*: Input should be a v",
        ),
        (
            Pet,
            b'{"kind": "SECRET"}',
            "does not fit Cat | Dog: Input tag does not match any of the expected tags: 'cat",
        ),
        (
            Pet,
            b'{"kind": "dog", "age": "SECRET"}',
            "does not fit Cat | Dog: dog.age: Input should be a valid integer",
        ),
        (
            OrderStruct,
            b'{"id": "SECRET"}',
            "does not fit OrderStruct: Expected `int`, got `str` - at `$.id`",
        ),
        (
            OrderStruct,
            b'{"id": 1, "kind": "SECRET"}',
            "does not fit OrderStruct: The value is none of those that are allowed - at `$.kind`",
        ),
        (
            OrderStruct,
            b'{"id": 1, "counts": {"SECRET": "x"}}',
            "does not fit OrderStruct: Expected `int`, got `str` -",
        ),
        (
            OrderStruct,
            b'{"id": 1, "customer": "SECRET\xff"}',
            "not valid JSON: invalid unicode code point at l",
        ),
        (str, b"SECRET\xff", "not UTF-8 text: invalid start byte at byte 6"),
        (dict, b'{"SECRET": ', "not valid JSON: EOF while parsing a value at line 1 column 11"),
        (
            OrderModel,
            b'{"SECRET": ',
            "not valid JSON: EOF while parsing a value at line 1 column 11",
        ),
    ],
)
def test_neither_text_nor_traceback_quotes_the_record(
    payload_type: object, value: bytes, expected: str
) -> None:
    error = refusal(payload_type, value)
    assert str(error).startswith(expected)
    assert "SECRET" not in "".join(traceback.format_exception(error))


class Circle(msgspec.Struct, tag="circle"):
    radius: int


class Square(msgspec.Struct, tag="square"):
    side: int

    def __post_init__(self) -> None:
        if self.side < 0:
            raise ValueError("a side is not negative")


class Account(BaseModel):
    name: str = ""
    number: int = 0

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if value == "nobody":
            raise AssertionError("an account has an owner")
        if value == "told":
            raise ValueError(f"{value} is blocked")
        if value == "own":
            raise PydanticCustomError("blocked", "the account is blocked")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Account:
        if self.number == 77:
            raise ValueError(f"number {self.number} is reserved")
        return self


@pytest.mark.parametrize(
    ("payload_type", "value", "expected"),
    [
        (
            Circle | Square,
            b'{"type": "SECRET"}',
            "The tag is none of those of the expected structs - at `$.type`",
        ),
        (Square, b'{"type": "square", "side": -1}', "a side is not negative"),
        (Account, b'{"name": "nobody"}', "name: Assertion failed, an account has an owner"),
        (Account, b'{"name": "own"}', "name: the account is blocked"),
    ],
)
def test_a_tag_that_nobody_knows_and_a_validators_own_message_are_said(
    payload_type: object, value: bytes, expected: str
) -> None:
    error = refusal(payload_type, value)
    assert str(error).partition(": ")[2] == expected
    assert "SECRET" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("value", [b'{"name": "told"}', b'{"number": 77}'])
def test_a_validators_message_that_quotes_the_value_is_left_out(value: bytes) -> None:
    error = "".join(traceback.format_exception(refusal(Account, value)))
    assert "Value error" in error
    assert "blocked" not in error
    assert "77" not in error


def test_only_the_first_problems_are_named() -> None:
    error = refusal(list[int], b'["a", "b", "c", "d", "e"]')
    assert str(error).count("Input should be") == 3
    assert str(error).endswith("(and 2 more)")


def test_the_cause_is_a_validation_error_that_failure_routes_can_name() -> None:
    assert isinstance(refusal(OrderModel, b"{}").__cause__, ValidationError)
    assert isinstance(refusal(OrderStruct, b"{}").__cause__, msgspec.ValidationError)


def test_what_a_validator_of_the_users_raises_is_the_cause() -> None:
    error = refusal(StrictModel, b'{"number": 7}')
    assert str(error) == "does not fit StrictModel: KeyError while reading it"
    assert isinstance(error.__cause__, KeyError)


def test_a_decode_error_of_the_users_function_stays_as_it_is() -> None:
    error = refusal(Any, b"x", "tests.formats.test_models:refuse")
    assert str(error) == "said by the user"


def refuse(value: bytes) -> object:
    raise DecodeError("said by the user")


class Chain(msgspec.Struct):
    next: Chain | None


def nested(value: bytes) -> Any:
    inner: Any = None
    for _ in range(100_000):
        inner = {"next": inner}
    return inner


def test_what_is_nested_too_deep_for_msgspec_is_named_so() -> None:
    error = refusal(Chain, b"x", "tests.formats.test_models:nested")
    assert str(error) == "not read: it is nested too deeply"
