"""Bytes of a log that cannot be read: no byte makes another error than one with its place, or costs
other records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.batch_reader import BatchFormat, BatchReader
from reactive_kafka.broker.aiokafka.fetched.log_bytes import next_after
from reactive_kafka.broker.aiokafka.fetched.unpacking import (
    GZIP,
    LZ4,
    SMALL_BYTES,
    SNAPPY,
    ZSTD,
    Unpacker,
)
from reactive_kafka.broker.consumer.fetching.fetch_answers import FetchAnswers
from reactive_kafka.broker.consumer.fetching.fetch_settings import FetchSettings
from reactive_kafka.broker.consumer.fetching.node_fetch import AskedPartition, NodeFetch
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.broker.consumer.fetching.request_encoding import FetchLimits
from reactive_kafka.broker.consumer.fetching.response_decoding import FetchAnswer, PartitionAnswer
from reactive_kafka.errors import CorruptRecordError, TransientBrokerError
from tests.broker.hazards.test_record_batches import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    PARTITION,
    Batch,
    Seen,
    in_bytes,
    seen,
)

CODECS = {GZIP: gzip_encode, SNAPPY: snappy_encode, LZ4: lz4_encode, ZSTD: zstd_encode}
LENGTH_AT, EPOCH_AT, MAGIC_AT = 8, 12, 16
MOST = 4 << 20


def reader_of(content: bytes, start: int = 0, most: int = MOST) -> BatchReader:
    return BatchReader(PARTITION, start, content, Unpacker(most), None)


def all_of(reader: BatchReader) -> tuple[list[Seen], CorruptRecordError | None]:
    """Its records, and the error that it ends with."""
    taken: list[Seen] = []
    try:
        while not reader.is_exhausted:
            taken += [seen(record) for record in reader.take(3)]
            assert reader.pending_unpack is None
    except CorruptRecordError as error:
        return taken, error
    return taken, None


# -- any byte


def three_batches(codec: int) -> tuple[bytes, list[int]]:
    """Offsets 10 to 12, 13 to 16, 17 and 18; and where each begins in bytes."""
    made = [
        in_bytes(Batch((0, 1, 2), codec=codec), 10),
        in_bytes(Batch((0, 1, 2, 3), codec=codec), 13),
    ]
    made.append(in_bytes(Batch((0, 1), codec=codec), 17))
    return b"".join(made), [0, len(made[0]), len(made[0]) + len(made[1])]


@given(st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]), st.integers(0, 10_000), st.integers(1, 255))
# Its codec.
@example(0, ATTRIBUTES_AT + 1, 5)
# A length below zero.
@example(0, LENGTH_AT, 0x80)
@example(0, MAGIC_AT, 2)
def test_a_flipped_byte_costs_no_record_but_those_of_its_batch_and_the_error_has_its_place(
    codec: int, at: int, flip: int
) -> None:
    """Row F7 of the faults."""
    content, starts = three_batches(codec)
    sound, none = all_of(reader_of(content, 10))
    assert none is None
    second = starts[2] - starts[1]
    at = starts[1] + at % second
    broken = bytearray(content)
    broken[at] ^= flip
    taken, error = all_of(reader_of(bytes(broken), 10))
    place = at - starts[1]
    # No checksum covers the offset of a batch: what fits into the log is taken for a gap.
    if place < LENGTH_AT:
        assert taken[:3] == sound[:3]
        return
    if error is None and EPOCH_AT <= place <= MAGIC_AT:
        # The leader's epoch is nobody's business.
        assert taken == sound
        return
    assert taken == sound[:3]
    # Its length goes beyond what was fetched: the next fetch begins with it.
    if error is None:
        assert LENGTH_AT <= place < EPOCH_AT
        [cut] = errors_of_the_next_fetch(bytes(broken)[starts[1] :], 13)
        error = cut
    assert (error.partition, error.offset) == (PARTITION, 13)
    assert error.until in (None, 17)
    rest, none = all_of(reader_of(content, error.until or 17))
    assert (rest, none) == (sound[7:], None)


def errors_of_the_next_fetch(content: bytes, offset: int) -> list[CorruptRecordError]:
    """Why a fetch from an offset finds nothing to read, if the answer has this content."""
    reads = ReadPartitions(lambda: None, lambda: None, lambda partition: 1)
    reads.hold([PARTITION])
    reads.start_at({PARTITION: offset})
    answers = FetchAnswers(reads, FetchSettings(), BatchFormat(MOST), lambda node: False)
    asked = {PARTITION: AskedPartition(reads.states[PARTITION], offset)}
    limits = FetchLimits(500, 1, 1 << 20, 0, "")
    fetch = NodeFetch(1, asked, [(*PARTITION, offset, 1 << 20)], limits)
    row = PartitionAnswer(PARTITION, 0, 100, 100, 0, (), -1, content)
    answers.take(fetch, FetchAnswer(0, 0, [row]), 0.0)
    assert not reads.held
    errors = [state.error for state in reads.failed.values()]
    return [error for error in errors if isinstance(error, CorruptRecordError)]


@pytest.mark.parametrize("length", [-(2**31), -13, -1, 0, 14, 48, 2**31 - 1])
def test_a_first_batch_of_an_impossible_length_is_an_error_at_its_offset(length: int) -> None:
    """Row F7 of the faults."""
    content = bytearray(in_bytes(Batch((0, 1)), 5))
    struct.pack_into(">i", content, LENGTH_AT, length)
    [error] = errors_of_the_next_fetch(bytes(content), 5)
    assert (error.offset, error.until) == (5, 7)


def with_checksum(made: bytearray) -> bytes:
    struct.pack_into(">I", made, CRC_AT, calc_crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return bytes(made)


def test_records_before_a_broken_one_are_taken_if_the_checksum_is_right() -> None:
    made = bytearray(in_bytes(Batch((0, 1, 2)), 10))
    last = made.rindex(b"key-11") - 1
    # The length of its key: beyond the record.
    made[last] = 0x7F
    taken, error = all_of(reader_of(with_checksum(made), 10))
    assert [offset for offset, *_ in taken] == [10]
    assert error is not None
    assert (error.offset, error.until) == (11, 13)


def test_where_a_broken_batch_ends_is_believed_only_if_two_facts_agree() -> None:
    compacted = bytearray(in_bytes(Batch((0, 3), tail=1), 10))
    following = in_bytes(Batch((0,)), 15)
    compacted[-1] ^= 1
    # Two records in five offsets, and a wrong checksum.
    assert next_after(bytes(compacted), 0, 10) is None
    assert next_after(bytes(compacted) + following, 0, 10) == 15
    assert next_after(bytes(compacted) + in_bytes(Batch((0,)), 16), 0, 10) is None
    assert next_after(in_bytes(Batch((0, 3), tail=1), 10), 0, 12) == 15
    # It does not hold what is wanted.
    assert next_after(in_bytes(Batch((0, 3), tail=1), 10), 0, 15) is None
    assert next_after(in_bytes(Batch((0, 1, 2)), 10)[:HEADER_BYTES], 0, 10) == 13


# -- names of headers


def with_a_name(name: bytes, codec: int) -> bytes:
    """Three records; the second one's header has a name of three bytes."""
    plain = bytearray(in_bytes(Batch((0, 1, 2)), 10))
    at = plain.index(b"trace")
    plain[at : at + len(name)] = name
    if codec:
        plain[HEADER_BYTES:] = CODECS[codec](bytes(plain[HEADER_BYTES:]))
        struct.pack_into(">i", plain, LENGTH_AT, len(plain) - 12)
        plain[ATTRIBUTES_AT + 1] |= codec
    return with_checksum(plain)


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
@given(st.binary(min_size=5, max_size=5))
@example(b"caf\xe9\xff")
@example(b"trace")
def test_a_name_of_any_bytes_is_read_and_can_be_written_again(codec: int, name: bytes) -> None:
    """Row F12 of the faults: one such record stopped its partition for ever, and any producer can
    send it.
    """
    sound, _ = all_of(reader_of(in_bytes(Batch((0, 1, 2)), 10), 10))
    taken, error = all_of(reader_of(with_a_name(name, codec), 10))
    assert error is None
    assert [one[:4] for one in taken] == [one[:4] for one in sound]
    [(read, value), *others] = taken[1][4]
    assert (read.encode("utf-8", "surrogateescape"), value) == (name, b"1")
    assert others == list(sound[1][4])[1:]


