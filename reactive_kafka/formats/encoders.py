"""Chooses the encoder of an outgoing channel from its serializer.

Source: IntegerSerializer, LongSerializer, FloatSerializer, DoubleSerializer of Kafka's Java client.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.format_names import (
    EVENTS,
    FLOATS,
    INTEGERS,
    REGISTERED_FORMATS,
    unknown_format,
)
from reactive_kafka.formats.registered.channel_schemas import SchemaSource
from reactive_kafka.formats.registered.codecs import registered_encoder
from reactive_kafka.formats.user_objects import format_function

Encoder = Callable[[object], bytes | None]
"""Value -> bytes; None stays None, a tombstone."""

# Texts of pydantic's errors that quote nothing of the value.
_SAFE_REASONS = re.compile(
    r"no JSON form for [\w.]+|Circular reference|Maximum serialization depth exceeded"
    r"|surrogates not allowed|invalid utf-8"
)


def encoder_for(serializer: str | None, source: SchemaSource | None = None) -> Encoder:
    """Return the function that turns a value into a record's bytes.

    Args:
        serializer: A format's name or ``module:function``. None, or ``cloudevents`` for the data of
            an event: the value decides (bytes unchanged, str as UTF-8, everything else as JSON).
        source: Where the schemas of a registry come from, for the formats that have them.

    Returns:
        Value -> bytes. It raises only :class:`EncodeError`, and with *source* SchemaMissing.

    Raises:
        FormatError: The format is unknown or cannot be imported, or its schema cannot be read.
        MissingExtraError: The format needs a package that is not installed.
    """
    if serializer in (None, EVENTS, "json"):
        # Import it now, so that the first record does not wait for it.
        pydantic_json()
    if serializer in (None, EVENTS):
        return write_by_value
    if ":" in serializer:
        return _function_writer(serializer)
    if serializer in REGISTERED_FORMATS and source is not None:
        return registered_encoder(serializer, source)
    if serializer not in _WRITERS:
        raise unknown_format(serializer)
    return _WRITERS[serializer]


@cache
def pydantic_json() -> Any:
    """Return pydantic's core, which reads and writes JSON; the first call imports it."""
    import pydantic_core

    return pydantic_core


def write_by_value(value: object) -> bytes | None:
    """Write bytes unchanged, text as UTF-8, and everything else as JSON; None is a tombstone."""
    if isinstance(value, bytes | bytearray | memoryview):
        return write_bytes(value)
    if isinstance(value, str):
        return write_text(value)
    return write_json(value)


def write_json(value: object) -> bytes | None:
    """Write compact JSON: of models, dataclasses, structs, dates, and containers of them.

    Fields are written under their aliases. NaN in plain data is rejected. In a pydantic model it is
    written as the model is configured (default: ``null``).

    Raises:
        EncodeError: A part has no JSON form: an unknown type, NaN, a cycle.
    """
    if value is None:
        return None
    data: bytes
    try:
        data = pydantic_json().to_json(value, fallback=_struct_as_builtins)
    except Exception as error:
        # A property or serializer of the user may raise anything, and its text may quote the value.
        # So only known texts of pydantic are passed on.
        reason = type(error).__name__
        if isinstance(error, pydantic_json().PydanticSerializationError):
            safe = _SAFE_REASONS.search(str(error))
            if safe:
                reason = safe[0]
        raise _not_json(value, reason) from error
    # The words may also stand in a string, so the JSON is read before it is rejected.
    if (b"NaN" in data or b"Infinity" in data) and not _is_strict(data):
        raise _not_json(value, "NaN and infinities have no JSON form")
    return data


def _struct_as_builtins(value: Any) -> Any:
    # If there is any struct, the user has imported msgspec by now.
    msgspec = sys.modules.get("msgspec")
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _not_json(value: object, reason: str) -> EncodeError:
    return EncodeError(f"{type(value).__name__} cannot be written as JSON: {reason}")


def _is_strict(data: bytes) -> bool:
    try:
        pydantic_json().from_json(data, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def write_text(value: object) -> bytes | None:
    """Write a str as UTF-8. A lone surrogate cannot be written."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise EncodeError(f"the serializer 'string' takes str, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(
            f"UTF-8 cannot encode the text: {error.reason} at character {error.start}"
        ) from None


def write_bytes(value: object) -> bytes | None:
    """Return bytes unchanged, and a copy of a bytearray or memoryview."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        # bytes() returns the same object if it is bytes, and copies the others.
        return bytes(value)
    raise EncodeError(f"the serializer 'bytes' takes bytes, not {type(value).__name__}")


def number_writer(name: str) -> Callable[[object], bytes | None]:
    """Return the writer of a number format: of ints, or of floats and ints."""
    if name in INTEGERS:
        accepted: tuple[type, ...] = (int,)
        size = INTEGERS[name]
        layout = struct.Struct({4: ">i", 8: ">q"}[size])
    else:
        accepted = (float, int)
        size = FLOATS[name]
        layout = struct.Struct({4: ">f", 8: ">d"}[size])

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        # A bool is an int to Python, but one is never meant to be sent as a number.
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise EncodeError(
                f"the serializer {name!r} takes {accepted[0].__name__}, not {type(value).__name__}"
            )
        try:
            data = layout.pack(value)
        except (OverflowError, struct.error):
            raise EncodeError(f"the number does not fit the {size} bytes of {name!r}") from None
        if isinstance(value, int) and layout.unpack(data)[0] != value:
            raise EncodeError(f"{name!r} does not hold this integer exactly")
        return data

    return write


def _function_writer(path: str) -> Callable[[object], bytes | None]:
    """Return a writer that calls the user's function for each value except None."""
    function = format_function(path)

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        try:
            data = function(value)
        except Exception as error:
            # The user's code may raise anything. It becomes the cause.
            raise EncodeError(f"{path} raised {type(error).__name__}") from error
        if data is None or isinstance(data, bytes):
            return data
        raise EncodeError(f"{path} must return bytes or None, but returned {type(data).__name__}")

    return write


_WRITERS: dict[str, Encoder] = {
    "json": write_json,
    "string": write_text,
    "bytes": write_bytes,
    **{name: number_writer(name) for name in (*INTEGERS, *FLOATS)},
}
