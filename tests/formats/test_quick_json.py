"""JSON is one thing, whoever reads it: the same values and the same errors with msgspec and
without.
"""

from __future__ import annotations

import asyncio
import enum
import sys
import typing
import uuid
from abc import ABC, abstractmethod
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import inf, isnan
from typing import Annotated, Any, Literal

import msgspec
import pydantic.dataclasses
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, field_validator

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import Decoder, decoder_for, refused_tombstone
from reactive_kafka.formats.quick_json import is_sure, quick_reader
from tests.formats.types import Colour


@dataclass
class Data:
    value: Any


@dataclass
class DataOfInt:
    value: int


@dataclass
class DataOfFloat:
    value: float


class Model(BaseModel):
    value: Any


class ModelOfInt(BaseModel):
    value: int


class ModelOfFloat(BaseModel):
    value: float


class Struct(msgspec.Struct):
    value: Any


class StructOfInt(msgspec.Struct):
    value: int


class StructOfFloat(msgspec.Struct):
    value: float


ANYTHING = (Data, Model, Struct, dict, dict[str, Any], Any)
OF_INT = (DataOfInt, ModelOfInt, StructOfInt, dict[str, int])
OF_FLOAT = (DataOfFloat, ModelOfFloat, StructOfFloat, dict[str, float])