# -- what unpacks large


def a_bomb(codec: int, size: int) -> bytes:
    """A batch of one record with that many zeros."""
    plain = bytearray(in_bytes(Batch((0,)), 0)[:HEADER_BYTES])
    inner = bytes(size)
    record = bytearray(b"\x00\x00\x00\x01") + varint(size) + inner + b"\x00"
    plain += CODECS[codec](bytes(varint(len(record)) + record))
    struct.pack_into(">i", plain, LENGTH_AT, len(plain) - 12)
    plain[ATTRIBUTES_AT + 1] |= codec
    return with_checksum(plain)


def varint(number: int) -> bytearray:
    made, number = bytearray(), number << 1
    while number > 0x7F:
        made.append(0x80 | number & 0x7F)
        number >>= 7
    made.append(number)
    return made


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


def test_a_large_batch_is_work_for_a_thread_and_what_is_behind_it_waits(codec: int) -> None:
    """Row F10 of the faults."""
    reader = reader_of(a_bomb(codec, 2 * SMALL_BYTES) + in_bytes(Batch((0, 1)), 1))
    assert reader.take(5) == []
    work = reader.pending_unpack
    assert work is not None and not reader.is_exhausted
    assert reader.take(5) == []
    assert reader.pending_unpack is work
    reader.finish_unpack(done(work))
    records = reader.take(5)
    assert len(records[0].value or b"") == 2 * SMALL_BYTES
    assert [record.offset for record in records] == [0, 1, 2]


