"""Batches of a real log that cannot be read, are very large, or unpack to very much."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import CorruptRecordException

from reactive_kafka import Message, TopicPartition
from reactive_kafka.broker.aiokafka.fetched.unpacking import NAMES
from reactive_kafka.events import ReadFailed, RecordDeadLettered, UnreadableSkipped
from reactive_kafka.records import RecordBytes
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import until
from tests.broker.hazards.naive import consuming, write_batches
from tests.broker.hazards.test_unreadable_batches import a_bomb, with_a_name
from tests.broker.members import joined, producing
from tests.broker.test_kafka import KafkaTestCluster
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

LARGEST = 110_000_000
LENGTH_AT, MAGIC_AT, CRC_AT, LAST_DELTA_AT, COUNT_AT, VALUES_AT = 8, 16, 17, 23, 57, 75
# Batches of a log, records of each, and which batch breaks.
BATCHES, RECORDS, BROKEN = 6, 3, 2
FIRST, UNTIL, END = BROKEN * RECORDS, (BROKEN + 1) * RECORDS, BATCHES * RECORDS


@pytest.fixture(scope="module")
def own() -> Iterator[KafkaCluster]:
    """A node of our own, which is ended, and takes large batches."""
    limits = {"message.max.bytes": str(LARGEST), "replica.fetch.max.bytes": str(LARGEST)}
    with KafkaCluster(properties=limits) as kafka:
        yield kafka


async def write_raw(bootstrap_servers: str, partition: TopicPartition, content: bytes) -> None:
    """Append the bytes of a batch as they are; the broker refuses only what it looks at."""
    given = {"bootstrap_servers": bootstrap_servers, "max_request_size": LARGEST}
    async with aiokafka.AIOKafkaProducer(**given) as producer:
        batch = producer.create_batch()
        batch.close()
        # The broker gives it its offset.
        batch._buffer = bytearray(bytes(8) + content[8:])
        batch._relative_offset = 1
        await (await producer.send_batch(batch, partition.topic, partition=partition.partition))


# -- F8: bytes flipped on disk


def values(batches: Sequence[int]) -> list[bytes]:
    return [b"%d-%d" % (batch, number) for batch in batches for number in range(RECORDS)]


async def write_log(own: KafkaCluster, topic: str) -> None:
    """Two partitions, each with all batches."""
    own.create_topic(topic, 2)
    for number in (0, 1):
        batches = [values([batch]) for batch in range(BATCHES)]
        await write_batches(own.bootstrap_servers, TopicPartition(topic, number), *batches)


def flip(own: KafkaCluster, topic: str, at: int, by: bytes) -> None:
    """Change bytes of the batch that breaks, in the file of the first partition."""
    [log] = own.directory.rglob(f"{topic}-0/*.log")
    content, start = Path(log).read_bytes(), 0
    for _ in range(BROKEN):
        start += 12 + struct.unpack_from(">i", content, start + LENGTH_AT)[0]
    there = content[start + at : start + at + len(by)]
    with log.open("r+b") as file:
        file.seek(start + at)
        file.write(bytes(a ^ b for a, b in zip(there, by, strict=True)))


FLIPS = {
    "value": (VALUES_AT, b"\x01"),
    "checksum": (CRC_AT, b"\x10"),
    "magic": (MAGIC_AT, b"\x07"),
    "last-delta": (LAST_DELTA_AT + 3, b"\x40"),
    "count": (COUNT_AT + 3, b"\x01"),
}


async def test_bytes_flipped_on_disk_cost_their_batch_and_nothing_else(own: KafkaCluster) -> None:
    """Row F8 of the faults. The node is down meanwhile, and does not notice: it checks nothing that
    it hands out.
    """
    for kind in FLIPS:
        await write_log(own, f"flip-{kind}")
    own.terminate()
    for kind, (at, by) in FLIPS.items():
        flip(own, f"flip-{kind}", at, by)
    own.start_node(1)
    partition = aiokafka.TopicPartition("flip-value", 0)
    async with consuming(own.bootstrap_servers) as naive:
        naive.assign([partition])
        naive.seek(partition, FIRST)
        with pytest.raises(CorruptRecordException):
            await naive.getone()
    for kind in FLIPS:
        topic = f"flip-{kind}"
        settings = {"on_unreadable": "skip"}
        async with running(own.bootstrap_servers, topic, f"skip-{kind}", settings) as diary:
            await until(
                lambda: diary.committed() == {0: END, 1: END}, f"{kind}: the position passes it"
            )
            assert diary.facts.unreadable == {"skip": RECORDS}
        [told] = diary.of(UnreadableSkipped)
        assert (told.partition, told.offset, told.until) == (TopicPartition(topic, 0), FIRST, UNTIL)
        everything, lost = values(range(BATCHES)), values([BROKEN])
        assert sorted(diary.handled) == sorted(
            [*everything, *(one for one in everything if one not in lost)]
        )


async def test_it_waits_for_sound_bytes_and_goes_on_with_them(own: KafkaCluster) -> None:
    """Row F8 of the faults."""
    await write_log(own, "heals")
    flip(own, "heals", *FLIPS["value"])
    async with running(own.bootstrap_servers, "heals", "wait") as diary:
        await until(
            lambda: diary.committed() == {0: FIRST, 1: END},
            "all before it, and all of the other partition",
        )
        await until(lambda: not diary.app.health().ready.is_up, "it is not ready")
        assert diary.facts.not_ready == (
            "heals-0 cannot be read at offset 6: the checksum is wrong",
        )
        assert len(diary.of(ReadFailed)) <= 5
        flip(own, "heals", *FLIPS["value"])
        await until(lambda: diary.committed() == {0: END, 1: END}, "it goes on")
        assert sorted(diary.handled) == sorted(2 * values(range(BATCHES)))
        assert diary.app.health().ready.is_up


async def test_it_fails_the_channel_if_it_is_to(own: KafkaCluster) -> None:
    """Row F8 of the faults."""
    await write_log(own, "fails")
    flip(own, "fails", *FLIPS["checksum"])
    async with running(own.bootstrap_servers, "fails", "fail", {"on_unreadable": "fail"}) as diary:
        await until(lambda: diary.facts.state == "failed", "the channel fails")
        assert diary.facts.reason == "fails-0 cannot be read at offset 6: the checksum is wrong"


async def test_what_the_broker_itself_cannot_find_is_no_endless_question(own: KafkaCluster) -> None:
    """Row F8 of the faults: with such a length it hands out nothing behind it, and would not even
    start.
    """
    await write_log(own, "lengths")
    flip(own, "lengths", LENGTH_AT, b"\x80")
    async with running(own.bootstrap_servers, "lengths", "lengths-wait") as diary:
        await until(lambda: len(diary.of(ReadFailed)) == 3, "it is tried again")
        assert diary.committed() == {0: FIRST, 1: END}
        reasons = [one.reason for one in diary.of(ReadFailed)]
        assert reasons[0] == "a batch of -2147483569 bytes at offset 6 cannot be"
        assert reasons[2] == "the broker finds it corrupt"
    async with running(
        own.bootstrap_servers, "lengths", "lengths-skip", {"on_unreadable": "skip"}
    ) as diary:
        await until(lambda: diary.committed() == {0: END, 1: END}, "the position passes it")
        assert [(one.offset, one.until) for one in diary.of(UnreadableSkipped)] == [
            (FIRST, UNTIL),
            (UNTIL, END),
        ]
        await write_batches(own.bootstrap_servers, TopicPartition("lengths", 0), [b"later"])
        await until(
            lambda: diary.facts.unreadable == {"skip": END + 1 - FIRST}, "it is behind it, too"
        )
    # Or the node would not start again.
    flip(own, "lengths", LENGTH_AT, b"\x80")


# -- F9, F10: what is large


async def test_a_record_of_100_mb_is_delivered(own: KafkaCluster) -> None:
    """Row F9 of the faults: far larger than a fetch, with limits that allow it."""
    own.create_topic("large", 1)
    await write_batches(own.bootstrap_servers, TopicPartition("large", 0), [b"before"])
    sizes: list[int] = []

    async def keep(message: Message[bytes]) -> None:
        sizes.append(len(message.payload))

    given = {"max_request_size": LARGEST, "max_batch_size": LARGEST}
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=own.bootstrap_servers, **given
    ) as producer:
        await producer.send_and_wait("large", bytes(100_000_000), partition=0)
    await write_batches(own.bootstrap_servers, TopicPartition("large", 0), [b"after"])
    async with running(own.bootstrap_servers, "large", "large", handler=keep) as diary:
        await until(lambda: diary.committed() == {0: 3}, "all of them are handled")
        assert sizes == [6, 100_000_000, 5]
        assert not diary.of(ReadFailed)


@pytest.mark.parametrize("codec", NAMES, ids=NAMES.values())
async def test_a_bomb_is_refused_above_the_bound_and_delivered_below(
    own: KafkaCluster, codec: int
) -> None:
    """Row F10 of the faults."""
    topic, size = f"bomb-{NAMES[codec]}", 64 << 20
    own.create_topic(topic, 1)
    partition, bomb = TopicPartition(topic, 0), a_bomb(codec, size)
    assert len(bomb) < size / 20
    await write_batches(own.bootstrap_servers, partition, [b"before"])
    await write_raw(own.bootstrap_servers, partition, bomb)
    await write_batches(own.bootstrap_servers, partition, [b"after"])
    settings: dict[str, Any] = {"on_unreadable": "skip", "max_unpacked_bytes": "32MiB"}
    async with running(own.bootstrap_servers, topic, f"{topic}-skip", settings) as diary:
        await until(lambda: diary.committed() == {0: 3}, "the position passes it")
        assert diary.handled == [b"before", b"after"]
        [told] = diary.of(UnreadableSkipped)
        assert (told.offset, told.until) == (1, 2)
        assert "33,554,432 bytes (max_unpacked_bytes)" in told.reason
        assert diary.facts.rebalances["assigned"] == 1
    async with running(own.bootstrap_servers, topic, f"{topic}-read") as diary:
        await until(lambda: diary.committed() == {0: 3}, "all of them are handled")
        assert [len(one) for one in diary.handled] == [6, size, 5]


# -- F12: names of headers


async def test_a_name_that_is_no_utf_8_is_handled_and_its_dead_letter_has_the_same_bytes(
    cluster: KafkaTestCluster,
) -> None:
    """Row F12 of the faults: a single such record stopped its partition for ever."""
    topic = await cluster.create_topic(1)
    letters = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    await write_raw(cluster.bootstrap_servers, partition, with_a_name(b"caf\xe9\xff", 0))
    await write_raw(cluster.bootstrap_servers, partition, with_a_name(b"caf\xe9\xff", 1))
    naive_partition = aiokafka.TopicPartition(topic, 0)
    async with consuming(cluster.bootstrap_servers) as naive:
        naive.assign([naive_partition])
        with pytest.raises(UnicodeDecodeError):
            while True:
                await naive.getone()
    names: list[str] = []

    async def refuse(message: Message[bytes | None]) -> None:
        names.extend(name for name, _ in message.headers)
        raise LookupError(f"nobody knows {message.headers[0][0] if message.headers else None}")

    settings = {"failure_strategy": "dead-letter-queue", "dead_letter_queue": {"topic": letters}}
    async with running(
        cluster.bootstrap_servers, topic, f"group-{topic}", settings, refuse
    ) as diary:
        await until(lambda: diary.committed() == {0: 6}, "all of them are dead letters")
        assert len(diary.of(RecordDeadLettered)) == 6
    odd = "caf\udce9\udcff"
    assert names.count(odd) == 2
    async with joined(cluster, letters, f"letters-{topic}") as member:
        await member.until_assigned(1)
        taken = (await member.take(6))[TopicPartition(letters, 0)]
    assert sum(name == odd for one in taken for name, _ in one.headers) == 2
    # A batch that begins with another record.
    async with producing(cluster) as producer:
        records = [RecordBytes(b"1"), RecordBytes(b"2", None, [(odd, b"x")])]
        assert (await producer.write(partition, records)).count == 1
