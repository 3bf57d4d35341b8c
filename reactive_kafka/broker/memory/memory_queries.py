"""The questions about topics and logs that clients of the in-memory broker ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.broker.memory.partition_log import PartitionLog
from reactive_kafka.broker.memory.scripted_faults import Request
from reactive_kafka.records import TopicIds, TopicPartition

T = TypeVar("T")


class MemoryQueries:
    """The base of clients that ask questions.

    Args:
        state: The broker's.
        log: Returns the log of a partition, or raises if this client cannot ask for it.
        properties: The client properties of a channel.
    """

    def __init__(
        self,
        state: MemoryState,
        log: Callable[[TopicPartition], PartitionLog],
        properties: Mapping[str, object],
    ) -> None:
        self._state = state
        self._log = log
        self._reads_committed = properties.get("isolation_level") == "read_committed"

    def _check_open(self) -> None:
        """Raise if the client cannot ask anything."""
        raise NotImplementedError

    async def _ask(self, call: Request, effect: Callable[[], T], of: str | None = None) -> T:
        """Carry out a call, with the fault that waits for it."""
        self._check_open()
        return await self._state.faults.ask(call, effect, of)

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:

        def find() -> dict[TopicPartition, int]:
            return {partition: self._log(partition).start for partition in partitions}

        return await self._ask("beginning_offsets", find, _only_topic(partitions))

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:

        def find() -> dict[TopicPartition, int]:
            return {
                partition: self._log(partition).end_for(self._reads_committed)
                for partition in partitions
            }

        return await self._ask("end_offsets", find, _only_topic(partitions))

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:

        def find() -> dict[TopicPartition, int | None]:
            return {
                partition: self._log(partition).offset_at(time_ms, self._reads_committed)
                for partition, time_ms in times_ms.items()
            }

        return await self._ask("offsets_for_times", find, _only_topic(times_ms))

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        known = self._state.ids
        ids = await self._ask(
            "topic_ids", lambda: {topic: known[topic] for topic in topics if topic in known}
        )
        return [TopicIds(0, ids, frozenset({0}))]

    async def topics(self, names: Collection[str] | None = None) -> dict[str, list[TopicPartition]]:
        existing = await self._ask("topics", self._state.partitions_by_topic)
        if names is None:
            return existing
        return {topic: existing[topic] for topic in names if topic in existing}

    async def check(self) -> None:
        await self._ask("check", lambda: None)


def _only_topic(partitions: Collection[TopicPartition]) -> str | None:
    """Return the topic of a question; None if it is about several."""
    topics = {partition.topic for partition in partitions}
    return topics.pop() if len(topics) == 1 else None
