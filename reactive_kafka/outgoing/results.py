"""What one value that a handler returned, or yielded, becomes: the records to be sent. Pure."""

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
    "a Record is what is sent, and so is a CloudEvent; they are no part of a value: yield them one by one, or return "
    "a list of them only"
)


def _is_sent_whole(kind: type) -> bool:
    return issubclass(kind, Record) or is_event_type(kind)


is_sent_whole: Callable[[Any], bool] = lru_cache(maxsize=1024)(_is_sent_whole)
"""Whether objects of a class are a record by themselves: a Record, or an event."""


def promises_records(annotation: Any) -> bool:
    """Whether a return annotation is, or yields, a list or tuple of Records or CloudEvents, as
    ``list[Record] | None``.

    An empty list of such a function is no record.
    """
    arguments = [part for part in typing.get_args(annotation) if part is not Ellipsis]
    outer = typing.get_origin(annotation)
    if isinstance(outer, type) and issubclass(outer, Iterable) and not issubclass(outer, Mapping):
        items = [kind for part in arguments for kind in _alternatives(part)]
        if items and all(isinstance(kind, type) and is_sent_whole(kind) for kind in items):
            return True
    is_around = outer in (Annotated, typing.Union, UnionType) or (
        isinstance(outer, type) and _is_run(outer)
    )
    return is_around and any(map(promises_records, arguments))


def _alternatives(annotation: Any) -> Sequence[Any]:
    """The members of a union without None; otherwise the annotation alone."""
    if typing.get_origin(annotation) is Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return [part for part in typing.get_args(annotation) if part is not type(None)]
    return (typing.get_origin(annotation) or annotation,)


def _is_run(kind: type) -> bool:
    """Whether objects of a class are run for their results, as a generator is."""
    return issubclass(kind, AsyncIterable | Awaitable)


def records_of(result: Any, *, empty_is_none: bool = False) -> Sequence[Any]:
    """The values and Records to send, in their order: none for None, as a rule *result* alone.

    A list or tuple of nothing but Records and CloudEvents is as many records. Every other list is
    one value, and so is a NamedTuple. With *empty_is_none* an empty list or tuple is no record;
    otherwise it is a value.

    Raises:
        EncodeError: A Record or an event is inside of a value, at any depth: see
            :func:`check_value`.
    """
    kind = type(result)
    if kind in _PLAIN:
        return () if result is None else (result,)
    # Only a NamedTuple has them.
    if isinstance(result, list | tuple) and not hasattr(kind, "_fields"):
        if not result:
            return () if empty_is_none else (result,)
        if any(is_sent_whole(item) for item in set(map(type, result))):
            for item in result:
                if not is_sent_whole(type(item)):
                    what = _name_of(next(one for one in result if is_sent_whole(type(one))))
                    raise EncodeError(
                        f"a {kind.__name__} of {what}s has other values, too: {_RIGHT_FORM}"
                    )
                check_value(item)
            return tuple(result)
    check_value(result)
    return (result,)


def check_value(sent: Any) -> None:
    """Check that nothing is inside of one value, or of the value of a Record, that would be a
    record by itself.

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
    """The first Record or event that is found inside of *value*; None if there is none."""
    outer: Any = type(value)
    items = _look_into(outer)(value)
    # The usual case, without a line of Python for each item.
    if _PLAIN.issuperset(map(type, items)):
        return None
    unseen = [items]
    seen = {id(value)}
    # What was made for the search must live as long as its id is remembered.
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
    """What gives the items of a value of this type."""
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
        # what a pydantic model has been given besides its fields
        *(getattr(value, "model_extra", None) or {}).values(),
    ]
