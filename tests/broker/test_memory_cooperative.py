"""Incremental rebalances of the in-memory broker: the contract, what disturbs them, and any
sequence of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.memory.broker import AssignmentKind
from reactive_kafka.errors import NotOwnerError, TransientBrokerError
from reactive_kafka.subscription import Topics
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.contract import (
    CommitContract,
    LogContract,
    ProducingContract,
    ReadingContract,
    group,
)
from tests.broker.contract_assignments import (
    AutoCommitContract,
    StaticContract,
    TimesContract,
    WholeTopicContract,
)
from tests.broker.contract_cooperative import (
    CooperativeContract,
    TopiclessMemberContract,
    changes,
    held,
    soon,
)
from tests.broker.members import Member, joined
from tests.broker.test_memory import MemoryCluster

__all__ = ["group"]

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_S = 10.0


def cooperative(
    broker: MemoryBroker, properties: Mapping[str, object] | None = None
) -> MemoryCluster:
    """The in-memory broker whose clients are of the incremental kind."""
    cluster = MemoryCluster(broker)
    cluster.connector = broker.connector(assignment="cooperative")
    cluster.properties = properties or {}
    return cluster


def cluster_with(partitions: int, properties: Mapping[str, object] | None = None) -> MemoryCluster:
    cluster = cooperative(MemoryBroker(), properties)
    cluster.broker.create_topic("t", partitions)
    return cluster


@pytest.fixture
async def cluster(memory_broker: MemoryBroker) -> AsyncIterator[MemoryCluster]:
    yield cooperative(memory_broker)
    await memory_broker.close()


class TestContract(
    CooperativeContract,
    TopiclessMemberContract,
    ReadingContract,
    CommitContract,
    ProducingContract,
    LogContract,
    StaticContract,
    WholeTopicContract,
    TimesContract,
    AutoCommitContract,
):
    """All that does not depend on the kind of the client, and what is promised by this one
    alone.
    """


async def test_a_commit_that_crosses_the_beginning_of_a_generation_may_be_sent_again() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one:
        await one.until_assigned(2)
        crossing = cluster.broker.hold("commit")
        commits = [
            asyncio.ensure_future(one.consumer.commit({it: Committed(1)}, one.generation))
            for it in (P0, P1)
        ]
        await crossing.arrived()
        await commits[1]
        late = cluster.broker.hold("commit")
        commits[1] = asyncio.ensure_future(one.consumer.commit({P1: Committed(2)}, one.generation))
        await late.arrived()
        async with joined(cluster, "t", "g", "two") as two:
            assert await two.until_assigned(1) == {P1}
            crossing.release()
            late.release()
            with pytest.raises(TransientBrokerError, match="rebalance"):
                await commits[0]
            with pytest.raises(NotOwnerError):
                await commits[1]
            await one.consumer.commit({P0: Committed(1)}, one.generation)
    assert cluster.broker.committed("g") == {P0: Committed(1), P1: Committed(1)}


async def test_a_member_that_was_put_out_loses_everything_in_one_call() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one:
        owned = await one.until_assigned(2)
        told: list[bool] = []

        async def note() -> None:
            told.append(one.consumer.is_member())

        one.while_revoked = note
        cluster.broker.expire("g", "one-1")
        await one.until(lambda: len(changes(one)) > 3)
        assert changes(one) == [
            ("assigned", owned),
            ("revoking", owned),
            ("revoked", owned),
            ("assigned", owned),
        ]
        assert told == [False]


def test_who_lets_go_too_late_is_put_out_and_the_others_go_on() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(2, {"rebalance_timeout_ms": 5_000})
        async with joined(cluster, "t", "g", "one") as one:
            await one.until_assigned(2)
            begun, done = held(one)
            async with joined(cluster, "t", "g", "two") as two:
                await soon(begun)
                assert await two.until_assigned(2) == {P0, P1}
                assert clock.monotonic() == pytest.approx(5)
                assert not one.consumer.is_member()
                done.set()
                await one.until_assigned(1)
                await two.until_assigned(1)
                assert not one.owned & two.owned
        await cluster.broker.close()

    run_in_virtual_time(main)


def test_the_partitions_of_one_that_crashed_move_once_its_session_has_ended() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(3)
        async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
            await one.until_assigned(2)
            await two.until_assigned(1)
            before = changes(one)
            cluster.broker.crash("g", "two-2", session_s=SESSION_S)
            cluster.broker.rebalance("g")
            await one.until_assigned(3)
            assert clock.monotonic() == pytest.approx(SESSION_S)
            assert changes(one)[: len(before)] == before
            assert {kind for kind, _ in changes(one)[len(before) :]} == {"assigned"}
        await cluster.broker.close()

    run_in_virtual_time(main)


async def test_members_of_both_kinds_share_a_group_and_only_the_eager_let_go_of_everything() -> (
    None
):
    cluster = cluster_with(4)
    eager = MemoryCluster(cluster.broker)
    async with joined(cluster, "t", "g", "one") as one, joined(eager, "t", "g", "two") as two:
        await one.until_assigned(2)
        await two.until_assigned(2)
        stays, theirs = one.owned, two.owned
        before = len(changes(one)), len(changes(two))
        cluster.broker.rebalance("g")
        await two.until(lambda: len(changes(two)) > before[1] + 2)
        assert changes(two)[before[1] :] == [
            ("revoking", theirs),
            ("revoked", theirs),
            ("assigned", theirs),
        ]
        assert (len(changes(one)), one.owned) == (before[0], stays)


class Watched(Member):
    """A member in a group whose owners are known at any time; it takes a while for each call."""

    def __init__(
        self,
        all_owners: dict[TopicPartition, Watched],
        broker: MemoryBroker,
        takes_s: float,
        *,
        is_mixed: bool,
    ) -> None:
        self._owners = all_owners
        self._broker = broker
        self._takes_s = takes_s
        self.has_stopped = False
        # A classic member of a converted group joins twice in an epoch: once it has given something
        # up, or when all that it waits for is free.
        self.is_mixed = is_mixed
        self._has_revoked = False

    def begin(self, kind: AssignmentKind, name: str) -> Member:
        connector = self._broker.connector(assignment=kind)
        super().__init__(
            connector.consumer(name=name, subscription=Topics(("t",)), group_id="g", properties={})
        )
        return self

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= self.owned
        self._has_revoked = True
        await asyncio.sleep(self._takes_s)
        for partition in partitions:
            if self._owners.get(partition) is self:
                del self._owners[partition]
        await super().on_revoked(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        assert not partitions & self.owned
        # In the consumer protocol a partition may come later than the epoch in which it was promised.
        assert generation > self.generation or (
            generation == self.generation and (partitions or (self.is_mixed and self._has_revoked))
        )
        self._has_revoked = False
        # A member that was put out may take what it was promised before it knows.
        for partition in partitions if self.is_known() else ():
            other = self._owners.get(partition)
            # One that was put out, or has stopped, may not know yet. Anybody else would own it
            # twice.
            assert other is None or other.has_stopped or not other.is_known(), (
                f"{partition} is owned twice"
            )
            self._owners[partition] = self
        await asyncio.sleep(self._takes_s)
        await super().on_assigned(partitions, generation)

    def is_known(self) -> bool:
        """Whether its group takes it for a member."""
        return self.consumer._member.member_id in self._broker.members("g")  # type: ignore[attr-defined]

    async def stop(self) -> None:
        self.has_stopped = True
        await self.consumer.stop()


PAUSES_S = st.sampled_from([0.0, 0.0, 0.1, 1.0, 30.0])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join eager", "leave", "expire", "crash", "grow", "rebalance"]),
        st.integers(0, 9),
        PAUSES_S,
    ),
    max_size=12,
)


class Group:
    """A group of watched members that a test changes."""

    def __init__(
        self,
        kind: AssignmentKind = "cooperative",
        settles_s: float = 200.0,
        *,
        is_mixed: bool = False,
    ) -> None:
        self._kind: AssignmentKind = kind
        self._settles_s = settles_s
        self._is_mixed = is_mixed
        self.broker = MemoryBroker()
        self.broker.create_topic("t", 3)
        self.owners: dict[TopicPartition, Watched] = {}
        self.members: dict[str, Watched] = {}
        self._names = 0

    async def change(self, step: str, which: int) -> None:
        """Carry out one step; *which* picks a member, or how slow a new one is."""
        alive = [
            name for name in self.broker.members("g") if name.partition("-")[0] in self.members
        ]
        picked = alive[which % len(alive)] if alive else None
        if step.startswith("join"):
            self._names += 1
            name = f"m{self._names}"
            member = self.members[name] = Watched(
                self.owners,
                self.broker,
                takes_s=(0.0, 0.2, 2.0)[which % 3],
                is_mixed=self._is_mixed,
            )
            kinds: dict[str, AssignmentKind] = {
                "join": self._kind,
                "join eager": "eager",
                "join cooperative": "cooperative",
            }
            member.begin(kinds[step], name)
            await member.consumer.start(member)
        elif step == "grow":
            self.broker.create_topic("t", self.broker.topics()["t"] + 1 + which % 2)
        elif step == "rebalance":
            self.broker.rebalance("g")
        elif picked is not None and step == "expire":
            self.broker.expire("g", picked, notice_after_s=which / 2)
        elif picked is not None:
            gone = self.members.pop(picked.partition("-")[0])
            gone.has_stopped = True
            if step == "leave":
                await gone.stop()
            else:
                self.broker.crash("g", picked, session_s=float(which))

    async def settle(self) -> None:
        """Give everybody more time than any call, session or rebalance takes."""
        await asyncio.sleep(self._settles_s)

    def check(self) -> None:
        """Nobody's listener found anything wrong, and each partition has its one owner."""
        for member in self.members.values():
            member.consumer._member.note_poll()  # type: ignore[attr-defined]
        owned = [partition for member in self.members.values() for partition in member.owned]
        expected = {TopicPartition("t", number) for number in range(self.broker.topics()["t"])}
        assert sorted(owned) == (sorted(expected) if self.members else [])
        sizes = [len(member.owned) for member in self.members.values()]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1

    async def close(self) -> None:
        for member in self.members.values():
            await member.stop()
        await self.broker.close()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_happens_to_a_group_no_partition_is_owned_twice_and_in_the_end_each_has_an_owner(
    steps: list[tuple[str, int, float]],
) -> None:
    run_in_virtual_time(lambda _: change_and_check(Group(), steps))


