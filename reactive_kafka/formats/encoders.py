"""The encoder of an outgoing channel, chosen once from the configured serializer."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.formats.custom import function_writer
from reactive_kafka.formats.json import write_json
from reactive_kafka.formats.names import FLOATS, INTEGERS, unusable
from reactive_kafka.formats.number import float_writer, integer_writer
from reactive_kafka.formats.text import write_bytes, write_text

Encoder = Callable[[object], bytes | None]

_PLAIN: dict[str, Encoder] = {"json": write_json, "string": write_text, "bytes": write_bytes}


def encoder_for(serializer: str | None) -> Encoder:
    """The function that turns a value into a record's bytes; None always becomes None, a tombstone.

    Args:
        serializer: A format's name or ``module:function``. None: the value decides (bytes as they are, str as UTF-8,
            everything else as JSON).

    Returns:
        Value -> bytes, raising only :class:`EncodeError`.

    Raises:
        FormatError: The format is unknown or cannot be imported.
    """
    if serializer is None:
        return _write_by_value
    if ":" in serializer:
        return function_writer(serializer)
    if serializer in _PLAIN:
        return _PLAIN[serializer]
    if serializer in INTEGERS:
        return integer_writer(serializer, INTEGERS[serializer])
    if serializer in FLOATS:
        return float_writer(serializer, FLOATS[serializer])
    raise unusable(serializer)


def _write_by_value(value: object) -> bytes | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return write_bytes(value)
    if isinstance(value, str):
        return write_text(value)
    return write_json(value)
