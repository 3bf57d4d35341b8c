"""Converts Protobuf messages to plain data and back: dicts, lists, and Python's own times.

Enums become their names, absent fields None, and Google's wrappers the value in them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.registered.proto_times import (
    datetime_of,
    has_zone,
    json_time,
    timedelta_of,
    write_datetime,
    write_timedelta,
)

_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"
_ANY = "google.protobuf.Any"
_MASK = "google.protobuf.FieldMask"
_STRUCT = "google.protobuf.Struct"
_LIST = "google.protobuf.ListValue"
_VALUE = "google.protobuf.Value"
_JSON = frozenset({_STRUCT, _LIST, _VALUE})
_TYPE_KEY = "@type"
# FieldDescriptor.LABEL_REPEATED.
_REPEATED = 3
# FieldDescriptor.TYPE_ENUM.
_ENUM = 14
# FieldDescriptor.TYPE_BOOL.
_BOOL = 8
# FieldDescriptor.TYPE_DOUBLE, TYPE_FLOAT.
_FLOATS = {1: Struct("d"), 2: Struct("f")}
# FieldDescriptor.TYPE_STRING.
_STRING = 9


def to_plain(message: Any, exact: bool = False) -> Any:
    """Return the plain data of a message, under the names of its fields.

    Args:
        message: A message of any type.
        exact: True if the data must be written back unchanged. Then a time keeps its nanoseconds in
            a subclass of datetime or timedelta, and an absent ``Value`` is left out, because None
            is its null. With False times are ordinary ones, and an absent ``Value`` is None.
    """
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        return datetime_of(message, exact)
    if name == _DURATION:
        return timedelta_of(message, exact)
    if name in _WRAPPERS:
        return message.value
    if name in _JSON:
        return _plain_struct(message, name)
    if name == _ANY:
        return _plain_any(message)
    if name == _MASK:
        return _plain_mask(message)
    plain = {}
    for field in message.DESCRIPTOR.fields:
        value = _plain_field(message, field, exact)
        if value is None and exact and _is_value(field) and not message.HasField(field.name):
            continue
        plain[field.name] = value
    return plain


def _plain_field(message: Any, field: Any, exact: bool) -> Any:
    if _is_repeated(field):
        items = getattr(message, field.name)
        if _is_map(field):
            value_field = field.message_type.fields_by_name["value"]
            return {key: _plain_value(items[key], value_field, exact) for key in items}
        return [_plain_value(item, field, exact) for item in items]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain_value(getattr(message, field.name), field, exact)


def _plain_value(value: Any, field: Any, exact: bool) -> Any:
    if field.message_type is not None:
        return to_plain(value, exact)
    if field.type == _ENUM:
        # An unknown value of an enum stays a number.
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _plain_struct(message: Any, name: str) -> Any:
    """Return the data of a Struct, ListValue or Value.

    Numbers that JSON does not have, such as NaN, are Python's numbers.
    """
    if name == _STRUCT:
        return {key: _plain_struct(message.fields[key], _VALUE) for key in message.fields}
    if name == _LIST:
        return [_plain_struct(item, _VALUE) for item in message.values]
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    value = getattr(message, kind)
    if kind == "struct_value":
        return _plain_struct(value, _STRUCT)
    if kind == "list_value":
        return _plain_struct(value, _LIST)
    return value


def _plain_any(message: Any) -> Any:
    """Return the message in an Any in the form of Protobuf's JSON.

    If its type is not known here, the result is its bytes and the URL of its type. The schema of
    that type may be out of reach, and the record is useful without it.
    """
    from google.protobuf.json_format import Error, MessageToDict
    from google.protobuf.message import DecodeError

    for pool in _pools(message):
        try:
            return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except (TypeError, ValueError, DecodeError, Error):
            continue
    return {_TYPE_KEY: message.type_url, "value": message.value}


def _pools(message: Any) -> tuple[Any, Any]:
    """Return where types are looked for: in the schema, then in the process's generated classes."""
    from google.protobuf.descriptor_pool import Default

    return message.DESCRIPTOR.file.pool, Default()


def _plain_mask(message: Any) -> Any:
    """Return the form of Protobuf's JSON, or a list of paths that it cannot express."""
    try:
        return message.ToJsonString()
    except ValueError:
        return {"paths": list(message.paths)}


