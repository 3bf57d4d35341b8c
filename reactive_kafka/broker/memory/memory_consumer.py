"""The in-memory broker's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Literal

from reactive_kafka.broker.client import (
    NO_GROUP,
    STATIC_GENERATION,
    ByteRoom,
    Chunk,
    Poll,
    RebalanceListener,
    Sight,
    SomePositionsUnknownError,
    TransactionId,
)
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.memory.group import Group
from reactive_kafka.broker.memory.heartbeat_member import HeartbeatMember, StaleMemberEpochError
from reactive_kafka.broker.memory.member import CooperativeMember, Member, MemberAssignment
from reactive_kafka.broker.memory.memory_queries import MemoryQueries
from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.broker.memory.partition_log import PartitionLog
from reactive_kafka.errors import (
    CorruptRecordError,
    FatalBrokerError,
    NotOwnerError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Partitions, Subscription


class MemoryConsumer(MemoryQueries):
    """A member of a group of the in-memory broker, or a static assignment."""

    def __init__(
        self,
        state: MemoryState,
        member_class: type[Member] | type[HeartbeatMember],
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
        left_behind: MembersLeftBehind,
    ) -> None:
        self._is_static = isinstance(subscription, Partitions)
        if group_id is None and not self._is_static:
            raise ValueError(f"channel {name!r} needs a group_id")
        super().__init__(state, state.led_log, properties)
        self._subscription = subscription
        self._group = state.group(group_id) if group_id is not None else None
        self._whole_topics = subscription.whole if isinstance(subscription, Partitions) else ()
        if self._whole_topics:
            # Partitions that appear later are added without a revocation, which only a cooperative
            # member can do.
            member_class = CooperativeMember
        elif self._is_static:
            member_class = Member
        self._member: Member | HeartbeatMember = member_class(
            name, subscription, properties, left_behind
        )
        self._has_joined = False
        # When a member of a group was stopped; monotonic.
        self._stopped_at: float | None = None
        # Where a poll begins among the partitions, so that the order favours none.
        self._next_turn = 0
        self._is_woken = False

    async def start(self, listener: RebalanceListener) -> None:
        await self._state.faults.ask("start", lambda: None)
        self._member.listener = listener
        if isinstance(self._subscription, Partitions):
            for topic in sorted(self._subscription.topics):
                self._state.use(topic)
            self._assign(_all_of(self._subscription, self._state))
        elif self._group is not None:
            self._member.join(self._group)
            self._has_joined = True

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        deadline = asyncio.get_running_loop().time() + timeout_s
        # A loop of polls that always find records must let other tasks run.
        await asyncio.sleep(0)
        self._state.faults.check_poll()
        while True:
            self._check_open()
            self._member.note_poll()
            poll = self._take(self._member.assignment, budgets, most, byte_room)
            if poll.chunks or poll.errors or self._is_woken:
                self._is_woken = False
                return poll
            if not await self._state.changed.wait_until(deadline):
                return poll

    def _take(
        self,
        owned: MemberAssignment,
        budgets: Mapping[TopicPartition, int],
        most: int | None,
        byte_room: ByteRoom | None,
    ) -> Poll:
        poll = Poll()
        if self._state.faults.is_down or not owned.since:
            return poll
        not_read = owned.paused | owned.revoking | self._state.faults.leaders_away.keys()
        reading = [partition for partition in owned.positions if partition not in not_read]
        turn = self._next_turn % max(1, len(reading))
        room = sum(budgets.values()) if most is None else most
        for turns_passed, partition in enumerate(reading[turn:] + reading[:turn]):
            log = self._state.log(partition)
            budget = min(budgets.get(partition, 0), room)
            if log is not None and budget > 0:
                room -= self._read(log, partition, owned, budget, poll, byte_room)
                if not room and most is not None:
                    # The next poll begins behind the last partition that this one took from.
                    self._next_turn += turns_passed
        if poll.chunks:
            self._next_turn += 1
        return poll

    def _read(
        self,
        log: PartitionLog,
        partition: TopicPartition,
        owned: MemberAssignment,
        most: int,
        poll: Poll,
        byte_room: ByteRoom | None,
    ) -> int:
        position = owned.positions[partition]
        if not log.start <= position <= log.end:
            poll.errors[partition] = OffsetOutOfRangeError(partition, position)
            return 0
        if (spoiled := log.spoiled_at(position)) is not None:
            poll.errors[partition] = CorruptRecordError(
                partition, position, "it was spoiled", spoiled.told_until
            )
            return 0
        records, next_offset = log.read(position, most, self._reads_committed)
        if byte_room is not None:
            fitting = byte_room.fitting(partition, records)
            if fitting < len(records):
                records, next_offset = log.read(position, fitting, self._reads_committed)
            byte_room.take(partition, records)
        if next_offset > position:
            owned.positions[partition] = next_offset
            poll.chunks.append(
                Chunk(partition, records, next_offset, log.end_for(self._reads_committed))
            )
        return len(records)

    def wake(self) -> None:
        self._is_woken = True
        self._state.changed.notify()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self._member.assignment.start_at(positions)
        self._state.changed.notify()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        owned = self._member.assignment
        owned.paused.update(owned.partitions.intersection(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._member.assignment.paused.difference_update(partitions)
        self._state.changed.notify()

    def positions(self) -> dict[TopicPartition, int]:
        return dict(self._member.assignment.positions)

    def is_member(self) -> bool:
        if not self._has_joined or self._group is None:
            return True
        return self._member.is_member(self._group)

    def group_protocol(self) -> str | None:
        return None if self._is_static else self._member.protocol

    def metrics_receiver(self) -> None:
        """The in-memory broker takes no metrics of clients."""

    def session_ends_at(self) -> float:
        if not self._has_joined and self._stopped_at is None:
            return inf
        # As with a real client: after its last contact with the group a session is not extended.
        left_at = inf if self._stopped_at is None else self._stopped_at
        down_since = self._state.faults.went_down_at if self._state.faults.is_down else inf
        last_contact_at = min(left_at, down_since, self._state.clock.monotonic())
        return self._member.session_ends_at(last_contact_at)

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await self._commit("commit", Group.commit, offsets, generation)

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        await self._commit(
            "commit_in",
            partial(self._state.transactions.commit_in, transaction),
            offsets,
            generation,
        )

    async def _commit(
        self,
        call: Literal["commit", "commit_in"],
        store: Callable[[Group, str, int, Mapping[TopicPartition, Committed]], None],
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        self._check_open()
        group = self._group
        member = self._member
        if group is None:
            raise FatalBrokerError(NO_GROUP)
        if member.is_cut_off:
            raise OutcomeUnknownError(f"{member.member_id} is cut off from its group")
        member.check_owner(offsets, generation)
        # The values at the time of sending.
        member_id, own_generation = member.commit_identity()
        sent_in = -1 if self._is_static else own_generation
        try:
            await self._state.faults.ask(
                call, lambda: store(group, member_id, sent_in, offsets), group.name
            )
        except (NotOwnerError, StaleMemberEpochError) as error:
            member.refused_commit(error, own_generation, offsets, is_member=self.is_member())
            raise

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        group = self._group
        if group is None:
            raise FatalBrokerError(NO_GROUP)
        if self._member.is_cut_off:
            raise TransientBrokerError(f"{self._member.member_id} is cut off from its group")

        def stored() -> dict[TopicPartition, Committed | None]:
            unstable = group.positions.unstable(partitions)
            found = {
                partition: group.commits.get(partition)
                for partition in partitions
                if partition not in unstable
            }
            if not unstable:
                return found
            error = TransientBrokerError(
                f"the position of {unstable[0]} is part of a transaction that is still open"
            )
            raise (
                SomePositionsUnknownError(found, dict.fromkeys(unstable, error)) if found else error
            )

        return await self._ask("committed", stored)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        away = self._state.faults.leaders_away
        silent: dict[TopicPartition, str | None] = {
            partition: away[partition] for partition in partitions if partition in away
        }
        held_up: dict[TopicPartition, tuple[int, int]] = {}
        for partition, position in self.positions().items():
            log = self._state.log(partition)
            if not self._reads_committed or log is None:
                continue
            if log.stable_end <= position and log.stable_end < log.end:
                held_up[partition] = (log.stable_end, log.end)
        return Sight(
            frozenset(self._subscription.topics) - self._state.logs.keys(),
            silent=silent,
            held_up=held_up,
        )

    async def stop(self) -> None:
        if self._has_joined:
            self._stopped_at = self._state.clock.monotonic()
        self._has_joined = False
        if not self._member.crashed:
            await self._member.leave(self._group)
            self.wake()

    async def check(self) -> None:
        await super().check()
        if not self._whole_topics or not isinstance(self._subscription, Partitions):
            return
        if isinstance(self._member, Member) and self._member.pending_call() is not None:
            return
        wanted = _all_of(self._subscription, self._state)
        assigned = self._member.assignment.partitions
        if not wanted <= assigned:
            self._assign(wanted | assigned)

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Assign partitions statically, for which a member of the classic protocol stands in."""
        if isinstance(self._member, Member):
            self._member.assign(partitions, STATIC_GENERATION)

    def _check_open(self) -> None:
        if self._member.crashed:
            raise TransientBrokerError(f"{self._member.member_id} has crashed")


def _all_of(subscription: Partitions, state: MemoryState) -> frozenset[TopicPartition]:
    """Return the named partitions, and the existing ones of whole topics."""
    existing = state.partitions_by_topic()
    return frozenset(subscription.partitions).union(
        *(existing.get(topic, ()) for topic in subscription.whole)
    )
