"""What one value that a handler returned, or yielded, becomes: the records to be sent. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.records import Record

_PLAIN = frozenset({type(None), bool, bytes, float, int, str})
_NO_RECORDS = _PLAIN | {dict, frozenset, list, set, tuple}

_RIGHT_FORM = (
    "a Record is what is sent, it is no part of a value: yield them one by one, or return a list of Records only"
)


def records_of(result: Any) -> Sequence[Any]:
    """The values and Records to send, in their order: none for None, as a rule *result* alone.

    A list or tuple of nothing but Records is as many records. Every other list, an empty one too, is one value, and so
    is a NamedTuple.

    A Record inside of a value is looked for one level deep: among the items of a list, tuple or set, the values of a
    dict, and the fields of a dataclass, a pydantic model or a msgspec struct. What is further inside is left to the
    serializer.

    Raises:
        EncodeError: A Record is inside of a value, which may itself be the value of a Record.
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
        if not all(isinstance(item, Record) for item in result):
            raise EncodeError(f"a {kind.__name__} of Records has other values, too: {_RIGHT_FORM}")
        for record in result:
            _check_value(record)
        return tuple(result)
    raise EncodeError(f"a Record is inside of a value of type {kind.__name__}: {_RIGHT_FORM}")


def _check_value(record: Record) -> None:
    value = record.value
    if type(value) in _PLAIN:
        return
    if isinstance(value, Record):
        raise EncodeError(f"the value of a Record is a Record: {_RIGHT_FORM}")
    if _holds_a_record(value):
        raise EncodeError(f"a Record is inside of a Record's value of type {type(value).__name__}: {_RIGHT_FORM}")


def _holds_a_record(value: Any) -> bool:
    """Whether one is directly inside of *value*."""
    kind: Any = type(value)
    items = _look_into(kind)(value)
    if _NO_RECORDS.issuperset(map(type, items)):  # the usual case, without a line of Python for each item
        return False
    return any(issubclass(one, Record) for one in set(map(type, items)))


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
