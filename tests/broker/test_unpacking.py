"""What is packed is unpacked within a bound, whatever its bytes are."""

from __future__ import annotations

import zlib

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.unpacking import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    TooLargeError,
    Unpacker,
    known_size,
    unpacked,
)

CODECS = {GZIP: gzip_encode, SNAPPY: snappy_encode, LZ4: lz4_encode, ZSTD: zstd_encode}


def packed(codec: int, content: bytes) -> list[bytes]:
    """It, packed in each way that producers have; some say its size, and some do not."""
    if codec == GZIP:
        return [gzip_encode(content), gzip_encode(content[:9]) + gzip_encode(content[9:])]
    if codec == SNAPPY:
        return [snappy_encode(content), snappy_encode(content, xerial_compatible=False)]
    streaming = (cramjam.lz4 if codec == LZ4 else cramjam.zstd).Compressor()
    streaming.compress(content)
    return [CODECS[codec](content), bytes(streaming.finish())]


@pytest.mark.parametrize("codec", CODECS)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_what_was_packed_is_unpacked_up_to_the_bound_and_refused_above(
    codec: int, content: bytes, times: int
) -> None:
    content *= times
    for one in map(memoryview, packed(codec, content)):
        assert bytes(unpacked(codec, one, len(content))) == content
        assert Unpacker(max(1, len(content))).small(codec, one) == content
        assert known_size(codec, one) in (None, len(content))
        if content:
            with pytest.raises(TooLargeError, match="max_unpacked_bytes"):
                unpacked(codec, one, len(content) - 1)


@pytest.mark.parametrize("codec", CODECS)
@given(st.binary(max_size=200), st.data())
def test_packed_bytes_that_are_broken_are_an_error_or_something_within_the_bound(
    codec: int, content: bytes, data: st.DataObject
) -> None:
    broken = bytearray(packed(codec, content * 9)[data.draw(st.integers(0, 1))])
    for at, flip in data.draw(
        st.lists(st.tuples(st.integers(0, len(broken) - 1), st.integers(1, 255)), max_size=4)
    ):
        broken[at] ^= flip
    cut = memoryview(bytes(broken[: data.draw(st.integers(0, len(broken)))]))
    try:
        assert len(unpacked(codec, cut, 5_000)) <= 5_000
    except ValueError:
        pass


def test_gzip_that_is_cut_short_or_no_gzip_is_an_error() -> None:
    whole = gzip_encode(bytes(1000))
    for broken in (whole[:-9], b"", zlib.compress(b"x"), whole + b"tail"):
        with pytest.raises(ValueError, match="it cannot be unpacked"):
            unpacked(GZIP, memoryview(broken), 5000)
