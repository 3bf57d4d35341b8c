"""The in-memory broker's inspector."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from reactive_kafka.broker.client import (
    NO_CONFIG,
    UNKNOWN_GROUP,
    GroupDescription,
    GroupListing,
    GroupMember,
)
from reactive_kafka.broker.memory.memory_queries import MemoryQueries
from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import Committed, TopicPartition


class MemoryInspector(MemoryQueries):
    """Looks at the broker from outside, and meets the same faults as the other clients."""

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
                partition: position
                for partition, position in commits.items()
                if partitions is None or partition in partitions
            }

        return await self._ask("committed", stored)

    async def describe_group(self, group_id: str) -> GroupDescription:

        def describe() -> GroupDescription:
            group = self._state.groups.get(group_id)
            if group is None or not (group.members or group.commits):
                return GroupDescription(UNKNOWN_GROUP, "", ())
            members = tuple(
                GroupMember(
                    member.member_id,
                    member.name,
                    "memory",
                    tuple(sorted(member.assignment.partitions)),
                )
                for member in group.members.values()
            )
            return GroupDescription(group.state, "consumer" if group.assignments else "", members)

        return await self._ask("describe_group", describe)

    async def list_groups(self) -> list[GroupListing]:

        def tell() -> list[GroupListing]:
            return [
                GroupListing(
                    name, "consumer" if group.assignments else "", group.state, group.protocol
                )
                for name, group in sorted(self._state.groups.items())
                if group.members or group.commits
            ]

        return await self._ask("list_groups", tell)

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

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
        *,
        only_checks: bool = False,
    ) -> None:

        def create() -> None:
            if topic in self._state.logs:
                raise BrokerError(f"topic {topic!r} already exists")
            if replication_factor is not None and replication_factor > 1:
                raise BrokerError(f"replication factor {replication_factor}: there is 1 broker")
            if not only_checks:
                self._state.create(topic, partitions, config)

        await self._ask("create_topic", create)

    async def add_partitions(self, topic: str, total: int) -> None:

        def add() -> None:
            existing = len(self._existing(topic))
            if total <= existing:
                raise BrokerError(f"topic {topic!r} has {existing} partitions already")
            self._state.create(topic, total)

        await self._ask("add_partitions", add)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:

        def set_config() -> None:
            self._existing(topic)
            self._state.configs[topic].update(config)

        await self._ask("set_topic_config", set_config)

    async def replication_factors(self, topics: Collection[str]) -> dict[str, int]:
        return await self._ask(
            "replication_factors",
            lambda: {topic: 1 for topic in topics if topic in self._state.logs},
        )

    def _existing(self, topic: str) -> Sequence[object]:
        if topic not in self._state.logs:
            raise BrokerError(f"topic {topic!r} does not exist")
        return self._state.logs[topic]

    async def stop(self) -> None:
        self._is_started = False

    def _check_open(self) -> None:
        if not self._is_started:
            raise BrokerError("the client is not started")
