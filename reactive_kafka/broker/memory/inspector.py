"""The in-memory broker's inspector, which looks from outside, and what it has in common with a
consumer: questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from reactive_kafka.broker.client import UNKNOWN_GROUP, GroupDescription, GroupMember
from reactive_kafka.broker.memory.rules import PartitionLog
from reactive_kafka.broker.memory.state import MemoryState, Request
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import Committed, TopicIds, TopicPartition

T = TypeVar("T")


class MemoryQuestions:
    """The base of clients that ask; *log* raises where they cannot ask for the log of a
    partition.
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
        """Raise where nothing can be asked."""
        raise NotImplementedError

    async def _ask(self, call: Request, effect: Callable[[], T], of: str | None = None) -> T:
        """Carry out one call, with whatever fault waits for it."""
        self._check_open()
        return await self._state.faults.ask(call, effect, of)

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found = lambda: {tp: self._log(tp).start for tp in partitions}  # noqa: E731
        return await self._ask("beginning_offsets", found, _only_topic(partitions))

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        is_committed = self._reads_committed
        found = lambda: {tp: self._log(tp).end_for(is_committed) for tp in partitions}  # noqa: E731
        return await self._ask("end_offsets", found, _only_topic(partitions))

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:

        def find() -> dict[TopicPartition, int | None]:
            return {
                tp: self._log(tp).offset_at(time_ms, self._reads_committed)
                for tp, time_ms in times_ms.items()
            }

        return await self._ask("offsets_for_times", find, _only_topic(times_ms))

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        known = self._state.ids
        ids = await self._ask(
            "topic_ids", lambda: {topic: known[topic] for topic in topics if topic in known}
        )
        return [TopicIds(0, ids, frozenset({0}))]

    async def topics(self, names: Collection[str] | None = None) -> dict[str, list[TopicPartition]]:
        every = await self._ask("topics", self._state.partitions_by_topic)
        return (
            every if names is None else {topic: every[topic] for topic in names if topic in every}
        )

    async def check(self) -> None:
        await self._ask("check", lambda: None)


def _only_topic(partitions: Collection[TopicPartition]) -> str | None:
    """The topic that a question is about, if it is one alone."""
    topics = {partition.topic for partition in partitions}
    return topics.pop() if len(topics) == 1 else None


class MemoryInspector(MemoryQuestions):
    """Looks from outside, and meets the same faults as the other clients."""

    def __init__(self, state: MemoryState, properties: Mapping[str, object]) -> None:
        super().__init__(state, state.existing_log, properties)
        self._is_started = False

    async def start(self) -> None:
        await self._state.faults.ask("start", lambda: None)
        self._is_started = True

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:

        def stored() -> dict[TopicPartition, Committed]:
            group = self._state.groups.get(group_id)
            commits = group.commits if group is not None else {}
            return {
                tp: kept for tp, kept in commits.items() if partitions is None or tp in partitions
            }

        return await self._ask("committed", stored)

    async def describe_group(self, group_id: str) -> GroupDescription:

        def describe() -> GroupDescription:
            group = self._state.groups.get(group_id)
            if group is None or not (group.members or group.commits):
                return GroupDescription(UNKNOWN_GROUP, "", ())
            members = tuple(
                GroupMember(one.member_id, one.name, "memory") for one in group.members.values()
            )
            return GroupDescription(group.state, "consumer" if group.generation else "", members)

        return await self._ask("describe_group", describe)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        group = self._state.group(group_id)
        await self._ask("commit", lambda: group.commit("", -1, offsets), group_id)

    async def topic_configs(
        self, topics: Collection[str], names: Collection[str]
    ) -> dict[str, dict[str, str | None]]:

        def tell() -> dict[str, dict[str, str | None]]:
            configs = self._state.configs
            return {
                topic: {name: value for name, value in configs[topic].items() if name in names}
                for topic in topics
                if topic in configs
            }

        return await self._ask("topic_configs", tell)

    async def create_topic(self, topic: str, partitions: int) -> None:

        def create() -> None:
            if topic in self._state.logs:
                raise BrokerError(f"topic {topic!r} already exists")
            self._state.create(topic, partitions)

        await self._ask("create_topic", create)

    async def stop(self) -> None:
        self._is_started = False

    def _check_open(self) -> None:
        if not self._is_started:
            raise BrokerError("the client is not started")
