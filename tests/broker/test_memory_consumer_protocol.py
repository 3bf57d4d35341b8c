"""Members of the consumer protocol in the in-memory broker: the contract, what disturbs them, and
any sequence of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.client import inspecting
from reactive_kafka.errors import (
    NotOwnerError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.contract import (
    CommitContract,
    GroupContract,
    LogContract,
    ProducingContract,
    ReadingContract,
    group,
)
from tests.broker.contract_assignments import (
    AutoCommitContract,
    PatternContract,
    SharedGroupContract,
    StaticContract,
    TimesContract,
    WholeTopicContract,
)
from tests.broker.contract_cooperative import CooperativeContract, changes, held, soon
from tests.broker.contract_transactions import PositionsContract
from tests.broker.members import joined
from tests.broker.test_memory import MemoryCluster
from tests.broker.test_memory_cooperative import (
    STEPS,
    Group,
    change_and_check,
    change_and_keep_reading,
)

__all__ = ["group"]

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_S = 45.0


def consumer_cluster(broker: MemoryBroker, partitions: int = 0) -> MemoryCluster:
    """The in-memory broker whose groups have the consumer protocol."""
    cluster = MemoryCluster(broker)
    cluster.connector = broker.connector(assignment="consumer")
    if partitions:
        broker.create_topic("t", partitions)
    return cluster


@pytest.fixture
async def cluster(memory_broker: MemoryBroker) -> AsyncIterator[MemoryCluster]:
    yield consumer_cluster(memory_broker)
    await memory_broker.close()


class TestContract(
    ReadingContract,
    CommitContract,
    GroupContract,
    ProducingContract,
    LogContract,
    StaticContract,
    WholeTopicContract,
    TimesContract,
    AutoCommitContract,
):
    """One group, one topic."""


class TestIncremental(CooperativeContract):
    """Only what moves is revoked."""

    generations_per_move = 1


class TestPatterns(PatternContract, SharedGroupContract):
    """Patterns."""


class TestPositions(PositionsContract):
    """Positions in transactions."""

    keeps_partitions = True


async def test_a_client_tells_the_protocol_that_it_has(memory_broker: MemoryBroker) -> None:
    consumer = consumer_cluster(memory_broker, 1)
    eager = MemoryCluster(memory_broker)
    for cluster, named, protocol in (
        (consumer, "auto", "consumer"),
        (consumer, "classic", "classic"),
        (eager, "auto", "classic"),
        (eager, "consumer", "consumer"),
    ):
        name = f"{protocol}-{named}"
        async with joined(cluster, "t", name, properties={"group_protocol": named}) as member:
            await member.until_assigned(1)
            assert member.consumer.group_protocol() == protocol
            async with inspecting(cluster.connector, {}) as inspector:
                listed = {one.group_id: one.kind for one in await inspector.list_groups()}
                assert listed[name] == protocol
                assert (await inspector.describe_group(name)).state == "Stable"
    await memory_broker.close()


async def test_a_topic_that_is_read_by_name_is_created_by_the_join_and_again_when_it_is_deleted(
    memory_broker: MemoryBroker,
) -> None:
    cluster = consumer_cluster(memory_broker)
    async with joined(cluster, "new", "g", "one") as one:
        await one.until_assigned(4)
        await cluster.recreate_topic("new", 2)
        await one.until_assigned(2)
        memory_broker.delete_topic("new")
        await one.until_assigned(4)
    await memory_broker.close()


def test_a_member_whose_session_has_ended_reads_until_it_is_told_and_commits_nothing() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = consumer_cluster(MemoryBroker(), 2)
        async with joined(cluster, "t", "g", "one") as one:
            owned = await one.until_assigned(2)
            generation = one.generation
            cluster.broker.expire("g", "one-1", notice_after_s=30.0)
            cluster.broker.produce("t", b"late", partition=0)
            assert await one.take(1)
            assert (one.consumer.is_member(), clock.monotonic() < 1) == (True, True)
            with pytest.raises(NotOwnerError):
                await one.consumer.commit({P0: Committed(1)}, generation)
            # The refusal has told it, long before it would have noticed.
            assert not one.consumer.is_member()
            await one.until(lambda: len(changes(one)) > 3)
            assert changes(one)[1:] == [
                ("revoking", owned),
                ("revoked", owned),
                ("assigned", owned),
            ]
            assert clock.monotonic() < 2
            assert one.generation > generation
        assert cluster.broker.commits("g") == ()
        await cluster.broker.close()

    run_in_virtual_time(main)


def test_the_partitions_of_one_that_crashed_move_once_its_session_has_ended() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = consumer_cluster(MemoryBroker(), 3)
        async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
            await one.until_assigned(2)
            await two.until_assigned(1)
            before = changes(one)
            crashed_at = clock.monotonic()
            cluster.broker.crash("g", "two-2")
            with pytest.raises(TransientBrokerError, match="crashed"):
                await two.consumer.poll({}, 0)
            await one.until_assigned(3)
            assert SESSION_S - 1 < clock.monotonic() - crashed_at < SESSION_S + 1
            assert changes(one)[: len(before)] == before
            assert {kind for kind, _ in changes(one)[len(before) :]} == {"assigned"}
        await cluster.broker.close()

    run_in_virtual_time(main)


def test_a_member_that_is_cut_off_is_out_when_its_session_ends_and_hears_of_it_when_it_is_back() -> (
    None
):
    async def main(clock: FakeClock) -> None:
        cluster = consumer_cluster(MemoryBroker(), 2)
        async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
            await one.until_assigned(1)
            await two.until_assigned(1)
            [theirs] = two.owned
            cluster.broker.cut_off("g", "two-2")
            cut_at = clock.monotonic()
            with pytest.raises(OutcomeUnknownError):
                await two.consumer.commit({theirs: Committed(1)}, two.generation)
            await one.until_assigned(2)
            assert clock.monotonic() >= two.consumer.session_ends_at()
            assert two.consumer.session_ends_at() <= cut_at + SESSION_S
            assert (two.owned, two.consumer.is_member()) == ({theirs}, True)
            cluster.broker.heal("g")
            await two.until(lambda: not two.owned)
            await two.until_assigned(1)
            assert not one.owned & two.owned
        assert cluster.broker.commits("g") == ()
        await cluster.broker.close()

    run_in_virtual_time(main)


def test_no_session_ends_in_an_outage_however_long_and_each_lasts_a_whole_one_after_it() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = consumer_cluster(MemoryBroker(), 2)
        async with joined(cluster, "t", "g", "one") as one:
            async with joined(cluster, "t", "g", "two") as two:
                await one.until_assigned(1)
                await two.until_assigned(1)
                cluster.broker.down = True
                await asyncio.sleep(5 * SESSION_S)
                # It cannot say that it leaves.
            assert cluster.broker.members("g").keys() == {"one-1", "two-2"}
            cluster.broker.down = False
            back_at = clock.monotonic()
            await one.until_assigned(2)
            assert clock.monotonic() - back_at > SESSION_S - 1
            assert [kind for kind, _ in changes(one)].count("revoked") == 1
        await cluster.broker.close()

    run_in_virtual_time(main)


def test_a_commit_in_an_epoch_that_is_over_is_refused_and_may_be_sent_again() -> None:
    async def main(_: FakeClock) -> None:
        cluster = consumer_cluster(MemoryBroker(), 2)
        async with joined(cluster, "t", "g", "one") as one:
            await one.until_assigned(2)
            generation = one.generation
            crossing = cluster.broker.hold("commit")
            commit = asyncio.ensure_future(one.consumer.commit({P0: Committed(1)}, generation))
            await crossing.arrived()
            cluster.broker.rebalance("g")
            await one.until(lambda: one.generation > generation)
            crossing.release()
            with pytest.raises(TransientBrokerError, match="is in epoch"):
                await commit
            assert one.owned == {P0, P1}
            await one.consumer.commit({P0: Committed(1)}, generation)
        assert cluster.broker.committed("g") == {P0: Committed(1)}
        await cluster.broker.close()

    run_in_virtual_time(main)


async def test_a_member_gets_nothing_of_another_before_that_one_has_let_go(
    memory_broker: MemoryBroker,
) -> None:
    cluster = consumer_cluster(memory_broker, 2)
    async with joined(cluster, "t", "g", "one") as one:
        everything = await one.until_assigned(2)
        begun, done = held(one)
        async with joined(cluster, "t", "g", "two") as two:
            await soon(begun)
            # It is a member, in the new epoch, and has nothing yet.
            await two.until(lambda: two.generation > 0)
            assert two.owned == frozenset()
            done.set()
            moved = await two.until_assigned(1)
            assert one.owned == everything - moved
    await memory_broker.close()


CHANGES = STEPS.map(lambda steps: [step for step in steps if step[0] != "join eager"])


@settings(max_examples=100, deadline=None)
@example([("join", 0, 0.0), ("join", 2, 1.0), ("expire", 3, 0.0)])
@given(CHANGES)
def test_whatever_happens_to_a_group_no_partition_is_owned_twice_and_in_the_end_each_has_an_owner(
    steps: list[tuple[str, int, float]],
) -> None:
    run_in_virtual_time(lambda _: change_and_check(Group("consumer", 100.0), steps))


@settings(max_examples=40, deadline=None)
@given(CHANGES, st.integers(0, 3))
def test_a_partition_that_does_not_move_is_never_revoked_and_its_records_come_all_the_while(
    steps: list[tuple[str, int, float]], seed: int
) -> None:
    run_in_virtual_time(
        lambda _: change_and_keep_reading(Group("consumer", 60.0), steps), seed=seed
    )