def fill(message: Any, plain: Any, path: str = "") -> None:
    """Fill a message with plain data.

    Args:
        message: A message of any type.
        plain: Data in the form of :func:`to_plain`.
        path: The path of the message in the value that is written, for errors: ``order.at``.

    Raises:
        EncodeError: A field does not fit, or its time has no zone. The text names the field, and
            quotes nothing.
        ValueError, TypeError: The message itself does not fit.
    """
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP and isinstance(plain, datetime | str) and not has_zone(plain):
        raise EncodeError(f"{path or 'it'} has no time zone")
    if name == _TIMESTAMP and isinstance(plain, datetime):
        write_datetime(message, plain)
    elif name == _DURATION and isinstance(plain, timedelta):
        write_timedelta(message, plain)
    elif name in (_TIMESTAMP, _DURATION, _MASK) and isinstance(plain, str):
        message.FromJsonString(plain)
    elif name in _WRAPPERS:
        message.value = _scalar(plain, message.DESCRIPTOR.fields_by_name["value"])
    elif name in _JSON:
        _check_doubles(plain, path or "it")
        _parse(plain, message)
    elif name == _ANY:
        _fill_any(message, plain, path)
    elif isinstance(plain, Mapping):
        fields = message.DESCRIPTOR.fields_by_name
        _check_choices(message.DESCRIPTOR, plain)
        for key, value in plain.items():
            if key not in fields:
                raise EncodeError(
                    f"{path or 'it'} has a key that is no field of {message.DESCRIPTOR.full_name}"
                )
            if value is not None:
                _fill_named(message, fields[key], value, f"{path}.{key}" if path else key)
            elif _is_null(fields[key], plain):
                getattr(message, key).null_value = 0
    else:
        raise EncodeError(
            f"{path or 'it'} takes a message, a model or a dict, not {type(plain).__name__}"
        )


def _fill_any(message: Any, plain: Any, path: str) -> None:
    if not isinstance(plain, Mapping):
        raise TypeError("Any takes a mapping")
    is_raw = plain.keys() == {_TYPE_KEY, "value"}
    if is_raw and isinstance(plain["value"], bytes):
        message.type_url = plain[_TYPE_KEY]
        message.value = plain["value"]
        return
    url = str(plain.get(_TYPE_KEY, ""))
    for pool in _pools(message):
        if _has_type(pool, url):
            _fill_known_any(message, plain, pool, path)
            return
    if not plain:
        return
    if not is_raw or not isinstance(plain["value"], str):
        raise ValueError("the type of an Any is not known here: its value has to be bytes")
    # The bytes have been written to JSON in between, and are base64.
    message.value = base64.b64decode(plain["value"], validate=True)
    message.type_url = url


def _fill_known_any(message: Any, plain: Mapping[str, Any], pool: Any, path: str) -> None:
    document = {key: _json_form(value, f"{path}.{key}") for key, value in plain.items()}
    _parse(document, message, pool)


def _parse(document: Any, message: Any, pool: Any = None) -> None:
    """Fill a message by the rules of Protobuf's JSON.

    Raises:
        ValueError: The document does not fit. Protobuf's own error is no ValueError.
    """
    from google.protobuf.json_format import Error, ParseDict

    try:
        ParseDict(document, message, descriptor_pool=pool)
    except Error as error:
        raise ValueError("it does not fit Protobuf's JSON") from error


