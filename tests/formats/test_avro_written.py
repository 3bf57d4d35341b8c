"""What is written into a field of Avro, and what is refused: no value becomes another one."""

from __future__ import annotations

import struct
from collections import deque
from decimal import Decimal
from math import inf, isinf, nan
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import EncodeError
from tests.formats.avro_world import bytes_of, write

ARRAY = {"type": "array", "items": "string"}
NUMBERS = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "string"}
COUNTS = {"type": "map", "values": "int"}


def order(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "it", "type": kind}]}


def written(value: Any, folder: Path, kind: Any) -> bytes:
    return write({"it": value}, folder, order(kind))[0]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        # Fastavro would write these as other values.
        ("boolean", "false", "takes a bool, not str"),
        ("boolean", 1, "takes a bool, not int"),
        (["null", "boolean"], "no", "takes a bool, not str"),
        ("null", 5, "takes None, not int"),
        (ARRAY, "abc", "takes a list, not str"),
        (ARRAY, {"a": 1}, "takes a list, not dict"),
        (NUMBERS, b"ab", "takes a list, not bytes"),
        (NUMBERS, "", "takes a list, not str"),
        (["null", ARRAY], "abc", "takes a list, not str"),
        (MAP, [], "takes a dict, not list"),
        (COUNTS, "", "takes a dict, not str"),
        ("float", 1e39, "is too large for float"),
        ("float", 10**39, "is too large for float"),
        ("double", Decimal("1e400"), "is too large for double"),
        # It would raise on these, and not say where.
        ("double", 10**400, "is too large for double"),
        ("double", Decimal("sNaN"), "is no number that double has"),
        ("string", Decimal("1.5"), "takes a str, not Decimal"),
        ("bytes", Decimal("1.5"), "takes bytes, not Decimal"),
        ("string", "\ud800", "has a lone surrogate"),
        (MAP, {1: "a"}, "has a key that is no str"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(
    tmp_path: Path, kind: Any, value: Any, said: str
) -> None:
    with pytest.raises(EncodeError, match=rf"does not fit the Avro schema: Order\.it {said}"):
        written(value, tmp_path, kind)


@pytest.mark.parametrize(
    ("kind", "value", "same"),
    [
        ("boolean", True, True),
        ("boolean", False, False),
        ("null", None, None),
        ("float", inf, inf),
        ("float", -inf, -inf),
        ("double", Decimal("Infinity"), inf),
        ("float", Decimal("1.5"), 1.5),
        (ARRAY, ("a", "b"), ["a", "b"]),
        (ARRAY, {"a"}, ["a"]),
        (ARRAY, deque(["a"]), ["a"]),
        (NUMBERS, range(2), [0, 1]),
        (ARRAY, [], []),
        (MAP, {}, {}),
    ],
)
def test_a_value_that_a_field_can_hold_is_written(
    tmp_path: Path, kind: Any, value: Any, same: Any
) -> None:
    assert written(value, tmp_path, kind) == bytes_of(order(kind), {"it": same})


def test_not_a_number_is_written(tmp_path: Path) -> None:
    assert written(nan, tmp_path, "float") == bytes_of(order("float"), {"it": nan})


class Point(NamedTuple):
    x: int
    y: int


def test_a_named_tuple_beside_it_does_not_hide_what_is_wrong(tmp_path: Path) -> None:
    schema = order(NUMBERS)
    schema["fields"].append({"name": "note", "type": "string"})
    with pytest.raises(EncodeError, match=r"Order\.note takes a str, not int"):
        write({"it": Point(1, 2), "note": 5}, tmp_path, schema)


class bool_:
    """Numpy's bool, which is in data frames."""

    __module__ = "numpy"

    def __bool__(self) -> bool:
        return True


def test_a_bool_of_numpy_is_a_bool(tmp_path: Path) -> None:
    assert written(bool_(), tmp_path, "boolean") == bytes_of(order("boolean"), {"it": True})


def read_number(data: bytes, kind: str) -> float:
    number: float = struct.unpack("<f" if kind == "float" else "<d", data)[0]
    return number


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
def test_no_finite_number_becomes_an_infinity(tmp_path_factory: Any, number: Any) -> None:
    for kind in ("float", "double"):
        try:
            data = written(number, tmp_path_factory.getbasetemp(), kind)
        except EncodeError:
            continue
        assert not isinf(read_number(data, kind))
