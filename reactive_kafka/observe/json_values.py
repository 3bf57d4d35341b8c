"""Turns any value into one that JSON can write. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from reactive_kafka.errors import describe
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import TopicPartition

ITEMS_LISTED = 20
"""How many items of a collection are listed. ``NAME_count`` has the number of all items."""
MOST_BITS = 14_000
"""How large an integer may be. Python writes none of more than 4,300 digits as text."""
DEEPEST = 8
"""How many levels of lists and objects are kept. Deeper ones become text."""


def json_value(
    value: object, text: Callable[[str], str] = str, around: tuple[int, ...] = ()
) -> Any:
    """Return *value* as JSON can write it.

    NaN and the infinities become null, a dataclass an object, a partition text such as
    ``orders-0``, and any other object its ``str()``. An object that raises when it is read becomes
    the name of its class, and so does an integer of thousands of digits.

    Args:
        value: Any value, also an object of the application.
        text: Applied to each string, to make it safe for the log.
        around: The ids of the lists and objects that contain *value*.
    """
    match value:
        case None | bool():
            return value
        case Enum():
            return json_value(value.value, text, around)
        case int():
            return int(value) if value.bit_length() <= MOST_BITS else text(_shown(value))
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
        # The class may belong to the application. A log line must not fail because of it.
        return text(_shown(value))


def _of_items(value: object, text: Callable[[str], str], around: tuple[int, ...]) -> Any:
    """Convert a collection or a dataclass item by item; anything else becomes text."""
    match value:
        case Mapping():
            return {
                text(_shown(key)): json_value(item, text, around) for key, item in value.items()
            }
        case AbstractSet():
            return [json_value(item, text, around) for item in _in_order(value)]
        case list() | tuple():
            return [json_value(item, text, around) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: json_value(getattr(value, field.name), text, around)
            for field in fields(value)
        }
    return text(_shown(value))


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of an event, or of facts in it, as JSON values.

    Their names are none of those that a log record has itself. A field that is None is left out,
    and so is ``error``, which is shown as a traceback. A partition becomes two fields, ``topic``
    and ``partition``. A collection lists its first ``ITEMS_LISTED`` items.
    """
    result: dict[str, Any] = {}
    for field in fields(value):
        content = getattr(value, field.name)
        if content is not None and field.name != "error":
            result |= _field(field.name, content)
    return result


def _field(name: str, value: object) -> dict[str, Any]:
    match value:
        case TopicPartition():
            return {"topic": one_line(value.topic), "partition": value.partition}
        case AbstractSet() | tuple() | list():
            items = _in_order(value) if isinstance(value, AbstractSet) else list(value)
            listed = [_item(item) for item in items[:ITEMS_LISTED]]
            return {name: listed, f"{name}_count": len(items)}
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    return {name: json_value(value, one_line)}


def _item(value: object) -> Any:
    """Convert an item of a collection. Events and facts get the fields that their own line has."""
    if is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    return json_value(value, one_line)


def _in_order(values: Iterable[object]) -> list[object]:
    """Return the items of a set in a fixed order, so that equal sets give equal lines."""
    items: list[Any] = list(values)
    try:
        return sorted(items)
    except Exception:
        # They are of different classes, or of a class without an order.
        return sorted(items, key=_shown)


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:
        # `__str__` may belong to the application. A log line must not fail because of it.
        return type(value).__name__
