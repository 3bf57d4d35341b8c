"""Groups of the in-memory broker: members, generations, rebalances, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import GroupHasMembersError, members_share
from reactive_kafka.broker.memory.assignors import Shares, range_shares, sticky_shares
from reactive_kafka.broker.memory.member import Member
from reactive_kafka.broker.memory.stored_positions import CommitEntry, StoredPositions, acceptable
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import Committed, TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.memory_state import MemoryState

# Of a commit, in UTF-16 units. Source: Kafka's ``offset.metadata.max.bytes`` as it acts.
METADATA_LIMIT = 4096


class Group:
    """A consumer group."""

    def __init__(self, name: str, state: MemoryState) -> None:
        self.name = name
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.positions = StoredPositions()
        self.commits = self.positions.stored
        self.history: list[CommitEntry] = []
        self.watchers: list[Callable[[CommitEntry], None]] = []
        self.metadata_limit = METADATA_LIMIT
        self._state = state
        self._ids = count(1)
        self._is_stale = False
        self._promised: dict[TopicPartition, str] = {}
        self._rebalancing: asyncio.Task[None] | None = None
        self._later: dict[asyncio.Task[None], None] = {}
        # They ended, and could not leave.
        self._ghosts: list[Member] = []
        # They reach this group no more.
        self.cut_off: list[Member] = []

    def join(self, member: Member) -> None:
        member.member_id = f"{member.name}-{next(self._ids)}"
        member.refused.clear()
        self.members[member.member_id] = member
        self.rebalance()

    def leave(self, member: Member) -> None:
        if self.members.get(member.member_id) is member:
            del self.members[member.member_id]
            self.rebalance()

    def cannot_leave(self, member: Member) -> None:
        """A member ends while the broker is away: the group keeps it for one more session after the
        broker is back.

        A coordinator that was started again, or that was frozen, gives its members the whole of
        their sessions.
        """
        if self.members.get(member.member_id) is member:
            member.crash()
            self._ghosts.append(member)
            self.do_later(self._end_session_after_outage(member))

    def expire(self, member_id: str, notice_after_s: float) -> None:
        member = self.members.pop(member_id)
        self.rebalance()
        self.do_later(self.return_later(member, notice_after_s))

    def crash(self, member_id: str, session_s: float | None) -> None:
        member = self.members[member_id]
        member.crash()
        self.do_later(
            self._end_session(member, member.session_timeout_s if session_s is None else session_s)
        )
        self._state.changed.notify()

    @property
    def state(self) -> str:
        """In Kafka's words."""
        if not self.members:
            return "Empty"
        is_rebalancing = self._rebalancing is not None and not self._rebalancing.done()
        return "PreparingRebalance" if is_rebalancing else "Stable"

    def rebalance(self) -> None:
        """Begin a new generation once the members are ready for it. Returns at once."""
        self._is_stale = True
        if self._rebalancing is None or self._rebalancing.done():
            self._rebalancing = asyncio.create_task(
                self._rebalance(), name=f"memory-group-{self.name}"
            )

    def commit(
        self, member_id: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Store positions, lower ones too. As Kafka: member and generation are checked, ownership
        is not.

        Who is no member commits with generation -1, to a group that has no members. Where metadata
        is over the limit, or a topic does not exist, the other partitions are stored all the same.
        What is refused raises as :meth:`Consumer.commit` does.
        """
        self.check(member_id, generation)
        kept, refusal = acceptable(offsets, self.metadata_limit, self._state.refusals(offsets))
        self._tell(self.positions.store(self._state.clock.monotonic(), member_id, generation, kept))
        if refusal is not None:
            raise refusal

    def check(self, member_id: str, generation: int) -> None:
        """Raise where somebody may store nothing."""
        if generation < 0:
            if self.members:
                raise GroupHasMembersError(members_share(self.name))
        elif member_id not in self.members or generation != self.generation:
            raise NotOwnerError(
                f"group {self.name}: {member_id} of generation {generation} is no member any more"
            )

    def hold(
        self, by: str, member_id: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Keep positions for the end of a transaction; refuses metadata as :meth:`commit` does."""
        kept, refusal = acceptable(offsets, self.metadata_limit, self._state.refusals(offsets))
        self.positions.hold(by, member_id, generation, kept)
        if refusal is not None:
            raise refusal

    def end_transaction(self, by: str, is_committed: bool) -> None:
        """Store what was kept for it, or drop that."""
        for entry in self.positions.end(by, is_committed, self._state.clock.monotonic()):
            self._tell(entry)

    def _tell(self, entry: CommitEntry) -> None:
        self.history.append(entry)
        for watcher in self.watchers:
            watcher(entry)

    async def close(self) -> None:
        tasks = [*self._later, *([self._rebalancing] if self._rebalancing else [])]
        tasks += [
            member.let_go() for member in {*self.members.values(), *self._ghosts} if member.crashed
        ]
        tasks += [member.cut for member in self.cut_off if member.cut is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _rebalance(self) -> None:
        while self._is_stale:
            self._is_stale = False
            await self._until_ready()
            # Else somebody came or went meanwhile; who is ready is not asked again.
            if not self._is_stale:
                self._is_stale = self._begin_generation()

    async def _until_ready(self) -> None:
        """Wait for all, as long as the most patient of them wants; who is not ready by then is
        out.
        """
        longest = max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)
        deadline = asyncio.get_running_loop().time() + longest
        asked = dict(self.members)
        while waited := [task for member in asked.values() if (task := member.busy()) is not None]:
            # Again after each: who crashes meanwhile ends one task and has another, until its
            # session has ended.
            done, _ = await asyncio.wait(
                waited,
                timeout=deadline - asyncio.get_running_loop().time(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        for member_id, member in asked.items():
            if member.busy() is not None and self.members.pop(member_id, None) is not None:
                self.do_later(self.return_later(member, 0))

    def _begin_generation(self) -> bool:
        """Assign; True if a partition waits for its owner to let go of it, so that another
        generation has to follow.
        """
        self.generation += 1
        topics = self._state.sizes([member.subscription for member in self.members.values()])
        # A topic that the line above has created is known by now.
        self._is_stale = False
        owners = {
            tp: member_id
            for member_id, member in self.members.items()
            for tp in member.assignment.since
        }
        shares = self._shares(topics, owners)
        self._promised = {}
        for member_id, member in self.members.items():
            free = {
                partition
                for partition in shares[member_id]
                if owners.get(partition, member_id) == member_id
            }
            self._promised |= dict.fromkeys(shares[member_id] - free, member_id)
            member.assign(frozenset(free), self.generation)
        self._state.changed.notify()
        return bool(self._promised)

    def _shares(self, topics: Mapping[str, int], owners: Mapping[TopicPartition, str]) -> Shares:
        read = {
            member_id: frozenset(topic for topic in topics if member.subscription.reads(topic))
            for member_id, member in self.members.items()
        }
        if not any(member.is_cooperative for member in self.members.values()):
            return range_shares(topics, read)
        # A promised partition counts as its next owner's: computed anew without it, the shares
        # could come out otherwise in the second round, take other partitions away, and never
        # settle.
        return sticky_shares(topics, read, {**self._promised, **owners})

    def do_later(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what, name=f"memory-group-{self.name}-later")
        self._later[task] = None
        task.add_done_callback(self._later.pop)

    async def _end_session_after_outage(self, member: Member) -> None:
        while self._state.faults.down:
            await self._state.changed.wait()
        await self._end_session(member, member.session_timeout_s)

    async def _end_session(self, member: Member, session_s: float) -> None:
        await asyncio.sleep(session_s)
        member.let_go().cancel()
        self.leave(member)

    async def return_later(self, member: Member, notice_after_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(notice_after_s):
                await member.refused.wait()
        if not member.closed:
            await asyncio.wait([member.let_go()])
        if not member.closed:
            self.join(member)