def without_msgspec(payload_type: object) -> Decoder:
    """The decoder as it is where msgspec is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "msgspec", None)
        return with_msgspec(payload_type)


def with_msgspec(payload_type: object) -> Decoder:
    made = decoder_for(payload_type, "json")
    assert made is not None
    return made


def has_struct(payload_type: object) -> bool:
    return payload_type in (Struct, StructOfInt, StructOfFloat)


def decoders(payload_types: tuple[object, ...]) -> list[Any]:
    """Both ways to read each of these types, as parameters."""
    return [
        pytest.param(make(one), id=f"{one} {make.__name__}")
        for one in payload_types
        for make in (with_msgspec, without_msgspec)
        if make is with_msgspec or not has_struct(one)
    ]


def value_of(decoded: Any) -> Any:
    return decoded["value"] if isinstance(decoded, dict) else decoded.value


@pytest.mark.parametrize("decode", decoders((*ANYTHING, *OF_INT)))
@pytest.mark.parametrize(
    "number", [2**63, -(2**63) - 1, 2**64, 10**40, int("9" * 4300)], ids=lambda one: len(str(one))
)
def test_integers_beyond_64_bits_are_exact(decode: Decoder, number: int) -> None:
    found = value_of(decode(b'{"value": %d}' % number))
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize("decode", decoders((*ANYTHING, *OF_FLOAT)))
def test_nan_and_infinities_are_read(decode: Decoder) -> None:
    assert isnan(value_of(decode(b'{"value": NaN}')))
    assert value_of(decode(b'{"value": -Infinity}')) == -inf
    assert value_of(decode(b'{"value": 1e999}')) == inf
    assert value_of(decode(b'{"value": 1e-999}')) == 0


@pytest.mark.parametrize("decode", decoders((*ANYTHING, *OF_INT)))
def test_the_last_of_two_keys_counts(decode: Decoder) -> None:
    assert value_of(decode(b'{"value": 1, "value": 2, "val\\u0075e": 3}')) == 3


@pytest.mark.parametrize("decode", decoders(ANYTHING))
def test_a_pair_of_surrogates_is_one_character(decode: Decoder) -> None:
    assert value_of(decode(b'{"value": "\\ud83d\\ude00"}')) == "\N{GRINNING FACE}"


@pytest.mark.parametrize("decode", decoders(ANYTHING))
def test_as_many_levels_are_read_as_pydantic_reads(decode: Decoder) -> None:
    assert value_of(decode(b'{"value": ' + b"[" * 200 + b"]" * 200 + b"}")) is not None


NO_JSON = {
    b'"\\ud800"': "unexpected end of hex escape",
    b'"\\udc00\\ud800"': "lone leading surrogate in hex escape",
    b'"\\ud800x12345"': "unexpected end of hex escape",
    b'"\xff"': "invalid unicode code point",
    b'"\xed\xa0\x80"': "invalid unicode code point",
    b'"\x00"': "control character",
    b'"\\q"': "invalid escape",
    b"1" * 4301: "number out of range",
    b"[" * 201 + b"]" * 201: "recursion limit exceeded",
    b"01": "expected `,` or `}`|invalid number",
    b"[1,]": "trailing comma",
    b"\xef\xbb\xbf1": "expected value",
    b"": "expected value",
}


@pytest.mark.parametrize("decode", decoders((*ANYTHING, *OF_INT, *OF_FLOAT)))
@pytest.mark.parametrize("part", NO_JSON, ids=lambda part: repr(part[:12]))
@pytest.mark.parametrize("name", [b"value", b"other"])
def test_what_is_no_json_is_refused_also_where_nobody_asks_for_it(
    decode: Decoder, part: bytes, name: bytes
) -> None:
    with pytest.raises(DecodeError, match=f"^not valid JSON: ({NO_JSON[part]}).* at line 1 column"):
        decode(b'{"value": 1, "%s": %s}' % (name, part))


@pytest.mark.parametrize("decode", decoders((*ANYTHING, *OF_INT, Any)))
def test_a_byte_order_mark_and_what_follows_the_document_are_refused(decode: Decoder) -> None:
    with pytest.raises(DecodeError, match=r"^not valid JSON: expected value at line 1 column 1"):
        decode(b'\xef\xbb\xbf{"value": 1}')
    with pytest.raises(
        DecodeError, match=r"^not valid JSON: trailing characters at line 1 column 14"
    ):
        decode(b'{"value": 1} {}')


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = -2


class Mood(enum.Enum):
    GOOD = "a"
    BAD = "1"


class Lenient(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.A


@dataclass(slots=True)
class Line:
    article: str
    quantity: int = 1


@dataclass
class Node:
    value: int
    kids: list[Node] = field(default_factory=list)


@dataclass
class Order:
    value: int
    note: str | None = None
    lines: list[Line] = field(default_factory=list)
    colour: Colour = Colour.RED
    pair: tuple[int, str] = (1, "a")


@dataclass(frozen=True)
class Checked:
    value: int

    def __post_init__(self) -> None:
        if self.value == 13:
            raise ValueError("SECRET")
        if self.value == 14:
            raise KeyError("value")


ALIKE = (
    Any,
    bool,
    int,
    float,
    str,
    date,
    uuid.UUID,
    Colour,
    Size,
    Mood,
    Literal["a", 1],
    Literal[1, 2, -3],
    int | str,
    int | float,
    bool | int | None,
    float | str | bool,
    list[int],
    list[Any],
    list,
    dict,
    dict[str, int],
    set[int],
    set[float],
    frozenset[str],
    tuple[int, ...],
    tuple[int, str],
    dict[str, list[float]],
    list[Line] | None,
    dict[str, Line],
    Line,
    Node,
    Order,
    Order | None,
    Checked,
    list[Checked],
    Lenient,
    typing.NewType("Number", int),
)
"""What both read alike, alone and as the field of a dataclass."""


class Keyed(typing_extensions.TypedDict):
    value: int
    note: typing_extensions.NotRequired[str]


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    value: int


@dataclass
class HoldsModel:
    value: Forbidding


@dataclass
class Constrained:
    value: Annotated[int, Field(gt=3)]


@dataclass
class Stripped:
    value: Annotated[str, StringConstraints(strip_whitespace=True)]


@dataclass
class Aliased:
    value: int = Field(3, alias="other")


@dataclass
class Validated:
    value: int

    @field_validator("value")
    @classmethod
    def _more(cls, value: int) -> int:
        return value + 1


@dataclass
class Configured:
    __pydantic_config__ = ConfigDict(extra="forbid")
    value: int


@pydantic.dataclasses.dataclass(config=ConfigDict(strict=True))
class OfPydantic:
    value: float


@dataclass
class WithInit:
    value: int
    more: InitVar[int] = 3

    def __post_init__(self, more: int) -> None:
        self.value += more


@dataclass
class NotGiven:
    value: int
    other: int = field(default=7, init=False)


@dataclass
class SeesItself:
    value: int = 1

    def __post_init__(self) -> None:
        self.seen = dict(vars(self))


class Tripled:
    def __get__(self, of: Any, kind: type) -> int:
        return 5 if of is None else of.__dict__.get("tripled", 5)

    def __set__(self, of: Any, value: int) -> None:
        of.__dict__["tripled"] = value * 3


@dataclass
class WithDescriptor:
    value: int = Tripled()  # type: ignore[assignment]


@dataclass
class Dynamic:
    value: int

    def __getattr__(self, name: str) -> int:
        return 9


@dataclass
class Intercepted:
    value: int

    def __getattribute__(self, name: str) -> Any:
        return 9 if name == "value" else object.__getattribute__(self, name)


@dataclass
class Abstract(ABC):
    value: int

    @abstractmethod
    def act(self) -> None: ...


@dataclass
class WithNote:
    value: int
    note: str | None = None


@dataclass
class HoldsDefaults:
    value: WithNote


class Odd(enum.Enum):
    PAIR = (1, 2)
    TEXT = "a"


class Permits(enum.IntFlag):
    READ = 1
    WRITE = 2


class AnyNumber(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> AnyNumber:
        return cls.ONE


UNLIKE = (
    datetime,
    time,
    timedelta,
    Decimal,
    bytes,
    Keyed,
    Forbidding,
    HoldsModel,
    Constrained,
    Stripped,
    Aliased,
    Validated,
    Configured,
    OfPydantic,
    WithInit,
    NotGiven,
    SeesItself,
    WithDescriptor,
    Dynamic,
    Intercepted,
    Abstract,
    HoldsDefaults,
    Odd,
    Permits,
    AnyNumber,
    list[WithNote],
    int | list[int],
    date | datetime,
    dict[int, int],
    Literal[True],
    Annotated[int, Field(gt=3)],
    complex,
    typing.Pattern[str],
)
"""What only pydantic reads."""


def quick(payload_type: Any) -> object:
    return quick_reader(payload_type, TypeAdapter(payload_type).core_schema)


@pytest.mark.parametrize("payload_type", ALIKE)
def test_what_is_read_alike_is_read_by_msgspec(payload_type: object) -> None:
    assert quick(payload_type) is not None


@pytest.mark.parametrize("payload_type", UNLIKE)
def test_what_is_not_is_left_to_pydantic(payload_type: object) -> None:
    assert quick(payload_type) is None


@pytest.mark.parametrize("kind", [Permits, AnyNumber])
def test_a_number_beyond_64_bits_is_no_member_of_an_enum_that_takes_any(kind: object) -> None:
    texts = set()
    for decode in (with_msgspec(kind), without_msgspec(kind)):
        assert decode(b"9223372036854775807")
        with pytest.raises(DecodeError) as refused:
            decode(b"9223372036854775808")
        texts.add(str(refused.value))
    assert len(texts) == 1


def boxed(payload_type: object) -> list[object]:
    """The type alone (bytes are no JSON), and where it stands in others."""
    slotted, plain = (
        make_dataclass("Box", [("value", payload_type)], slots=slots) for slots in (True, False)
    )
    inside = [slotted, plain, list[payload_type]]  # type: ignore[valid-type]
    return inside if payload_type is bytes else [payload_type, *inside]


READERS = [
    (one, with_msgspec(one), without_msgspec(one))
    for kind in (*ALIKE, *UNLIKE)
    for one in boxed(kind)
]  # compiled once

ATOMS = [
    b"1",
    b"2",
    b"0",
    b"-1",
    b"13",
    b"14",
    b"1.0",
    b"2.0",
    b"1e2",
    b"-0",
    b"-0.0",
    b"1.5",
    b"0.10",
    b"true",
    b"false",
    b"null",
    b'"a"',
    b'"1"',
    b'" a "',
    b'"1.5"',
    b'""',
    b'"red"',
    b'"2026-01-02"',
    b'"2026-02-30"',
    b'"0001-01-01"',
    b'"0000-01-01"',
    b'"2026-01-02T00:00:00"',
    b'"2026-01-02T03:04:05.123456789Z"',
    b'"20260102"',
    b'"03:04:05"',
    b'"P1D"',
    b'"00000000-0000-0000-0000-000000000001"',
    b'"00000000000000000000000000000001"',
    b"9007199254740993",
    b"18446744073709551617",
    b"1" * 400,
    b"1e308",
    b"1e309",
    b"9223372036854775808",
    b"NaN",
    b"-Infinity",
    b"123456789.123456789",
    b"5e-324",
    b"2.2250738585072011e-308",
    b"1e23",
    b"18446744073709551615.0",
    b'"\\ud83d\\ude00"',
    b'"\\ud83d"',
    b'"\xc3\xbc"',
    b'"\xff"',
    b'"\\u0000"',
    b'"\\n"',
    b'"SGk="',
    b"[]",
    b"{}",
    b"[1]",
    b"[1, 2]",
    b'[1, "a"]',
    b'{"a": 1}',
    b'{"1": 1}',
    b'{"article": "x"}',
    b'{"article": "x", "quantity": 2}',
    b'{"value": 1}',
    b'{"value": 1, "note": "x"}',
    b'{"value": 1, "other": 2}',
]
atoms = st.sampled_from(ATOMS) | st.floats(allow_nan=False).map(lambda one: repr(one).encode())
names = st.sampled_from(
    [b"value", b"val\\u0075e", b"note", b"lines", b"colour", b"pair", b"kids", b"article", b"other"]
)
json_like = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: b"[" + b",".join(parts) + b"]")
        | st.lists(st.tuples(names, inner), max_size=4).map(
            lambda pairs: b"{" + b",".join(b'"%s": %s' % pair for pair in pairs) + b"}"
        )
    ),
    max_leaves=6,
)
noise = st.sampled_from(
    [
        b"",
        b'"',
        b"\\",
        b",",
        b"}",
        b"]",
        b"[",
        b":",
        b"0",
        b"-",
        b"\x0b",
        b"\x00",
        b"\xff",
        b"\\ud8",
    ]
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A document with a byte or more gone, or in excess."""
    document = draw(json_like)
    at = draw(st.integers(0, len(document)))
    return document[:at] + draw(noise) + document[at + draw(st.integers(0, 2)) :]


