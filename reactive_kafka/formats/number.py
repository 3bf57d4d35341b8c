"""The formats ``int``, ``int32``, ``int64``, ``float``, ``float32``, ``float64``: big-endian, as Kafka writes them.

Source: IntegerSerializer, LongSerializer, FloatSerializer, DoubleSerializer of Kafka's Java client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from reactive_kafka.errors import DecodeError, EncodeError

_INT32, _INT64, _FLOAT32, _FLOAT64 = (struct.Struct(layout) for layout in (">i", ">q", ">f", ">d"))


def read_integer(value: bytes) -> int:
    """A signed integer of 4 or 8 bytes."""
    if len(value) not in (4, 8):
        raise _wrong_length("an integer", value)
    return int.from_bytes(value, "big", signed=True)


def read_float(value: bytes) -> float:
    """An IEEE 754 number of 4 or 8 bytes; NaN and infinities included."""
    if len(value) == 8:
        number: float = _FLOAT64.unpack(value)[0]
    elif len(value) == 4:
        number = _FLOAT32.unpack(value)[0]
    else:
        raise _wrong_length("a float", value)
    return number


def explain_number(error: Exception) -> DecodeError:
    """The readers' own DecodeError; a DecodeError without a value for anything else."""
    return error if isinstance(error, DecodeError) else DecodeError(f"not a number: {type(error).__name__}")


def integer_writer(name: str, size: int) -> Callable[[object], bytes | None]:
    """A writer of ints of *size* bytes; it raises EncodeError for another type or an int that does not fit."""
    return _writer(name, _INT64 if size == 8 else _INT32, (int,))


def float_writer(name: str, size: int) -> Callable[[object], bytes | None]:
    """A writer of floats and ints, as *size* bytes; it raises EncodeError for another type or a number too large."""
    return _writer(name, _FLOAT64 if size == 8 else _FLOAT32, (float, int))


def _writer(name: str, layout: struct.Struct, takes: tuple[type, ...]) -> Callable[[object], bytes | None]:
    def write(value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, takes) or isinstance(value, bool):
            raise EncodeError(f"the serializer {name!r} takes {takes[0].__name__}, not {type(value).__name__}")
        try:
            return layout.pack(value)
        except (OverflowError, struct.error):
            raise EncodeError(f"the number does not fit the {layout.size} bytes of {name!r}") from None

    return write


def _wrong_length(what: str, value: bytes) -> DecodeError:
    return DecodeError(f"{what} has 4 or 8 bytes on the wire, this value has {len(value)}")
