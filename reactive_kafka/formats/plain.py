"""Readers and writers of plain values: text (UTF-8), bytes, and numbers, big-endian as Kafka writes them.

Writers raise EncodeError only.
Source: IntegerSerializer, LongSerializer, FloatSerializer, DoubleSerializer of Kafka's Java client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats.names import FLOATS, INTEGERS

read_text = bytes.decode  # strict UTF-8


_FLOATS = {4: struct.Struct(">f"), 8: struct.Struct(">d")}


def read_integer(value: bytes) -> int:
    """A signed integer of 4 or 8 bytes."""
    if len(value) not in (4, 8):
        raise _wrong_length("an integer", value)
    return int.from_bytes(value, "big", signed=True)


def read_float(value: bytes) -> float:
    """An IEEE 754 number of 4 or 8 bytes; NaN and infinities included."""
    if len(value) not in _FLOATS:
        raise _wrong_length("a float", value)
    number: float = _FLOATS[len(value)].unpack(value)[0]
    return number


def _wrong_length(what: str, value: bytes) -> DecodeError:
    return DecodeError(f"{what} has 4 or 8 bytes on the wire, this value has {len(value)}")


def explain_plain(error: Exception) -> DecodeError:
    """A reader's own DecodeError, or why it is none. The original is no cause: it holds the whole record."""
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"not UTF-8 text: {error.reason} at byte {error.start}")
    return error if isinstance(error, DecodeError) else DecodeError(f"{type(error).__name__} while reading it")


def write_text(value: object) -> bytes | None:
    """A str as UTF-8; a lone surrogate cannot be written."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise EncodeError(f"the serializer 'string' takes str, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"UTF-8 cannot encode the text: {error.reason} at character {error.start}") from None


def write_bytes(value: object) -> bytes | None:
    """Bytes as they are; a bytearray or memoryview is copied."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)  # the same object if it is bytes
    raise EncodeError(f"the serializer 'bytes' takes bytes, not {type(value).__name__}")


def number_writer(name: str) -> Callable[[object], bytes | None]:
    """The writer of a format of numbers: of ints, or of floats and ints."""
    takes: tuple[type, ...] = (int,) if name in INTEGERS else (float, int)
    size = (INTEGERS | FLOATS)[name]
    layout = struct.Struct(">" + {(int, 4): "i", (int, 8): "q", (float, 4): "f", (float, 8): "d"}[takes[0], size])

    def write(value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, takes) or isinstance(value, bool):
            raise EncodeError(f"the serializer {name!r} takes {takes[0].__name__}, not {type(value).__name__}")
        try:
            return layout.pack(value)
        except (OverflowError, struct.error):
            raise EncodeError(f"the number does not fit the {size} bytes of {name!r}") from None

    return write
