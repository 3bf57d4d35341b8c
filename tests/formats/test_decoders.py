from __future__ import annotations

import struct
import uuid
from dataclasses import asdict, make_dataclass
from typing import Annotated, Any, Literal, NewType, Optional

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from pydantic_core import to_json

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import Decoder, FormatError, decoder_for, refused_tombstone
from tests.formats.types import Colour, OrderData, OrderDict, OrderModel, OrderStruct, Unreadable

HERE = "tests.formats.types"
Name = NewType("Name", str)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def decoder(payload_type: object, deserializer: str | None = None) -> Decoder:
    made = decoder_for(payload_type, deserializer)
    assert made is not None, "handed out as it is"
    return made


@pytest.mark.parametrize(
    ("payload_type", "deserializer"),
    [
        (bytes, None),
        (bytes | None, None),
        (Optional[bytes], "bytes"),  # noqa: UP045
        (bytes, "bytes"),
        (Any, "bytes"),
    ],  # noqa: RUF100, UP045
)
def test_bytes_are_handed_out_without_a_call(
    payload_type: object, deserializer: str | None
) -> None:
    assert decoder_for(payload_type, deserializer) is None


@pytest.mark.parametrize(
    ("payload_type", "deserializer", "value", "expected"),
    [
        (Any, None, b'{"a": [1, null]}', {"a": [1, None]}),
        (object, None, b"1.5", 1.5),
        (Any, "string", b"5", "5"),
        (Any, "int", b"\0\0\0\5", 5),
        (str, None, "grün".encode(), "grün"),
        (str, "string", b"", ""),
        (str, "json", b'"text"', "text"),
        (Name, None, b"text", "text"),
        (Annotated[str, Field(max_length=3)], None, b"abc", "abc"),
        (Annotated[bytes, Field(max_length=3)], None, b"abc", b"abc"),
        (Colour, "string", b"red", Colour.RED),
        (Literal["red", "blue"], "string", b"blue", "blue"),
        (str | int, "string", b"5", "5"),
        (dict, None, b'{"a": 1}', {"a": 1}),
        (dict[str, Any], None, b"{}", {}),
        (dict[str, int], None, b'{"a": "1"}', {"a": 1}),
        (list, None, b"[1]", [1]),
        (list[OrderData], None, b'[{"id": 1}]', [OrderData(1)]),
        (int, None, b"5", 5),
        (int, "int", b"\0\0\0\0\0\0\0\5", 5),
        (int, "int32", b"\xff" * 8, -1),
        (float, "int", b"\0\0\0\5", 5.0),
        (float, None, b"5", 5.0),
        (float, "float", struct.pack(">d", 0.1), 0.1),
        (float, "float64", struct.pack(">f", 0.5), 0.5),
        (bool, None, b"true", True),
        (OrderModel, None, b'{"id": 1, "who": "x"}', OrderModel(id=1, who="x")),
        (OrderData, "json", b'{"id": 1}', OrderData(1)),
        (OrderStruct, None, b'{"id": 1}', OrderStruct(1)),
        (list[OrderStruct], None, b'[{"id": 1}]', [OrderStruct(1)]),
        (OrderDict, None, b'{"id": 1}', {"id": 1}),
        (OrderModel | None, None, b"null", None),
        (uuid.UUID, None, b'"00000000-0000-0000-0000-000000000001"', uuid.UUID(int=1)),
        (Any, f"{HERE}:upper", b"abc", "ABC"),
        (str, f"{HERE}:upper", b"abc", "ABC"),
        (OrderModel, f"{HERE}:to_order", b"7", OrderModel(id=7)),
        (OrderDict, f"{HERE}:to_order", b"7", {"id": 7}),
    ],
)
def test_the_value_is_what_the_annotation_asks_for(
    payload_type: object, deserializer: str | None, value: bytes, expected: object
) -> None:
    decoded = decoder(payload_type, deserializer)(value)
    assert decoded == expected
    assert type(decoded) is type(expected)


