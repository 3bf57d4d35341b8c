"""The groups of the in-memory broker: members, generations, rebalances, commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import GroupHasMembersError, members_share
from reactive_kafka.broker.memory.assignors import Shares, range_shares, sticky_shares
from reactive_kafka.broker.memory.consumer_members import ConsumerMembers
from reactive_kafka.broker.memory.converted_members import ConvertedMembers
from reactive_kafka.broker.memory.heartbeat_member import HeartbeatMember
from reactive_kafka.broker.memory.member import Member
from reactive_kafka.broker.memory.memory_positions import CommitEntry, StoredPositions, acceptable
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import Committed, TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.memory_state import MemoryState

# The longest metadata of a position in UTF-16 units. Source: ``offset.metadata.max.bytes``.
METADATA_LIMIT = 4096


class Group:
    """A consumer group.

    It has the consumer protocol as long as one of its members has it, and classic members are
    converted meanwhile.

    Attributes:
        protocol: The protocol of the group, ``classic`` or ``consumer``.
    """

    def __init__(self, name: str, state: MemoryState) -> None:
        self.name = name
        self.generation = 0
        self.protocol = Member.protocol
        # Members of the classic protocol, also in a group of the consumer protocol.
        self._classic: dict[str, Member] = {}
        self.consumer_members = ConsumerMembers(name, state, self._new_id, self)
        self._coordinator = self.consumer_members.coordinator
        self._converted = ConvertedMembers(
            state, self._coordinator, self.consumer_members.watch_sessions
        )
        self.positions = StoredPositions()
        self.commits = self.positions.stored
        self.history: list[CommitEntry] = []
        self.watchers: list[Callable[[CommitEntry], None]] = []
        self.metadata_limit = METADATA_LIMIT
        self._state = state
        self._ids = count(1)
        self._is_stale = False
        self._promised_owners: dict[TopicPartition, str] = {}
        self._rebalancing: asyncio.Task[None] | None = None
        self._background: dict[asyncio.Task[None], None] = {}
        # Member that ended during an outage and could not leave -> what waits for its session.
        self._ghosts: dict[Member, asyncio.Task[None]] = {}
        self._cut_off_members: list[Member] = []

    @property
    def members(self) -> Mapping[str, Member | HeartbeatMember]:
        """Member id -> member, in the order of joining."""
        found: dict[str, Member | HeartbeatMember]
        found = {**self._classic, **self.consumer_members.by_id}
        # The number at the end of an id counts the joins.
        return dict(sorted(found.items(), key=lambda item: int(item[0].rpartition("-")[2])))

    @property
    def assignments(self) -> int:
        """How many assignments it has made. In the consumer protocol, its epoch."""
        return max(self.generation, self._coordinator.group_epoch)

    def is_classic(self) -> bool:
        """True if it has classic members, and none of the consumer protocol."""
        return bool(self._classic) and not self._coordinator.members

    def become_consumer(self) -> None:
        """A member of the consumer protocol is about to join: convert the classic members."""
        if self.protocol == HeartbeatMember.protocol:
            return
        self.protocol = HeartbeatMember.protocol
        if self._rebalancing is not None:
            self._rebalancing.cancel()
            self._rebalancing = None
        self._converted.take_over(self._classic.values(), self.assignments)

    def _become_classic(self) -> None:
        """Begin a generation with the classic members, or without any.

        Members that have not heard of the last epoch have lost their partitions. Source: Kafka's
        ``ClassicGroup.fromConsumerGroup``.
        """
        self.protocol = Member.protocol
        self.generation = self.assignments
        self._converted.remove_all()
        for member_id in self._coordinator.hand_over():
            self._classic[member_id].is_behind = True
        self.rebalance()

    def removed(self, member_ids: Collection[str]) -> None:
        """Remove classic members that the coordinator has removed.

        If nobody of the consumer protocol is left, the group becomes classic.
        """
        for member_id in member_ids:
            self._converted.remove(member_id)
            member = self._classic.pop(member_id, None)
            if member is not None:
                self._start_background(self._rejoin(member, 0))
        if self._coordinator.has_only_classic_members():
            self._become_classic()

    def _new_id(self, name: str) -> str:
        return f"{name}-{next(self._ids)}"

    def join(self, member: Member) -> None:
        """Add a member of the classic protocol under a new id, and rebalance."""
        member.begin_membership(self._new_id(member.name))
        self._classic[member.member_id] = member
        if self._coordinator.members:
            self._converted.join(member)
        elif self.protocol == HeartbeatMember.protocol:
            self._become_classic()
        for ghost, ends_session in self._ghosts.items():
            # As with a real client: it says which members of its process have left before it.
            if ghost.left_behind is member.left_behind:
                ends_session.cancel()
                self._end_ghost(ghost)
        if not self._coordinator.members:
            self.rebalance()

    def leave(self, member: Member) -> None:
        """Remove a member, and rebalance. While the broker is away, it cannot be told."""
        if self._state.faults.is_down:
            self._cannot_leave(member)
        else:
            self._remove(member)

    def _remove(self, member: Member) -> None:
        """Remove a member, and rebalance."""
        if self._classic.get(member.member_id) is not member:
            return
        del self._classic[member.member_id]
        self._converted.remove(member.member_id)
        if self._coordinator.members:
            self._coordinator.remove(member.member_id)
        else:
            self.rebalance()

    def _cannot_leave(self, member: Member) -> None:
        """Keep a member that ends while the broker is away, for one session after the outage.

        A coordinator that was restarted, or frozen, gives its members a whole session.
        """
        if self._classic.get(member.member_id) is member:
            member.crash()
            after_outage = self._end_session_after_outage(member)
            self._ghosts[member] = self._start_background(after_outage)

    def expire(self, member_id: str, notice_after_s: float) -> None:
        """Remove a member at once. It notices later, and then joins again."""
        if member_id in self.consumer_members.by_id:
            self.consumer_members.expire(member_id, notice_after_s)
            return
        member = self._classic[member_id]
        self._remove(member)
        self._start_background(self._rejoin(member, notice_after_s))

    def crash(self, member_id: str, session_s: float | None) -> None:
        """Let a member vanish. The group removes it when its session has ended."""
        if member_id in self.consumer_members.by_id:
            now = asyncio.get_running_loop().time()
            self.consumer_members.crash(member_id, session_s, now)
            return
        member = self._classic[member_id]
        member.crash()
        self._start_background(
            self._end_session(member, member.session_timeout_s if session_s is None else session_s)
        )
        self._state.changed.notify()

    def cut_off(self, member_id: str, now: float) -> None:
        """Cut a member off until :meth:`heal`. When its session has ended, it is out but not told.

        KeyError: there is no such member.
        """
        if member_id in self.consumer_members.by_id:
            self.consumer_members.cut_off(member_id)
            return
        member = self._classic[member_id]
        member.cut_since = now
        member.cut = asyncio.create_task(self._end_cut_session(member), name=f"{member_id}-cut-off")
        self._cut_off_members.append(member)

    def heal(self) -> None:
        """Let members reach the group again. Members without a session join again."""
        self.consumer_members.heal()
        healed = self._cut_off_members
        self._cut_off_members = []
        for member in healed:
            if member.cut is not None:
                member.cut.cancel()
            member.cut_since = None
            member.cut = None
            if member.member_id not in self._classic:
                self._start_background(self._rejoin(member, 0))

    async def _end_cut_session(self, member: Member) -> None:
        await asyncio.sleep(member.session_timeout_s)
        self._remove(member)

    @property
    def state(self) -> str:
        """The state of the group, in Kafka's words."""
        if not self.is_classic():
            return self._coordinator.state()
        is_rebalancing = self._rebalancing is not None and not self._rebalancing.done()
        return "PreparingRebalance" if is_rebalancing else "Stable"

    def topic_changed(self, topic: str) -> None:
        """A topic was created or deleted, or has more partitions."""
        self.consumer_members.topics_changed()
        # In the consumer protocol the next heartbeat sees it.
        is_read = any(member.subscription.reads(topic) for member in self._classic.values())
        if is_read and self.is_classic():
            self.rebalance()

    def broker_is_back(self) -> None:
        """An outage is over."""
        self.consumer_members.renew_sessions(asyncio.get_running_loop().time())

    def rebalance(self) -> None:
        """Begin a new generation as soon as the members are ready. Does not wait for that."""
        if self._coordinator.members:
            self._coordinator.begin_epoch()
            return
        self._is_stale = True
        if self._rebalancing is None or self._rebalancing.done():
            self._rebalancing = asyncio.create_task(
                self._rebalance(), name=f"memory-group-{self.name}"
            )

    def commit(
        self, member_id: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Store positions, also lower ones. As in Kafka, ownership is not checked.

        A client outside the group commits with generation -1, to a group without members. Positions
        with too long metadata, or of missing topics, are not stored, the others are. Raises as
        :meth:`Consumer.commit` does.
        """
        self.check(member_id, generation)
        kept, refusal = acceptable(offsets, self.metadata_limit, self._state.refusals(offsets))
        self._record_commit(
            self.positions.store(self._state.clock.monotonic(), member_id, generation, kept)
        )
        if refusal is not None:
            raise refusal

    def check(self, member_id: str, generation: int) -> None:
        """Raise if a member of this generation may store nothing."""
        if generation < 0:
            if self.members:
                raise GroupHasMembersError(members_share(self.name))
        elif self._coordinator.members:
            self.consumer_members.check(member_id, generation)
        elif member_id not in self._classic or generation != self.generation:
            raise NotOwnerError(
                f"group {self.name}: {member_id} of generation {generation} is no member any more"
            )

    def hold(
        self, by: str, member_id: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Keep positions until a transaction ends. Refuses positions as :meth:`commit` does."""
        kept, refusal = acceptable(offsets, self.metadata_limit, self._state.refusals(offsets))
        self.positions.hold(by, member_id, generation, kept)
        if refusal is not None:
            raise refusal

    def end_transaction(self, by: str, is_committed: bool) -> None:
        """Store the positions of a transaction, or drop them."""
        for entry in self.positions.end(by, is_committed, self._state.clock.monotonic()):
            self._record_commit(entry)

    def _record_commit(self, entry: CommitEntry) -> None:
        """Add a commit to the history, and call the watchers."""
        self.history.append(entry)
        for watcher in self.watchers:
            watcher(entry)

    async def close(self) -> None:
        self.consumer_members.close()
        tasks = [
            *self._converted.remove_all(),
            *self._background,
            *([self._rebalancing] if self._rebalancing else []),
        ]
        tasks += [
            member.let_go() for member in {*self._classic.values(), *self._ghosts} if member.crashed
        ]
        tasks += [member.cut for member in self._cut_off_members if member.cut is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _rebalance(self) -> None:
        while self._is_stale:
            self._is_stale = False
            await self._until_ready()
            # If a member came or went meanwhile, wait again. Ready members stay ready.
            if not self._is_stale:
                self._is_stale = self._begin_generation()

    async def _until_ready(self) -> None:
        """Wait for all members, up to the longest ``rebalance_timeout_ms``. Others are removed."""
        longest = max(
            (member.rebalance_timeout_s for member in self._classic.values()), default=0.0
        )
        deadline = asyncio.get_running_loop().time() + longest
        members = dict(self._classic)
        while True:
            # The calls are collected again each time: a member that crashes meanwhile ends one and
            # has another one, until its session has ended.
            calls = [member.pending_call() for member in members.values()]
            waited = [call for call in calls if call is not None]
            if not waited:
                break
            done, _ = await asyncio.wait(
                waited,
                timeout=deadline - asyncio.get_running_loop().time(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        for member_id, member in members.items():
            if member.pending_call() is not None and self._classic.pop(member_id, None) is not None:
                self._start_background(self._rejoin(member, 0))

    def _begin_generation(self) -> bool:
        """Assign partitions. True if another generation must follow.

        That is so if a partition is still owned by another member, which gives it up in this
        generation.
        """
        self.generation += 1
        topics = self._state.sizes([member.subscription for member in self._classic.values()])
        # Creating a topic in the line above has called rebalance(). Its partitions are in already.
        self._is_stale = False
        owners = {
            partition: member_id
            for member_id, member in self._classic.items()
            for partition in member.assignment.since
        }
        shares = self._shares(topics, owners)
        self._promised_owners = {}
        for member_id, member in self._classic.items():
            free = {
                partition
                for partition in shares[member_id]
                if owners.get(partition, member_id) == member_id
            }
            self._promised_owners |= dict.fromkeys(shares[member_id] - free, member_id)
            member.assign(frozenset(free), self.generation)
        self._state.changed.notify()
        return bool(self._promised_owners)

    def _shares(self, topics: Mapping[str, int], owners: Mapping[TopicPartition, str]) -> Shares:
        """Return the shares of all members in the partitions that they read."""
        read = {
            member_id: frozenset(topic for topic in topics if member.subscription.reads(topic))
            for member_id, member in self._classic.items()
        }
        if not any(member.is_cooperative for member in self._classic.values()):
            return range_shares(topics, read)
        # A promised partition counts as its next owner's. Without that the second round could
        # compute other shares, take other partitions away, and never come to an end.
        return sticky_shares(topics, read, {**self._promised_owners, **owners})

    def _start_background(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what, name=f"memory-group-{self.name}-later")
        self._background[task] = None
        task.add_done_callback(self._background.pop)
        return task

    async def _end_session_after_outage(self, member: Member) -> None:
        while self._state.faults.is_down:
            await self._state.changed.wait()
        await self._end_session(member, member.session_timeout_s)

    async def _end_session(self, member: Member, session_s: float) -> None:
        await asyncio.sleep(session_s)
        self._end_ghost(member)

    def _end_ghost(self, member: Member) -> None:
        """Remove a member that has crashed, or that could not leave."""
        member.let_go().cancel()
        self._remove(member)

    async def _rejoin(self, member: Member, notice_after_s: float) -> None:
        """Let a removed member join again, after it has noticed the removal.

        It notices after *notice_after_s*, or as soon as one of its commits was refused.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(notice_after_s):
                await member.refused.wait()
        if not member.closed:
            await asyncio.wait([member.let_go()])
        if not member.closed:
            self.join(member)
