"""A member of the in-memory broker's groups that uses the consumer protocol (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    ConsumerGroupMember,
    ConsumerMemberSettings,
)
from reactive_kafka.broker.consumer.membership.consumer_group.membership import (
    ConsumerGroupMembership,
)
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.consumer.membership.owned_since import OwnedSince
from reactive_kafka.broker.consumer.membership.protocol_choice import CONSUMER
from reactive_kafka.broker.memory.coordinator_connection import CoordinatorConnection
from reactive_kafka.broker.memory.member import MemberAssignment, milliseconds
from reactive_kafka.errors import BrokerError, NotOwnerError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Subscription

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.group import Group
    from reactive_kafka.broker.memory.memory_state import MemoryState


class StaleMemberEpochError(TransientBrokerError):
    """The group has begun another epoch, which the member has not heard of."""


class HeartbeatMember:
    """A consumer as its group sees it. Its rules and tasks are those of members on a real Kafka."""

    protocol = CONSUMER
    # Set when the consumer starts.
    listener: RebalanceListener

    def __init__(
        self,
        name: str,
        subscription: Subscription,
        properties: Mapping[str, object],
        left_behind: MembersLeftBehind,
    ) -> None:
        self.name = name
        self.subscription = subscription
        self.left_behind = left_behind
        self.member_id = ""
        self.assignment = MemberAssignment()
        self.crashed = False
        # It was stopped, or has crashed.
        self.has_ended = False
        self._rebalance_timeout_ms = milliseconds(properties, "rebalance_timeout_ms", 60_000.0)
        self._max_poll_interval_ms = milliseconds(properties, "max_poll_interval_ms", 300_000.0)
        # Both are set when it joins.
        self._connection: CoordinatorConnection
        self._membership: ConsumerGroupMembership | None = None
        self._state: MemoryState
        self._crashing: asyncio.Task[None] | None = None

    # What the consumer asks for.

    def join(self, group: Group) -> None:
        group.consumer_members.join(self)

    async def leave(self, group: Group | None) -> None:
        """Leave for good, with a heartbeat that says so."""
        self.has_ended = True
        if self._membership is not None:
            self._connection.thaw()
            await self._membership.close(asyncio.current_task())
        if group is not None:
            group.consumer_members.forget_gone()
        self.assignment = MemberAssignment()

    def note_poll(self) -> None:
        """Note a poll, and raise what the listener has raised or why the group refuses it."""
        if self._membership is not None:
            self._membership.note_poll()
            self._membership.raise_errors()

    def check_owner(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless the partitions are owned since *generation*."""
        self.assignment.check(partitions)
        self._owned.check(partitions, generation)
        if not self._member.is_member():
            raise NotOwnerError("the group has removed this member")

    def commit_identity(self) -> tuple[str, int]:
        """Return the member id and the member epoch with which a commit is sent now."""
        identity = self._member.commit_identity()
        return identity.member_id, identity.generation_or_epoch

    def refused_commit(
        self,
        error: BrokerError,
        sent_in: int,
        partitions: Collection[TopicPartition],
        *,
        is_member: bool,
    ) -> None:
        """The group has refused a commit: ask it at once what has changed."""
        self._connection.thaw()
        self._member.refused_commit(
            self._member.commit_identity(), is_member=isinstance(error, StaleMemberEpochError)
        )

    def is_member(self, group: Group) -> bool:
        """Return False once the group has told this member that it is out."""
        return self._membership is None or self._membership.is_member()

    def session_ends_at(self, last_contact_at: float) -> float:
        return self._member.session_ends_at()

    @property
    def is_cut_off(self) -> bool:
        return self._membership is not None and self._connection.is_cut

    # What the group does with it.

    def begin(self, connection: CoordinatorConnection, state: MemoryState, group: str) -> None:
        """Send heartbeats over *connection*, the first of which joins the group."""
        self._connection = connection
        self._state = state
        settings = ConsumerMemberSettings(group, self.member_id, int(self._rebalance_timeout_ms))
        self._membership = ConsumerGroupMembership(
            ConsumerGroupMember(settings),
            connection,
            self,
            self._max_poll_interval_ms / 1000,
            self.left_behind,
        )
        self._membership.start(self.listener, self.topics_to_read())

    def topics_to_read(self) -> list[str]:
        """Return the topics of the subscription, of a pattern those that match now."""
        named = list(self.subscription.topics)
        return named or [topic for topic in self._state.logs if self.subscription.reads(topic)]

    def topics_changed(self) -> None:
        """Subscribe to the topics that match a pattern now."""
        self._member.subscribe(self.topics_to_read())

    def freeze(self, seconds: float) -> None:
        """Send no heartbeat for so long, or until a commit is refused."""
        self._connection.freeze(seconds)

    def cut_off(self) -> None:
        self._connection.is_cut = True

    def heal(self) -> None:
        self._connection.is_cut = False

    def crash(self) -> None:
        """End in the middle of anything, without a word to the group."""
        self.crashed = True
        self.has_ended = True
        self.cut_off()
        self._connection.is_dead = True
        self._connection.thaw()
        self.assignment = MemberAssignment()
        self._crashing = asyncio.create_task(
            self._member.close(asyncio.current_task()), name=f"{self.member_id}-crashes"
        )

    # PartitionReader: what the membership tells of partitions.

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        self.assignment.generation = self._owned.generation
        self.assignment.add(partitions)

    def stop_reading(self, partitions: Collection[TopicPartition]) -> None:
        self.assignment.revoking |= frozenset(partitions)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        # After a stop or a crash it owns nothing any more.
        self.assignment.drop(self.assignment.partitions.intersection(partitions))

    def wake(self) -> None:
        self._state.changed.notify()

    @property
    def _member(self) -> ConsumerGroupMembership:
        if self._membership is None:
            raise ValueError(f"{self.name} has not joined")
        return self._membership

    @property
    def _owned(self) -> OwnedSince:
        return self._member.owned
