"""Unpacks record batches within a bound: what is above it is refused, before that where its header
says its size.

A few kilobytes can unpack to gigabytes, so nothing is unpacked into room that grows by itself.
Java's producer, and gzip in general, write no size into the header.
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
"""What unpacks to no more is unpacked at once: it takes a millisecond or two, and a thread costs a
part of that.
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
    """It unpacks to more than there may be."""


class Unpacker:
    """Unpacks the small batches of one client, one after the other, and says what is large.

    ``most_bytes``: a batch that unpacks to more is refused.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        # Of small batches, used again: to clear it for each would cost as much.
        self._room: bytearray | None = None

    def small(self, codec: int, packed: memoryview) -> bytes | None:
        """What was packed; None: it is large, and :func:`unpacked` is to be called in a thread.

        Raises:
            ValueError: It cannot be unpacked, or its header says that it is too large.
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
    """What was packed, behind *head*. It takes its time and lets go of the interpreter's lock
    meanwhile: for a thread.

    Raises:
        ValueError: It cannot be unpacked, or has more than *most_bytes*.
    """
    known = known_size(codec, packed)
    size = most_bytes if known is None else min(known, most_bytes)
    # Without a known size there is room for all that there may be. The system gives memory to those
    # pages only that are written to; a bytearray would be cleared, with the interpreter's lock
    # held.
    room = memoryview(mmap(-1, len(head) + size + 1))
    room[: len(head)] = head
    count = _unpack_into(room[len(head) : len(head) + size], codec, packed)
    return room[: len(head) + count]


def known_size(codec: int, packed: memoryview) -> int | None:
    """How many bytes it unpacks to, as its header says; None: it does not. It may be a lie, never
    an error.
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
    """Source: RFC 8878, section 3.1.1.1."""
    described = packed[4]
    kind = described >> 6
    is_single = described >> 5 & 1
    dictionary = described & 3
    if not kind and not is_single:
        return None
    at = 5 + (not is_single) + (0, 1, 2, 4)[dictionary]
    size = (1, 2, 4, 8)[kind]
    return int.from_bytes(packed[at : at + size], "little") + (256 if kind == 1 else 0)


def _snappy_size(block: memoryview) -> int:
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size
    raise ValueError("no length of a snappy block")


def _snappy_blocks(packed: memoryview) -> Iterator[memoryview]:
    """Java writes blocks one after the other, librdkafka and others a single one."""
    if bytes(packed[: len(_XERIAL)]) != _XERIAL or len(packed) < _XERIAL_HEADER_BYTES:
        yield packed
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big", signed=True)
        if size < 0 or at + 4 + size > len(packed):
            raise ValueError("a snappy block is cut short")
        yield packed[at + 4 : at + 4 + size]
        at += 4 + size


def _unpack_into(room: memoryview, codec: int, packed: memoryview) -> int:
    """Unpack as far as there is room; returns how many bytes that is. TooLargeError: there is not
    enough.
    """
    if codec == GZIP:
        return _inflate_into(room, packed)
    if codec == SNAPPY:
        at = 0
        for block in _snappy_blocks(packed):
            if _snappy_size(block) > len(room) - at:
                raise _too_large(len(room))
            at += _into(cramjam.snappy.decompress_raw_into, block, room[at:])
        return at
    return _into(
        cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into, packed, room
    )


def _into(unpack: Callable[[Any, Any], int], packed: memoryview, room: memoryview) -> int:
    try:
        return int(unpack(packed, room))
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _too_large(len(room)) from error
        raise ValueError(f"it cannot be unpacked: {error}") from error


def _inflate_into(room: memoryview, packed: memoryview) -> int:
    at = 0
    left = packed
    while True:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            try:
                piece = member.decompress(left, min(_PIECE_BYTES, len(room) - at + 1))
            except zlib.error as error:
                raise ValueError(f"it cannot be unpacked: {error}") from error
            if len(piece) > len(room) - at:
                raise _too_large(len(room))
            room[at : at + len(piece)] = piece
            at += len(piece)
            left = memoryview(member.unconsumed_tail)
            if not piece and not left and not member.eof:
                raise ValueError("it cannot be unpacked: it is cut short")
        left = memoryview(member.unused_data)
        if not left:
            return at


def _too_large(most_bytes: int, known: int | None = None) -> TooLargeError:
    size = "more than" if known is None else f"{known:,} bytes, and may have"
    return TooLargeError(f"it unpacks to {size} {most_bytes:,} bytes (max_unpacked_bytes)")


def _check_codec(codec: int) -> None:
    if codec not in NAMES:
        raise UnsupportedCodecError(f"Unknown compression codec {codec:#04x}")
    if codec != GZIP and cramjam is None:
        raise UnsupportedCodecError(f"Libraries for {NAMES[codec]} compression codec not found")
