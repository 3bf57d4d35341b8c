"""Questions that every client answers alike: they are passed on to a part of the client, or to the client within."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from reactive_kafka.records import TopicPartition


class Questions(Protocol):
    """What a client asks the brokers for; the methods are those of :class:`reactive_kafka.broker.client.Consumer`."""

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]: ...
    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]: ...
    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]: ...
    async def topics(self) -> dict[str, list[TopicPartition]]: ...
    async def check(self) -> None: ...


class Asking:
    """The base of clients that pass their questions on."""

    @property
    def _questions(self) -> Questions:
        """Who answers."""
        raise NotImplementedError

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._questions.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._questions.end_offsets(partitions)

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return await self._questions.offsets_for_times(times_ms)

    async def topics(self) -> dict[str, list[TopicPartition]]:
        return await self._questions.topics()

    async def check(self) -> None:
        await self._questions.check()
