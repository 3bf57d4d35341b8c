"""Members of the in-memory broker's groups: what each owns, and what its listener is told, one call
after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Subscription


@dataclass(slots=True)
class MemberAssignment:
    """What a member owns, and where it reads."""

    # The member's: that of the group's last assignment to it.
    generation: int = -1
    # Its partitions -> generation of their assignment.
    since: dict[TopicPartition, int] = field(default_factory=dict)
    # Next offsets, of those that have started.
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    # Being revoked: not read any more, may still be committed.
    going: frozenset[TopicPartition] = frozenset()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.since)

    def add(self, partitions: Collection[TopicPartition]) -> None:
        self.since.update(dict.fromkeys(partitions, self.generation))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.difference_update(partitions)
        self.going -= frozenset(partitions)
        for partition in partitions:
            del self.since[partition]
            self.positions.pop(partition, None)

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """Raise NotOwnerError where one of them is not owned."""
        for partition in partitions:
            if partition not in self.since:
                raise NotOwnerError(f"{TopicPartition(*partition)} is not assigned")

    def has_kept(self, partitions: Collection[TopicPartition], generation: int) -> bool:
        """Whether they are owned, and have been since *generation*."""
        return all(
            self.since.get(partition, generation + 1) <= generation for partition in partitions
        )

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self.check(positions)
        self.positions.update({partition: positions[partition] for partition in sorted(positions)})


class Member:
    """One consumer as its group sees it. Its listener is called for one thing after the other,
    never at once.
    """

    # But eager: it lets go of everything before each generation begins.
    is_cooperative = False
    # From when its consumer starts.
    listener: RebalanceListener

    def __init__(
        self, name: str, subscription: Subscription, properties: Mapping[str, object]
    ) -> None:
        self.name = name
        self.subscription = subscription
        self.rebalance_timeout_s = _seconds(properties, "rebalance_timeout_ms", 60.0)
        self.session_timeout_s = _seconds(properties, "session_timeout_ms", 45.0)
        self.member_id = ""
        self.assignment = MemberAssignment()
        self.closed = False
        self.crashed = False
        # It reaches nobody in its group since then.
        self.cut_since: float | None = None
        # What the group waits for meanwhile: it ends with the session.
        self.cut: asyncio.Task[Any] | None = None
        # A commit told it that it is no member any more.
        self.refused = asyncio.Event()
        self.listener_error: BaseException | None = None
        self._assigning: asyncio.Task[None] | None = None
        self._revoking: asyncio.Task[Any] | None = None

    def busy(self) -> asyncio.Task[Any] | None:
        """What has to end before the next generation can begin, and begins with this call; None:
        nothing.
        """
        if self.cut is not None:
            return None if self.cut.done() else self.cut
        revoking = self.let_go()
        return None if revoking.done() else revoking

    def let_go(self) -> asyncio.Task[Any]:
        """Tell the listener once that everything goes; the task ends when it has let go, and never
        after a crash.
        """
        if self._revoking is None:
            self._revoking = asyncio.create_task(
                self._revoke_all(), name=f"{self.member_id}-revoke"
            )
        return self._revoking

    def assign(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self.assignment = MemberAssignment(generation)
        self.assignment.add(partitions)
        self._start_call(self._tell(lambda: self.listener.on_assigned(partitions, generation)))

    async def close(self) -> None:
        """End the listener's calls, except one that this was called from."""
        await asyncio.gather(*self._end(), return_exceptions=True)

    def crash(self) -> None:
        """End in the middle of whatever it was doing, and tell nobody."""
        self.crashed = True
        self._end()
        self._revoking = asyncio.create_task(
            asyncio.Event().wait(), name=f"{self.member_id}-crashed"
        )

    def _start_call(self, call: Coroutine[Any, Any, None]) -> None:
        self._revoking = None
        self._assigning = asyncio.create_task(call, name=f"{self.member_id}-assign")

    def _end(self) -> list[asyncio.Task[Any]]:
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

    async def _revoke(self, owned: MemberAssignment, going: frozenset[TopicPartition]) -> None:
        owned.going = going
        await self._tell(lambda: self.listener.on_revoked(going))
        owned.drop(going)

    async def _tell(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await call()
        except Exception as error:
            # A listener must not raise. The group goes on, as Kafka's would; the member's next poll
            # raises this.
            self.listener_error = error


def _seconds(properties: Mapping[str, object], name: str, default: float) -> float:
    value = properties.get(name)
    return float(value) / 1000 if isinstance(value, int | float | str) else default


class CooperativeMember(Member):
    """A member that keeps what stays its own from one generation to the next.

    It lets go of what it has to when it learns of the new assignment: so a generation begins while
    it still reads, and what it gives up is assigned in the generation after that one.

    Source: KIP-429.
    """

    is_cooperative = True

    def busy(self) -> asyncio.Task[Any] | None:
        """It has to have carried out its last assignment, and joins again by then."""
        if self.cut is not None:
            return super().busy()
        call = self._revoking if self.crashed else self._assigning
        return None if call is None or call.done() else call

    def assign(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Tell the listener what goes, then what comes; what stays is not mentioned."""
        owned = self.assignment
        owned.generation = generation
        self._start_call(
            self._change(owned, partitions - owned.partitions, owned.partitions - partitions)
        )

    async def _change(
        self,
        owned: MemberAssignment,
        coming: frozenset[TopicPartition],
        going: frozenset[TopicPartition],
    ) -> None:
        generation = owned.generation
        if going:
            await self._revoke(owned, going)
        owned.add(coming)
        await self._tell(lambda: self.listener.on_assigned(coming, generation))
