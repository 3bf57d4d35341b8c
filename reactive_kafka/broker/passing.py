"""A consumer and a connector that pass everything on: the bases of those that change some of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reactive_kafka.broker.asking import Asking
from reactive_kafka.broker.client import Connector, Consumer, Inspector, Poll, Producer, RebalanceListener, Sight
from reactive_kafka.records import Committed, TopicPartition


class PassingConsumer(Asking):
    """Does what *inner* does; see :class:`~reactive_kafka.broker.client.Consumer`.

    Args:
        inner: A consumer that has not started.
    """

    def __init__(self, inner: Consumer) -> None:
        self._inner = inner

    @property
    def _questions(self) -> Consumer:
        return self._inner

    async def start(self, listener: RebalanceListener) -> None:
        await self._inner.start(listener)

    async def stop(self) -> None:
        await self._inner.stop()

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        return await self._inner.poll(budgets, timeout_s, most)

    def wake(self) -> None:
        self._inner.wake()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self._inner.start_at(positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._inner.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._inner.resume(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        return self._inner.positions()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return self._inner.high_watermarks()

    def is_member(self) -> bool:
        return self._inner.is_member()

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await self._inner.commit(offsets, generation)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return await self._inner.committed(partitions)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        return await self._inner.look(partitions)


class PassingConnector:
    """Its producers and inspectors are those of *inner*; its consumers are a subclass's."""

    def __init__(self, inner: Connector) -> None:
        self._inner = inner

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """A producer."""
        return self._inner.producer(name=name, properties=properties)

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        """Somebody who looks from outside."""
        return self._inner.inspector(properties=properties)

    async def close(self) -> None:
        """Close *inner*."""
        await self._inner.close()