def outcome(decode: Decoder, value: bytes) -> tuple[Any, ...]:
    try:
        decoded = decode(value)
    except DecodeError as error:
        return "refused", str(error)
    own = (
        vars(decoded) if hasattr(decoded, "__dict__") and not isinstance(decoded, enum.Enum) else {}
    )
    return type(decoded), repr(decoded), sorted(map(repr, own.items()))


@settings(max_examples=400)
@given(
    st.sampled_from(READERS),
    json_like | broken() | json_like.map(lambda one: b'{"value": %s}' % one),
)
def test_with_msgspec_and_without_are_one(
    reader: tuple[object, Decoder, Decoder], value: bytes
) -> None:
    _, quick, careful = reader
    assert outcome(quick, value) == outcome(careful, value)


@pytest.mark.parametrize(
    "value", [*ATOMS, *(b'{"value": %s}' % one for one in ATOMS), *(b"[%s]" % one for one in ATOMS)]
)
def test_each_kind_of_value_is_one_for_each_type(value: bytes) -> None:
    for payload_type, quick, careful in READERS:
        assert outcome(quick, value) == outcome(careful, value), payload_type


def test_an_error_of_post_init_is_that_of_pydantic() -> None:
    with pytest.raises(DecodeError, match=r"^does not fit Checked: Value error, SECRET$"):
        with_msgspec(Checked)(b'{"value": 13}')
    with pytest.raises(DecodeError, match=r"^does not fit Checked: KeyError while reading it$"):
        with_msgspec(Checked)(b'{"value": 14}')


