"""The encoder of an outgoing channel, chosen once from the configured serializer.

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

_KNOWN = re.compile(
    r"no JSON form for [\w.]+|Circular reference|Maximum serialization depth exceeded"
    r"|surrogates not allowed|invalid utf-8"
)


def encoder_for(serializer: str | None, source: SchemaSource | None = None) -> Encoder:
    """The function that turns a value into a record's bytes; None always becomes None, a tombstone.

    Args:
        serializer: A format's name or ``module:function``. None, or ``cloudevents`` for the data of
            an event: the value decides (bytes as they are, str as UTF-8, everything else as JSON).
        source: Where the schemas of a registry come from, for the formats that have them.

    Returns:
        Value -> bytes, raising only :class:`EncodeError`; with *source*, SchemaMissing, too.

    Raises:
        FormatError: The format is unknown or cannot be imported, or its schema cannot be read.
        MissingExtraError: The format needs a package that is not installed.
    """
    if serializer in (None, EVENTS, "json"):
        # Now, not with the first record.
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
    """pydantic's core, which reads and writes JSON; imported with the first of it."""
    import pydantic_core

    return pydantic_core


def write_by_value(value: object) -> bytes | None:
    """Bytes as they are, text as UTF-8, and everything else as JSON; None is a tombstone."""
    if isinstance(value, bytes | bytearray | memoryview):
        return write_bytes(value)
    return write_text(value) if isinstance(value, str) else write_json(value)


def write_json(value: object) -> bytes | None:
    """Compact JSON of models, dataclasses, structs, dates and containers of them; fields under
    their aliases.

    NaN in plain data is rejected; in a pydantic model it is written as the model is configured
    (default: ``null``).

    Raises:
        EncodeError: A part has no JSON form: an unknown type, NaN, a cycle.
    """
    if value is None:
        return None
    data: bytes
    try:
        data = pydantic_json().to_json(value, fallback=_struct_as_builtins)
    except Exception as error:
        # A property or serializer of the user's own may raise anything.
        is_of_json = isinstance(error, pydantic_json().PydanticSerializationError)
        known = _KNOWN.search(str(error)) if is_of_json else None
        # The whole text may quote the value.
        raise _not_json(value, known[0] if known else type(error).__name__) from error
    if (b"NaN" in data or b"Infinity" in data) and not _is_strict(data):
        raise _not_json(value, "NaN and infinities have no JSON form")
    return data


def _struct_as_builtins(value: Any) -> Any:
    # Imported by now if there is any struct.
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
    """A str as UTF-8; a lone surrogate cannot be written."""
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
    """Bytes as they are; a bytearray or memoryview is copied."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        # The same object if it is bytes.
        return bytes(value)
    raise EncodeError(f"the serializer 'bytes' takes bytes, not {type(value).__name__}")


def number_writer(name: str) -> Callable[[object], bytes | None]:
    """The writer of a format of numbers: of ints, or of floats and ints."""
    takes: tuple[type, ...] = (int,) if name in INTEGERS else (float, int)
    size = (INTEGERS | FLOATS)[name]
    layout = struct.Struct(
        ">" + {(int, 4): "i", (int, 8): "q", (float, 4): "f", (float, 8): "d"}[takes[0], size]
    )

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, takes) or isinstance(value, bool):
            raise EncodeError(
                f"the serializer {name!r} takes {takes[0].__name__}, not {type(value).__name__}"
            )
        try:
            return layout.pack(value)
        except (OverflowError, struct.error):
            raise EncodeError(f"the number does not fit the {size} bytes of {name!r}") from None

    return write


def _function_writer(path: str) -> Callable[[object], bytes | None]:
    """A writer that calls the user's function for each value but None, and raises only
    EncodeError.
    """
    function = format_function(path)

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        try:
            data = function(value)
        except Exception as error:
            # User code may raise anything; it becomes the cause.
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
