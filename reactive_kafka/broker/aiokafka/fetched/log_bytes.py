"""The bytes of a fetched piece of a log: its batches by their headers, and records read leniently.
No I/O.

The compiled reader of the client reads what is sound. What it cannot read is looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from aiokafka.record.util import decode_varint

from reactive_kafka.broker.aiokafka.fetched.checksums import crc32c
from reactive_kafka.records import HeaderPairs

# Base offset, length, leader epoch, magic: the same bytes in every format.
_START = Struct(">qiib")
_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_AFTER_LENGTH = 12
_CRC_FROM = 21
# Magic -> the least length that a batch has.
_SMALLEST = {0: 14, 1: 22, 2: _HEADER.size - _AFTER_LENGTH}
_CODEC = 0x07
_LOG_APPEND_TIME = 0x08


class LenientRecord(NamedTuple):
    """A record like the client's own; bytes of a header's name that are no UTF-8 are lone
    surrogates in it.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


class Slice(NamedTuple):
    """Where a batch stands in a piece, as far as its first bytes say, which no checksum covers."""

    at: int
    end: int
    base: int
    magic: int


def slice_at(content: bytes, at: int) -> Slice | None:
    """The batch that begins at *at*; None: it is cut off, or nothing is left.

    Raises:
        ValueError: No batch can be like that.
    """
    if len(content) - at < _START.size:
        return None
    base, length, _, magic = _START.unpack_from(content, at)
    if magic not in _SMALLEST:
        raise ValueError(f"unknown format {magic} of a batch")
    if length < _SMALLEST[magic] or base < 0:
        raise ValueError(f"a batch of {length} bytes at offset {base} cannot be")
    end = at + _AFTER_LENGTH + length
    return Slice(at, end, base, magic) if end <= len(content) else None


def has_right_checksum(batch: memoryview) -> bool:
    """Whether a batch of format 2 is as it was written, behind its first bytes."""
    (written,) = _CRC.unpack_from(batch, _CRC_FROM - _CRC.size)
    return bool(crc32c(bytes(batch[_CRC_FROM:])) == written)


def codec_of(batch: memoryview, magic: int) -> int:
    """How the records of a batch are packed; 0: not at all, or it has none any more."""
    return 0 if len(batch) == _HEADER.size else batch[22 if magic == 2 else 17] & _CODEC


def packed_in(batch: memoryview, magic: int) -> memoryview:
    """The records of a compressed batch, as they are packed.

    Raises:
        ValueError: A batch of an old format is broken.
    """
    if magic == 2:
        return batch[_HEADER.size :]
    # In the old formats a message has others as its value, behind a key that may be null.
    at = 18 if magic == 0 else 26
    try:
        at += 4 + max(0, _LENGTH.unpack_from(batch, at)[0])
        return batch[at + 4 : at + 4 + max(0, _LENGTH.unpack_from(batch, at)[0])]
    except error as broken:
        raise ValueError("a batch is cut short") from broken


def plain_header(batch: memoryview) -> bytes:
    """The header of a batch of format 2 as if it were not compressed, but for its length and its
    checksum.
    """
    header = bytearray(batch[: _HEADER.size])
    header[_CRC_FROM + 1] &= ~_CODEC & 0xFF
    return bytes(header)


def next_after(content: bytes, at: int, wanted: int) -> int | None:
    """Offset behind the batch that begins at *at* and cannot be read; None: its bytes do not say so
    reliably.

    *wanted* is the offset that is to be read next, which the batch holds. Skipping too far would
    lose records that can be read: so two independent facts have to agree.
    """
    if len(content) - at < _HEADER.size:
        return None
    base, length, _, magic, crc, _, last_delta, _, _, _, _, _, count = _HEADER.unpack_from(
        content, at
    )
    if magic != 2 or last_delta < 0 or not base <= wanted <= base + last_delta:
        return None
    end = at + _AFTER_LENGTH + length
    is_whole = _SMALLEST[2] <= length and end <= len(content)
    if count == last_delta + 1 or (is_whole and crc32c(content[at + _CRC_FROM : end]) == crc):
        return int(base + last_delta + 1)
    # Compaction has taken records from it, and its checksum is wrong: does the batch behind it
    # agree?
    if (
        is_whole
        and len(content) - end >= _START.size
        and _START.unpack_from(content, end)[0] == base + last_delta + 1
    ):
        return int(base + last_delta + 1)
    return None


def lenient_records(content: bytes | memoryview) -> Iterator[LenientRecord]:
    """The records of one batch of format 2 without compression, which is all of *content*.

    Raises:
        ValueError: They cannot be read.
    """
    base, _, _, magic, _, attributes, _, first_time, last_time, _, _, _, count = (
        _HEADER.unpack_from(content)
    )
    if magic != 2 or attributes & _CODEC:
        raise ValueError("a batch that is not unpacked")
    data = bytearray(content)
    at = _HEADER.size
    append_time = last_time if attributes & _LOG_APPEND_TIME else None
    try:
        for _ in range(count):
            record, at = _record(data, at, base, first_time, append_time)
            yield record
    except (IndexError, error) as broken:
        raise ValueError(f"a record is cut short: {broken}") from broken
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes are left behind the last record")


def _record(
    data: bytearray, at: int, base: int, first_time: int, append_time: int | None
) -> tuple[LenientRecord, int]:
    length, at = decode_varint(data, at)
    end = at + length
    if not at < end <= len(data):
        raise ValueError(f"a record of {length} bytes")
    # Behind the attributes, which say nothing.
    delay, at = decode_varint(data, at + 1)
    delta, at = decode_varint(data, at)
    key, at = _bytes(data, at, end)
    value, at = _bytes(data, at, end)
    count, at = decode_varint(data, at)
    headers = []
    if count < 0:
        raise ValueError(f"{count} headers")
    for _ in range(count):
        name, at = _bytes(data, at, end)
        if name is None:
            raise ValueError("a header without a name")
        content, at = _bytes(data, at, end)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    if at != end:
        raise ValueError(f"a record of {length} bytes is {at - end} bytes longer")
    kind = 0 if append_time is None else 1
    time = first_time + delay if append_time is None else append_time
    return LenientRecord(base + delta, time, kind, key, value, tuple(headers)), at


def _bytes(data: bytearray, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(data, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise ValueError(f"a field of {length} bytes")
    return bytes(memoryview(data)[at : at + length]), at + length