@dataclass
class Raises:
    error: int

    def __post_init__(self) -> None:
        raise (asyncio.CancelledError, SystemExit, KeyboardInterrupt)[self.error]("SECRET")


class RaisesToo(msgspec.Struct):
    error: int

    def __post_init__(self) -> None:
        Raises(self.error)


@pytest.mark.parametrize("payload_type", [Raises, RaisesToo])
def test_whatever_post_init_raises_is_about_the_record_unless_the_process_is_to_end(
    payload_type: object,
) -> None:
    decode = decoder_for(payload_type, "json")
    assert decode is not None
    with pytest.raises(DecodeError, match=r"^decoding it raised CancelledError$"):
        decode(b'{"error": 0}')
    for number, error in enumerate((SystemExit, KeyboardInterrupt), 1):
        with pytest.raises(error):
            decode(b'{"error": %d}' % number)


@pytest.mark.parametrize("payload_type", [dict, Order, Struct, DataOfInt])
def test_a_record_without_a_value_is_told_by_its_type(payload_type: Any) -> None:
    with pytest.raises(DecodeError) as refused:
        with_msgspec(payload_type)(None)
    assert str(refused.value) == refused_tombstone(payload_type)
    assert with_msgspec(payload_type | None)(None) is None


@dataclass
class OneDefault:
    value: int
    note: str | None = None


def test_defaults_are_the_instances_own() -> None:
    decoded = with_msgspec(Order)(b'{"value": 1}')
    assert vars(decoded) == {
        "value": 1,
        "note": None,
        "lines": [],
        "colour": Colour.RED,
        "pair": (1, "a"),
    }
    assert with_msgspec(Order | None)(b"null") is None
    assert vars(with_msgspec(OneDefault)(b'{"value": 1}')) == {"value": 1, "note": None}


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": 1}',
        '{"a": "ü"}'.encode(),
        b'[{"n": 1}' + b', {"n": 12345}' * 190 + b"]",
        b'["%s", %s]' % (b"x" * 10_000, b"9" * 400),
        b"[" + b"1234567890, " * 1_000 + b"1]",
    ],
    ids=len,
)
def test_documents_that_need_no_second_look(value: bytes) -> None:
    assert is_sure(value)


@pytest.mark.parametrize("before", [0, 1, 429, 430, 431, 5000])
@pytest.mark.parametrize(
    "part",
    [
        b"9" * 4301,
        b"-" + b"9" * 4301,
        b"[" * 201 + b"]" * 201,
        b'{"a":' * 201 + b"1" + b"}" * 201,
        b'"\xff"',
    ],
)
def test_documents_that_need_one_wherever_it_is(before: int, part: bytes) -> None:
    assert not is_sure(b'{"other": "%s", "value": %s}' % (b"x" * before, part))
