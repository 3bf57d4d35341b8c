"""The classic members of an in-memory group that has the consumer protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from reactive_kafka.broker.consumer.membership.consumer_group.member import TopicIdPartition
from reactive_kafka.broker.memory.consumer_coordinator import ConsumerCoordinator
from reactive_kafka.broker.memory.member import Member
from reactive_kafka.records import TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.memory_state import MemoryState


class ConvertedMembers:
    """Sends the heartbeats, and the JoinGroup requests, of the classic members of one group.

    A heartbeat tells a member that it has to join again. An eager member gives up everything before
    it does, a cooperative one what it loses when it knows its assignment.

    Source: KIP-848, "Supporting Online Consumer Group Upgrade"; Kafka's ``GroupMetadataManager``,
    ``classicGroupJoinToConsumerGroup`` and ``classicGroupHeartbeatToConsumerGroup`` (4.4).

    Args:
        state: The broker.
        coordinator: The rules of the group.
        watch_sessions: Called when the coordinator may have to remove a member sooner than before.
    """

    def __init__(
        self,
        state: MemoryState,
        coordinator: ConsumerCoordinator,
        watch_sessions: Callable[[], None],
    ) -> None:
        self._state = state
        self._coordinator = coordinator
        self._watch_sessions = watch_sessions
        # Member id -> its task.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def take_over(self, members: Iterable[Member], generation: int) -> None:
        """Make a consumer group of a classic one. Its members stay, under their ids."""
        members = list(members)
        self._coordinator.change_topics(self._state.topic_ids())
        self._coordinator.take_over(
            generation,
            {member.member_id: self._topics_of(member) for member in members},
            {member.member_id: self._with_ids(member.held_or_granted()) for member in members},
            {member.member_id: member.rebalance_timeout_s for member in members},
        )
        for member in members:
            self._follow(member, member.heartbeat_interval_s)

    def join(self, member: Member) -> None:
        """Take in another classic member, whose JoinGroup is sent at once."""
        self._coordinator.add_classic(
            member.member_id, self._topics_of(member), member.rebalance_timeout_s
        )
        self._follow(member, 0)

    def remove(self, member_id: str) -> None:
        """End the requests of a member that has left or was removed."""
        task = self._tasks.pop(member_id, None)
        if task is not None:
            task.cancel()

    def remove_all(self) -> list[asyncio.Task[None]]:
        """End the requests of all members. Returns the tasks that end."""
        tasks = list(self._tasks.values())
        for member_id in list(self._tasks):
            self.remove(member_id)
        return tasks

    def _follow(self, member: Member, first_wait_s: float) -> None:
        self._tasks[member.member_id] = asyncio.create_task(
            self._send_heartbeats(member, first_wait_s), name=f"{member.member_id}-heartbeats"
        )

    async def _send_heartbeats(self, member: Member, first_wait_s: float) -> None:
        await asyncio.sleep(first_wait_s)
        while True:
            while self._must_rejoin(member):
                await self._rejoin(member)
            await asyncio.sleep(member.heartbeat_interval_s)

    def _must_rejoin(self, member: Member) -> bool:
        if self._is_unreachable(member):
            return False
        self._coordinator.change_topics(self._state.topic_ids())
        now = asyncio.get_running_loop().time()
        must_rejoin = self._coordinator.must_rejoin(member.member_id, now)
        self._watch_sessions()
        return must_rejoin

    async def _rejoin(self, member: Member) -> None:
        while (call := member.pending_call()) is not None:
            await asyncio.wait([call])
        if self._is_unreachable(member):
            # It tries again after the next heartbeat that gets through.
            return
        joined = self._coordinator.rejoin(
            member.member_id,
            self._topics_of(member),
            self._with_ids(member.assignment.partitions),
            asyncio.get_running_loop().time(),
        )
        self._watch_sessions()
        member.assign(self._with_names(joined.assigned), joined.epoch)
        self._state.changed.notify()

    def _is_unreachable(self, member: Member) -> bool:
        return self._state.faults.is_down or member.is_cut_off or member.crashed

    def _topics_of(self, member: Member) -> frozenset[str]:
        """Return the topics that a member reads. Creates those that it reads by name."""
        return frozenset(self._state.sizes([member.subscription]))

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicIdPartition]:
        topics = self._state.topic_ids()
        return frozenset(
            TopicIdPartition(topics[partition.topic][0], partition.partition)
            for partition in partitions
            if partition.topic in topics
        )

    def _with_names(self, partitions: Iterable[TopicIdPartition]) -> frozenset[TopicPartition]:
        names = {topic_id: topic for topic, (topic_id, _) in self._state.topic_ids().items()}
        return frozenset(
            TopicPartition(names[partition.topic_id], partition.partition)
            for partition in partitions
            if partition.topic_id in names
        )
