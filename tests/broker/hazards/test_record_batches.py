"""The fast way in gives what the client's own gives, record by record: on any bytes of a log, and
on a real one.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiokafka
import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.fetched.batch_reader import BatchReader
from reactive_kafka.broker.aiokafka.fetched.unpacking import Unpacker
from reactive_kafka.broker.consumer.fetching.aborted_transactions import AbortedTransactions
from reactive_kafka.errors import CorruptRecordError
from reactive_kafka.records import RawRecord, size_of
from tests.broker.hazards.naive import consuming
from tests.broker.members import PATIENCE_S, fill, joined
from tests.broker.test_kafka import KafkaTestCluster

PARTITION = TopicPartition("orders", 0)
CODECS = {0: None, 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, HEADER_BYTES = 17, 21, 23, 61
CODEC_MASK, CONTROL = 0x07, 0x20
ABORT, COMMIT = 0, 1
NOBODY = -1

Seen = tuple[int, bytes | None, bytes | None, int | None, tuple[tuple[str, bytes | None], ...]]


def seen(record: RawRecord) -> Seen:
    headers = tuple((name, value) for name, value in record.headers)
    return record.offset, record.key, record.value, record.timestamp, headers


# -- pieces of a log


@dataclass(frozen=True)
class Batch:
    """One record batch, as the broker may hold it.

    Attributes:
        deltas: Where the records stand behind the batch's base offset; what compaction took is not
            there.
        tail: Offsets behind the last record that compaction took.
        producer: Of a transaction, or nobody.
        ends: A marker instead of records: COMMIT or ABORT.
    """

    deltas: tuple[int, ...] = (0,)
    tail: int = 0
    # Offsets missing before the batch.
    gap: int = 0
    codec: int = 0
    producer: int = NOBODY
    ends: int | None = None


def in_bytes(batch: Batch, base: int) -> bytes:
    is_transactional = batch.producer != NOBODY
    builder = DefaultRecordBatchBuilder(
        2, batch.codec, is_transactional, batch.producer, 0, 0, 1 << 20
    )
    if batch.ends is not None:
        builder.append(0, 7, struct.pack(">hh", 0, batch.ends), struct.pack(">hi", 0, 0), [])
    for delta in batch.deltas if batch.ends is None else ():
        offset = base + delta
        key = None if offset % 3 == 0 else f"key-{offset}".encode()
        value = None if offset % 5 == 1 else f"value-{offset}".encode() * 9
        headers = [("trace", b"1"), ("trace", None), ("", b"")] if offset % 2 else []
        builder.append(delta, 1_700_000_000_000 + offset, key, value, headers)
    made = bytearray(builder.build())
    # All of its records are gone, only the header was kept.
    if batch.ends is None and not batch.deltas:
        made = made[:HEADER_BYTES]
        struct.pack_into(">i", made, 8, HEADER_BYTES - 12)
        made[ATTRIBUTES_AT + 1] &= ~CODEC_MASK
    struct.pack_into(">q", made, 0, base)
    if batch.ends is not None:
        made[ATTRIBUTES_AT + 1] |= CONTROL
    struct.pack_into(">i", made, LAST_DELTA_AT, length_of(batch) - 1)
    struct.pack_into(">I", made, CRC_AT, calc_crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return bytes(made)


def length_of(batch: Batch) -> int:
    """How many offsets the batch takes."""
    if batch.ends is not None:
        return 1
    return max(1, (batch.deltas[-1] + 1 if batch.deltas else 0) + batch.tail)


@dataclass(frozen=True)
class Piece:
    """What a fetch brought: bytes, the transactions in it that were aborted, and where its batches
    begin.
    """

    content: bytes
    aborted: tuple[tuple[int, int], ...]
    bases: tuple[int, ...]
    # In bytes.
    starts: tuple[int, ...]
    end: int

    def read_by(self, isolation: int, start: int) -> PartitionRecords:
        """The client's own reader of it."""
        records = MemoryRecords(self.content)
        theirs = aiokafka.TopicPartition(*PARTITION)
        return PartitionRecords(
            theirs, records, list(self.aborted), start, None, None, True, isolation
        )


def piece_of(batches: Sequence[Batch]) -> Piece:
    content, bases, starts, base = b"", [], [], 0
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for batch in batches:
        base += batch.gap
        bases.append(base)
        starts.append(len(content))
        if batch.ends is not None:
            first = open_since.pop(batch.producer, None)
            if batch.ends == ABORT and first is not None:
                aborted.append((batch.producer, first))
        elif batch.producer != NOBODY:
            open_since.setdefault(batch.producer, base)
        content += in_bytes(batch, base)
        base += length_of(batch)
    return Piece(content, tuple(aborted), tuple(bases), tuple(starts), base)


deltas = st.lists(st.integers(1, 3), max_size=6).map(
    lambda steps: tuple(sum(steps[: n + 1]) - 1 for n in range(len(steps)))
)
plain = st.builds(
    Batch, deltas, st.integers(0, 2), st.integers(0, 2), st.sampled_from(sorted(CODECS))
)
of_a_transaction = plain.flatmap(
    lambda batch: st.sampled_from([1, 2]).map(lambda pid: replace(batch, producer=pid))
)
marker = st.builds(
    lambda pid, ends: Batch(producer=pid, ends=ends),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1]),
)
pieces = st.lists(st.one_of(plain, of_a_transaction, marker), min_size=1, max_size=8).map(piece_of)
isolations = st.sampled_from([READ_COMMITTED, READ_UNCOMMITTED])
budgets = st.lists(st.integers(1, 7), min_size=1, max_size=30)

TRANSACTIONS = piece_of(
    [
        Batch((0, 1), producer=1),
        Batch((0,), producer=2, codec=3),
        Batch(producer=1, ends=ABORT),
        Batch((0, 2), tail=1, codec=1),
        Batch(producer=2, ends=COMMIT),
        Batch((), tail=3),
        Batch((0,), producer=1),
        Batch(producer=1, ends=COMMIT),
    ]
)


def reader_of(piece: Piece, isolation: int, start: int) -> BatchReader:
    aborted = AbortedTransactions(piece.aborted) if isolation == READ_COMMITTED else None
    return BatchReader(PARTITION, start, piece.content, Unpacker(1 << 20), aborted)


def first_offset(piece: Piece, data: st.DataObject | None) -> int:
    """Where reading begins: anywhere in the first batch."""
    second = piece.bases[1] if len(piece.bases) > 1 else piece.end
    return piece.bases[0] if data is None else data.draw(st.integers(piece.bases[0], second - 1))


@given(st.data(), pieces, isolations, budgets)
@example(None, TRANSACTIONS, READ_COMMITTED, [1])
@example(None, TRANSACTIONS, READ_UNCOMMITTED, [2])
def test_whatever_is_in_a_log_both_ways_give_the_same_records_and_the_same_position(
    data: st.DataObject | None, piece: Piece, isolation: int, budgets: list[int]
) -> None:
    start = first_offset(piece, data)
    theirs = piece.read_by(isolation, start)
    expected = [seen(record) for record in theirs]
    reader = reader_of(piece, isolation, start)
    taken: list[Seen] = []
    for turn in range(10_000):
        budget = budgets[turn % len(budgets)]
        records = reader.take(budget)
        assert len(records) <= budget
        taken += [seen(record) for record in records]
        assert reader.next_offset > (records[-1].offset if records else -1)
        if reader.is_exhausted:
            break
        assert len(records) == budget
    assert taken == expected
    assert reader.next_offset == theirs.next_fetch_offset == piece.end


@given(st.data(), pieces, isolations, st.integers(1, 7))
def test_a_garbled_batch_is_an_error_at_its_offset_after_all_records_before_it(
    data: st.DataObject, piece: Piece, isolation: int, budget: int
) -> None:
    """Row F7 of the faults."""
    broken = data.draw(st.integers(0, len(piece.bases) - 1))
    at = piece.starts[broken] + data.draw(st.integers(ATTRIBUTES_AT, HEADER_BYTES - 1))
    content = bytearray(piece.content)
    content[at] ^= data.draw(st.integers(1, 255))
    garbled = replace(piece, content=bytes(content))
    theirs = garbled.read_by(isolation, piece.bases[0])
    expected: list[Seen] = []
    with pytest.raises(CorruptRecordException):
        for record in theirs:
            expected.append(seen(record))
    reader = reader_of(garbled, isolation, piece.bases[0])
    taken: list[Seen] = []
    with pytest.raises(CorruptRecordError) as caught:
        while True:
            taken += [seen(record) for record in reader.take(budget)]
            assert not reader.is_exhausted
    assert taken == expected
    assert reader.is_exhausted
    assert caught.value.offset == reader.next_offset <= piece.bases[broken]
    assert not [offset for offset, *_ in taken if offset >= piece.bases[broken]]


@given(st.data(), pieces, isolations, st.lists(st.integers(1, 200), min_size=1, max_size=30))
def test_records_taken_by_bytes_are_the_same_and_only_the_last_one_reaches_the_bound(
    data: st.DataObject, piece: Piece, isolation: int, most_bytes: list[int]
) -> None:
    broken = data.draw(st.none() | st.integers(0, len(piece.bases) - 1))
    if broken is not None:
        content = bytearray(piece.content)
        content[piece.starts[broken] + ATTRIBUTES_AT] ^= 1
        piece = replace(piece, content=bytes(content))
    whole = reader_of(piece, isolation, piece.bases[0])
    expected: list[Seen] = []
    error = None
    try:
        while not whole.is_exhausted:
            expected += [seen(record) for record in whole.take(3)]
    except CorruptRecordError as raised:
        error = raised
    reader = reader_of(piece, isolation, piece.bases[0])
    taken: list[Seen] = []
    for turn in range(10_000):
        most = most_bytes[turn % len(most_bytes)]
        try:
            records = reader.take_bytes(5, most)
        except CorruptRecordError as raised:
            assert error is not None
            assert (raised.offset, str(raised)) == (error.offset, str(error))
            break
        taken += [seen(record) for record in records]
        assert len(records) <= 5
        assert sum(map(size_of, records[:-1])) < most
        if reader.is_exhausted:
            assert error is None
            break
        assert records
    assert taken == expected
    assert reader.next_offset == whole.next_offset


@given(st.data(), pieces, isolations)
def test_a_batch_cut_off_at_the_end_of_an_answer_is_left_for_the_next_one(
    data: st.DataObject, piece: Piece, isolation: int
) -> None:
    kept = data.draw(st.integers(1, len(piece.content)))
    cut = replace(piece, content=piece.content[:kept])
    theirs = cut.read_by(isolation, 0)
    expected = [seen(record) for record in theirs]
    reader = reader_of(cut, isolation, 0)
    assert [seen(record) for record in reader.take(1000)] == expected
    assert reader.next_offset == theirs.next_fetch_offset


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_a_control_batch_whose_marker_compaction_has_removed_is_passed_over(isolation: int) -> None:
    """The log cleaner keeps the last batch of a producer without its records. The client's own
    reader fails at it, and Java's does not.
    """
    emptied = bytearray(in_bytes(Batch((), producer=1), 4))
    emptied[ATTRIBUTES_AT + 1] |= CONTROL
    struct.pack_into(">I", emptied, CRC_AT, calc_crc32c(memoryview(emptied)[ATTRIBUTES_AT:]))
    content = bytes(emptied) + in_bytes(Batch((0, 1)), 5)
    reader = reader_of(Piece(content, ((1, 2),), (4, 5), (0, HEADER_BYTES), 7), isolation, 4)
    assert [record.offset for record in reader.take(10)] == [5, 6]


def test_without_its_codec_a_batch_is_an_error_that_names_the_extra() -> None:
    content = bytearray(in_bytes(Batch((0, 1)), 0))
    # A codec that nobody has.
    content[ATTRIBUTES_AT + 1] |= 5
    struct.pack_into(">I", content, CRC_AT, calc_crc32c(memoryview(content)[ATTRIBUTES_AT:]))
    reader = reader_of(Piece(bytes(content), (), (0,), (0,), 2), READ_UNCOMMITTED, 0)
    with pytest.raises(CorruptRecordError, match=r"pip install '\.\[compression\]'"):
        reader.take(1)


# -- a real log


async def write_a_bit_of_everything(cluster: KafkaTestCluster) -> TopicPartition:
    """Every codec, transactions of both outcomes, headers, nulls, markers in the middle and at the
    end.
    """
    partition = TopicPartition(await cluster.create_topic(1), 0)
    for codec in CODECS.values():
        await in_one_batch(cluster, partition, codec=codec)
    for outcome in ("commit", "abort", "commit", "abort"):
        await in_one_batch(
            cluster, partition, outcome=outcome, codec="gzip" if outcome == "abort" else None
        )
        if outcome == "commit":
            await fill(cluster, partition.topic, {0: ["between"]})
    return partition


async def in_one_batch(
    cluster: KafkaTestCluster,
    partition: TopicPartition,
    *,
    codec: str | None,
    outcome: str | None = None,
) -> None:
    given: dict[str, Any] = {"linger_ms": 20, "compression_type": codec}
    if outcome is not None:
        given["transactional_id"] = f"tx-{partition.topic}"
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **given
    ) as producer:
        if outcome is not None:
            await producer.begin_transaction()
        sent = [
            await producer.send(
                partition.topic,
                None if number == 3 else f"{codec}-{outcome}-{number}".encode() * 20,
                key=None if number % 3 == 1 else str(number).encode(),
                headers=[("a", b"1"), ("a", b"2"), ("empty", b"")] if number % 2 else [],
                partition=0,
                timestamp_ms=int(time.time() * 1000) + number,
            )
            for number in range(11)
        ]
        await asyncio.gather(*sent)
        if outcome == "commit":
            await producer.commit_transaction()
        elif outcome == "abort":
            await producer.abort_transaction()


@pytest.fixture
async def log(cluster: KafkaTestCluster) -> TopicPartition:
    partition = await write_a_bit_of_everything(cluster)
    await until_transactions_ended(cluster, partition)
    return partition


async def until_transactions_ended(cluster: KafkaTestCluster, partition: TopicPartition) -> None:
    """The coordinator confirms the end of a transaction before its marker is in the log."""
    theirs = aiokafka.TopicPartition(*partition)
    servers = cluster.bootstrap_servers
    async with (
        consuming(servers, isolation_level="read_committed") as stable,
        consuming(servers) as every,
        asyncio.timeout(PATIENCE_S),
    ):
        while await stable.end_offsets([theirs]) != await every.end_offsets([theirs]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


ISOLATIONS = pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])


async def all_that_the_client_reads(
    cluster: KafkaTestCluster, partition: TopicPartition, isolation: str
) -> tuple[list[Seen], int]:
    """What getmany gives, and the position when nothing more comes."""
    theirs = aiokafka.TopicPartition(*partition)
    read: list[Seen] = []
    async with consuming(cluster.bootstrap_servers, isolation_level=isolation) as consumer:
        consumer.assign([theirs])
        [end] = (await consumer.end_offsets([theirs])).values()
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.position(theirs) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    read += [seen(record) for record in records]
    return read, end


@pytest.mark.kafka
@ISOLATIONS
async def test_on_a_real_log_a_poll_gives_what_getmany_gives(
    cluster: KafkaTestCluster, group: str, log: TopicPartition, isolation: str
) -> None:
    """Rows F1, F2 of the faults."""
    expected, end = await all_that_the_client_reads(cluster, log, isolation)
    assert len(expected) == (5 + 2) * 11 + 2 + (0 if isolation == "read_committed" else 2 * 11)
    assert end == expected[-1][0] + (1 + 11 + 1 if isolation == "read_committed" else 1 + 1)
    for budget in (1, 3, 1000):
        cluster.properties = {**cluster.properties, "isolation_level": isolation}
        async with joined(cluster, log.topic, f"{group}-{budget}") as member:
            await member.until_assigned(1)
            taken: list[Seen] = []
            position = 0
            async with asyncio.timeout(PATIENCE_S):
                while position < end:
                    poll = await member.consumer.poll({log: budget}, 0.2)
                    assert not poll.errors
                    for chunk in poll.chunks:
                        assert len(chunk.records) <= budget
                        assert chunk.next_offset > position
                        assert all(
                            position <= record.offset < chunk.next_offset
                            for record in chunk.records
                        )
                        assert chunk.high_watermark == end
                        taken += [seen(record) for record in chunk.records]
                        position = chunk.next_offset
            assert member.consumer.positions() == {log: end}
        assert taken == expected
