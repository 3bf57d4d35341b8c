"""How values of Kafka's types are written and read. Pure.

Nothing here knows the name of the field: the codec adds it to the errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from struct import Struct
from typing import Any, Protocol

from reactive_kafka.broker.wire.lengths import Buffer, Length

FIXED_LAYOUTS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kafka's types of a fixed size -> their layout in Python's ``struct``."""
UUID_BYTES = 16
NO_UUID = bytes(UUID_BYTES)
"""What Kafka sends as an id that is not known."""
LONGEST_TEXT_BYTES = 0x7FFF
# After this byte a nullable struct follows. Any negative one means None.
PRESENT = 1
ABSENT = 0xFF


class WireType(Protocol):
    """Writes and reads values of one type, in one version of a message."""

    def write(self, value: Any, out: bytearray) -> None:
        """Append a value.

        Raises:
            ValueError: It is no value of this type. Also TypeError or struct.error.
        """

    def read(self, buffer: Buffer, at: int) -> tuple[Any, int]:
        """Return the value at a place in the buffer, and where the next one begins.

        Raises:
            EOFError: The buffer ends before it. Also IndexError or struct.error.
            ValueError: These bytes are no such value.
        """


def check_fixed(type_name: str, value: object) -> None:
    """Raise ValueError for values that ``struct`` would change silently."""
    if type_name == "bool" and not isinstance(value, bool):
        raise ValueError(f"{value!r} is no bool")
    if type_name == "uuid" and not (isinstance(value, bytes) and len(value) == UUID_BYTES):
        raise ValueError(f"{value!r} is no UUID of {UUID_BYTES} bytes")


class FixedType:
    """A number, a bool or a UUID."""

    def __init__(self, type_name: str) -> None:
        self._type_name = type_name
        self._struct = Struct(f">{FIXED_LAYOUTS[type_name]}")

    def write(self, value: Any, out: bytearray) -> None:
        check_fixed(self._type_name, value)
        out += self._struct.pack(value)

    def read(self, buffer: Buffer, at: int) -> tuple[Any, int]:
        (value,) = self._struct.unpack_from(buffer, at)
        return value, at + self._struct.size


class TextType:
    """A string, as UTF-8."""

    def __init__(self, length: Length, *, nullable: bool) -> None:
        self._length = length
        self._is_nullable = nullable

    def write(self, value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(self._length, self._is_nullable, out)
            return
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no str")
        encoded = value.encode()
        if len(encoded) > LONGEST_TEXT_BYTES:
            raise ValueError(
                f"a string of {len(encoded)} bytes; {LONGEST_TEXT_BYTES} is the most that Kafka has"
            )
        self._length.write(len(encoded), out)
        out += encoded

    def read(self, buffer: Buffer, at: int) -> tuple[str | None, int]:
        at, end = _span(self._length, buffer, at)
        if end < at:
            return None if self._is_nullable else "", at
        return str(buffer[at:end], "utf-8"), end


class BytesType:
    """Some bytes. Records are read as a view of the buffer, because they may be megabytes."""

    def __init__(self, length: Length, *, nullable: bool, as_view: bool) -> None:
        self._length = length
        self._is_nullable = nullable
        self._as_view = as_view

    def write(self, value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(self._length, self._is_nullable, out)
            return
        if not isinstance(value, bytes | bytearray | memoryview):
            raise ValueError(f"{value!r} is no bytes")
        self._length.write(len(value), out)
        out += value

    def read(self, buffer: Buffer, at: int) -> tuple[bytes | memoryview | None, int]:
        at, end = _span(self._length, buffer, at)
        if end < at:
            return None if self._is_nullable else b"", at
        if self._as_view:
            return memoryview(buffer)[at:end], end
        return bytes(buffer[at:end]), end


class ArrayType:
    """An array of values of any type, read as a list."""

    def __init__(self, element: WireType, length: Length, *, nullable: bool) -> None:
        self._element = element
        self._length = length
        self._is_nullable = nullable

    def write(self, value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(self._length, self._is_nullable, out)
            return
        check_array(value)
        self._length.write(len(value), out)
        write = self._element.write
        for element in value:
            write(element, out)

    def read(self, buffer: Buffer, at: int) -> tuple[list[Any] | None, int]:
        count, at = self._length.read(buffer, at)
        if count < 0:
            _check_null(self._is_nullable)
            return None, at
        # The list grows as elements are read, so a false count allocates nothing. Each element has
        # at least one byte.
        if count > len(buffer) - at:
            raise EOFError
        values = []
        read = self._element.read
        for _ in range(count):
            value, at = read(buffer, at)
            values.append(value)
        return values, at


class NumbersType:
    """An array of numbers, which are packed and unpacked at once."""

    def __init__(self, type_name: str, length: Length, *, nullable: bool) -> None:
        self._layout = FIXED_LAYOUTS[type_name]
        self._size = Struct(f">{self._layout}").size
        self._length = length
        self._is_nullable = nullable

    def write(self, value: Any, out: bytearray) -> None:
        if value is None:
            _write_null(self._length, self._is_nullable, out)
            return
        check_array(value)
        self._length.write(len(value), out)
        out += Struct(f">{len(value)}{self._layout}").pack(*value)

    def read(self, buffer: Buffer, at: int) -> tuple[list[Any] | None, int]:
        count, at = self._length.read(buffer, at)
        if count < 0:
            _check_null(self._is_nullable)
            return None, at
        end = at + count * self._size
        # Checked first, because unpacking allocates for the whole count.
        if end > len(buffer):
            raise EOFError
        return list(Struct(f">{count}{self._layout}").unpack_from(buffer, at)), end


class NullableType:
    """A struct that may be None."""

    def __init__(self, struct: WireType) -> None:
        self._struct = struct

    def write(self, value: Any, out: bytearray) -> None:
        if value is None:
            out.append(ABSENT)
            return
        out.append(PRESENT)
        self._struct.write(value, out)

    def read(self, buffer: Buffer, at: int) -> tuple[Any, int]:
        if buffer[at] > 0x7F:
            return None, at + 1
        return self._struct.read(buffer, at + 1)


def check_array(value: object) -> None:
    """Raise ValueError for what can be iterated over, but is not meant as an array."""
    is_array = isinstance(value, Sequence | Set) and not isinstance(
        value, str | bytes | bytearray | memoryview | Mapping
    )
    if not is_array:
        raise ValueError(f"{value!r} is no list")


def _write_null(length: Length, is_nullable: bool, out: bytearray) -> None:
    _check_null(is_nullable)
    length.write(-1, out)


def _check_null(is_nullable: bool) -> None:
    if not is_nullable:
        raise ValueError("None is not allowed in this version")


def _span(length: Length, buffer: Buffer, at: int) -> tuple[int, int]:
    """Return where a value of some length begins and ends. It ends before it begins: it is None.

    Some answers with an error have None also where it is not allowed, for example those of
    librdkafka's mock cluster. That is read as an empty value, so that the error can be told.
    """
    count, at = length.read(buffer, at)
    if at + count > len(buffer):
        raise EOFError
    return at, at + count
