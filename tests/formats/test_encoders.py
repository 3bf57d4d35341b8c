from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats import FormatError, decoder_for, encoder_for
from tests.formats.test_decoders import decoder, json_values
from tests.formats.types import Colour, OrderData, OrderModel, OrderStruct, Unreadable

HERE = "tests.formats.types"
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVERY = [
    None,
    "json",
    "string",
    "bytes",
    "int",
    "int64",
    "int32",
    "float",
    "float32",
    "float64",
    f"{HERE}:reverse",
]


@pytest.mark.parametrize("serializer", EVERY)
def test_none_is_a_tombstone_in_every_format(serializer: str | None) -> None:
    assert encoder_for(serializer)(None) is None


@pytest.mark.parametrize(
    ("serializer", "value", "expected"),
    [
        (None, b"raw\xff", b"raw\xff"),
        (None, bytearray(b"raw"), b"raw"),
        (None, "grün", "grün".encode()),
        (None, Colour.RED, b"red"),
        (None, {"a": 1}, b'{"a":1}'),
        (None, 5, b"5"),
        (None, MOMENT, b'"2026-11-21T12:00:00Z"'),
        (None, MOMENT.replace(tzinfo=None), b'"2026-11-21T12:00:00"'),
        ("json", "text", b'"text"'),
        (
            "json",
            OrderModel(id=1, who="x", at=MOMENT),
            b'{"id":1,"who":"x","at":"2026-11-21T12:00:00Z","counts":{}}',
        ),
        ("json", [OrderData(1, "x")], b'[{"id":1,"customer":"x"}]'),
        ("json", OrderStruct(1), b'{"id":1,"customer":"","kind":"a","counts":{}}'),
        (
            "json",
            {"order": OrderStruct(1)},
            b'{"order":{"id":1,"customer":"","kind":"a","counts":{}}}',
        ),
        (
            "json",
            [Decimal("1.10"), UUID(int=1), Colour.RED],
            b'["1.10","00000000-0000-0000-0000-000000000001","red"]',
        ),
        ("json", "NaN and Infinity", b'"NaN and Infinity"'),
        ("string", "grün", "grün".encode()),
        ("bytes", memoryview(b"raw"), b"raw"),
        ("int", -1, b"\xff" * 8),
        ("int64", 5, b"\0\0\0\0\0\0\0\5"),
        ("int32", 5, b"\0\0\0\5"),
        ("float", 0.1, struct.pack(">d", 0.1)),
        ("float64", 1, struct.pack(">d", 1.0)),
        ("float32", 0.5, struct.pack(">f", 0.5)),
        ("float32", 2**24, struct.pack(">f", 2.0**24)),
        (f"{HERE}:reverse", "abc", b"cba"),
    ],
)
def test_a_value_is_written_in_its_format(
    serializer: str | None, value: object, expected: bytes
) -> None:
    written = encoder_for(serializer)(value)
    assert written == expected
    assert type(written) is bytes


class Nested:
    """A dictionary that holds itself."""

    value: dict[str, Any] = {}  # noqa: RUF012
    value["self"] = value


@pytest.mark.parametrize(
    ("serializer", "value", "said"),
    [
        ("json", Unreadable(), "Unreadable cannot be written as JSON: no JSON form for Unreadable"),
        (
            "json",
            {"a": Unreadable()},
            "dict cannot be written as JSON: no JSON form for Unreadable",
        ),
        ("json", math.nan, "NaN and infinities have no JSON form"),
        ("json", {"a": [-math.inf]}, "NaN and infinities have no JSON form"),
        ("json", Nested.value, "Circular reference"),
        ("json", "\ud800", "surrogates"),
        ("json", b"\xff", "invalid utf-8"),
        ("string", 5, "takes str, not int"),
        ("string", b"5", "takes str, not bytes"),
        ("string", "\ud800", "UTF-8 cannot encode the text: surrogates not allowed at character 0"),
        (None, "\ud800", "UTF-8 cannot encode the text"),
        ("bytes", "5", "takes bytes, not str"),
        ("int", "5", "takes int, not str"),
        ("int", True, "takes int, not bool"),
        ("int", 2**63, "does not fit the 8 bytes of 'int'"),
        ("int32", 2**31, "does not fit the 4 bytes of 'int32'"),
        ("float", "5", "takes float, not str"),
        ("float32", 1e300, "does not fit the 4 bytes of 'float32'"),
        ("float", 10**400, "does not fit the 8 bytes of 'float'"),
        ("float", 2**53 + 1, "'float' does not hold this integer exactly"),
        ("float32", 2**24 + 1, "'float32' does not hold this integer exactly"),
        (f"{HERE}:fails", "x", "types:fails raised LookupError"),
        (f"{HERE}:no_bytes", "x", "must return bytes or None, but returned str"),
    ],
)
def test_a_value_that_cannot_be_written_is_an_encode_error(
    serializer: str | None, value: object, said: str
) -> None:
    with pytest.raises(EncodeError, match=said):
        encoder_for(serializer)(value)


@pytest.mark.parametrize(
    ("serializer", "said"),
    [
        ("jsno", "did you mean 'json'"),
        ("avro", "for values and keys of records only"),
    ],
)
def test_an_unknown_serializer_is_refused_at_start_up(serializer: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        encoder_for(serializer)


def test_a_list_nested_too_deep_is_an_encode_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(EncodeError, match="Maximum serialization depth"):
        encoder_for("json")(value)


@given(json_values.filter(lambda value: value is not None))
def test_what_is_written_as_json_is_read_back(value: object) -> None:
    assert decoder(Any)(encoder_for("json")(value)) == value


@given(
    st.builds(
        OrderModel,
        id=st.integers(),
        who=st.text(),
        at=st.datetimes(timezones=st.just(UTC)) | st.none(),
    )
)
def test_a_model_is_read_back_as_it_was(order: OrderModel) -> None:
    assert decoder(OrderModel)(encoder_for(None)(order)) == order


@given(st.builds(OrderStruct, id=st.integers(-(2**63), 2**63 - 1), customer=st.text()))
def test_a_struct_is_read_back_as_it_was(order: OrderStruct) -> None:
    assert decoder(OrderStruct)(encoder_for(None)(order)) == order


@given(st.text())
def test_text_is_read_back_as_it_was(text: str) -> None:
    assert decoder(str)(encoder_for(None)(text)) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_int_is_read_back_as_it_was(number: int) -> None:
    assert decoder(int, "int")(encoder_for("int")(number)) == number


@given(st.floats(allow_nan=False))
def test_a_float_is_read_back_as_it_was(number: float) -> None:
    assert decoder(float, "float")(encoder_for("float")(number)) == number


@given(st.binary())
def test_bytes_need_no_reading_back(value: bytes) -> None:
    assert encoder_for(None)(value) == value
    assert decoder_for(bytes, None) is None