def test_a_batch_above_the_bound_is_refused_with_its_place_and_what_is_behind_it_is_there(
    codec: int,
) -> None:
    """Row F10 of the faults: before it is unpacked, where its header says how much that is."""
    content = a_bomb(codec, MOST + 1) + in_bytes(Batch((0, 1)), 1)
    reader = reader_of(content)
    try:
        assert reader.take(5) == []
        assert reader.pending_unpack is not None
        # These do not say it.
        assert codec in (GZIP, LZ4)
        reader.finish_unpack(done(reader.pending_unpack))
        reader.take(5)
    except CorruptRecordError as error:
        assert (error.offset, error.until) == (0, 1)
        assert "max_unpacked_bytes" in str(error)
    else:
        raise AssertionError("it was not refused")
    behind = content[content.index(in_bytes(Batch((0, 1)), 1)) :]
    assert [record.offset for record in reader_of(behind, 1).take(5)] == [1, 2]


def test_without_memory_for_it_a_batch_is_not_taken_for_a_broken_one() -> None:
    """Or ``on_unreadable = "skip"`` would pass over what can be read a moment later."""
    for error in (MemoryError(), OSError(12, "Cannot allocate memory")):
        reader = reader_of(a_bomb(GZIP, 2 * SMALL_BYTES))
        assert reader.take(5) == []
        failed: Future[memoryview] = Future()
        failed.set_exception(error)
        reader.finish_unpack(failed)  # type: ignore[arg-type]
        with pytest.raises(TransientBrokerError, match="cannot be read now"):
            reader.take(5)


def done(work: Any) -> Any:
    """The future of what a thread does."""
    future: Future[memoryview] = Future()
    try:
        future.set_result(work())
    except ValueError as error:
        future.set_exception(error)
    return future
