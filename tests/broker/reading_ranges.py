"""The contract suite for a consumer of offsets: what it hands out is read again by offset, as its
user would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.broker.client import (
    Chunk,
    Connector,
    Consumer,
    Inspector,
    Poll,
    Producer,
    TransactionalProducer,
)
from reactive_kafka.broker.ranges import RangesConnector
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.channel.refetch import records_of
from reactive_kafka.subscription import Subscription


class ReadingConnector:
    """Makes consumers of offsets whose chunks come with their records."""

    def __init__(self, inner: Connector) -> None:
        self.inner = inner

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        consumer: Any = RangesConnector(self.inner).consumer(
            name=name, subscription=subscription, group_id=group_id, properties=properties
        )
        settings = IncomingSettings(name=name, topics=(), group_id=None, client=dict(properties))
        take = consumer.poll
        # Of a poll that was cancelled while it read the records.
        cut_off: list[Poll] = []

        async def poll(
            budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
        ) -> Poll:
            taken: Poll = cut_off.pop() if cut_off else await take(budgets, timeout_s, most)
            try:
                chunks = [await self._with_records(chunk, settings) for chunk in taken.chunks]
            except asyncio.CancelledError:
                cut_off.append(taken)
                raise
            return Poll(chunks, taken.errors)

        consumer.poll = poll
        return consumer  # type: ignore[no-any-return]

    async def _with_records(self, chunk: Chunk, settings: IncomingSettings) -> Chunk:
        offsets: Any = chunk.records
        assert isinstance(offsets, range)
        assert offsets.stop == chunk.next_offset <= chunk.high_watermark
        records: list[RawRecord] = []
        async for piece in records_of(self.inner, settings, chunk.partition, offsets):
            records += piece
        return chunk._replace(records=records)

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        return self.inner.producer(name=name, properties=properties)

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        return self.inner.transactional_producer(
            name=name, transactional_id=transactional_id, properties=properties
        )

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        return self.inner.inspector(properties=properties)

    async def close(self) -> None:
        await self.inner.close()
