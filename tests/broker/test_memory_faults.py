"""The in-memory broker fails where a test tells it to, and as a real one would."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from reactive_kafka.broker.memory_group import CommitEntry
from reactive_kafka.errors import (
    NotOwnerError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.contract import goes_on_for_a_while
from tests.broker.members import Member, joined, producing
from tests.broker.test_memory import MemoryCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NO_FAULT_TIMEOUT_S = 60.0


def cluster_with(partitions: int, properties: Mapping[str, object] | None = None) -> MemoryCluster:
    cluster = MemoryCluster(MemoryBroker())
    cluster.properties = properties or {}
    cluster.broker.create_topic("t", partitions)
    return cluster


async def test_a_call_fails_as_often_as_told_and_then_succeeds() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        error = TransientBrokerError("coordinator is loading")
        cluster.broker.fail_next("commit", error, times=2)
        for _ in range(2):
            with pytest.raises(TransientBrokerError, match="loading"):
                await member.consumer.commit({P0: Committed(1)}, member.generation)
        assert cluster.broker.committed("g") == {}
        await member.consumer.commit({P0: Committed(1)}, member.generation)
        assert cluster.broker.committed("g") == {P0: Committed(1)}


async def test_a_lost_answer_has_taken_effect() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member, producing(cluster) as producer:
        await member.until_assigned(1)
        cluster.broker.fail_next("commit", OutcomeUnknownError("lost"), stored=True)
        with pytest.raises(OutcomeUnknownError):
            await member.consumer.commit({P0: Committed(1)}, member.generation)
        assert cluster.broker.committed("g") == {P0: Committed(1)}
        cluster.broker.fail_next("send", OutcomeUnknownError("lost"), stored=True)
        with pytest.raises(OutcomeUnknownError):
            await (await producer.send("t", b"x", partition=0))
        assert [record.value for record in cluster.broker.log(P0)] == [b"x"]


async def test_a_held_commit_lands_after_its_release_though_its_caller_gave_up() -> None:
    cluster = cluster_with(1)
    cluster.broker.answer_timeout_s = 0.05
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        hold = cluster.broker.hold("commit")
        with pytest.raises(OutcomeUnknownError):
            await member.consumer.commit({P0: Committed(1)}, member.generation)
        await hold.arrived()
        assert cluster.broker.committed("g") == {}
        landed = asyncio.Event()
        cluster.broker.watch_commits("g", lambda entry: landed.set())
        hold.release()
        async with asyncio.timeout(5):
            await landed.wait()
        assert cluster.broker.committed("g") == {P0: Committed(1)}


async def test_a_commit_held_across_a_rebalance_is_refused() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one:
        await one.until_assigned(2)
        hold = cluster.broker.hold("commit")
        committing = asyncio.ensure_future(one.consumer.commit({P1: Committed(1)}, one.generation))
        await hold.arrived()
        async with joined(cluster, "t", "g", "two") as two:
            await two.until_assigned(1)
            hold.release()
            with pytest.raises(NotOwnerError):
                await committing
    assert cluster.broker.commits("g") == ()


async def test_while_it_is_down_calls_fail_and_polls_bring_nothing_and_then_all_goes_on() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member, producing(cluster) as producer:
        await member.until_assigned(1)
        cluster.broker.produce("t", b"x", partition=0)
        cluster.broker.down = True
        assert (await member.consumer.poll({P0: 9}, 0.05)).chunks == []
        for call in (
            member.consumer.commit({P0: Committed(1)}, member.generation),
            member.consumer.committed([P0]),
            member.consumer.end_offsets([P0]),
            member.consumer.topics(),
            member.consumer.check(),
            (await producer.send("t", b"y", partition=0)),
        ):
            with pytest.raises(TransientBrokerError):
                await call
        polling = asyncio.ensure_future(member.consumer.poll({P0: 9}, NO_FAULT_TIMEOUT_S))
        assert await goes_on_for_a_while(polling)
        cluster.broker.down = False
        async with asyncio.timeout(10):
            [chunk] = (await polling).chunks
        assert [record.value for record in chunk.records] == [b"x"]
        assert len(member.events) == len({"revoking", "revoked", "assigned"})


async def test_nobody_starts_while_it_is_down() -> None:
    cluster = cluster_with(1)
    cluster.broker.down = True
    consumer = cluster.connector.consumer(name="one", topics=["t"], group_id="g", properties={})
    with pytest.raises(TransientBrokerError):
        await consumer.start(Member(consumer))
    with pytest.raises(TransientBrokerError):
        await cluster.connector.producer(name="one", properties={}).start()


async def test_an_expired_member_loses_its_partitions_cannot_commit_and_comes_back() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
        await one.until_assigned(1)
        await two.until_assigned(1)
        refused: list[BaseException] = []

        async def commit() -> None:
            with pytest.raises(NotOwnerError) as caught:
                await one.consumer.commit(dict.fromkeys(one.owned, Committed(1)), one.generation)
            refused.append(caught.value)

        one.while_revoked = commit
        generation = cluster.broker.generation("g")
        cluster.broker.expire("g", next(iter(cluster.broker.members("g"))))
        await one.until(lambda: one.generation > generation and len(one.owned) == 1)
        await two.until_assigned(1)
        assert len(refused) == 1
        assert cluster.broker.committed("g") == {}
        assert list(cluster.broker.members("g")) == ["two-2", "one-3"]


async def test_an_expired_member_that_has_not_noticed_reads_on_until_a_commit_is_refused() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
        await one.until_assigned(1)
        await two.until_assigned(1)
        [mine] = one.owned
        old, events = one.generation, len(one.events)
        cluster.broker.expire("g", "one-1", notice_after_s=NO_FAULT_TIMEOUT_S)
        await two.until_assigned(2)
        cluster.broker.produce("t", b"x", partition=mine.partition)
        assert len((await one.take(1))[mine]) == 1
        assert len((await two.take(1))[mine]) == 1
        assert len(one.events) == events
        with pytest.raises(NotOwnerError):
            await one.consumer.commit({mine: Committed(1)}, old)
        await one.until(lambda: one.generation > old and len(one.owned) == 1)
        assert cluster.broker.committed("g") == {}


async def test_an_expired_member_cannot_commit_even_before_the_others_have_a_new_generation() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
        await one.until_assigned(1)
        await two.until_assigned(1)
        in_revocation, done = asyncio.Event(), asyncio.Event()

        async def dawdle() -> None:
            in_revocation.set()
            await done.wait()

        two.while_revoked = dawdle
        cluster.broker.expire("g", "one-1", notice_after_s=NO_FAULT_TIMEOUT_S)
        await in_revocation.wait()
        with pytest.raises(NotOwnerError):
            await one.consumer.commit(dict.fromkeys(one.owned, Committed(1)), one.generation)
        done.set()
        await two.until_assigned(1)
    assert cluster.broker.committed("g") == {}


def test_a_member_that_revokes_for_too_long_is_put_out_and_comes_back_later() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(2, {"rebalance_timeout_ms": 30_000})
        async with joined(cluster, "t", "g", "slow") as slow:
            await slow.until_assigned(2)

            async def dawdle() -> None:
                await asyncio.sleep(100)
                with pytest.raises(NotOwnerError):
                    await slow.consumer.commit({P0: Committed(9)}, slow.generation)

            slow.while_revoked = dawdle
            began = clock.monotonic()
            async with joined(cluster, "t", "g", "other") as other:
                await other.until(lambda: len(other.owned) == 2, 1000)
                assert clock.monotonic() - began == pytest.approx(30, abs=0.1)
                await slow.until(lambda: len(slow.owned) == 1, 1000)
                assert clock.monotonic() - began == pytest.approx(100, abs=0.1)
        assert cluster.broker.committed("g") == {}
        await cluster.broker.close()

    run_in_virtual_time(main)


async def test_what_a_listener_raises_comes_out_of_its_next_poll() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)

        async def fail() -> None:
            raise ZeroDivisionError

        member.while_revoked = fail
        cluster.broker.rebalance("g")
        with pytest.raises(ZeroDivisionError):
            await member.poll_until(lambda poll: False, {})


async def test_truncation_leaves_a_reader_out_of_range() -> None:
    cluster = cluster_with(1)
    for _ in range(3):
        cluster.broker.produce("t", b"x", partition=0)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        await member.take(3)
        cluster.broker.truncate(P0, 1)
        poll = await member.consumer.poll({P0: 9}, 1.0)
        assert isinstance(poll.errors[P0], OffsetOutOfRangeError)


async def test_more_partitions_and_a_recreated_topic_are_assigned_anew() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        await member.consumer.commit({P0: Committed(5)}, member.generation)
        cluster.broker.create_topic("t", 3)
        await member.until_assigned(3)
        cluster.broker.delete_topic("t")
        cluster.broker.create_topic("t", 2)
        await member.until_assigned(2)
        assert cluster.broker.committed("g") == {}


async def test_commits_are_watched_and_remembered_with_member_and_generation() -> None:
    cluster = cluster_with(1)
    seen: list[CommitEntry] = []
    cluster.broker.watch_commits("g", seen.append)
    async with joined(cluster, "t", "g", "one") as member:
        await member.until_assigned(1)
        await member.consumer.commit({P0: Committed(1, "m")}, member.generation)
    [entry] = seen
    assert (entry.member, entry.generation, entry.offsets) == ("one-1", member.generation, {P0: Committed(1, "m")})
    assert cluster.broker.commits("g") == (entry,)


async def test_a_consumer_without_a_group_owns_everything_and_cannot_commit() -> None:
    cluster = cluster_with(2)
    consumer = cluster.connector.consumer(name="one", topics=["t"], group_id=None, properties={})
    member = Member(consumer)
    member.starts_by_itself = False
    await consumer.start(member)
    assert await member.until_assigned(2) == {P0, P1}
    assert member.generation == 0
    await consumer.stop()


def test_timestamps_come_from_the_clock() -> None:
    broker = MemoryBroker(FakeClock(wall=12.5))
    broker.produce("t", b"x", partition=0)
    assert broker.log(P0)[0].timestamp == 12_500


async def test_nothing_is_left_behind_when_all_have_stopped() -> None:
    before = asyncio.all_tasks()
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two"):
        await one.until_assigned(1)
        cluster.broker.expire("g", "one-1", notice_after_s=NO_FAULT_TIMEOUT_S)
        cluster.broker.hold("commit", answer=True)
    await cluster.broker.close()
    assert asyncio.all_tasks() == before
