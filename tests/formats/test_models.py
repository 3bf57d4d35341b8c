from __future__ import annotations

import typing
from typing import Annotated, Any

import pytest
import typing_extensions

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import decoder_for


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


@pytest.mark.parametrize("payload_type", [Order, Order | None, typing.Optional[Order], Annotated[Order, "x"]])  # noqa: UP045
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
