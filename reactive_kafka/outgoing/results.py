"""What one value that a handler returned, or yielded, becomes: the records to be sent. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats import is_event_type
from reactive_kafka.records import Record

_PLAIN = frozenset({type(None), bool, bytes, float, int, str})
_NO_RECORDS = _PLAIN | {dict, frozenset, list, set, tuple}

_RIGHT_FORM = (
    "a Record is what is sent, and so is a CloudEvent; they are no part of a value: yield them one by one, or return "
    "a list of them only"
)


def _is_sent_whole(kind: type) -> bool:
    return issubclass(kind, Record) or is_event_type(kind)


is_sent_whole: Callable[[Any], bool] = lru_cache(maxsize=1024)(_is_sent_whole)
"""Whether objects of a class are a record by themselves: a Record, or an event."""


def records_of(result: Any) -> Sequence[Any]:
    """The values and Records to send, in their order: none for None, as a rule *result* alone.

    A list or tuple of nothing but Records and CloudEvents is as many records. Every other list, an empty one too, is
    one value, and so is a NamedTuple.

    A Record or an event inside of a value is looked for one level deep: among the items of a list, tuple or set, the
    values of a dict, and the fields of a dataclass, a pydantic model or a msgspec struct. What is further inside is
    left to the serializer.

    Raises:
        EncodeError: One is inside of a value, which may itself be the value of a Record.
    """
    kind = type(result)
    if kind in _PLAIN:
        return () if result is None else (result,)
    if isinstance(result, Record):
        _check_value(result)
        return (result,)
    if not _holds_a_record(result):
        return (result,)
    if isinstance(result, list | tuple) and not hasattr(kind, "_fields"):  # only a NamedTuple has them
        if not all(is_sent_whole(type(item)) for item in result):
            raise EncodeError(f"a {kind.__name__} of {_named(result)}s has other values, too: {_RIGHT_FORM}")
        for item in result:
            _check_value(item)
        return tuple(result)
    raise EncodeError(f"a {_named(result)} is inside of a value of type {kind.__name__}: {_RIGHT_FORM}")


def _check_value(sent: Any) -> None:
    value = sent.value if isinstance(sent, Record) else sent
    if type(value) in _PLAIN:
        return
    if isinstance(value, Record):
        raise EncodeError(f"the value of a Record is a Record: {_RIGHT_FORM}")
    if _holds_a_record(value):
        what = _named(value)
        raise EncodeError(f"a {what} is inside of a Record's value of type {type(value).__name__}: {_RIGHT_FORM}")


def _named(value: Any) -> str:
    """What is inside of *value*: a Record, or the class of an event."""
    outer: Any = type(value)
    inside = [kind for kind in map(type, _look_into(outer)(value)) if is_sent_whole(kind)]
    return "Record" if issubclass(inside[0], Record) else inside[0].__name__


def _holds_a_record(value: Any) -> bool:
    """Whether one is directly inside of *value*."""
    kind: Any = type(value)
    items = _look_into(kind)(value)
    if _NO_RECORDS.issuperset(map(type, items)):  # the usual case, without a line of Python for each item
        return False
    return any(map(is_sent_whole, set(map(type, items))))


@lru_cache(maxsize=1024)
def _look_into(kind: type) -> Callable[[Any], Collection[Any]]:
    """What gives the items of a value of this type."""
    if issubclass(kind, dict):
        return dict.values
    if issubclass(kind, list | tuple | set | frozenset):
        return lambda value: value
    fields: Any = getattr(kind, "model_fields", None) or getattr(kind, "__struct_fields__", None)
    if dataclasses.is_dataclass(kind):
        fields = tuple(field.name for field in dataclasses.fields(kind))
    names = tuple(fields) if isinstance(fields, Mapping | tuple) else ()
    return lambda value: [getattr(value, name, None) for name in names]
