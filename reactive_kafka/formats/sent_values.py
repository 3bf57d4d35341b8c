"""What may be sent as a value: nothing that has a Record, an event or an iterator inside. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.cloudevents import is_event_type
from reactive_kafka.records import Record

PLAIN = frozenset({type(None), bool, bytes, float, int, str})
"""Types of values that are sent as they are. Their subclasses are not among them."""

_ATOMS = (str, bytes, bytearray, memoryview, range, Enum)
"""Nothing can be inside of these, although some have items."""

RIGHT_FORM = (
    "a Record is what is sent, and so is a CloudEvent; they are no part of a value: "
    "yield them one by one, or return a list of them only"
)
# Each channel and each retry reads a value again, and an iterator would be empty by then. What is
# in it cannot be checked without reading it.
_READ_ONCE = "it can be read only once, and a value may be read several times: make a list of it"


def _is_sent_whole(kind: type) -> bool:
    return issubclass(kind, Record) or is_event_type(kind)


is_sent_whole: Callable[[Any], bool] = lru_cache(maxsize=1024)(_is_sent_whole)
"""Whether objects of a class are a record by themselves: a Record, or an event."""


@lru_cache(maxsize=1024)
def _is_part_of_no_value(kind: type) -> bool:
    return is_sent_whole(kind) or issubclass(kind, Iterator)


def check_value(sent: Any) -> None:
    """Check that no Record, event or iterator is inside of a value, or of the value of a Record.

    Looks at the items of collections, the values of mappings, and the fields of dataclasses, attrs
    classes, pydantic models and msgspec structs, at any depth.

    Raises:
        EncodeError: A Record, an event or an iterator is inside of it, or it is an iterator.
    """
    value = sent.value if isinstance(sent, Record) else sent
    kind = type(value)
    if kind in PLAIN:
        return
    if isinstance(value, Record):
        raise EncodeError(f"the value of a Record is a Record: {RIGHT_FORM}")
    whole = "a Record's value" if isinstance(sent, Record) else "a value"
    if isinstance(value, Iterator):
        raise EncodeError(f"{whole} is an iterator of type {kind.__name__}: {_READ_ONCE}")
    hidden = _hidden_in(value)
    if isinstance(hidden, Iterator):
        raise EncodeError(
            f"an iterator of type {type(hidden).__name__} is inside of {whole} of type"
            f" {kind.__name__}: {_READ_ONCE}"
        )
    if hidden is not None:
        raise EncodeError(
            f"a {name_of(hidden)} is inside of {whole} of type {kind.__name__}: {RIGHT_FORM}"
        )


def _hidden_in(value: Any) -> Any:
    """Return the first Record, event or iterator inside of *value*; None if there is none."""
    outer: Any = type(value)
    items = _look_into(outer)(value)
    # In the usual case no line of Python runs for each item.
    if PLAIN.issuperset(map(type, items)):
        return None
    unseen = [items]
    seen = {id(value)}
    # Objects that were created by the search must live as long as their ids are kept in *seen*.
    alive: list[Any] = []
    while unseen:
        items = unseen.pop()
        for item in items:
            kind: Any = type(item)
            if kind in PLAIN:
                continue
            if _is_part_of_no_value(kind):
                return item
            inner = _look_into(kind)(item)
            if inner and id(item) not in seen and not PLAIN.issuperset(map(type, inner)):
                seen.add(id(item))
                alive.append(item)
                unseen.append(inner)
    return None


@lru_cache(maxsize=1024)
def _look_into(kind: type) -> Callable[[Any], Collection[Any]]:
    """Return the function that returns the items of a value of this type."""
    if issubclass(kind, _ATOMS):
        return lambda value: ()
    if issubclass(kind, Mapping):
        return lambda value: value.values()
    if issubclass(kind, Collection):
        return lambda value: value
    fields: Any = getattr(kind, "model_fields", None) or getattr(kind, "__struct_fields__", None)
    if dataclasses.is_dataclass(kind):
        fields = tuple(field.name for field in dataclasses.fields(kind))
    elif hasattr(kind, "__attrs_attrs__"):
        fields = tuple(field.name for field in kind.__attrs_attrs__)
    names = tuple(fields) if isinstance(fields, Mapping | tuple) else ()
    if not names and not hasattr(kind, "model_extra"):
        return lambda value: ()
    return lambda value: [
        *(getattr(value, name, None) for name in names),
        # Extra fields that a pydantic model was given.
        *(getattr(value, "model_extra", None) or {}).values(),
    ]


def name_of(sent: Any) -> str:
    return "Record" if isinstance(sent, Record) else type(sent).__name__
