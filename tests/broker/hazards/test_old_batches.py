"""Batches of the formats before 2, which old brokers still hand out, are read within the same
bounds.
"""

from __future__ import annotations

from functools import cache

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.unpacking import GZIP, LZ4, SMALL_BYTES, SNAPPY
from reactive_kafka.errors import CorruptRecordError
from tests.broker.hazards.test_unreadable_batches import MOST, all_of, done, reader_of


@cache
def old(magic: int, codec: int, *values: bytes | None) -> bytes:
    """One batch from offset 0 on; without a codec it is a message a record."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(
            offset,
            1_700_000_000_000 + offset if magic else None,
            b"key" if offset % 2 else None,
            value,
        )
    return bytes(builder.build())


CODECS = [
    (magic, codec)
    for magic in (0, 1)
    for codec in (0, GZIP, SNAPPY, LZ4)
    if (magic, codec) != (0, LZ4)
]


@pytest.mark.parametrize(("magic", "codec"), CODECS)
def test_their_records_are_read(magic: int, codec: int) -> None:
    content = old(magic, codec, b"0" * 90, b"1" * 90, None)
    taken, error = all_of(reader_of(content))
    assert error is None
    assert [(offset, key, value) for offset, key, value, *_ in taken] == [
        (0, None, b"0" * 90),
        (1, b"key", b"1" * 90),
        (2, None, None),
    ]


@pytest.mark.parametrize(("magic", "codec"), CODECS)
@given(st.data())
def test_a_flipped_byte_is_an_error_with_its_place_or_no_harm(
    magic: int, codec: int, data: st.DataObject
) -> None:
    """Row F7 of the faults."""
    content = bytearray(old(magic, codec, b"0" * 90, b"1" * 90))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        taken, error = all_of(reader_of(bytes(content)))
    except ValueError as impossible:
        # Of its first bytes: a fetch with it never gets so far.
        assert not isinstance(impossible, UnicodeError)
        return
    assert error is None or error.offset == (taken[-1][0] + 1 if taken else 0)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_a_large_one_is_looked_at_in_a_thread_first_and_refused_above_the_bound(codec: int) -> None:
    """Row F10 of the faults."""
    reader = reader_of(old(1, codec, bytes(2 * SMALL_BYTES)))
    assert reader.take(5) == []
    assert reader.pending_unpack is not None
    reader.finish_unpack(done(reader.pending_unpack))
    assert [len(record.value or b"") for record in reader.take(5)] == [2 * SMALL_BYTES]
    bomb = reader_of(old(1, codec, bytes(MOST)))
    with pytest.raises(CorruptRecordError, match="max_unpacked_bytes"):
        if not bomb.take(5):
            bomb.finish_unpack(done(bomb.pending_unpack))
            bomb.take(5)
