"""Parses the bytes of fetched record batches. No I/O.

aiokafka's compiled reader reads what is sound. This module handles what it cannot read: it finds
the end of a broken batch, and decodes header names that are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from aiokafka.record.util import decode_varint

from reactive_kafka.broker.aiokafka.fetched.checksums import crc32c
from reactive_kafka.records import HeaderPairs

# Base offset, length, leader epoch, magic. They are at the same place in every format.
_START = Struct(">qiib")
_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_AFTER_LENGTH = 12
_CRC_FROM = 21
# Magic -> the smallest length that a batch can have.
_SMALLEST = {0: 14, 1: 22, 2: _HEADER.size - _AFTER_LENGTH}
_CODEC = 0x07
_LOG_APPEND_TIME = 0x08


class LenientRecord(NamedTuple):
    """A record with the same attributes as the client's own.

    If a header name is not UTF-8, its odd bytes are lone surrogates in the string.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


class BatchSpan(NamedTuple):
    """Where a batch lies in the fetched bytes. No checksum covers these fields."""

    start: int
    end: int
    base_offset: int
    magic: int


def batch_at(content: bytes, start: int) -> BatchSpan | None:
    """Return the batch that begins at *start*; None if it is cut off, or nothing is left.

    Raises:
        ValueError: No batch can have such a header.
    """
    if len(content) - start < _START.size:
        return None
    base, length, _, magic = _START.unpack_from(content, start)
    if magic not in _SMALLEST:
        raise ValueError(f"unknown format {magic} of a batch")
    if length < _SMALLEST[magic] or base < 0:
        raise ValueError(f"a batch of {length} bytes at offset {base} cannot be")
    end = start + _AFTER_LENGTH + length
    return BatchSpan(start, end, base, magic) if end <= len(content) else None


def has_right_checksum(batch: memoryview) -> bool:
    """True if the checksum of a batch of format 2 is right. It covers what follows the checksum."""
    (written,) = _CRC.unpack_from(batch, _CRC_FROM - _CRC.size)
    return bool(crc32c(bytes(batch[_CRC_FROM:])) == written)


def codec_of(batch: memoryview, magic: int) -> int:
    """Return the compression codec of a batch; 0: it is not compressed, or has no records left."""
    return 0 if len(batch) == _HEADER.size else batch[22 if magic == 2 else 17] & _CODEC


def packed_in(batch: memoryview, magic: int) -> memoryview:
    """Return the records of a compressed batch, still compressed.

    Raises:
        ValueError: A batch of an old format is broken.
    """
    if magic == 2:
        return batch[_HEADER.size :]
    # In the old formats the compressed messages are the value of a message, behind its key.
    pos = 18 if magic == 0 else 26
    try:
        pos += 4 + max(0, _LENGTH.unpack_from(batch, pos)[0])
        return batch[pos + 4 : pos + 4 + max(0, _LENGTH.unpack_from(batch, pos)[0])]
    except error as broken:
        raise ValueError("a batch is cut short") from broken


def plain_header(batch: memoryview) -> bytes:
    """Return the header of a compressed batch of format 2 without its codec.

    Its length and its checksum stay those of the compressed batch.
    """
    header = bytearray(batch[: _HEADER.size])
    header[_CRC_FROM + 1] &= ~_CODEC & 0xFF
    return bytes(header)


def next_after(content: bytes, start: int, wanted: int) -> int | None:
    """Return the offset after the unreadable batch at *start*; None if that is not certain.

    Skipping too far would lose records that can be read. So two independent facts have to agree.

    Args:
        content: The fetched bytes.
        start: Where the batch begins.
        wanted: The offset to be read next, which the batch has to contain.
    """
    if len(content) - start < _HEADER.size:
        return None
    base, length, _, magic, crc, _, last_delta, _, _, _, _, _, count = _HEADER.unpack_from(
        content, start
    )
    if magic != 2 or last_delta < 0 or not base <= wanted <= base + last_delta:
        return None
    end = start + _AFTER_LENGTH + length
    is_whole = _SMALLEST[2] <= length and end <= len(content)
    if count == last_delta + 1 or (is_whole and crc32c(content[start + _CRC_FROM : end]) == crc):
        return int(base + last_delta + 1)
    # Compaction has removed records from the batch, and its checksum is wrong. The last check: does
    # the following batch begin where this one says that it ends?
    if (
        is_whole
        and len(content) - end >= _START.size
        and _START.unpack_from(content, end)[0] == base + last_delta + 1
    ):
        return int(base + last_delta + 1)
    return None


def lenient_records(content: bytes | memoryview) -> Iterator[LenientRecord]:
    """Decode the records of an uncompressed batch of format 2, which is all of *content*.

    Raises:
        ValueError: They cannot be read.
    """
    base, _, _, magic, _, attributes, _, first_time, last_time, _, _, _, count = (
        _HEADER.unpack_from(content)
    )
    if magic != 2 or attributes & _CODEC:
        raise ValueError("a batch that is not unpacked")
    data = bytearray(content)
    pos = _HEADER.size
    append_time = last_time if attributes & _LOG_APPEND_TIME else None
    try:
        for _ in range(count):
            record, pos = _record(data, pos, base, first_time, append_time)
            yield record
    except (IndexError, error) as broken:
        raise ValueError(f"a record is cut short: {broken}") from broken
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes are left behind the last record")


def _record(
    data: bytearray, pos: int, base: int, first_time: int, append_time: int | None
) -> tuple[LenientRecord, int]:
    """Decode the record at *pos*. Returns it and the position after it."""
    length, pos = decode_varint(data, pos)
    end = pos + length
    if not pos < end <= len(data):
        raise ValueError(f"a record of {length} bytes")
    # One byte is skipped: the attributes of a record, which are not used.
    delay, pos = decode_varint(data, pos + 1)
    delta, pos = decode_varint(data, pos)
    key, pos = _bytes(data, pos, end)
    value, pos = _bytes(data, pos, end)
    count, pos = decode_varint(data, pos)
    headers = []
    if count < 0:
        raise ValueError(f"{count} headers")
    for _ in range(count):
        name, pos = _bytes(data, pos, end)
        if name is None:
            raise ValueError("a header without a name")
        content, pos = _bytes(data, pos, end)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    if pos != end:
        raise ValueError(f"a record of {length} bytes is {pos - end} bytes longer")
    kind = 0 if append_time is None else 1
    time = first_time + delay if append_time is None else append_time
    return LenientRecord(base + delta, time, kind, key, value, tuple(headers)), pos


def _bytes(data: bytearray, pos: int, end: int) -> tuple[bytes | None, int]:
    """Decode a length, and so many bytes or None for a length below 0. Also returns the end."""
    length, pos = decode_varint(data, pos)
    if length < 0:
        return None, pos
    if pos + length > end:
        raise ValueError(f"a field of {length} bytes")
    return bytes(memoryview(data)[pos : pos + length]), pos + length
