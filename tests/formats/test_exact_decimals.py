"""Numbers of JSON that are Decimals: all of their digits, and nothing else of the record is read
otherwise.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
import typing_extensions
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Tag,
    TypeAdapter,
    field_validator,
    model_validator,
)

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    SchemaSource,
    decoder_for,
    models,
    record_decoder_for,
)
from reactive_kafka.formats.cloudevents_read import ValueAndHeaders
from reactive_kafka.formats.exact_decimals import exactly, is_suspect
from reactive_kafka.formats.payload_type import payload_type_of
from reactive_kafka.formats.registered.schema_questions import ById, Schema
from tests.formats.test_quick_json import without_msgspec

LONG = "12345678901234567.89"
EXACT = Decimal(LONG)
AS_DOUBLE = float(LONG)


class Amount(BaseModel):
    value: Decimal
    share: float = 0.0


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    value: Decimal


class Tree(BaseModel):
    value: Decimal
    children: list[Tree] = []


class Paid(BaseModel):
    kind: Literal["paid"]
    total: Amount
    parts: list[Decimal] = []


class Free(BaseModel):
    kind: Literal["free"]
    total: float


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    value: Decimal = Field(alias="Value")
    path: Decimal = Field(Decimal(0), validation_alias=AliasChoices("p", AliasPath("q", "r", 0)))


class Root(RootModel[dict[str, Decimal]]):
    pass


@dataclasses.dataclass
class Data:
    value: Decimal
    amount: Amount | None = None


class Typed(typing_extensions.TypedDict):
    value: Decimal


class Positive(BaseModel):
    value: Annotated[Decimal, Field(gt=0)]

    @field_validator("value")
    @classmethod
    def _twice(cls, value: Decimal) -> Decimal:
        return value + value


ByKind = Annotated[Paid | Free, Field(discriminator="kind")]


def kind_of(value: Any) -> str:
    return "list" if isinstance(value, list) else "of"


def number_or_list(value: Any) -> str:
    return "of" if isinstance(value, float) else "list"


ByFunction = Annotated[
    Annotated[Decimal, Tag("of")] | Annotated[list[Decimal], Tag("list")], Discriminator(kind_of)
]

CASES: list[tuple[Any, str, Any]] = [
    (Decimal, "N", EXACT),
    (Decimal, " -N\n", -EXACT),
    (Decimal, "1e400", Decimal("1e400")),
    (Decimal, "0.1234567890123456789", Decimal("0.1234567890123456789")),
    (
        Decimal,
        "1234567890123456789012345678901234567890",
        Decimal("1234567890123456789012345678901234567890"),
    ),
    (Decimal | None, "N", EXACT),
    (Decimal | int, "N", EXACT),
    (Decimal | str, "N", EXACT),
    (Decimal | float, "N", AS_DOUBLE),
    (list[Decimal], "[N, 1, -N]", [EXACT, 1, -EXACT]),
    (tuple[float, Decimal], "[N, N]", (AS_DOUBLE, EXACT)),
    (tuple[Decimal, ...], "[1.5, N]", (Decimal("1.5"), EXACT)),
    (dict[str, Decimal], '{"N": N}', {LONG: EXACT}),
    (dict[str, list[Decimal | None]], '{"a": [null, N]}', {"a": [None, EXACT]}),
    (Amount, '{"value": N, "share": N, "more": [N]}', Amount(value=EXACT, share=AS_DOUBLE)),
    (Amount, '{"text": "N, 1.5, \\"N", "value": N}', Amount(value=EXACT)),
    (Amount, '{"value": 1.5, "value": N}', Amount(value=EXACT)),
    (Strict, '{"value": N}', Strict(value=EXACT)),
    (
        Tree,
        '{"value": N, "children": [{"value": N}]}',
        Tree(value=EXACT, children=[Tree(value=EXACT)]),
    ),
    (
        ByKind,
        '{"kind": "paid", "total": {"value": N}, "parts": [N]}',
        Paid(kind="paid", total=Amount(value=EXACT), parts=[EXACT]),
    ),
    (ByKind, '{"kind": "free", "total": N}', Free(kind="free", total=AS_DOUBLE)),
    (
        Paid | Free,
        '{"kind": "paid", "total": {"value": N}}',
        Paid(kind="paid", total=Amount(value=EXACT)),
    ),
    (Paid | Free, '{"kind": "free", "total": N}', Free(kind="free", total=AS_DOUBLE)),
    (ByFunction, "N", EXACT),
    (ByFunction, "[N]", [EXACT]),
    (Aliased, '{"Value": N, "q": {"r": [N]}}', Aliased(Value=EXACT, p=EXACT)),
    (Aliased, '{"value": N, "p": N}', Aliased(Value=EXACT, p=EXACT)),
    (Root, '{"a": N}', Root({"a": EXACT})),
    (Data, '{"value": N, "amount": {"value": N}}', Data(EXACT, Amount(value=EXACT))),
    (Typed, '{"value": N}', {"value": EXACT}),
    (
        Positive,
        '{"value": 1.00000000000000001}',
        Positive.model_construct(value=Decimal("2.00000000000000002")),
    ),
]


def decode(annotation: Any, value: str, format: str | None = "json") -> Any:
    found = decoder_for(annotation, format)
    assert found is not None
    return found(value.replace("N", LONG).encode())


@pytest.mark.parametrize(("annotation", "value", "expected"), CASES)
def test_a_number_is_a_decimal_with_all_of_its_digits(
    annotation: Any, value: str, expected: Any
) -> None:
    assert decode(annotation, value) == expected


@pytest.mark.parametrize(("annotation", "value", "expected"), CASES)
def test_it_is_so_with_a_json_schema_and_in_a_cloud_event(
    annotation: Any, value: str, expected: Any
) -> None:
    document = value.replace("N", LONG)
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), Schema("JSON", "{}"))
    of_schema = decoder_for(annotation, "json-schema", SchemaSource(schemas, "orders"))
    assert of_schema is not None
    assert of_schema(b"\0\0\0\0\1" + document.encode()) == expected
    event = f'{{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {document}}}'.encode()
    of_event = record_decoder_for(annotation, None, decoder_for(annotation, "json"))
    assert (
        of_event(ValueAndHeaders(event, (("content-type", b"application/cloudevents+json"),)))
        == expected
    )


@pytest.mark.parametrize(("annotation", "value", "expected"), CASES)
def test_it_is_so_without_msgspec(annotation: Any, value: str, expected: Any) -> None:
    assert without_msgspec(annotation)(value.replace("N", LONG).encode()) == expected


class Watched(BaseModel):
    value: Decimal
    seen: str = ""

    @model_validator(mode="before")
    @classmethod
    def _look(cls, given: Any) -> Any:
        return {**given, "seen": type(given["value"]).__name__}


class Twice(BaseModel):
    exact: Decimal = Field(validation_alias="value")
    rough: float = Field(validation_alias="value")

    model_config = ConfigDict(strict=True)


class TextOrDecimal(BaseModel):
    value: str | Decimal


class ByType(BaseModel):
    value: Annotated[
        Annotated[Decimal, Tag("of")] | Annotated[list[Decimal], Tag("list")],
        Discriminator(number_or_list),
    ]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Watched, Watched.model_construct(value=Decimal("12345678901234568"), seen="float")),
        (Twice, Twice.model_construct(exact=Decimal("12345678901234568"), rough=AS_DOUBLE)),
        (ByType, ByType.model_construct(value=Decimal("12345678901234568"))),
        (TextOrDecimal, TextOrDecimal.model_construct(value=Decimal("12345678901234568"))),
    ],
)
def test_what_quotes_would_change_is_read_as_before(annotation: Any, expected: Any) -> None:
    found = decode(annotation, '{"value": N}')
    assert found.__dict__ == expected.__dict__


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Amount, '{"value": N, "share": "SECRET"}'),
        (Amount, '{"value": N'),
        (Amount, '{"value": N, "share": 01}'),
        (Amount, '{"value": "\x01", "share": N}'),
        (Positive, '{"value": -N}'),
        (list[Decimal], '[N, "SECRET"]'),
        (Decimal, "1e9999999999999999999"),
    ],
)
def test_a_refusal_is_the_same_as_without_the_digits(annotation: Any, value: str) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    explain = models.explain_model(
        payload_type_of(annotation).name, models.words_of(adapter.core_schema)
    )
    with pytest.raises(ValueError) as plain:
        adapter.validate_json(value.replace("N", LONG))
    with pytest.raises(DecodeError) as refused:
        decode(annotation, value)
    assert str(refused.value) == str(explain(plain.value))
    assert LONG not in str(refused.value)


numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)


@given(numbers)
@example("0.1")
@example("9007199254740993.0")
@example("1e-400")
@example("4.9e-324")
def test_no_number_loses_a_digit(number: str) -> None:
    assert decode(Decimal, number) == Decimal(number)
    assert decode(list[Decimal | None], f"[null, {number}]") == [None, Decimal(number)]
    amount = decode(Amount, f'{{"share": {number}, "value": {number}}}'.replace("N", ""))
    assert amount.value == Decimal(number)
    assert amount.share == float(number)


class Chain(BaseModel):
    value: Decimal
    below: Chain | None = None


def test_a_record_may_be_nested_as_deeply_as_pydantic_reads_it() -> None:
    text = f'{{"value": {LONG}}}'
    for _ in range(190):
        text = f'{{"value": 1, "below": {text}}}'
    link: Chain | None = decode(Chain, text)
    while link is not None and link.below is not None:
        link = link.below
    assert link is not None
    assert link.value == EXACT


@pytest.mark.parametrize(
    "value",
    [
        b'{"value": 12.50, "id": "550e8400-e29b-41d4-a716-446655440000"}',
        b'{"at": "2026-01-01T00:00:00.000000Z", "value": -0.12345678901234}',
        b"[1764072000000, 3, 2.5, true]",
    ],
)
def test_ordinary_records_take_the_quick_way(value: bytes) -> None:
    assert not is_suspect(value)


def test_of_a_type_without_decimals_the_reader_is_as_it_was() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Free)
    read = adapter.validator.validate_json
    assert exactly(read, adapter.core_schema) is read