@pytest.mark.parametrize(
    ("payload_type", "deserializer"),
    [
        (bytes, "json"),
        (bytes, "string"),
        (bytes, "int"),
        (bytearray, None),
        (str, "bytes"),
        (str, "int"),
        (dict, "string"),
        (OrderModel, "string"),
        (OrderStruct, "bytes"),
        (OrderData, "float"),
        (int, "float"),
        (bool, "int"),
        (int, "string"),
        (list[str], "string"),
        (dict | list, "string"),
        (Literal[1, 2], "string"),
        (Literal[True], "int"),
    ],
)
def test_a_deserializer_against_the_annotation_is_refused_at_start_up(
    payload_type: object, deserializer: str | None
) -> None:
    with pytest.raises(
        FormatError, match=r"but the handler asks for .*: change the annotation or the deserializer"
    ):
        decoder_for(payload_type, deserializer)


@pytest.mark.parametrize(
    ("deserializer", "said"),
    [
        ("jsno", "does not exist: did you mean 'json'"),
        ("avro", "'avro' is for values and keys of records only"),
        ("protobuf", "'protobuf' is for values and keys of records only"),
    ],
)
def test_an_unknown_format_is_refused_with_what_is_allowed(deserializer: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as raised:
        decoder_for(Any, deserializer)
    allowed = "json, string, bytes, int, int64, int32, float, float64, float32, cloudevents, avro, json-schema, protobuf"
    assert f"{allowed} or module:function" in str(raised.value) or "records only" in str(
        raised.value
    )


@pytest.mark.parametrize(
    "payload_type", [Unreadable, list[Unreadable], make_dataclass("Of", [("it", Unreadable)])]
)
def test_a_plain_class_is_refused_at_start_up_with_what_it_may_be(payload_type: object) -> None:
    with pytest.raises(FormatError) as refused:
        decoder_for(payload_type, None)
    assert str(refused.value).endswith(
        " cannot be read from JSON: nothing says what tests.formats.types.Unreadable consists of; "
        "make it a dataclass, TypedDict, pydantic model or msgspec.Struct, or name a function that reads it in "
        "value_deserializer"
    )


class Unready:
    """A class whose own code for pydantic raises."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        raise LookupError("no units yet")


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ({"id": int}, r"{'id': <class 'int'>} cannot be read from JSON: KeyError: 'type'"),
        (list[Unready], "cannot be read from JSON: LookupError: no units yet"),
        (msgspec.defstruct("Odd", [("value", "1 / 0")]), "Odd cannot be read from JSON: ZeroDiv"),
    ],
)
def test_whatever_an_annotation_raises_it_is_refused_at_start_up(
    annotation: object, said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        decoder_for(annotation, None)


def test_a_struct_of_what_msgspec_cannot_read_is_refused_at_start_up() -> None:
    bad = msgspec.defstruct("Bad", [("value", str | bytes)])
    with pytest.raises(FormatError, match="Bad cannot be read from JSON"):
        decoder_for(bad, None)


@pytest.mark.parametrize(
    "payload_type",
    [
        Any,
        object,
        None,
        str | None,
        Optional[OrderModel],  # noqa: UP045
        OrderStruct | None,
        int | str | None,
        Name | None,
    ],  # noqa: RUF100, UP045
)
def test_a_tombstone_is_none_where_the_annotation_takes_it(payload_type: object) -> None:
    assert decoder(payload_type)(None) is None
    assert refused_tombstone(payload_type) is None


@pytest.mark.parametrize(
    "payload_type", [str, dict, list, int, OrderModel, OrderData, OrderStruct, OrderDict, Name]
)
def test_a_tombstone_is_an_error_where_the_annotation_does_not_take_it(
    payload_type: object,
) -> None:
    with pytest.raises(DecodeError, match="a tombstone"):
        decoder(payload_type)(None)
    assert refused_tombstone(payload_type) is not None


@pytest.mark.parametrize(
    ("payload_type", "expected"), [(bytes, False), (bytes | None, True), (Any, True)]
)
def test_whether_bytes_may_be_none_can_be_asked(payload_type: object, expected: bool) -> None:
    assert (refused_tombstone(payload_type) is None) is expected


def test_a_function_is_not_called_for_a_tombstone() -> None:
    assert decoder(Any, f"{HERE}:fails")(None) is None
    with pytest.raises(DecodeError, match="tombstone"):
        decoder(str, f"{HERE}:upper")(None)


BROKEN = [
    b"",
    b"{",
    b"[1,]",
    b"nope",
    b"\xff\xfe",
    b'"\xff"',
    b'{"id": "\\ud800"}',
    b"1 2",
    b"[" * 200_000,
    b'{"id":' * 200_000,
    b"1" * 100_000,
    b'{"id": ' + b"9" * 100_000 + b"}",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize(
    "payload_type", [Any, dict, list, int, OrderModel, OrderData, OrderStruct, OrderDict]
)
@pytest.mark.parametrize("value", BROKEN, ids=lambda value: repr(value[:12]))
def test_whatever_is_wrong_with_json_is_a_decode_error(payload_type: object, value: bytes) -> None:
    """Rows F13, S5 of the faults."""
    with pytest.raises(DecodeError) as raised:
        decoder(payload_type)(value)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    ("payload_type", "deserializer", "value", "said"),
    [
        (str, None, b"abc\xff", "not UTF-8 text: invalid start byte at byte 3"),
        (
            Annotated[str, Field(max_length=3)],
            None,
            b"abc\xff",
            "not UTF-8 text: invalid start byte at byte 3",
        ),
        (
            Annotated[str, Field(max_length=3)],
            None,
            b"abcd",
            "does not fit str: String should have at most 3 char",
        ),
        (int, "int", b"abc", "an integer has 4 or 8 bytes on the wire, this value has 3"),
        (float, "int", b"abc", "an integer has 4 or 8 bytes on the wire, this value has 3"),
        (float, "float32", b"", "a float has 4 or 8 bytes on the wire, this value has 0"),
        (dict, None, b"[]", "does not fit dict: the JSON is not an object"),
        (list, None, b"{}", "does not fit list: the JSON is not an array"),
        (dict, None, b"null", "does not fit dict: the JSON is not an object"),
        (OrderModel, None, b"null", "does not fit OrderModel: Input should be an object"),
        (OrderModel, None, b"{}", "does not fit OrderModel: id: Field required"),
        (list[OrderData], None, b"[{}]", r"does not fit list\[OrderData\]: 0.id: Field required"),
        (OrderStruct, None, b"{}", "does not fit OrderStruct: Object missing required field `id`"),
        (Any, None, b"{", "not valid JSON: EOF while parsing an object at line 1 column 1"),
        (
            OrderStruct,
            None,
            b'{"id": 1',
            "not valid JSON: EOF while parsing an object at line 1 column 8",
        ),
        (Any, f"{HERE}:fails", b"x", "types:fails raised LookupError$"),
        (
            OrderModel,
            f"{HERE}:to_order",
            b"x",
            "does not fit OrderModel: id: Input should be a valid integer",
        ),
        (str, "json:loads", b"1", "does not fit str: Input should be a valid string"),
        (
            Unreadable,
            "json:loads",
            b"1",
            "json:loads returned int, but the handler asks for Unreadable",
        ),
    ],
)
def test_an_error_says_what_is_wrong(
    payload_type: object, deserializer: str | None, value: bytes, said: str
) -> None:
    with pytest.raises(DecodeError, match=said):
        decoder(payload_type, deserializer)(value)


def test_what_a_function_raises_is_the_cause() -> None:
    with pytest.raises(DecodeError) as raised:
        decoder(Any, f"{HERE}:fails")(b"x")
    assert isinstance(raised.value.__cause__, LookupError)


def test_a_function_may_give_a_class_that_no_validator_knows() -> None:
    assert isinstance(decoder(Unreadable, f"{HERE}:to_unreadable")(b"x"), Unreadable)


def test_nan_and_infinity_are_read() -> None:
    assert decoder(dict)(b'{"a": Infinity}') == {"a": float("inf")}
    assert decoder(Any)(b"NaN") != decoder(Any)(b"NaN")


@given(json_values)
def test_json_comes_back_as_it_was(value: object) -> None:
    assert decoder(Any)(to_json(value)) == value


@given(st.integers(), st.text())
def test_orders_come_back_as_they_were(number: int, customer: str) -> None:
    order = OrderData(number, customer)
    assert decoder(OrderData)(to_json(asdict(order))) == order


@given(
    st.binary(max_size=40),
    st.sampled_from([Any, str, dict, list, int, OrderModel, OrderData, OrderStruct]),
)
def test_no_bytes_raise_anything_but_a_decode_error(value: bytes, payload_type: object) -> None:
    """Row F13 of the faults."""
    try:
        decoder(payload_type)(value)
    except DecodeError:
        pass


@given(st.binary(max_size=12), st.sampled_from(["int", "float", "string"]))
def test_no_bytes_raise_anything_but_a_decode_error_in_other_formats(
    value: bytes, deserializer: str
) -> None:
    try:
        decoder(Any, deserializer)(value)
    except DecodeError:
        pass
