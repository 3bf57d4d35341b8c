"""The length in front of a string, of bytes or of an array, in its three forms. Pure.

In each form a length of -1 means None.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol

Buffer = bytes | bytearray | memoryview

_LONGEST_VARINT = 5


def write_varint(number: int, out: bytearray) -> None:
    """Append an unsigned number below 2**32: seven bits a byte, the lowest first."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def read_varint(buffer: Buffer, at: int) -> tuple[int, int]:
    """Return an unsigned number, and where the next value begins.

    Raises:
        IndexError: The buffer ends before it.
        ValueError: It has more than 32 bits.
    """
    byte = buffer[at]
    if byte < 0x80:
        # Nearly every number on the wire is as small as this.
        return byte, at + 1
    number = 0
    for index in range(_LONGEST_VARINT):
        byte = buffer[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80 and number < 2**32:
            return number, at + index + 1
    raise ValueError("a length of more than 32 bits")


class Length(Protocol):
    """One form of a length."""

    def write(self, length: int, out: bytearray) -> None:
        """Append a length, or -1 for None."""

    def read(self, buffer: Buffer, at: int) -> tuple[int, int]:
        """Return a length or -1, and where the next value begins."""


class CompactLength:
    """The form of flexible versions: an unsigned varint of the length plus one."""

    def write(self, length: int, out: bytearray) -> None:
        write_varint(length + 1, out)

    def read(self, buffer: Buffer, at: int) -> tuple[int, int]:
        length, at = read_varint(buffer, at)
        return length - 1, at


class FixedLength:
    """The form of older versions: a signed number of 16 or 32 bits."""

    def __init__(self, layout: str) -> None:
        self._struct = Struct(layout)

    def write(self, length: int, out: bytearray) -> None:
        out += self._struct.pack(length)

    def read(self, buffer: Buffer, at: int) -> tuple[int, int]:
        (length,) = self._struct.unpack_from(buffer, at)
        if length < -1:
            raise ValueError(f"a length of {length}")
        return length, at + self._struct.size


COMPACT = CompactLength()
INT16 = FixedLength(">h")
INT32 = FixedLength(">i")
