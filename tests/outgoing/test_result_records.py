"""What one returned or yielded value becomes, and that a Record hides nowhere in it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from reactive_kafka import Record
from reactive_kafka.errors import EncodeError
from reactive_kafka.outgoing.result_records import promises_records, records_of

RIGHT_FORM = (
    "a Record is what is sent, and so is a CloudEvent; they are no part of a value: yield them one by one, or return "
    "a list of them only"
)
READ_ONCE = "it can be read only once, and a value may be read several times: make a list of it"


class Invoice(Record):
    """A Record of the application's own."""


class Pair(NamedTuple):
    first: Any
    second: Any


class Rows(list[Any]):
    """A list of the application's own."""


class Columns(tuple[Any, ...]):
    """A tuple of the application's own."""


@dataclass
class Order:
    id: Any
    lines: Any = ()


@dataclass(slots=True)
class Slotted:
    id: Any


class Model(BaseModel):
    id: Any
    lines: Any = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Struct(msgspec.Struct):
    id: Any


class Plain:
    """Neither a dataclass nor a model: the serializer of the application knows what it is."""

    def __init__(self, id: Any) -> None:
        self.id = id


@dataclass
class Odd:
    """One field is not set by its constructor, and the others are none."""

    template: ClassVar[Record] = Record(b"not a field")
    at_first: InitVar[Any] = None
    unset: Any = field(init=False)


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=3)
    | st.text(max_size=3)
)
NESTED = st.recursive(
    PLAIN,
    lambda values: (
        st.lists(values, max_size=3)
        | st.lists(values, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), values, max_size=3)
        | st.builds(Order, values, values)
        | st.builds(Slotted, values)
        | st.builds(Model, id=values)
        | st.builds(Struct, values)
        | st.builds(Pair, values, values)
    ),
    max_leaves=6,
)
VALUES = NESTED | st.frozensets(st.integers()) | st.sets(st.text(max_size=3))
RECORDS = st.builds(Record, VALUES, key=st.binary(max_size=2)) | st.builds(Invoice, VALUES)

HOLDERS: list[Callable[[Any], Any]] = [
    lambda record: {"invoice": record},
    lambda record: {"id": 1, "lines": [], "invoice": record, "more": "x"},
    # Of one that can be hashed.
    lambda record: {1, Record(1)},
    lambda record: frozenset([Invoice(1)]),
    lambda record: Pair(record, 1),
    lambda record: Pair(record, record),
    Order,
    lambda record: Order(1, record),
    Slotted,
    lambda record: Model(id=1, lines=record),
    Struct,
]
"""They hide a Record where none may be, alone or as the value of another Record."""
DEEPER: list[Callable[[Any], Any]] = [
    lambda value: [value],
    lambda value: ("x", [value]),
    lambda value: {"a": 1, "b": value},
    lambda value: MappingProxyType({"a": value}),
    lambda value: deque([value]),
    lambda value: Order(1, value),
    lambda value: Model(id=value),
    lambda value: Open.model_validate({"more": value}),
    lambda value: Struct(value),
]
"""They hide that further inside."""
ITERATORS: list[Callable[[Any], Any]] = [
    iter,
    enumerate,
    lambda items: (item for item in items),
    lambda items: map(Record, items),
    lambda items: chain(items, items),
]
LISTS: list[Callable[[Any], Any]] = [
    lambda record: [record, 1],
    lambda record: [None, record],
    lambda record: ({}, record),
    lambda record: Rows([record, record, Order(1)]),
]
"""They mix it with what is none."""


def problem_of(result: Any) -> str:
    with pytest.raises(EncodeError) as refused:
        records_of(result)
    return str(refused.value)


