"""The client as one would use it who has not read about its hazards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiokafka

from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.client_arguments import OUR_PROPERTIES
from reactive_kafka.broker.aiokafka.closing import cancel, finish
from tests.broker.hazards.faults import until


@asynccontextmanager
async def consuming(
    bootstrap_servers: str, *topics: str, **properties: Any
) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    """A naive consumer that has started; with a group, or with none and all partitions of what it
    reads.
    """
    properties.setdefault("auto_offset_reset", "earliest")
    # A cluster has these for our own consumers.
    for ours in OUR_PROPERTIES:
        properties.pop(ours, None)
    listener = properties.pop("listener", None)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, **properties)
    try:
        await consumer.start()
        if topics:
            consumer.subscribe(topics, listener=listener)
        yield consumer
    finally:
        await end(consumer)


async def end(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Stop a client that may not let itself be stopped (H6), and leave nothing of it."""
    await finish(consumer.stop(), 1.0)
    coordinator, fetcher = consumer._coordinator, consumer._fetcher
    names = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task")
    tasks = [getattr(coordinator, name, None) for name in names]
    if fetcher is not None:
        tasks += [fetcher._fetch_task, *fetcher._pending_tasks]
    await cancel([task for task in tasks if task is not None])
    await finish(consumer._client.close(), 1.0)


async def buffered(consumer: aiokafka.AIOKafkaConsumer, *partitions: TopicPartition) -> None:
    """Wait until the client has fetched something of each, and let it hand them out in this
    order.
    """
    fetched = consumer._fetcher._records
    await until(lambda: fetched.keys() >= set(partitions), "all of them are fetched")
    for partition in partitions:
        fetched.move_to_end(partition)


async def write_batches(
    bootstrap_servers: str, partition: TopicPartition, *batches: Sequence[bytes]
) -> None:
    """Append record batches, each of exactly these values."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for values in batches:
            batch = producer.create_batch()
            for value in values:
                assert batch.append(key=None, value=value, timestamp=None) is not None
            await (await producer.send_batch(batch, partition.topic, partition=partition.partition))
