"""Members of the in-memory broker's groups: what each owns, and the calls of its listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.consumer.membership.heartbeat_pace import QUICK_BEAT_S
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.consumer.membership.protocol_choice import CLASSIC
from reactive_kafka.errors import BrokerError, NotOwnerError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Subscription
from reactive_kafka.tasks import Flag

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.group import Group


@dataclass(slots=True)
class MemberAssignment:
    """The partitions that a member owns, and where it reads."""

    # The generation of the group's last assignment to this member.
    generation: int = -1
    # Partition -> the generation in which it was assigned.
    since: dict[TopicPartition, int] = field(default_factory=dict)
    # Partition -> next offset, for those that have started.
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    # These are being revoked: they are not read any more, but may be committed.
    revoking: frozenset[TopicPartition] = frozenset()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.since)

    def add(self, partitions: Collection[TopicPartition]) -> None:
        self.since.update(dict.fromkeys(partitions, self.generation))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.difference_update(partitions)
        self.revoking -= frozenset(partitions)
        for partition in partitions:
            del self.since[partition]
            self.positions.pop(partition, None)

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """Raise NotOwnerError if one of the partitions is not owned."""
        for partition in partitions:
            if partition not in self.since:
                raise NotOwnerError(f"{TopicPartition(*partition)} is not assigned")

    def has_kept(self, partitions: Collection[TopicPartition], generation: int) -> bool:
        """True if the partitions are owned, and have been since *generation*."""
        return all(
            self.since.get(partition, generation + 1) <= generation for partition in partitions
        )

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self.check(positions)
        self.positions.update({partition: positions[partition] for partition in sorted(positions)})


class Member:
    """A consumer as its group sees it. The listener is never called twice at once.

    This member uses the classic protocol, and is eager: it gives up everything before a generation
    begins.
    """

    protocol = CLASSIC
    is_cooperative = False
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
        self.rebalance_timeout_s = milliseconds(properties, "rebalance_timeout_ms", 60_000) / 1000
        self.session_timeout_s = milliseconds(properties, "session_timeout_ms", 45_000) / 1000
        self.heartbeat_interval_s = (
            milliseconds(properties, "heartbeat_interval_ms", 1000 * QUICK_BEAT_S) / 1000
        )
        self.member_id = ""
        self.assignment = MemberAssignment()
        # The partitions of its last assignment. A cooperative member adds those that are new to
        # what it owns only when it has given up others.
        self.granted: frozenset[TopicPartition] = frozenset()
        # The group became classic in an epoch that this member had not heard of: it gets
        # ILLEGAL_GENERATION, has lost its partitions, and joins again.
        self.is_behind = False
        self.closed = False
        self.crashed = False
        # Since when it has not reached its group.
        self.cut_since: float | None = None
        # Ends with the session of a member that is cut off. A rebalance waits for it.
        self.cut: asyncio.Task[Any] | None = None
        # Set when a refused commit has told the client that it is out.
        self.refused = Flag()
        self.listener_error: BaseException | None = None
        self._assigning: asyncio.Task[None] | None = None
        self._revoking: asyncio.Task[Any] | None = None

    # What the consumer asks for.

    def join(self, group: Group) -> None:
        group.join(self)

    async def leave(self, group: Group | None) -> None:
        """Leave the group for good, and end the calls of the listener."""
        if group is not None:
            group.leave(self)
        # Also if the group has removed it: it must not join again.
        if not self.crashed:
            await self.close()

    def note_poll(self) -> None:
        """Raise what the listener has raised."""
        if self.listener_error is not None:
            raise self.listener_error

    def check_owner(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless the partitions are owned since *generation*."""
        owned = self.assignment
        owned.check(partitions)
        if generation > owned.generation or not owned.has_kept(partitions, generation):
            raise NotOwnerError(f"generation {generation} is over")

    def commit_identity(self) -> tuple[str, int]:
        """Return the member id and the generation with which a commit is sent now."""
        return self.member_id, self.assignment.generation

    def refused_commit(
        self,
        error: BrokerError,
        sent_in: int,
        partitions: Collection[TopicPartition],
        *,
        is_member: bool,
    ) -> None:
        """Take in that the group has refused a commit that was sent in a generation.

        Raises:
            TransientBrokerError: The commit can be sent again.
        """
        owned = self.assignment
        if is_member and owned.generation != sent_in and owned.has_kept(partitions, sent_in):
            # The group has begun another generation while the request was on its way. It kept
            # these partitions for this member, so the commit can be sent again. The Java
            # consumer raises a retriable RebalanceInProgressException here.
            raise TransientBrokerError(f"a rebalance was in progress: {error}") from error
        self.refused.set()

    def is_member(self, group: Group) -> bool:
        """Return False once the group has told this member that it is out."""
        # A member that is cut off has not been told.
        return self.is_cut_off or (self.member_id in group.members and not self.is_behind)

    def session_ends_at(self, last_contact_at: float) -> float:
        """Return when the group may remove this member, which was in contact with it so late."""
        cut_since = inf if self.cut_since is None else self.cut_since
        return min(last_contact_at, cut_since) + self.session_timeout_s

    @property
    def is_cut_off(self) -> bool:
        return self.cut_since is not None

    # What the group does with it.

    def begin_membership(self, member_id: str) -> None:
        """Take in the id under which it joins, with nothing."""
        self.member_id = member_id
        self.granted = frozenset()
        self.is_behind = False
        self.refused.clear()

    def held_or_granted(self) -> frozenset[TopicPartition]:
        """Return what it owns, or is about to own by its last assignment."""
        return self.assignment.partitions | self.granted

    def pending_call(self) -> asyncio.Task[Any] | None:
        """Start to revoke, and return what must end before the next generation, if anything."""
        if self.cut is not None:
            return None if self.cut.done() else self.cut
        revoking = self.let_go()
        return None if revoking.done() else revoking

    def let_go(self) -> asyncio.Task[Any]:
        """Tell the listener once that everything is revoked. Returns the task of that call.

        The task never ends after a crash.
        """
        if self._revoking is None:
            self._revoking = asyncio.create_task(
                self._revoke_all(), name=f"{self.member_id}-revoke"
            )
        return self._revoking

    def assign(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Start the assignment of a generation."""
        self.granted = partitions
        self.is_behind = False
        self.assignment = MemberAssignment(generation)
        self.assignment.add(partitions)
        self._start_call(
            self._call_listener(lambda: self.listener.on_assigned(partitions, generation))
        )

    async def close(self) -> None:
        """End the listener's calls, except the one from which this was called."""
        await asyncio.gather(*self._cancel_calls(), return_exceptions=True)

    def crash(self) -> None:
        """End in the middle of anything, without a word to the group."""
        self.crashed = True
        self._cancel_calls()
        self._revoking = asyncio.create_task(Flag().wait(), name=f"{self.member_id}-crashed")

    def _start_call(self, call: Coroutine[Any, Any, None]) -> None:
        self._revoking = None
        self._assigning = asyncio.create_task(call, name=f"{self.member_id}-assign")

    def _cancel_calls(self) -> list[asyncio.Task[Any]]:
        self.closed = True
        self.assignment = MemberAssignment()
        here = asyncio.current_task()
        calls = [
            call
            for call in (self._assigning, self._revoking)
            if call is not None and call is not here
        ]
        for call in calls:
            call.cancel()
        return calls

    async def _revoke_all(self) -> None:
        if self._assigning is not None:
            await asyncio.wait([self._assigning])
        await self._revoke(self.assignment, self.assignment.partitions)
        self.assignment = MemberAssignment()

    async def _revoke(self, owned: MemberAssignment, revoking: frozenset[TopicPartition]) -> None:
        owned.revoking = revoking
        await self._call_listener(lambda: self.listener.on_revoked(revoking))
        owned.drop(revoking)

    async def _call_listener(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await call()
        except Exception as error:
            # A listener must not raise. The group continues, as Kafka's would. The member's next
            # poll raises the error.
            self.listener_error = error


def milliseconds(properties: Mapping[str, object], name: str, default: float) -> float:
    """Return a time among the properties of a client."""
    value = properties.get(name)
    return float(value) if isinstance(value, int | float | str) else default


class CooperativeMember(Member):
    """A member that keeps the partitions that stay its own in the next generation.

    It gives up partitions when it learns of the new assignment. So a generation begins while it
    still reads, and what it gives up is assigned in the generation after that.

    Source: KIP-429.
    """

    is_cooperative = True

    def pending_call(self) -> asyncio.Task[Any] | None:
        """Return the call that carries out the last assignment: the member rejoins after it."""
        if self.cut is not None or self.is_behind:
            return super().pending_call()
        call = self._revoking if self.crashed else self._assigning
        return None if call is None or call.done() else call

    def assign(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Tell the listener what goes, then what comes. What stays is not mentioned."""
        self.granted = partitions
        self.is_behind = False
        owned = self.assignment
        owned.generation = generation
        self._start_call(
            self._carry_out_assignment(
                owned, partitions - owned.partitions, owned.partitions - partitions
            )
        )

    async def _carry_out_assignment(
        self,
        owned: MemberAssignment,
        coming: frozenset[TopicPartition],
        revoking: frozenset[TopicPartition],
    ) -> None:
        generation = owned.generation
        if revoking:
            await self._revoke(owned, revoking)
        owned.add(coming)
        await self._call_listener(lambda: self.listener.on_assigned(coming, generation))
