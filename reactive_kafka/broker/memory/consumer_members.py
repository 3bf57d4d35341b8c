"""The members of an in-memory group that use the consumer protocol, and their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from reactive_kafka.broker.consumer.membership.consumer_group.heartbeat_answers import (
    GROUP_ID_NOT_FOUND,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member import JOINS
from reactive_kafka.broker.memory.consumer_coordinator import ConsumerCoordinator, refused
from reactive_kafka.broker.memory.coordinator_connection import CoordinatorConnection
from reactive_kafka.broker.memory.heartbeat_member import HeartbeatMember, StaleMemberEpochError
from reactive_kafka.errors import NotOwnerError

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.memory_state import MemoryState


class ConvertibleGroup(Protocol):
    """A group that changes its protocol when its members do."""

    def is_classic(self) -> bool:
        """Whether it has classic members only."""

    def become_consumer(self) -> None:
        """Take in that a member of the consumer protocol is about to join."""

    def removed(self, member_ids: Collection[str]) -> None:
        """Take in that the coordinator may have removed members, and these for their silence."""


class ConsumerMembers:
    """Passes heartbeats to the rules of the coordinator, and ends sessions in time.

    Args:
        group: The name of the group.
        state: The broker.
        new_id: Makes a member id of a name.
        convertible: The group.
    """

    def __init__(
        self,
        group: str,
        state: MemoryState,
        new_id: Callable[[str], str],
        convertible: ConvertibleGroup,
    ) -> None:
        self.coordinator = ConsumerCoordinator({})
        self._group = group
        self._state = state
        self._new_id = new_id
        self._convertible = convertible
        # Member id -> each consumer that has started, also those that have left.
        self._started: dict[str, HeartbeatMember] = {}
        # Goes off when a session may have to end.
        self._timer: asyncio.TimerHandle | None = None

    @property
    def by_id(self) -> Mapping[str, HeartbeatMember]:
        """Member id -> member, of all members of this protocol that the coordinator knows."""
        return {
            member_id: self._started[member_id]
            for member_id, known in self.coordinator.members.items()
            if not known.is_classic
        }

    def join(self, member: HeartbeatMember) -> None:
        """Let a member send heartbeats, the first of which joins."""
        # Creates topics that are read by name, as the metadata requests of a real client do.
        self._state.sizes([member.subscription])
        member.member_id = self._new_id(member.name)
        self._started[member.member_id] = member
        member.begin(
            CoordinatorConnection(self._state, self._group, self._heartbeat),
            self._state,
            self._group,
        )

    def expire(self, member_id: str, notice_after_s: float) -> None:
        """Remove a member at once. It sends no heartbeat before *notice_after_s* have passed."""
        self._started[member_id].freeze(notice_after_s)
        self.coordinator.remove(member_id)
        self._convertible.removed(())

    def crash(self, member_id: str, session_s: float | None, now: float) -> None:
        """Let a member vanish. It is removed when its session ends."""
        self._started[member_id].crash()
        if session_s is not None:
            self.coordinator.members[member_id].session_ends_at = now + session_s
            self.watch_sessions()
        self._state.changed.notify()

    def cut_off(self, member_id: str) -> None:
        """Let no heartbeat and no commit of a member through, until :meth:`heal`."""
        self._started[member_id].cut_off()

    def heal(self) -> None:
        """Let the heartbeats of all members through."""
        for member in self._started.values():
            if not member.crashed:
                member.heal()

    def renew_sessions(self, now: float) -> None:
        """The broker is back: each member has a whole session to say that it lives."""
        self.coordinator.renew_sessions(now)
        self.watch_sessions()

    def topics_changed(self) -> None:
        """A topic was created or deleted, or has more partitions."""
        for member in self._started.values():
            member.topics_changed()

    def check(self, member_id: str, epoch: int) -> None:
        """Raise if a member of this epoch may store nothing."""
        known = self.coordinator.members.get(member_id)
        if known is None:
            raise NotOwnerError(f"group {self._group}: {member_id} is no member any more")
        if known.epoch != epoch and known.is_classic:
            raise NotOwnerError(
                f"group {self._group}: {member_id} is in generation {known.epoch}, not in {epoch}"
            )
        if known.epoch != epoch:
            raise StaleMemberEpochError(
                f"group {self._group}: {member_id} is in epoch {known.epoch}, not in {epoch}"
            )

    def forget_gone(self) -> None:
        """Forget the members that have ended, and that the coordinator does not know any more."""
        known = self.coordinator.members
        self._started = {
            member_id: member
            for member_id, member in self._started.items()
            if member_id in known or not member.has_ended
        }

    def close(self) -> None:
        """End no session any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _heartbeat(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        if values["member_epoch"] == JOINS:
            self._convertible.become_consumer()
        elif self._convertible.is_classic():
            return refused(GROUP_ID_NOT_FOUND)
        # The same again, for topics that were deleted.
        self._state.sizes([member.subscription for member in self.by_id.values()])
        self.coordinator.change_topics(self._state.topic_ids())
        answer = self.coordinator.heartbeat(values, asyncio.get_running_loop().time())
        self._convertible.removed(())
        self._state.changed.notify()
        self.watch_sessions()
        return answer

    def watch_sessions(self) -> None:
        """Set the timer to the end of the next session, unless it goes off sooner."""
        ends_at = self.coordinator.next_end()
        if self._timer is not None and self._timer.when() <= ends_at < inf:
            return
        self.close()
        if ends_at < inf:
            self._timer = asyncio.get_running_loop().call_at(ends_at, self._end_sessions)

    def _end_sessions(self) -> None:
        self._timer = None
        # No session ends while the broker is away. All are renewed when it is back.
        if not self._state.faults.is_down:
            removed = self.coordinator.expire(asyncio.get_running_loop().time())
            self._convertible.removed(removed)
            self.forget_gone()
            self.watch_sessions()
