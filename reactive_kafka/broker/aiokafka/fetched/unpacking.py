"""Decompresses record batches, but never to more bytes than a limit.

If the header of a batch says that it is larger, it is refused before it is decompressed. A few
kilobytes can unpack to gigabytes, so nothing is written into a buffer that grows. Java's producer,
and gzip in general, write no size into the header.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from mmap import mmap
from typing import Any

from aiokafka.errors import UnsupportedCodecError

try:
    import cramjam
except ImportError:
    cramjam = None  # type: ignore[assignment]

SMALL_BYTES = 1 << 20
"""A batch of up to this size is decompressed at once. That takes one or two milliseconds; a thread
would add to it.
"""

GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
_PIECE_BYTES = 1 << 20
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class TooLargeError(ValueError):
    """The content is larger than the limit."""


class Unpacker:
    """Decompresses the small batches of one client, and recognises large ones.

    ``most_bytes``: a batch that is larger after decompression is refused.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        # The buffer for small batches. Clearing a new one each time would take as long as
        # unpacking.
        self._room: bytearray | None = None

    def small(self, codec: int, packed: memoryview) -> bytes | None:
        """Return the decompressed content; None: it is large, call :func:`unpacked` in a thread.

        Raises:
            ValueError: It cannot be decompressed, or its header says that it is too large.
        """
        _check_codec(codec)
        known = known_size(codec, packed)
        if known is not None and known > self.most_bytes:
            raise _too_large(self.most_bytes, known)
        least = min(SMALL_BYTES, self.most_bytes)
        if known is not None and known > least:
            return None
        if self._room is None:
            self._room = bytearray(SMALL_BYTES)
        try:
            count = _unpack_into(memoryview(self._room)[:least], codec, packed)
        except TooLargeError:
            if least == self.most_bytes:
                raise
            return None
        return bytes(memoryview(self._room)[:count])


def unpacked(codec: int, packed: memoryview, most_bytes: int, head: bytes = b"") -> memoryview:
    """Return the decompressed content behind *head*. For a thread.

    It takes long for a large batch, and releases the interpreter's lock meanwhile.

    Raises:
        ValueError: It cannot be decompressed, or has more than *most_bytes*.
    """
    known = known_size(codec, packed)
    size = most_bytes if known is None else min(known, most_bytes)
    # If the size is not known, the buffer has the largest allowed one. The system provides only the
    # pages of an mmap that are written to. A bytearray would be cleared with the lock held.
    room = memoryview(mmap(-1, len(head) + size + 1))
    room[: len(head)] = head
    count = _unpack_into(room[len(head) : len(head) + size], codec, packed)
    return room[: len(head) + count]


def known_size(codec: int, packed: memoryview) -> int | None:
    """Return the size after decompression that the header states; None: it states none.

    The header may be wrong.
    """
    try:
        if codec == SNAPPY:
            return sum(map(_snappy_size, _snappy_blocks(packed)))
        if codec == LZ4 and packed[4] & 0x08:
            return int.from_bytes(packed[6:14], "little")
        return _zstd_size(packed) if codec == ZSTD else None
    except (IndexError, ValueError):
        return None


def _zstd_size(packed: memoryview) -> int | None:
    """Read the content size of a frame header. Source: RFC 8878, section 3.1.1.1."""
    descriptor = packed[4]
    kind = descriptor >> 6
    is_single = descriptor >> 5 & 1
    dictionary = descriptor & 3
    if not kind and not is_single:
        return None
    pos = 5 + (not is_single) + (0, 1, 2, 4)[dictionary]
    size = (1, 2, 4, 8)[kind]
    return int.from_bytes(packed[pos : pos + size], "little") + (256 if kind == 1 else 0)


def _snappy_size(block: memoryview) -> int:
    """Read the length at the beginning of a block: seven bits a byte, the lowest first."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise ValueError("no length of a snappy block")


def _snappy_blocks(packed: memoryview) -> Iterator[memoryview]:
    """Yield the blocks: Java writes several, librdkafka and others a single one."""
    if bytes(packed[: len(_XERIAL)]) != _XERIAL or len(packed) < _XERIAL_HEADER_BYTES:
        yield packed
        return
    pos = _XERIAL_HEADER_BYTES
    while pos < len(packed):
        size = int.from_bytes(packed[pos : pos + 4], "big", signed=True)
        if size < 0 or pos + 4 + size > len(packed):
            raise ValueError("a snappy block is cut short")
        yield packed[pos + 4 : pos + 4 + size]
        pos += 4 + size


def _unpack_into(room: memoryview, codec: int, packed: memoryview) -> int:
    """Decompress into *room* and return the number of bytes. TooLargeError: they do not fit."""
    if codec == GZIP:
        return _inflate_into(room, packed)
    if codec == SNAPPY:
        pos = 0
        for block in _snappy_blocks(packed):
            if _snappy_size(block) > len(room) - pos:
                raise _too_large(len(room))
            pos += _into(cramjam.snappy.decompress_raw_into, block, room[pos:])
        return pos
    unpack = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
    return _into(unpack, packed, room)


def _into(unpack: Callable[[Any, Any], int], packed: memoryview, room: memoryview) -> int:
    try:
        return int(unpack(packed, room))
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _too_large(len(room)) from error
        raise ValueError(f"it cannot be unpacked: {error}") from error


def _inflate_into(room: memoryview, packed: memoryview) -> int:
    """Decompress gzip, which may have several members, one after the other."""
    pos = 0
    left = packed
    while True:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            try:
                piece = member.decompress(left, min(_PIECE_BYTES, len(room) - pos + 1))
            except zlib.error as error:
                raise ValueError(f"it cannot be unpacked: {error}") from error
            if len(piece) > len(room) - pos:
                raise _too_large(len(room))
            room[pos : pos + len(piece)] = piece
            pos += len(piece)
            left = memoryview(member.unconsumed_tail)
            if not piece and not left and not member.eof:
                raise ValueError("it cannot be unpacked: it is cut short")
        left = memoryview(member.unused_data)
        if not left:
            return pos


def _too_large(most_bytes: int, known: int | None = None) -> TooLargeError:
    size = "more than" if known is None else f"{known:,} bytes, and may have"
    return TooLargeError(f"it unpacks to {size} {most_bytes:,} bytes (max_unpacked_bytes)")


def _check_codec(codec: int) -> None:
    if codec not in NAMES:
        raise UnsupportedCodecError(f"Unknown compression codec {codec:#04x}")
    if codec != GZIP and cramjam is None:
        raise UnsupportedCodecError(f"Libraries for {NAMES[codec]} compression codec not found")
