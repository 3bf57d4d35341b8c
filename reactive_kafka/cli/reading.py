"""Reads ranges of a topic's partitions, without joining a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from reactive_kafka.broker.client import Chunk, Connector, Consumer
from reactive_kafka.cli.errors import Failure
from reactive_kafka.cli.offsets_plan import Log
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Partitions

MAX_RECORDS = 100
POLL_S = 0.5
PATIENCE_S = 30.0


class _Silent:
    """Waits for the one assignment of a consumer that names its partitions."""

    def __init__(self) -> None:
        self.is_assigned = asyncio.Event()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is ever revoked."""

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Once, at the start; each partition is begun when its turn comes."""
        self.is_assigned.set()


@asynccontextmanager
async def reading(
    connector: Connector, properties: Mapping[str, Any], ranges: Mapping[TopicPartition, Log]
) -> AsyncIterator[AsyncIterator[Chunk]]:
    """The records in *ranges*, one partition after the other, each from its start up to its end.

    Args:
        properties: The connection; ``isolation_level`` says what is seen.

    Raises:
        Failure: By the iterator: nothing came for ``PATIENCE_S``, or the log cannot be read.
    """
    consumer = connector.consumer(
        name="command-line", subscription=Partitions(tuple(ranges)), group_id=None, properties=properties
    )
    listener = _Silent()
    try:
        await consumer.start(listener)
        await listener.is_assigned.wait()
        yield _chunks(consumer, ranges)
    finally:
        await consumer.stop()


async def _chunks(consumer: Consumer, ranges: Mapping[TopicPartition, Log]) -> AsyncIterator[Chunk]:
    for partition, (start, until) in sorted(ranges.items()):
        reached = start
        if start < until:
            consumer.start_at({partition: start})
        while reached < until:
            for chunk in await _some(consumer, partition, reached, until):
                reached = chunk.next_offset
                yield chunk
        consumer.pause([partition])


async def _some(consumer: Consumer, partition: TopicPartition, reached: int, until: int) -> list[Chunk]:
    """At least one chunk that continues from *reached*, cut off at *until*."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while loop.time() < deadline:
        poll = await consumer.poll({partition: MAX_RECORDS}, POLL_S)
        if partition in poll.errors:
            raise Failure(f"{partition} cannot be read at offset {reached}: {poll.errors[partition]}")
        chunks = [_cut(chunk, until) for chunk in poll.chunks]
        if chunks and chunks[-1].next_offset > reached:
            return chunks
    raise Failure(f"{partition} cannot be read at offset {reached}: no records came for {PATIENCE_S:g} s")


def _cut(chunk: Chunk, until: int) -> Chunk:
    records = [record for record in chunk.records if record.offset < until]
    return chunk._replace(records=records, next_offset=min(chunk.next_offset, until))
