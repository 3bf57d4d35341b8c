"""Turns a value that a handler returned, or yielded, into the records to send. Pure."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats import is_event_type
from reactive_kafka.records import Record

_PLAIN = frozenset({type(None), bool, bytes, float, int, str})
_ATOMS = (str, bytes, bytearray, memoryview, range, Enum)
"""Nothing can be inside of these, although some have items."""

_RIGHT_FORM = (
    "a Record is what is sent, and so is a CloudEvent; they are no part of a value: "
    "yield them one by one, or return a list of them only"
)


def _is_sent_whole(kind: type) -> bool:
    return issubclass(kind, Record) or is_event_type(kind)


is_sent_whole: Callable[[Any], bool] = lru_cache(maxsize=1024)(_is_sent_whole)
"""Whether objects of a class are a record by themselves: a Record, or an event."""


def promises_records(annotation: Any) -> bool:
    """Whether a function returns or yields lists of Records or CloudEvents, by its annotation.

    ``list[Record] | None`` is an example. If such a function returns an empty list, that is no
    record.
    """
    arguments = [part for part in typing.get_args(annotation) if part is not Ellipsis]
    outer = typing.get_origin(annotation)
    if isinstance(outer, type) and issubclass(outer, Iterable) and not issubclass(outer, Mapping):
        items = [kind for part in arguments for kind in _alternatives(part)]
        if items and all(isinstance(kind, type) and is_sent_whole(kind) for kind in items):
            return True
    has_inner_types = outer in (Annotated, typing.Union, UnionType) or (
        isinstance(outer, type) and _is_run(outer)
    )
    return has_inner_types and any(map(promises_records, arguments))


def _alternatives(annotation: Any) -> Sequence[Any]:
    """Return the members of a union, without None; otherwise the annotation alone."""
    if typing.get_origin(annotation) is Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return [part for part in typing.get_args(annotation) if part is not type(None)]
    return (typing.get_origin(annotation) or annotation,)


def _is_run(kind: type) -> bool:
    """Whether the results of such an object come by running it, as with a generator."""
    return issubclass(kind, AsyncIterable | Awaitable)


def records_of(result: Any, *, empty_is_none: bool = False) -> Sequence[Any]:
    """Return the values and Records to send, in order. For most results that is the result alone.

    None is no record. A list or tuple of Records and CloudEvents only is as many records. Every
    other list is one value, and so is a NamedTuple.

    Args:
        empty_is_none: An empty list or tuple is no record; otherwise it is a value.

    Raises:
        EncodeError: A Record or an event is inside of a value, at any depth: see
            :func:`check_value`.
    """
    kind = type(result)
    if kind in _PLAIN:
        return () if result is None else (result,)
    is_named_tuple = hasattr(kind, "_fields")
    if isinstance(result, list | tuple) and not is_named_tuple:
        if not result:
            return () if empty_is_none else (result,)
        if any(is_sent_whole(item) for item in set(map(type, result))):
            for item in result:
                if not is_sent_whole(type(item)):
                    what = _name_of(next(sent for sent in result if is_sent_whole(type(sent))))
                    raise EncodeError(
                        f"a {kind.__name__} of {what}s has other values, too: {_RIGHT_FORM}"
                    )
                check_value(item)
            return tuple(result)
    check_value(result)
    return (result,)


def check_value(sent: Any) -> None:
    """Check that no Record or event hides inside of a value, or of the value of a Record.

    Looks at the items of collections, the values of mappings, and the fields of dataclasses, attrs
    classes, pydantic models and msgspec structs, at any depth.

    Raises:
        EncodeError: A Record or an event is inside of it.
    """
    value = sent.value if isinstance(sent, Record) else sent
    kind = type(value)
    if kind in _PLAIN:
        return
    if isinstance(value, Record):
        raise EncodeError(f"the value of a Record is a Record: {_RIGHT_FORM}")
    hidden = _hidden_in(value)
    if hidden is not None:
        whole = "a Record's value" if isinstance(sent, Record) else "a value"
        raise EncodeError(
            f"a {_name_of(hidden)} is inside of {whole} of type {kind.__name__}: {_RIGHT_FORM}"
        )


def _name_of(sent: Any) -> str:
    return "Record" if isinstance(sent, Record) else type(sent).__name__


def _hidden_in(value: Any) -> Any:
    """Return the first Record or event inside of *value*; None if there is none."""
    outer: Any = type(value)
    items = _look_into(outer)(value)
    # In the usual case no line of Python runs for each item.
    if _PLAIN.issuperset(map(type, items)):
        return None
    unseen = [items]
    seen = {id(value)}
    # Objects that were created by the search must live as long as their ids are kept in *seen*.
    alive: list[Any] = []
    while unseen:
        items = unseen.pop()
        for item in items:
            kind: Any = type(item)
            if kind in _PLAIN:
                continue
            if is_sent_whole(kind):
                return item
            inner = _look_into(kind)(item)
            if inner and id(item) not in seen and not _PLAIN.issuperset(map(type, inner)):
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