def is_same(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether both are the same objects, in the same order: NaN equals nothing."""
    return len(found) == len(wanted) and all(
        one is other for one, other in zip(found, wanted, strict=True)
    )


def test_none_is_nothing() -> None:
    assert list(records_of(None)) == []


@given(VALUES.filter(lambda value: value is not None))
def test_a_value_without_a_record_is_sent_as_it_is(value: Any) -> None:
    assert is_same(records_of(value), [value])


@given(RECORDS)
def test_a_record_is_sent_as_it_is(record: Record) -> None:
    assert is_same(records_of(record), [record])


@given(st.lists(RECORDS, min_size=1, max_size=5), st.sampled_from([list, tuple, Rows, Columns]))
def test_nothing_but_records_is_each_of_them_in_order(
    records: list[Record], kind: Callable[[Any], Any]
) -> None:
    assert is_same(records_of(kind(records)), records)


@pytest.mark.parametrize("empty", [[], (), {}, set(), Rows(), Columns(), ""])
def test_what_is_empty_is_one_value(empty: Any) -> None:
    assert is_same(records_of(empty), [empty])


def test_a_list_that_changes_after_it_was_yielded_sends_what_was_in_it() -> None:
    page = [Record(1), Record(2)]
    found = records_of(page)
    page.clear()
    assert [record.value for record in found] == [1, 2]


@given(RECORDS, st.sampled_from(HOLDERS))
def test_a_record_inside_of_a_value_is_refused(
    record: Record, hidden: Callable[[Any], Any]
) -> None:
    value = hidden(record)
    name = type(value).__name__
    assert problem_of(value) == f"a Record is inside of a value of type {name}: {RIGHT_FORM}"
    expected = f"a Record is inside of a Record's value of type {name}: {RIGHT_FORM}"
    assert problem_of(Record(value)) == problem_of([Record(1), Record(value)]) == expected


@given(RECORDS, st.sampled_from(LISTS))
def test_a_list_of_records_and_other_values_is_refused(
    record: Record, mixed: Callable[[Any], Any]
) -> None:
    value = mixed(record)
    assert (
        problem_of(value)
        == f"a {type(value).__name__} of Records has other values, too: {RIGHT_FORM}"
    )


@given(
    st.lists(RECORDS, min_size=1, max_size=3), st.lists(PLAIN, min_size=1, max_size=3), st.randoms()
)
def test_it_does_not_matter_where_in_a_list_the_other_values_stand(
    records: list[Record], others: list[Any], order: Any
) -> None:
    mixed = [*records, *others]
    order.shuffle(mixed)
    assert "a list of Records has other values, too" in problem_of(mixed)


@given(RECORDS)
def test_the_value_of_a_record_is_no_record_and_no_list_of_them(record: Record) -> None:
    inside = f"the value of a Record is a Record: {RIGHT_FORM}"
    assert problem_of(Record(record)) == problem_of([Record(record)]) == inside
    assert problem_of(Record([record])).startswith(
        "a Record is inside of a Record's value of type list: "
    )
    assert problem_of(Record((1, record))).startswith(
        "a Record is inside of a Record's value of type tuple: "
    )


@given(RECORDS, st.sampled_from(HOLDERS), st.lists(st.sampled_from(DEEPER), min_size=1, max_size=4))
def test_a_record_is_found_at_any_depth(
    record: Record, hidden: Callable[[Any], Any], around: list[Callable[[Any], Any]]
) -> None:
    value = hidden(record)
    for wrap in around:
        value = wrap(value)
    name = type(value).__name__
    assert problem_of(value) == f"a Record is inside of a value of type {name}: {RIGHT_FORM}"
    assert (
        problem_of(Record(value))
        == f"a Record is inside of a Record's value of type {name}: {RIGHT_FORM}"
    )


@given(
    st.lists(NESTED, max_size=2),
    st.sampled_from(ITERATORS),
    st.lists(st.sampled_from(DEEPER), min_size=1, max_size=4),
)
def test_an_iterator_is_refused_at_any_depth(
    items: list[Any], read_once: Callable[[Any], Any], around: list[Callable[[Any], Any]]
) -> None:
    iterator = read_once([*items, Record(1)])
    name = type(iterator).__name__
    alone = f"is an iterator of type {name}: {READ_ONCE}"
    assert problem_of(iterator) == f"a value {alone}"
    assert problem_of(Record(iterator)) == f"a Record's value {alone}"
    value: Any = iterator
    for wrap in around:
        value = wrap(value)
    inside = f"of type {type(value).__name__}: {READ_ONCE}"
    assert problem_of(value) == f"an iterator of type {name} is inside of a value {inside}"
    assert (
        problem_of(Record(value))
        == f"an iterator of type {name} is inside of a Record's value {inside}"
    )


def test_what_is_unknown_is_left_to_the_serializer_and_a_circle_too() -> None:
    circle: list[Any] = [{}]
    circle[0]["back"] = circle
    for value in (Plain(Record(1)), circle):
        assert is_same(records_of(value), [value])
        record = Record(value)
        assert is_same(records_of(record), [record])


PROMISING = (
    list[Record],
    tuple[Record, ...],
    list[Invoice],
    list[Record] | None,
    Sequence[Record | Invoice],
    Annotated[list[Record], "of the day"],
    AsyncIterator[list[Record]],
    AsyncGenerator[list[Record] | None, None],
    Awaitable[list[Record]],
)
NOT_PROMISING = (
    Any,
    None,
    list,
    list[int],
    list[Record | int],
    list[Any],
    Record,
    dict[str, list[Record]],
    "later",
)


@pytest.mark.parametrize("annotation", PROMISING)
@pytest.mark.parametrize("empty", [[], (), Rows()])
def test_an_empty_list_of_records_is_no_record(annotation: Any, empty: Any) -> None:
    assert promises_records(annotation)
    assert list(records_of(empty, empty_is_none=True)) == []


@pytest.mark.parametrize("annotation", NOT_PROMISING)
def test_an_empty_list_of_anything_else_is_a_value(annotation: Any) -> None:
    assert not promises_records(annotation)


def test_only_fields_are_looked_at_and_one_may_be_unset() -> None:
    odd = Odd()
    assert is_same(records_of(odd), [odd])
    odd.unset = Record(1)
    assert "inside of a value of type Odd" in problem_of(odd)


def test_the_class_of_a_value_may_be_anything() -> None:
    value = type("Mocking", (), {"model_fields": 7, "__struct_fields__": ()})()
    assert is_same(records_of(value), [value])
