"""The consumer of the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from reactive_kafka.broker.auto_commit import AutoCommit, auto_commit_interval_s
from reactive_kafka.broker.client import Chunk, Poll, RebalanceListener, Sight
from reactive_kafka.broker.memory.faults import Request
from reactive_kafka.broker.memory.group import Assignment, Member
from reactive_kafka.broker.memory.log import PartitionLog
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.broker.static_assignment import GENERATION, NO_GROUP
from reactive_kafka.errors import FatalBrokerError, NotOwnerError, OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Partitions, Subscription

T = TypeVar("T")

_REBALANCE_TIMEOUT_MS = 60_000
_SESSION_TIMEOUT_MS = 45_000


class MemoryConsumer:
    """A member of a group of the in-memory broker, or a reader of partitions of its own choice."""

    def __init__(
        self,
        state: MemoryState,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        self._state = state
        self._name = name
        self._subscription = subscription
        self._group = state.group(group_id) if group_id is not None else None
        self._rebalance_timeout_s = _number(properties, "rebalance_timeout_ms", _REBALANCE_TIMEOUT_MS) / 1000
        self._session_timeout_s = _number(properties, "session_timeout_ms", _SESSION_TIMEOUT_MS) / 1000
        self._auto_commit_s = auto_commit_interval_s(properties)
        self._auto: AutoCommit | None = None
        self._member: Member | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._woken = False
        self._first = 0  # which partition a poll looks at first

    async def start(self, listener: RebalanceListener) -> None:
        """Join the group; the assignment comes later. See :meth:`Consumer.start`."""
        await self._state.faults.ask("start", lambda: None)
        if self._auto_commit_s is not None:
            listener = self._auto = AutoCommit(self, listener, self._auto_commit_s)
            self._auto.start()
        member = self._member = Member(
            self._name,
            self._subscription,
            listener,
            rebalance_timeout_s=self._rebalance_timeout_s,
            session_timeout_s=self._session_timeout_s,
        )
        if isinstance(self._subscription, Partitions):
            for topic in self._subscription.topics:
                self._state.use(topic)
            member.assign(frozenset(self._subscription.partitions), GENERATION)
        elif self._group is not None:
            self._group.join(member)

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        """Take what is there. See :meth:`Consumer.poll`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await asyncio.sleep(0)  # a loop of polls that always find something must not keep the others waiting
        self._state.faults.check_poll()
        if self._auto is not None:
            self._auto.check()
        while True:
            self._check_alive()
            if self._member is not None and (error := self._member.listener_error) is not None:
                raise error
            poll = self._take(budgets, most)
            if poll.chunks or poll.errors or self._woken:
                self._woken = False
                return poll
            if not await self._state.changed.wait_until(deadline):
                return poll

    def wake(self) -> None:
        """Make a poll that waits return. See :meth:`Consumer.wake`."""
        self._woken = True
        self._state.changed.notify()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read from there next. See :meth:`Consumer.start_at`."""
        owned = self._owned(positions)
        owned.positions.update({partition: positions[partition] for partition in sorted(positions)})
        self._state.changed.notify()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching partitions. See :meth:`Consumer.pause`."""
        if (owned := self._assignment) is not None:
            owned.paused.update(owned.partitions.intersection(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch partitions again. See :meth:`Consumer.resume`."""
        if (owned := self._assignment) is not None:
            owned.paused.difference_update(partitions)
            self._state.changed.notify()

    def positions(self) -> dict[TopicPartition, int]:
        """partition -> offset of the next record. See :meth:`Consumer.positions`."""
        return dict(owned.positions) if (owned := self._assignment) is not None else {}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """partition -> end of the log when a poll last looked. See :meth:`Consumer.high_watermarks`."""
        owned = self._assignment
        return {tp: end for tp, end in self._ends.items() if owned is not None and tp in owned.partitions}

    def is_member(self) -> bool:
        """Whether the group has not put it out. See :meth:`Consumer.is_member`."""
        group, member = self._group, self._member
        return self._is_static or group is None or member is None or member.member_id in group.members

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Store positions in the group. See :meth:`Consumer.commit`."""
        self._check_alive()
        group, member = self._group, self._member
        if group is None:
            raise FatalBrokerError(NO_GROUP)
        if member is None or self._owned(offsets).generation != generation:
            raise NotOwnerError(f"generation {generation} is over")
        member_id = member.member_id  # of the moment of sending
        sent = -1 if self._is_static else generation
        try:
            await self._state.faults.ask("commit", lambda: group.commit(member_id, sent, offsets), group.name)
        except NotOwnerError:
            member.refused.set()
            raise

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """partition -> what is stored. See :meth:`Consumer.committed`."""
        group = self._group
        if group is None:
            raise FatalBrokerError(NO_GROUP)
        return await self._ask("committed", lambda: {tp: group.commits.get(tp) for tp in partitions})

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """partition -> start of the log. See :meth:`Consumer.beginning_offsets`."""
        log = self._state.led_log
        return await self._ask("beginning_offsets", lambda: {tp: log(tp).start for tp in partitions})

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """partition -> end of the log. See :meth:`Consumer.end_offsets`."""
        log = self._state.led_log
        return await self._ask("end_offsets", lambda: {tp: log(tp).end for tp in partitions})

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """partition -> offset of the first record from then on. See :meth:`Consumer.offsets_for_times`."""
        log = self._state.led_log
        return await self._ask(
            "offsets_for_times", lambda: {tp: log(tp).offset_at(time_ms) for tp, time_ms in times_ms.items()}
        )

    async def topics(self) -> dict[str, list[TopicPartition]]:
        """topic -> its partitions. See :meth:`Consumer.topics`."""
        return await self._ask("topics", self._state.partitions_by_topic)

    async def check(self) -> None:
        """Ask the broker for anything. See :meth:`Consumer.check`."""
        await self._ask("check", lambda: None)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        """What cannot be read. See :meth:`Consumer.look`."""
        topics = frozenset(self._subscription.topics)
        away = self._state.faults.leaders_away
        silent: dict[TopicPartition, str | None] = {one: away[one] for one in partitions if one in away}
        return Sight(frozenset(topics - self._state.logs.keys()), silent=silent)

    async def stop(self) -> None:
        """Leave the group. See :meth:`Consumer.stop`."""
        auto, self._auto = self._auto, None
        try:
            if auto is not None:
                await auto.close()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        member, self._member = self._member, None
        if member is None or member.crashed:
            return
        if self._group is not None:
            self._group.leave(member)
        await member.close()
        self.wake()

    async def _ask(self, call: Request, effect: Callable[[], T]) -> T:
        self._check_alive()
        return await self._state.faults.ask(call, effect)

    def _check_alive(self) -> None:
        if self._member is not None and self._member.crashed:
            raise TransientBrokerError(f"{self._member.member_id} has crashed")

    @property
    def _is_static(self) -> bool:
        return isinstance(self._subscription, Partitions)

    @property
    def _assignment(self) -> Assignment | None:
        return self._member.assignment if self._member is not None else None

    def _owned(self, partitions: Collection[TopicPartition]) -> Assignment:
        owned = self._assignment
        for partition in partitions:
            if owned is None or partition not in owned.partitions:
                raise NotOwnerError(f"{TopicPartition(*partition)} is not assigned")
        if owned is None:
            raise NotOwnerError("nothing is assigned")
        return owned

    def _take(self, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        poll = Poll()
        owned = self._assignment
        if owned is None or not owned.flowing or self._state.faults.down:
            return poll
        held = owned.paused | self._state.faults.leaders_away.keys()
        flowing = [tp for tp in owned.positions if tp not in held]
        self._first += 1  # each poll begins with another partition, so that the order favours none
        turn = self._first % max(1, len(flowing))
        left = sum(budgets.values()) if most is None else most
        for passed, partition in enumerate(flowing[turn:] + flowing[:turn]):
            log = self._state.log(partition)
            if log is None:
                continue
            self._ends[partition] = log.end
            budget = min(budgets.get(partition, 0), left)
            if budget > 0:
                left -= self._read(log, partition, owned, budget, poll)
                if not left and most is not None:
                    self._first += passed  # the next poll begins behind the last one that this one took from
        return poll

    def _read(self, log: PartitionLog, partition: TopicPartition, owned: Assignment, most: int, poll: Poll) -> int:
        position = owned.positions[partition]
        if not log.start <= position <= log.end:
            poll.errors[partition] = OffsetOutOfRangeError(partition, position)
            return 0
        records, next_offset = log.read(position, most)
        if next_offset > position:
            owned.positions[partition] = next_offset
            poll.chunks.append(Chunk(partition, records, next_offset, log.end))
        return len(records)


def _number(properties: Mapping[str, object], name: str, default: float) -> float:
    value = properties.get(name)
    return float(value) if isinstance(value, int | float | str) else default
