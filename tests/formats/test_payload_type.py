from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal, NewType, Optional, Union

import pytest

from reactive_kafka.formats.payload_type import name_of, payload_type_of
from tests.formats.types import OrderData

Number = NewType("Number", int)


@pytest.mark.parametrize(
    ("annotation", "base", "accepts_none", "constrained"),
    [
        (inspect.Parameter.empty, Any, True, False),
        (object, Any, True, False),
        (Any, Any, True, False),
        (None, None, True, False),
        (str, str, False, False),
        (str | None, str, True, False),
        (Optional[str], str, True, False),  # noqa: UP045
        (Annotated[str | None, "x"], str, True, True),
        (Annotated[str, "x"] | None, str, True, True),
        (Annotated[str | int, "x"] | None, Union[str, int], True, True),  # noqa: UP007
        (Number, int, False, False),
        (Number | None, int, True, False),
        (str | int, Union[str, int], False, False),  # noqa: UP007
        (str | int | None, Union[str, int], True, False),  # noqa: UP007
        (Optional[str] | Any, Union[str, Any], True, False),  # noqa: UP007, UP045
        (list[str | None], list[str | None], False, False),
    ],
)
def test_the_base_is_what_remains(
    annotation: object, base: object, accepts_none: bool, constrained: bool
) -> None:
    seen = payload_type_of(annotation)
    assert (seen.base, seen.accepts_none, seen.is_constrained) == (base, accepts_none, constrained)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (OrderData, "OrderData"),
        (OrderData | None, "OrderData | None"),
        (Optional[OrderData], "OrderData | None"),  # noqa: UP045
        (dict[str, list[OrderData]], "dict[str, list[OrderData]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Annotated[OrderData, "x"], "OrderData"),
        (Any, "Any"),
        (Number, "Number"),
        (Literal["a"], "Literal['a']"),
    ],
)
def test_a_type_is_named_as_a_person_writes_it(annotation: object, expected: str) -> None:
    assert name_of(annotation) == expected
