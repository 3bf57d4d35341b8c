"""Protobuf messages as plain data, and back: dicts, lists, and Python's own times.

Enums are their names. A field that may be absent, and is, is None. Google's wrappers are what they wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue", "Any", "FieldMask"))
_ENUM = 14  # FieldDescriptor.TYPE_ENUM


def to_plain(message: Any) -> Any:
    """What a message says, under the names of its fields."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return message.ToDatetime(tzinfo=UTC)
    if name == "google.protobuf.Duration":
        return message.ToTimedelta()
    if name in _WRAPPERS:
        return message.value
    if name in _JSON:
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(message, preserving_proto_field_name=True)
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if _is_repeated(field):
        given = getattr(message, field.name)
        if _is_map(field):
            value = field.message_type.fields_by_name["value"]
            return {key: _one(given[key], value) for key in given}
        return [_one(one, field) for one in given]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(getattr(message, field.name), field)


def _one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return to_plain(value)
    if field.type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def fill(message: Any, plain: Any) -> None:
    """Say in a message what plain data says; ValueError or TypeError: it does not fit."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp" and isinstance(plain, datetime):
        message.FromDatetime(plain)
    elif name == "google.protobuf.Duration" and isinstance(plain, timedelta):
        message.FromTimedelta(plain)
    elif name in _WRAPPERS:
        message.value = plain
    elif name in _JSON:
        from google.protobuf.json_format import ParseDict

        ParseDict(plain, message)
    elif isinstance(plain, Mapping):
        fields = message.DESCRIPTOR.fields_by_name
        for key, value in plain.items():
            if key not in fields:
                raise ValueError(f"{message.DESCRIPTOR.name} has no field {key!r}")
            if value is not None:
                _fill_field(message, fields[key], value)
    else:
        raise TypeError(f"{message.DESCRIPTOR.name} takes a mapping")


def _fill_field(message: Any, field: Any, value: Any) -> None:
    place = getattr(message, field.name)
    if _is_map(field):
        inside = field.message_type.fields_by_name["value"]
        for key, one in value.items():
            if inside.message_type is not None:
                fill(place[key], one)
            else:
                place[key] = _scalar(one, inside)
    elif _is_repeated(field):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"{field.name} takes a list")
        for one in value:
            if field.message_type is not None:
                fill(place.add(), one)
            else:
                place.append(_scalar(one, field))
    elif field.message_type is not None:
        place.SetInParent()
        fill(place, value)
    else:
        setattr(message, field.name, _scalar(value, field))


def _scalar(value: Any, field: Any) -> Any:
    value = value.value if isinstance(value, Enum) else value
    if field.type == _ENUM and isinstance(value, str):
        if value not in field.enum_type.values_by_name:
            raise ValueError(f"{field.name} has no such value")
        return field.enum_type.values_by_name[value].number
    return value


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # the older ``label`` is deprecated where that exists
    return bool(field.label == 3 if repeated is None else repeated)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry
