"""Looks at the in-memory broker from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from reactive_kafka.broker.client import UNKNOWN_GROUP, GroupDescription, GroupMember
from reactive_kafka.broker.memory.faults import Request
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import Committed, TopicPartition

T = TypeVar("T")


class MemoryInspector:
    """See :class:`reactive_kafka.broker.client.Inspector`; it meets the same faults as the other clients."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._is_started = False

    async def start(self) -> None:
        """Connect. See :meth:`Inspector.start`."""
        await self._state.faults.ask("start", lambda: None)
        self._is_started = True

    async def topics(self) -> dict[str, list[TopicPartition]]:
        """topic -> its partitions. See :meth:`Inspector.topics`."""
        return await self._ask("topics", self._state.partitions_by_topic)

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """partition -> start of the log. See :meth:`Inspector.beginning_offsets`."""
        log = self._state.existing_log
        return await self._ask("beginning_offsets", lambda: {tp: log(tp).start for tp in partitions})

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """partition -> offset of the first record from then on. See :meth:`Inspector.offsets_for_times`."""
        log = self._state.existing_log
        return await self._ask(
            "offsets_for_times", lambda: {tp: log(tp).offset_at(time_ms) for tp, time_ms in times_ms.items()}
        )

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """partition -> end of the log. See :meth:`Inspector.end_offsets`."""
        return await self._ask("end_offsets", lambda: {tp: self._state.existing_log(tp).end for tp in partitions})

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """partition -> what is stored. See :meth:`Inspector.committed`."""

        def stored() -> dict[TopicPartition, Committed]:
            group = self._state.groups.get(group_id)
            commits = group.commits if group is not None else {}
            return {tp: kept for tp, kept in commits.items() if partitions is None or tp in partitions}

        return await self._ask("committed", stored)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """What is known about a group. See :meth:`Inspector.describe_group`."""

        def describe() -> GroupDescription:
            group = self._state.groups.get(group_id)
            if group is None or not (group.members or group.commits):
                return GroupDescription(UNKNOWN_GROUP, "", ())
            members = tuple(GroupMember(one.member_id, one.name, "memory") for one in group.members.values())
            return GroupDescription(group.state, "consumer" if group.generation else "", members)

        return await self._ask("describe_group", describe)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store positions of a group without members. See :meth:`Inspector.commit`."""
        group = self._state.group(group_id)
        await self._ask("commit", lambda: group.commit("", -1, offsets), group_id)

    async def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic. See :meth:`Inspector.create_topic`."""

        def create() -> None:
            if topic in self._state.logs:
                raise BrokerError(f"topic {topic!r} already exists")
            self._state.create(topic, partitions)

        await self._ask("create_topic", create)

    async def stop(self) -> None:
        """Close. See :meth:`Inspector.stop`."""
        self._is_started = False

    async def _ask(self, call: Request, effect: Callable[[], T], of: str | None = None) -> T:
        if not self._is_started:
            raise BrokerError("the client is not started")
        return await self._state.faults.ask(call, effect, of)
