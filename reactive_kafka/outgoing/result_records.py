"""Turns a value that a handler returned, or yielded, into the records to send. Pure."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.sent_values import (
    PLAIN,
    RIGHT_FORM,
    check_value,
    is_sent_whole,
    name_of,
)


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
        EncodeError: A Record, an event or an iterator is inside of a value, at any depth: see
            :func:`check_value`.
    """
    kind = type(result)
    if kind in PLAIN:
        return () if result is None else (result,)
    is_named_tuple = hasattr(kind, "_fields")
    if isinstance(result, list | tuple) and not is_named_tuple:
        if not result:
            return () if empty_is_none else (result,)
        if any(is_sent_whole(item) for item in set(map(type, result))):
            for item in result:
                if not is_sent_whole(type(item)):
                    what = name_of(next(sent for sent in result if is_sent_whole(type(sent))))
                    raise EncodeError(
                        f"a {kind.__name__} of {what}s has other values, too: {RIGHT_FORM}"
                    )
                check_value(item)
            return tuple(result)
    check_value(result)
    return (result,)
