"""The topic that every contender reads: made, filled and asked about with aiokafka alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.plan import FEW_PARTITIONS

PARTITIONS = FEW_PARTITIONS
VALUE_BYTES = 100
# About 600 of these records.
BATCH_BYTES = 64 * 1024
BATCHES_UNDER_WAY = 16
# Partitions that are written at a time.
AT_ONCE = 50


def numbered(number: int) -> bytes:
    """A value of 100 bytes that begins with its number."""
    return (b"%012d" % number).ljust(VALUE_BYTES, b".")


async def create(bootstrap: str, *topics: str, partitions: int = PARTITIONS) -> None:
    """Create *topics* with so many partitions each."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    finally:
        await admin.close()


async def fill(
    bootstrap: str,
    topic: str,
    records: int,
    value: Callable[[int], bytes] = numbered,
    *,
    partitions: int = PARTITIONS,
    keys: int = 0,
) -> None:
    """Create *topic* and write *records* to it, alike to each of its partitions.

    Args:
        value: Of the record with this number in its partition.
        keys: How many different ones there are, each in one partition, taking turns; 0: records
            have none.
    """
    await create(bootstrap, topic, partitions=partitions)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, max_batch_size=BATCH_BYTES, enable_idempotence=True
    )
    await producer.start()
    try:
        share, rest = divmod(records, partitions)
        for first in range(0, partitions, AT_ONCE):
            async with asyncio.TaskGroup() as writing:
                for number in range(first, min(first + AT_ONCE, partitions)):
                    size = share + (number < rest)
                    own = keys // partitions + (number < keys % partitions)
                    writing.create_task(write_partition(producer, topic, number, size, value, own))
    finally:
        await producer.stop()


async def write_partition(
    producer: AIOKafkaProducer,
    topic: str,
    partition: int,
    records: int,
    value: Callable[[int], bytes],
    keys: int = 0,
) -> None:
    """Write *records* with so many *keys* to one partition, in large batches; return when the
    broker has them.
    """
    under_way: deque[asyncio.Future[object]] = deque()
    written = 0
    while written < records:
        batch = producer.create_batch()
        while written < records:
            key = b"%d-%d" % (partition, written % keys) if keys else None
            if batch.append(key=key, value=value(written), timestamp=None) is None:
                break
            written += 1
        under_way.append(await producer.send_batch(batch, topic, partition=partition))
        if len(under_way) == BATCHES_UNDER_WAY:
            await under_way.popleft()
    for confirmation in under_way:
        await confirmation


async def length(bootstrap: str, topic: str, *, partitions: int = PARTITIONS) -> int:
    """How many records *topic* holds."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        ends = await consumer.end_offsets(
            [TopicPartition(topic, number) for number in range(partitions)]
        )
    finally:
        await consumer.stop()
    return sum(ends.values())


async def committed(bootstrap: str, topic: str, group: str, *, partitions: int = PARTITIONS) -> int:
    """How many records of *topic* lie below the positions that *group* has committed, over all
    partitions.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        every = [TopicPartition(topic, number) for number in range(partitions)]
        stored = await admin.list_consumer_group_offsets(group, partitions=every)
    finally:
        await admin.close()
    return sum(max(position.offset, 0) for position in stored.values())
