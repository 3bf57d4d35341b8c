"""Groups of the in-memory broker: members, generations, eager rebalances, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.static_assignment import members_share
from reactive_kafka.errors import MetadataTooLargeError, NotOwnerError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Subscription

METADATA_LIMIT = 4096
"""Longest metadata of a commit, in UTF-16 units. Source: Kafka's ``offset.metadata.max.bytes`` as it acts."""


@dataclass(slots=True)
class Assignment:
    """What a member owns during one generation, and where it reads."""

    partitions: frozenset[TopicPartition]
    generation: int
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    flowing: bool = True  # False from the moment its revocation begins


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One commit that the group has accepted; ``at`` is the clock's monotonic time, in seconds."""

    at: float
    member: str
    generation: int
    offsets: Mapping[TopicPartition, Committed]


class Member:
    """One consumer as its group sees it. Its listener is called for one thing after the other, never at once."""

    def __init__(
        self,
        name: str,
        subscription: Subscription,
        listener: RebalanceListener,
        *,
        rebalance_timeout_s: float,
        session_timeout_s: float,
    ) -> None:
        self.name = name
        self.subscription = subscription
        self.rebalance_timeout_s = rebalance_timeout_s
        self.session_timeout_s = session_timeout_s
        self.member_id = ""
        self.assignment: Assignment | None = None
        self.closed = False
        self.crashed = False
        self.refused = asyncio.Event()  # a commit told it that it is no member any more
        self.listener_error: BaseException | None = None
        self._listener = listener
        self._assigning: asyncio.Task[None] | None = None
        self._revoking: asyncio.Task[Any] | None = None

    def let_go(self) -> asyncio.Task[Any]:
        """Tell the listener that everything goes; the task ends when it has let go. Once between two assignments.

        One that has crashed never does.
        """
        if self._revoking is None:
            self._revoking = asyncio.create_task(self._revoke(), name=f"{self.member_id}-revoke")
        return self._revoking

    def assign(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Give partitions to the member, and tell its listener in a task."""
        self._revoking = None
        self.assignment = Assignment(partitions, generation)
        told = self._tell(lambda: self._listener.on_assigned(partitions, generation))
        self._assigning = asyncio.create_task(told, name=f"{self.member_id}-assign")

    async def close(self) -> None:
        """End the listener's calls, except one that this was called from."""
        await asyncio.gather(*self._end(), return_exceptions=True)

    def crash(self) -> None:
        """End in the middle of whatever it was doing, and tell nobody."""
        self.crashed = True
        self._end()
        self._revoking = asyncio.create_task(asyncio.Event().wait(), name=f"{self.member_id}-crashed")

    def _end(self) -> list[asyncio.Task[Any]]:
        self.closed = True
        self.assignment = None
        here = asyncio.current_task()
        calls = [call for call in (self._assigning, self._revoking) if call is not None and call is not here]
        for call in calls:
            call.cancel()
        return calls

    async def _revoke(self) -> None:
        if self._assigning is not None:
            await asyncio.wait([self._assigning])
        going: frozenset[TopicPartition] = frozenset()
        if self.assignment is not None:
            self.assignment.flowing = False
            going = self.assignment.partitions
        await self._tell(lambda: self._listener.on_revoked(going))
        self.assignment = None

    async def _tell(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await call()
        except Exception as error:
            # A listener must not raise. The group goes on, as Kafka's would; the member's next poll raises this.
            self.listener_error = error


class Group:
    """A consumer group.

    Args:
        name: The group id.
        sizes: The members' subscriptions -> topic -> number of its partitions, now. It may create topics.
        now: The broker's monotonic clock, in seconds.
        changed: Called when an assignment has changed.
    """

    def __init__(
        self,
        name: str,
        sizes: Callable[[Sequence[Subscription]], dict[str, int]],
        now: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.commits: dict[TopicPartition, Committed] = {}
        self.history: list[CommitEntry] = []
        self.watchers: list[Callable[[CommitEntry], None]] = []
        self.metadata_limit = METADATA_LIMIT
        self._sizes = sizes
        self._now = now
        self._changed = changed
        self._ids = count(1)
        self._is_stale = False
        self._rebalancing: asyncio.Task[None] | None = None
        self._later: dict[asyncio.Task[None], None] = {}

    def join(self, member: Member) -> None:
        """Take a member in; the group rebalances."""
        member.member_id = f"{member.name}-{next(self._ids)}"
        member.refused.clear()
        self.members[member.member_id] = member
        self.rebalance()

    def leave(self, member: Member) -> None:
        """Let a member out; what it had goes to the others."""
        if self.members.get(member.member_id) is member:
            del self.members[member.member_id]
            self.rebalance()

    def expire(self, member_id: str, notice_after_s: float) -> None:
        """Throw a member out, as a session that ended does; it comes back by itself once it has noticed.

        It notices after *notice_after_s*, or when a commit of its is refused; until then it reads on.
        """
        member = self.members.pop(member_id)
        self.rebalance()
        self._do_later(self._return(member, notice_after_s))

    def crash(self, member_id: str, session_s: float | None) -> None:
        """Let a member vanish without leaving: it stays one until its session has ended, and never lets go."""
        member = self.members[member_id]
        member.crash()
        self._do_later(self._end_session(member, member.session_timeout_s if session_s is None else session_s))
        self._changed()

    @property
    def state(self) -> str:
        """In Kafka's words."""
        if not self.members:
            return "Empty"
        is_rebalancing = self._rebalancing is not None and not self._rebalancing.done()
        return "PreparingRebalance" if is_rebalancing else "Stable"

    def rebalance(self) -> None:
        """Everybody lets go, then a new generation begins. Returns at once."""
        self._is_stale = True
        if self._rebalancing is None or self._rebalancing.done():
            self._rebalancing = asyncio.create_task(self._rebalance(), name=f"memory-group-{self.name}")

    def commit(self, member_id: str, generation: int, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store positions, lower ones too. As Kafka: member and generation are checked, ownership is not.

        Who is no member commits with generation -1, to a group that has no members.

        Raises:
            NotOwnerError: The member is not in the group any more, or the generation is over.
            TransientBrokerError: No member's commit, and the group has members.
            MetadataTooLargeError: It is over the limit; the other partitions are stored all the same.
        """
        if generation < 0:
            if self.members:
                raise TransientBrokerError(members_share(self.name))
        elif member_id not in self.members or generation != self.generation:
            raise NotOwnerError(f"group {self.name}: {member_id} of generation {generation} is no member any more")
        too_long = [partition for partition, stored in offsets.items() if _units(stored.metadata) > self.metadata_limit]
        kept = {partition: Committed(*stored) for partition, stored in offsets.items() if partition not in too_long}
        self.commits.update(kept)
        entry = CommitEntry(self._now(), member_id, generation, kept)
        self.history.append(entry)
        for watcher in self.watchers:
            watcher(entry)
        if too_long:
            what = f"the metadata for {too_long[0]} is longer than {self.metadata_limit} UTF-16 units"
            raise MetadataTooLargeError(what, too_long)

    async def close(self) -> None:
        """End the group's own tasks."""
        tasks = [*self._later, *([self._rebalancing] if self._rebalancing else [])]
        tasks += [member.let_go() for member in self.members.values() if member.crashed]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _rebalance(self) -> None:
        while self._is_stale:
            self._is_stale = False
            await self._everybody_lets_go()
            if not self._is_stale:  # else somebody came or went meanwhile; who has let go is not asked again
                self._begin_generation()

    async def _everybody_lets_go(self) -> None:
        """Wait for all, as long as the most patient of them wants; who has not let go by then is out."""
        longest = max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)
        deadline = asyncio.get_running_loop().time() + longest
        asked = dict(self.members)
        while waited := [task for member in asked.values() if not (task := member.let_go()).done()]:
            # Again after each: who crashes meanwhile ends one task and has another, until its session has ended.
            done, _ = await asyncio.wait(
                waited,
                timeout=deadline - asyncio.get_running_loop().time(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        for member_id, member in asked.items():
            if not member.let_go().done() and self.members.pop(member_id, None) is not None:
                self._do_later(self._return(member, 0))

    def _begin_generation(self) -> None:
        self.generation += 1
        topics = self._sizes([member.subscription for member in self.members.values()])
        self._is_stale = False  # a topic that the line above has created is known by now
        shares = range_shares(
            topics,
            {
                member_id: frozenset(topic for topic in topics if member.subscription.reads(topic))
                for member_id, member in self.members.items()
            },
        )
        for member_id, member in self.members.items():
            member.assign(shares[member_id], self.generation)
        self._changed()

    def _do_later(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what, name=f"memory-group-{self.name}-later")
        self._later[task] = None
        task.add_done_callback(self._later.pop)

    async def _end_session(self, member: Member, session_s: float) -> None:
        await asyncio.sleep(session_s)
        member.let_go().cancel()
        if self.members.get(member.member_id) is member:
            del self.members[member.member_id]
            self.rebalance()

    async def _return(self, member: Member, notice_after_s: float) -> None:
        try:
            async with asyncio.timeout(notice_after_s):
                await member.refused.wait()
        except TimeoutError:
            pass
        if not member.closed:
            await asyncio.wait([member.let_go()])
        if not member.closed:
            self.join(member)


def range_shares(
    topics: Mapping[str, int], members: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[TopicPartition]]:
    """member id -> its partitions: of each topic a run of neighbours, the first members one more.

    Args:
        topics: topic -> number of partitions.
        members: member id -> topics it subscribes to.

    Source: Kafka's RangeAssignor.
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for topic, partitions in topics.items():
        takers = sorted(member for member, wanted in members.items() if topic in wanted)
        if not takers:
            continue
        each, more = divmod(partitions, len(takers))
        first = 0
        for index, taker in enumerate(takers):
            past = first + each + (index < more)
            shares[taker].update(TopicPartition(topic, number) for number in range(first, past))
            first = past
    return {member: frozenset(share) for member, share in shares.items()}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
