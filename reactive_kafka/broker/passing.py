"""A consumer and a connector that pass everything on: the bases of those that change some of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reactive_kafka.broker.client import Connector, Consumer, Inspector, Poll, Producer, RebalanceListener, Sight
from reactive_kafka.records import Committed, TopicPartition


class PassingConsumer:
    """Does what *inner* does; see :class:`~reactive_kafka.broker.client.Consumer`.

    Args:
        inner: A consumer that has not started.
    """

    def __init__(self, inner: Consumer) -> None:
        self._inner = inner

    async def start(self, listener: RebalanceListener) -> None:
        """Join the group. See :meth:`Consumer.start`."""
        await self._inner.start(listener)

    async def stop(self) -> None:
        """Leave the group. See :meth:`Consumer.stop`."""
        await self._inner.stop()

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        """Take what is there. See :meth:`Consumer.poll`."""
        return await self._inner.poll(budgets, timeout_s, most)

    def wake(self) -> None:
        """Make a poll that waits return. See :meth:`Consumer.wake`."""
        self._inner.wake()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read from there next. See :meth:`Consumer.start_at`."""
        self._inner.start_at(positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching. See :meth:`Consumer.pause`."""
        self._inner.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch again. See :meth:`Consumer.resume`."""
        self._inner.resume(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        """partition -> offset of the next record. See :meth:`Consumer.positions`."""
        return self._inner.positions()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """partition -> end of the log. See :meth:`Consumer.high_watermarks`."""
        return self._inner.high_watermarks()

    def is_member(self) -> bool:
        """Whether the group has not put it out. See :meth:`Consumer.is_member`."""
        return self._inner.is_member()

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Store positions. See :meth:`Consumer.commit`."""
        await self._inner.commit(offsets, generation)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """partition -> what is stored. See :meth:`Consumer.committed`."""
        return await self._inner.committed(partitions)

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """partition -> start of the log. See :meth:`Consumer.beginning_offsets`."""
        return await self._inner.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """partition -> end of the log. See :meth:`Consumer.end_offsets`."""
        return await self._inner.end_offsets(partitions)

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """partition -> offset of the first record from then on. See :meth:`Consumer.offsets_for_times`."""
        return await self._inner.offsets_for_times(times_ms)

    async def topics(self) -> dict[str, list[TopicPartition]]:
        """topic -> its partitions. See :meth:`Consumer.topics`."""
        return await self._inner.topics()

    async def check(self) -> None:
        """Ask the broker for anything. See :meth:`Consumer.check`."""
        await self._inner.check()

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        """What cannot be read. See :meth:`Consumer.look`."""
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