def _json_form(value: Any, path: str) -> Any:
    """Return a part of an Any in the form of Protobuf's JSON, where times are text."""
    if isinstance(value, datetime):
        if not has_zone(value):
            raise EncodeError(f"{path} has no time zone")
        return json_time(value)
    if isinstance(value, Mapping):
        return {key: _json_form(part, f"{path}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json_form(item, path) for item in value]
    return value


def _has_type(pool: Any, url: str) -> bool:
    try:
        pool.FindMessageTypeByName(url.rpartition("/")[2])
    except KeyError:
        return False
    return True


def _check_choices(descriptor: Any, plain: Mapping[str, Any]) -> None:
    """Raise EncodeError if several fields of one ``oneof`` are given.

    A message would keep the last one, and lose the others.
    """
    for name, fields in _choices(descriptor):
        given = [field for field in fields if plain.get(field) is not None]
        if len(given) > 1:
            names = " and ".join(given)
            raise EncodeError(
                f"{descriptor.name}.{name} is one of its fields, and {names} are given"
            )


@lru_cache(maxsize=1024)
def _choices(descriptor: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return each ``oneof`` with several fields, and their names.

    An ``optional`` field is a ``oneof`` with one field.
    """
    return tuple(
        (one_of.name, tuple(field.name for field in one_of.fields))
        for one_of in descriptor.oneofs
        if len(one_of.fields) > 1
    )


def _is_null(field: Any, plain: Mapping[str, Any]) -> bool:
    """Return whether None means the null of a ``Value``, and not an absent field.

    In a ``oneof`` it is the null only if no other field is given.
    """
    if not _is_value(field):
        return False
    one_of = field.containing_oneof
    if one_of is None:
        return True
    for other in one_of.fields:
        if other.name == field.name or other.name not in plain:
            continue
        if plain[other.name] is not None or _is_value(other):
            return False
    return True


def _is_value(field: Any) -> bool:
    """Return whether a field is a single ``Value``."""
    kind = field.message_type
    return kind is not None and kind.full_name == _VALUE and not _is_repeated(field)


def _fill_named(message: Any, field: Any, value: Any, path: str) -> None:
    """Fill a field.

    Raises:
        EncodeError: The value does not fit. The text has the path of the field, and nothing of the
            value.
    """
    try:
        _fill_field(message, field, value, path)
    except EncodeError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        if _is_repeated(field):
            container = "mapping" if _is_map(field) else "list"
            reason = f"{path} has an item that it does not take, or is no {container}"
        elif isinstance(error, TypeError):
            reason = f"{path} takes no {type(value).__name__}"
        else:
            reason = f"{path} does not take this {type(value).__name__}"
        raise EncodeError(reason) from error


def _fill_field(message: Any, field: Any, value: Any, path: str) -> None:
    content = getattr(message, field.name)
    if _is_map(field):
        key_field = field.message_type.fields_by_name["key"]
        value_field = field.message_type.fields_by_name["value"]
        if not isinstance(value, Mapping):
            raise TypeError(f"{field.name} takes a mapping")
        for plain_key, item in value.items():
            key = _scalar(plain_key, key_field)
            if value_field.message_type is not None:
                fill(content[key], item, path)
            else:
                content[key] = _scalar(item, value_field)
    elif _is_repeated(field):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"{field.name} takes a list")
        for item in value:
            if field.message_type is not None:
                fill(content.add(), item, path)
            else:
                content.append(_scalar(item, field))
    elif field.message_type is not None:
        # Present, even if nothing is filled in.
        content.SetInParent()
        fill(content, value, path)
    else:
        setattr(message, field.name, _scalar(value, field))


def _check_doubles(plain: Any, path: str) -> None:
    """Raise EncodeError if an integer would lose digits: the numbers of a ``Value`` are doubles."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            _check_doubles(value, f"{path}.{key}")
    elif isinstance(plain, list | tuple):
        for value in plain:
            _check_doubles(value, path)
    elif isinstance(plain, int) and not is_exact(plain):
        raise EncodeError(f"{path} is an integer that a double does not hold exactly")


def is_exact(number: int) -> bool:
    """Return whether a double holds an integer exactly."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _becomes_infinite(number: Any, layout: Struct) -> bool:
    """Return whether a finite number would be written as an infinity."""
    if not hasattr(number, "__float__"):
        return False
    held = layout.unpack(layout.pack(float(number)))[0]
    return math.isinf(held) and number != held


def _scalar(value: Any, field: Any) -> Any:
    """Return a value as protobuf takes it.

    Raises:
        TypeError, ValueError: It does not fit the field.
    """
    if isinstance(value, Enum):
        value = value.value
    # Only a bool field takes bools, and it takes no other ints.
    if isinstance(value, bool) != (field.type == _BOOL) and isinstance(value, bool | int):
        raise TypeError(f"{field.name} takes no {type(value).__name__}")
    if field.type in _FLOATS and isinstance(value, int) and not is_exact(value):
        raise ValueError(f"{field.name} does not hold this integer exactly")
    if field.type in _FLOATS and _becomes_infinite(value, _FLOATS[field.type]):
        raise ValueError(f"{field.name} does not hold a number as large as this")
    if field.type == _STRING and isinstance(value, bytes):
        # Protobuf takes those that are UTF-8, which would be read back as text.
        raise TypeError(f"{field.name} takes no bytes")
    if field.type == _ENUM and isinstance(value, str):
        if value not in field.enum_type.values_by_name:
            raise ValueError(f"{field.name} has no such value")
        return field.enum_type.values_by_name[value].number
    return value


def _is_repeated(field: Any) -> bool:
    # Newer versions of protobuf have this attribute, and deprecate ``label``.
    repeated = getattr(field, "is_repeated", None)
    if repeated is None:
        return bool(field.label == _REPEATED)
    return bool(repeated)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry
