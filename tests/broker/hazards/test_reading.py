"""H1, H2, H3 and what else reading can lose."""

from __future__ import annotations

import asyncio
import gzip
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.errors import CorruptRecordError, OffsetOutOfRangeError
from reactive_kafka.events import ReadFailed, RecordIgnored
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, until
from tests.broker.hazards.naive import buffered, consuming, write_batches
from tests.broker.members import PATIENCE_S, Member, fill, joined, producing, texts
from tests.broker.test_kafka import KafkaTestCluster

FINE = [b"fine-0", b"fine-1", b"fine-2"]
BROKEN = [b"broken-0", b"broken-1"]


def garble(piece: bytes) -> bytes:
    """Flip a bit inside a batch: its checksum is wrong from there on."""
    return piece.replace(b"broken-1", b"bRoken-1")


async def fetched(member: Member, *partitions: TopicPartition) -> None:
    """Wait until something of each was fetched, and let polls take it in this order."""
    held = member.consumer._reads.held  # type: ignore[attr-defined]
    await until(lambda: held.keys() >= set(partitions), "all of them are fetched")
    for partition in partitions:
        held.move_to_end(partition)


async def one_of_two_partitions_breaks(rig: Rig) -> tuple[TopicPartition, TopicPartition]:
    topic = await rig.create_topic(2)
    fine, broken = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await write_batches(rig.bootstrap_servers, fine, FINE)
    await write_batches(rig.bootstrap_servers, broken, BROKEN)
    rig.answers.rewrite = garble
    return fine, broken


# -- H1: an exception out of a poll costs the records of partitions that were drained before


async def test_h1_a_corrupt_batch_costs_no_record_of_any_partition(rig: Rig, group: str) -> None:
    fine, broken = await one_of_two_partitions_breaks(rig)
    async with joined(rig, fine.topic, group, starts_by_itself=False) as member:
        budgets = dict.fromkeys(await member.until_assigned(2), 9)
        member.consumer.start_at({fine: 0, broken: 0})
        await fetched(member, fine, broken)
        poll = await member.consumer.poll(budgets, 0)
        assert [(chunk.partition, texts(chunk.records)) for chunk in poll.chunks] == [
            (fine, [x.decode() for x in FINE])
        ]
        error = poll.errors[broken]
        assert isinstance(error, CorruptRecordError)
        assert (error.partition, error.offset) == (broken, 0)
        assert "checksum" in str(error)
        assert member.consumer.positions() == {fine: 3, broken: 0}
        rig.answers.rewrite = None
        assert texts((await take_in_spite_of_errors(member, 2))[broken]) == [
            x.decode() for x in BROKEN
        ]


async def test_h1_the_application_names_the_corrupt_offset_and_works_on_the_rest(
    rig: Rig, group: str
) -> None:
    """Row F7 of the faults."""
    fine, broken = await one_of_two_partitions_breaks(rig)
    async with running(rig.bootstrap_servers, fine.topic, group) as diary:
        await until(lambda: diary.committed().get(0) == 3, "the sound partition is committed")
        await until(lambda: diary.of(ReadFailed), "the corrupt one is told")
        assert diary.of(ReadFailed)[0].offset == 0
        why = f"{broken} cannot be read at offset 0: the checksum is wrong"
        await until(lambda: diary.facts.not_ready == (why,), "it is not ready", within_s=7)
        assert not diary.app.health().ready.is_up
        rig.answers.rewrite = None
        await until(
            lambda: diary.committed() == {0: 3, 1: 2}, "it goes on once the bytes are sound"
        )
        assert sorted(diary.handled) == sorted(FINE + BROKEN)
        await until(lambda: diary.app.health().ready.is_up, "it is ready again")


async def test_an_end_that_the_broker_has_looked_up_before_the_records_is_not_before_their_own(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    partition = TopicPartition(topic, 0)
    await write_batches(rig.bootstrap_servers, partition, FINE)
    # Partition, no error, high watermark.
    ends_at_3, ends_at_1 = (struct.pack(">ihq", 0, 0, end) for end in (3, 1))
    rig.answers.rewrite = lambda piece: piece.replace(ends_at_3, ends_at_1)
    async with joined(rig, topic, group, starts_by_itself=False) as member:
        await member.until_assigned(1)
        member.consumer.start_at({partition: 0})
        await fetched(member, partition)
        (chunk,) = (await member.consumer.poll({partition: 9}, 0)).chunks
        assert rig.answers.rewritten
        assert (texts(chunk.records), chunk.next_offset) == ([x.decode() for x in FINE], 3)
        assert chunk.high_watermark == 3


# -- H2: a deserializer that raises stops its partition for ever


async def test_h2_a_record_that_cannot_be_decoded_is_nacked_and_the_partition_goes_on(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    await write_batches(rig.bootstrap_servers, TopicPartition(topic, 0), [b"1", b"2", b"x", b"4"])
    settings = {"value_deserializer": "json", "failure_strategy": "ignore"}
    async with running(rig.bootstrap_servers, topic, group, settings) as diary:
        await until(lambda: diary.committed() == {0: 4}, "all is committed")
        assert diary.handled == [1, 2, 4]
        [ignored] = diary.of(RecordIgnored)
        assert (ignored.partition, ignored.offset) == (TopicPartition(topic, 0), 2)


# -- H3: a poll that was cancelled, or has raised, ends the watch over polls


async def test_h3_who_stops_polling_leaves_the_group_after_cancelled_polls_and_errors_too(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    partition = TopicPartition(topic, 0)
    rig.properties = {**rig.properties, "max_poll_interval_ms": 400}
    async with joined(rig, topic, group, starts_by_itself=False) as member:
        await member.until_assigned(1)
        member.consumer.start_at({partition: 77})
        poll = await member.poll_until(lambda poll: bool(poll.errors), {partition: 9})
        assert isinstance(poll.errors[partition], OffsetOutOfRangeError)
        waiting = asyncio.ensure_future(member.consumer.poll({}, 5.0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await leaves_unless_polled(lambda: not member.consumer.is_member())


async def leaves_unless_polled(has_left: Callable[[], bool]) -> bool:
    """Whether a client leaves its group by itself while nobody polls: several times the longest
    pause allowed.
    """
    try:
        await until(has_left, "it has left", within_s=1.5)
    except AssertionError:
        return False
    return True


# -- H9: decompression is not bounded, and happens on the loop

UNPACKED_BYTES = 200_000_000


async def write_a_bomb(rig: Rig, partition: TopicPartition) -> None:
    packing = {
        "compression_type": "gzip",
        "max_request_size": 2 * UNPACKED_BYTES,
        "max_batch_size": 2 * UNPACKED_BYTES,
    }
    async with producing(rig, packing) as producer:
        await (
            await producer.send(
                partition.topic, bytes(UNPACKED_BYTES), partition=partition.partition
            )
        )


async def test_h9_naive_batch_of_a_few_kilobytes_blocks_the_loop_and_fills_the_memory(
    rig: Rig,
) -> None:
    partition = TopicPartition(await rig.create_topic(1), 0)
    await write_a_bomb(rig, partition)
    rig.answers.passed_bytes = 0
    async with consuming(rig.bootstrap_servers) as consumer:
        consumer.assign([partition])
        await buffered(consumer, partition)
        assert rig.answers.passed_bytes < UNPACKED_BYTES / 500
        began = time.monotonic()
        [[record]] = (await consumer.getmany()).values()
        assert len(record.value) == UNPACKED_BYTES
        # In which no heartbeat is sent.
        assert time.monotonic() - began > 0.1


async def test_h9_a_bomb_is_unpacked_beside_the_loop_and_work_goes_on(rig: Rig, group: str) -> None:
    """Row F10 of the faults."""
    partition = TopicPartition(await rig.create_topic(1), 0)
    # before: to pack it blocks this loop, too.
    await write_a_bomb(rig, partition)
    await fill(rig, partition.topic, {0: ["after"]})
    pauses = list[float]()
    # On a busy machine a member may be late by itself: that must not end its session.
    long = {"session_timeout_ms": 30_000}
    # Whatever else the machine does may hold up one of them.
    for reader in range(3):
        name = f"{group}-{reader}"
        async with (
            running(rig.bootstrap_servers, partition.topic, name, long) as diary,
            turning() as turns,
        ):
            await until(lambda: diary.committed() == {0: 2}, "both are handled and committed")
            assert diary.facts.rebalances["assigned"] == 1
        assert [len(payload) for payload in diary.handled] == [UNPACKED_BYTES, len("after")]
        pauses.append(max(map(float.__sub__, turns[1:], turns)))
    packed = gzip.compress(bytes(UNPACKED_BYTES), 1)
    began = time.process_time()
    assert len(gzip.decompress(packed)) == UNPACKED_BYTES
    assert min(pauses) < time.process_time() - began


@asynccontextmanager
async def turning() -> AsyncIterator[list[float]]:
    """Notes when the loop had a turn, by the time that this process has computed.

    Time in which other processes have the machine does not count. What is computed in other threads
    does: a thread that does not let the loop run shows as well.
    """
    turns = list[float]()

    async def turn() -> None:
        while True:
            turns.append(time.process_time())
            await asyncio.sleep(0.01)

    task = asyncio.create_task(turn())
    yield turns
    task.cancel()


# -- A batch that does not fit: the client would skip the first offset of it


def cut_short(value: bytes) -> Any:
    """Make the batch that begins with *value* say that it is longer than the answer it came in."""

    def rewrite(piece: bytes) -> bytes:
        # A batch's header, and what stands before the value of a short first record.
        at = piece.find(value) - 67
        if at < 0:
            return piece
        assert piece[at + 16] == 2
        return piece[: at + 8] + struct.pack(">i", 100_000) + piece[at + 12 :]

    return rewrite


async def test_record_too_large_is_told_and_not_skipped(rig: Rig, group: str) -> None:
    topic = await rig.create_topic(1)
    partition = TopicPartition(topic, 0)
    await write_batches(rig.bootstrap_servers, partition, [b"first"], [b"second"])
    rig.answers.rewrite = cut_short(b"first")
    async with joined(rig, topic, group) as member:
        await member.until_assigned(1)
        for _ in range(2):
            poll = await member.poll_until(lambda poll: bool(poll.errors), {partition: 9})
            error = poll.errors[partition]
            assert isinstance(error, CorruptRecordError)
            assert (error.partition, error.offset) == (partition, 0)
            assert poll.chunks == []
            assert member.consumer.positions() == {partition: 0}
        rig.answers.rewrite = None
        taken = await take_in_spite_of_errors(member, 2)
        assert texts(taken[partition]) == ["first", "second"]


@pytest.mark.kafka
async def test_record_too_large_does_not_happen_with_a_record_larger_than_a_fetch(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row F9 of the faults."""
    topic = await cluster.create_topic(1)
    await fill(cluster, topic, {0: ["before", "x" * 300_000, "after"]})
    small = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000}
    cluster.properties = {**cluster.properties, **small}
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(1)
        taken = (await member.take(3))[TopicPartition(topic, 0)]
    assert [len(record.value or b"") for record in taken] == [6, 300_000, 5]


async def take_in_spite_of_errors(member: Member, count: int) -> dict[TopicPartition, list[Any]]:
    taken: dict[TopicPartition, list[Any]] = {}
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(len, taken.values())) < count:
            for chunk in (await member.consumer.poll(dict.fromkeys(member.owned, 9), 0.2)).chunks:
                taken.setdefault(chunk.partition, []).extend(chunk.records)
    return taken