async def change_and_check(group: Group, steps: list[tuple[str, int, float]]) -> None:
    """Change a group, and look at it when it has come to rest."""
    for step, which, pause_s in steps:
        await group.change(step, which)
        await asyncio.sleep(pause_s)
    await group.settle()
    group.check()
    await group.close()


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_a_partition_that_does_not_move_is_never_revoked_and_its_records_come_all_the_while(
    steps: list[tuple[str, int, float]],
) -> None:
    run_in_virtual_time(lambda _: change_and_keep_reading(Group(), steps))


async def change_and_keep_reading(group: Group, steps: list[tuple[str, int, float]]) -> None:
    """Change a group, and see that what does not move is read all the while."""
    for step, which, _pause_s in [("join", 0, 0.0), *steps]:
        if step == "join eager" or (step in ("leave", "crash") and len(group.members) < 2):
            continue
        before = {
            name: (member, member.owned, len(member.events))
            for name, member in group.members.items()
        }
        await group.change(step, which)
        reading = [
            asyncio.ensure_future(keep_reading(group, member, owned))
            for member, owned, _ in before.values()
        ]
        await group.settle()
        group.check()
        for read, (name, (member, owned, told)) in zip(reading, before.items(), strict=True):
            came = await read
            if name not in group.members or step == "expire":
                continue
            revoked = {
                partition
                for kind, those in member.events[told:]
                if kind == "revoked"
                for partition in those
            }
            assert revoked == owned - member.owned
            assert came >= owned & member.owned
    await group.close()


async def keep_reading(
    group: Group, member: Watched, owned: frozenset[TopicPartition]
) -> set[TopicPartition]:
    """Produce to each partition every 100 ms for 5 s; those whose record was there at the next
    poll, each time.
    """
    always = set(owned)
    for _ in range(50):
        for partition in owned:
            group.broker.produce("t", b"", partition=partition.partition)
        await asyncio.sleep(0.1)
        try:
            poll = await member.consumer.poll(dict.fromkeys(owned, 99), 0)
        except (NotOwnerError, TransientBrokerError):
            # It has stopped, or crashed.
            return set()
        always &= {chunk.partition for chunk in poll.chunks}
    return always
