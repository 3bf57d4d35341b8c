"""What every producer must do with batches: one suite, run on the in-memory broker, the embedded
one and Kafka.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Producer
from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.records import RawRecord, RecordBytes
from tests.broker.members import Cluster, inspecting, joined, producing, texts

SMALL = RecordBytes(b"small")
PROMPTLY_S = 2.0


async def stored_in(
    cluster: Cluster, topic: str, partitions: int, count: int
) -> dict[int, list[RawRecord]]:
    """partition -> what stands there, of a topic that has so many records."""
    named = [TopicPartition(topic, number) for number in range(partitions)]
    async with inspecting(cluster) as inspector:
        assert sum((await inspector.end_offsets(named)).values()) == count
    async with joined(cluster, topic, f"group-of-{topic}") as member:
        await member.until_assigned(partitions)
        return {at.partition: records for at, records in (await member.take(count)).items()}


def numbered(numbers: Sequence[int], size: int = 0) -> list[RecordBytes]:
    return [RecordBytes(str(number).encode().ljust(size, b".")) for number in numbers]


async def write_all(
    producer: Producer, to: TopicPartition, records: Sequence[RecordBytes]
) -> list[int]:
    """Write one batch after the other until all are written; how many each has taken."""
    counts = list[int]()
    while (done := sum(counts)) < len(records):
        offset, count = await producer.write(to, records[done:])
        assert offset == done
        assert count >= 1
        counts.append(count)
    return counts


class WritingContract:
    """One producer writes batches."""

    async def test_a_batch_is_stored_in_its_order_with_all_fields(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(1)
        headers = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)]
        batch = [
            RecordBytes(b"value", b"key", headers, 1_700_000_000_123),
            RecordBytes(b"earlier", None, (), 1_600_000_000_000),
            RecordBytes(None, b"tombstone"),
            RecordBytes(None, None),
            RecordBytes(None, None, [("name", b"x")]),
            RecordBytes(b"", b""),
        ]
        async with producing(cluster) as producer:
            assert await producer.write(TopicPartition(topic, 0), batch) == (0, 6)
        [records] = (await stored_in(cluster, topic, 1, 6)).values()
        assert [(one.value, one.key) for one in records] == [(one.value, one.key) for one in batch]
        assert [[tuple(pair) for pair in one.headers] for one in records] == [
            list(one.headers) for one in batch
        ]
        assert [one.timestamp for one in records[:2]] == [1_700_000_000_123, 1_600_000_000_000]
        assert all((one.timestamp or 0) > 1_750_000_000_000 for one in records[2:])

    async def test_batches_one_after_the_other_keep_their_order_and_tell_their_offsets(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(2)
        to = TopicPartition(topic, 1)
        async with producing(cluster) as producer:
            sizes = [3, 1, 5, 2]
            begins = [sum(sizes[:at]) for at in range(4)]
            for size, begin in zip(sizes, begins, strict=True):
                assert await producer.write(to, numbered(range(begin, begin + size))) == (
                    begin,
                    size,
                )
            assert (await (await producer.send(topic, b"11", partition=1))).offset == 11
            assert await producer.write(to, numbered([12])) == (12, 1)
        assert texts((await stored_in(cluster, topic, 2, 13))[1]) == [
            str(number) for number in range(13)
        ]

    async def test_of_more_than_a_batch_holds_the_first_are_written_and_counted(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        records = numbered(range(40), 100)
        async with producing(cluster, {"max_batch_size": 2000}) as producer:
            counts = await write_all(producer, TopicPartition(topic, 0), records)
        assert all(5 <= count < 20 for count in counts[:-1])
        [stored] = (await stored_in(cluster, topic, 1, 40)).values()
        assert [one.value for one in stored] == [one.value for one in records]

    async def test_a_batch_of_more_than_one_hundred_thousand_bytes_is_one(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        async with producing(cluster) as producer:
            assert await write_all(
                producer, TopicPartition(topic, 0), numbered(range(1000), 100)
            ) == [1000]

    async def test_a_record_larger_than_a_batch_goes_alone(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(1)
        records = [SMALL, RecordBytes(b"x" * 5000), SMALL, SMALL]
        async with producing(cluster, {"max_batch_size": 1000}) as producer:
            assert await write_all(producer, TopicPartition(topic, 0), records) == [1, 1, 2]

    async def test_a_record_that_is_too_large_is_refused_alone_and_the_others_are_written(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        to, large = TopicPartition(topic, 0), RecordBytes(b"x" * 3000)
        async with producing(cluster, {"max_request_size": 2000}) as producer:
            assert await producer.write(to, [SMALL, large, SMALL]) == (0, 1)
            with pytest.raises(RejectedRecordError, match="2000"):
                await producer.write(to, [large, SMALL])
            assert await producer.write(to, [SMALL]) == (1, 1)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"value": "text"},
            {"value": 5},
            {"key": "text"},
            {"headers": [("name", "text")]},
            {"headers": [("name", 5)]},
            {"headers": [(b"name", b"bytes")]},
            {"headers": [("name",)]},
            {"headers": [("lone \ud800", b"bytes")]},
            {"timestamp_ms": "5"},
            {"timestamp_ms": 2**70},
        ],
        ids=lambda wrong: "-".join(f"{name}={value!r}" for name, value in wrong.items()),
    )
    async def test_what_kafka_does_not_take_ends_the_batch_before_it_and_is_refused_by_itself(
        self, cluster: Cluster, wrong: dict[str, Any]
    ) -> None:
        topic = await cluster.create_topic(1)
        to, odd = TopicPartition(topic, 0), SMALL._replace(**wrong)
        async with producing(cluster) as producer:
            assert await producer.write(to, [SMALL, SMALL, odd, SMALL]) == (0, 2)
            with pytest.raises(RejectedRecordError, match=topic):
                await producer.write(to, [odd, SMALL])
            assert await producer.write(to, [SMALL]) == (2, 1)

    @pytest.mark.parametrize(
        ("name", "partition"), [("bad name!", 0), ("", 0), (None, 7), (None, -1)]
    )
    async def test_where_nothing_can_be_written_is_refused_at_once(
        self, cluster: Cluster, name: str | None, partition: int
    ) -> None:
        topic = await cluster.create_topic(1)
        async with producing(cluster) as producer, asyncio.timeout(PROMPTLY_S):
            with pytest.raises(RejectedRecordError):
                await producer.write(
                    TopicPartition(topic if name is None else name, partition), [SMALL]
                )
            if name is not None:
                with pytest.raises(RejectedRecordError, match="no topic can be called so"):
                    await producer.partitions(name)

    async def test_partitions_are_written_to_at_the_same_time(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(4)
        async with producing(cluster) as producer:
            writes = [
                write_all(producer, TopicPartition(topic, at), numbered(range(50)))
                for at in range(4)
            ]
            assert await asyncio.gather(*writes) == [[50]] * 4
        stored = await stored_in(cluster, topic, 4, 200)
        in_order = [str(number) for number in range(50)]
        assert [texts(stored[at]) for at in range(4)] == [in_order] * 4

    async def test_writes_to_one_partition_at_the_same_time_are_all_stored_each_in_its_order(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        async with producing(cluster) as producer:
            batches = [numbered(range(10 * at, 10 * at + 10)) for at in range(8)]
            written = await asyncio.gather(
                *(producer.write(TopicPartition(topic, 0), one) for one in batches)
            )
        assert sorted(written) == [(10 * at, 10) for at in range(8)]
        [stored] = (await stored_in(cluster, topic, 1, 80)).values()
        for batch, (offset, count) in zip(batches, written, strict=True):
            assert [one.value for one in stored[offset : offset + count]] == [
                one.value for one in batch
            ]

    async def test_a_batch_does_not_linger(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(1)
        async with (
            producing(cluster, {"linger_ms": 60_000}) as producer,
            asyncio.timeout(PROMPTLY_S),
        ):
            assert await producer.write(TopicPartition(topic, 0), [SMALL]) == (0, 1)

    async def test_a_cancelled_write_leaves_nothing_behind_and_is_stored_whole_or_not_at_all(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(1)
        unhandled: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: unhandled.append(context)
        )
        before = asyncio.all_tasks()
        async with producing(cluster) as producer:
            to = TopicPartition(topic, 0)
            assert await producer.partitions(topic) == 1
            running = asyncio.all_tasks()
            for turns in range(20):
                batch = numbered(range(2 * turns, 2 * turns + 2))
                writing = asyncio.ensure_future(producer.write(to, batch))
                for _ in range(turns % 10):
                    await asyncio.sleep(0)
                writing.cancel()
                await asyncio.wait([writing])
            _, count = await producer.write(to, numbered([40, 41]))
            assert count == 2
            assert not {
                task for task in asyncio.all_tasks() - running if "write" in repr(task.get_coro())
            }
        assert asyncio.all_tasks() == before
        async with inspecting(cluster) as inspector:
            end = (await inspector.end_offsets([to]))[to]
        values = [int(text) for text in texts((await stored_in(cluster, topic, 1, end))[0])]
        assert values == sorted(values)
        assert values[::2] == [number for number in values if number % 2 == 0]
        assert values[1::2] == [number + 1 for number in values[::2]]
        # An error that nobody has looked at is told when it goes.
        gc.collect()
        assert unhandled == []

    async def test_partitions_are_known_once_they_were_asked_for(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(3)
        async with producing(cluster) as producer:
            assert producer.known_partitions(topic) == 0
            assert await producer.partitions(topic) == 3
            assert producer.known_partitions(topic) == 3
            assert await producer.partitions(topic) == 3

    async def test_the_remainder_of_a_key_s_hash_is_where_a_send_puts_it(
        self, cluster: Cluster
    ) -> None:
        topic = await cluster.create_topic(3)
        keys = [f"key-{number}".encode() * number for number in range(20)]
        async with producing(cluster) as producer:
            sent = [
                (await (await producer.send(topic, b"x", key=key))).partition.partition
                for key in keys
            ]
            assert [producer.key_hash(key) % 3 for key in keys] == sent
        assert set(sent) == {0, 1, 2}
