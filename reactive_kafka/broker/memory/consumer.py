"""The consumer of the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from reactive_kafka.broker.asking import Asking
from reactive_kafka.broker.auto_commit import AutoCommit, auto_commit_interval_s
from reactive_kafka.broker.client import Poll, RebalanceListener, Sight
from reactive_kafka.broker.memory.asking import MemoryQuestions
from reactive_kafka.broker.memory.member import Assignment, CooperativeMember, Member
from reactive_kafka.broker.memory.reading import Reader
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.broker.static_assignment import GENERATION, NO_GROUP
from reactive_kafka.errors import FatalBrokerError, NotOwnerError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Partitions, Subscription

_REBALANCE_TIMEOUT_MS = 60_000
_SESSION_TIMEOUT_MS = 45_000


class MemoryConsumer(Asking):
    """A member of a group of the in-memory broker, or a reader of partitions of its own choice.

    See :class:`reactive_kafka.broker.client.Consumer`.

    Args:
        is_cooperative: Whether it keeps the partitions that stay its own in a rebalance.
    """

    def __init__(
        self,
        state: MemoryState,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
        is_cooperative: bool = False,
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        self._state = state
        self._name = name
        self._subscription = subscription
        self._is_static = isinstance(subscription, Partitions)
        self._group = state.group(group_id) if group_id is not None else None
        self._kind = CooperativeMember if is_cooperative and not self._is_static else Member
        self._rebalance_timeout_s = _number(properties, "rebalance_timeout_ms", _REBALANCE_TIMEOUT_MS) / 1000
        self._session_timeout_s = _number(properties, "session_timeout_ms", _SESSION_TIMEOUT_MS) / 1000
        self._auto_commit_s = auto_commit_interval_s(properties)
        self._auto: AutoCommit | None = None
        self._member: Member | None = None
        self._reader = Reader(state)
        self._asking = MemoryQuestions(state, state.led_log, self._check_alive)
        self._woken = False

    async def start(self, listener: RebalanceListener) -> None:
        await self._state.faults.ask("start", lambda: None)
        if self._auto_commit_s is not None:
            listener = self._auto = AutoCommit(self, listener, self._auto_commit_s)
            self._auto.start()
        member = self._member = self._kind(
            self._name,
            self._subscription,
            listener,
            rebalance_timeout_s=self._rebalance_timeout_s,
            session_timeout_s=self._session_timeout_s,
        )
        if isinstance(self._subscription, Partitions):
            for topic in sorted(self._subscription.topics):
                self._state.use(topic)
            member.assign(frozenset(self._subscription.partitions), GENERATION)
        elif self._group is not None:
            self._group.join(member)

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        deadline = asyncio.get_running_loop().time() + timeout_s
        await asyncio.sleep(0)  # a loop of polls that always find something must not keep the others waiting
        self._state.faults.check_poll()
        if self._auto is not None:
            self._auto.check()
        while True:
            self._check_alive()
            if self._member is not None and (error := self._member.listener_error) is not None:
                raise error
            owned = self._assignment
            poll = self._reader.take(owned, budgets, most) if owned is not None else Poll()
            if poll.chunks or poll.errors or self._woken:
                self._woken = False
                return poll
            if not await self._state.changed.wait_until(deadline):
                return poll

    def wake(self) -> None:
        self._woken = True
        self._state.changed.notify()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self._owned().start_at(positions)
        self._state.changed.notify()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        if (owned := self._assignment) is not None:
            owned.paused.update(owned.partitions.intersection(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        if (owned := self._assignment) is not None:
            owned.paused.difference_update(partitions)
            self._state.changed.notify()

    def positions(self) -> dict[TopicPartition, int]:
        return dict(owned.positions) if (owned := self._assignment) is not None else {}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        owned = self._assignment
        return {tp: end for tp, end in self._reader.ends.items() if owned is not None and tp in owned.since}

    def is_member(self) -> bool:
        group, member = self._group, self._member
        return self._is_static or group is None or member is None or member.member_id in group.members

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        self._check_alive()
        group, member = self._group, self._member
        if group is None:
            raise FatalBrokerError(NO_GROUP)
        owned = self._owned()
        owned.check(offsets)
        if member is None or generation > owned.generation or not owned.has_kept(offsets, generation):
            raise NotOwnerError(f"generation {generation} is over")
        member_id, sent = member.member_id, owned.generation  # of the moment of sending
        number = -1 if self._is_static else sent
        try:
            await self._state.faults.ask("commit", lambda: group.commit(member_id, number, offsets), group.name)
        except NotOwnerError as error:
            if self._has_moved_on_with(offsets, sent):
                # The group has begun another generation while the request was on its way. It kept these partitions
                # for this member, so the commit can be sent again. The Java consumer raises a retriable
                # RebalanceInProgressException here.
                raise TransientBrokerError(f"a rebalance was in progress: {error}") from error
            member.refused.set()
            raise

    def _has_moved_on_with(self, partitions: Collection[TopicPartition], generation: int) -> bool:
        """Whether this member is in a later generation by now, and has kept these partitions since that one."""
        owned = self._assignment
        if owned is None or owned.generation == generation or not self.is_member():
            return False
        return owned.has_kept(partitions, generation)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        group = self._group
        if group is None:
            raise FatalBrokerError(NO_GROUP)
        return await self._asking.ask("committed", lambda: {tp: group.commits.get(tp) for tp in partitions})

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        away = self._state.faults.leaders_away
        silent: dict[TopicPartition, str | None] = {one: away[one] for one in partitions if one in away}
        return Sight(frozenset(self._subscription.topics) - self._state.logs.keys(), silent=silent)

    async def stop(self) -> None:
        auto, self._auto = self._auto, None
        try:
            if auto is not None:
                await auto.close()
        finally:
            member, self._member = self._member, None
            if member is not None and not member.crashed:
                if self._group is not None:
                    self._group.leave(member)
                await member.close()
                self.wake()

    @property
    def _questions(self) -> MemoryQuestions:
        return self._asking

    def _check_alive(self) -> None:
        if self._member is not None and self._member.crashed:
            raise TransientBrokerError(f"{self._member.member_id} has crashed")

    @property
    def _assignment(self) -> Assignment | None:
        return self._member.assignment if self._member is not None else None

    def _owned(self) -> Assignment:
        if self._assignment is None:
            raise NotOwnerError("nothing is assigned")
        return self._assignment


def _number(properties: Mapping[str, object], name: str, default: float) -> float:
    value = properties.get(name)
    return float(value) if isinstance(value, int | float | str) else default
