"""Any value as one that JSON has: numbers, strings, lists, objects, true, false and null. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from reactive_kafka.errors import describe
from reactive_kafka.observe.text import one_line
from reactive_kafka.records import TopicPartition

ITEMS_LISTED = 20
"""How many items of a collection an event's field lists; ``NAME_count`` has the number of all."""
DEEPEST = 8
"""Levels of lists and objects that are written as such; deeper ones are shown as text."""


def json_value(
    value: object, text: Callable[[str], str] = str, around: tuple[int, ...] = ()
) -> Any:
    """*value* as JSON can write it; *text* is applied to each string.

    Numbers that JSON lacks (NaN and the infinities) are null. A dataclass is an object, a partition
    is text such as ``orders-0``, and any other object is its ``str()``. An object that raises when
    it is read is the name of its class.

    Args:
        value: Anything, also an object of the application.
        text: Makes a string fit for the log.
        around: The ids of the lists and objects that *value* is in.
    """
    match value:
        case None | bool():
            return value
        case Enum():
            return json_value(value.value, text, around)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case str():
            return text(value)
        case bytes() | bytearray():
            return text(value.decode("utf-8", "backslashreplace"))
        case TopicPartition():
            return text(str(value))
        case BaseException():
            return text(describe(value))
    if len(around) >= DEEPEST or id(value) in around:
        return text(_shown(value))
    try:
        return _of_items(value, text, (*around, id(value)))
    except Exception:
        # The class may be the application's. A log line must not fail for it.
        return text(_shown(value))


def _of_items(value: object, text: Callable[[str], str], around: tuple[int, ...]) -> Any:
    """A collection or a dataclass, item by item; anything else as text."""
    match value:
        case Mapping():
            return {text(_shown(key)): json_value(one, text, around) for key, one in value.items()}
        case AbstractSet():
            return [json_value(one, text, around) for one in _in_order(value)]
        case list() | tuple():
            return [json_value(one, text, around) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: json_value(getattr(value, one.name), text, around) for one in fields(value)
        }
    return text(_shown(value))


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an event, or of facts in it, as JSON values under names that no log record uses
    itself.

    A field that is None is left out, and so is ``error``, which is shown as a traceback. A
    partition is two fields, ``topic`` and ``partition``. Of a collection the first ``ITEMS_LISTED``
    are listed.
    """
    result: dict[str, Any] = {}
    for each in fields(value):
        its_value = getattr(value, each.name)
        if its_value is not None and each.name != "error":
            result |= _field(each.name, its_value)
    return result


def _field(name: str, value: object) -> dict[str, Any]:
    match value:
        case TopicPartition():
            return {"topic": one_line(value.topic), "partition": value.partition}
        case AbstractSet() | tuple() | list():
            items = _in_order(value) if isinstance(value, AbstractSet) else list(value)
            return {name: [_item(one) for one in items[:ITEMS_LISTED]], f"{name}_count": len(items)}
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    return {name: json_value(value, one_line)}


def _item(value: object) -> Any:
    """An item of a collection: events and facts are objects that have the same fields as in a line
    of their own.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    return json_value(value, one_line)


def _in_order(values: Iterable[object]) -> list[object]:
    """The items of a set, sorted where they can be compared: equal sets give equal lines."""
    items: list[Any] = list(values)
    try:
        return sorted(items)
    except Exception:
        # Items of different classes, or of a class that has no order.
        return sorted(items, key=_shown)


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:
        # ``__str__`` may be the application's. A log line must not fail for it.
        return type(value).__name__
