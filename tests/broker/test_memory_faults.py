"""The in-memory broker fails where a test tells it to, and as a real one would."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.errors import (
    FatalBrokerError,
    NotOwnerError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import RecordBytes
from reactive_kafka.subscription import Topics
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.contract import goes_on_for_a_while
from tests.broker.members import Member, inspecting, joined, producing, until_committed
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
    consumer = cluster.connector.consumer(
        name="one", subscription=Topics(("t",)), group_id="g", properties={}
    )
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


def test_an_expired_member_that_ends_while_the_broker_is_down_does_not_come_back() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = MemoryCluster(MemoryBroker(clock))
        cluster.broker.create_topic("t", 2)
        async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
            await two.until_assigned(1)
            cluster.broker.expire("g", "one-1", notice_after_s=NO_FAULT_TIMEOUT_S)
            await two.until_assigned(2)
            cluster.broker.down = True
            await one.consumer.stop()
            cluster.broker.down = False
            await asyncio.sleep(2 * NO_FAULT_TIMEOUT_S)
            assert list(cluster.broker.members("g")) == ["two-2"]
        await cluster.broker.close()

    run_in_virtual_time(main)


async def test_an_expired_member_cannot_commit_even_before_the_others_have_a_new_generation() -> (
    None
):
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
    assert (entry.member, entry.generation, entry.offsets) == (
        "one-1",
        member.generation,
        {P0: Committed(1, "m")},
    )
    assert cluster.broker.commits("g") == (entry,)


async def test_a_topic_that_is_away_takes_no_records_and_all_else_goes_on() -> None:
    cluster = cluster_with(1)
    cluster.broker.create_topic("letters", 1)
    async with joined(cluster, "t", "g") as member, producing(cluster) as producer:
        await member.until_assigned(1)
        cluster.broker.topic_away("letters")
        with pytest.raises(TransientBrokerError, match="'letters'"):
            await (await producer.send("letters", b"x"))
        await (await producer.send("t", b"x"))
        await member.consumer.commit({P0: Committed(1)}, member.generation)
        cluster.broker.topic_back("letters")
        assert (await (await producer.send("letters", b"x"))).offset == 0


async def test_a_fault_of_one_topic_or_group_leaves_the_others_alone() -> None:
    cluster = cluster_with(1)
    cluster.broker.create_topic("letters", 1)
    async with (
        joined(cluster, "t", "g") as member,
        joined(cluster, "t", "h") as other,
        producing(cluster) as producer,
    ):
        await member.until_assigned(1)
        await other.until_assigned(1)
        cluster.broker.fail_next("send", TransientBrokerError("full"), of="letters")
        cluster.broker.fail_next("commit", TransientBrokerError("loading"), of="g")
        await (await producer.send("t", b"x"))
        await other.consumer.commit({P0: Committed(1)}, other.generation)
        with pytest.raises(TransientBrokerError, match="full"):
            await (await producer.send("letters", b"x"))
        with pytest.raises(TransientBrokerError, match="loading"):
            await member.consumer.commit({P0: Committed(1)}, member.generation)
        hold = cluster.broker.hold("send", of="letters")
        held = await producer.send("letters", b"y")
        await hold.arrived()
        await (await producer.send("t", b"z"))
        assert not held.done()
        hold.release()
        await held


def test_a_call_that_takes_longer_than_its_caller_waits_lands_later_over_a_newer_one() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        cluster.broker.answer_timeout_s = 5.0
        async with joined(cluster, "t", "g") as member:
            await member.until_assigned(1)
            cluster.broker.delay_next("commit", 8.0)
            began = clock.monotonic()
            with pytest.raises(OutcomeUnknownError):
                await member.consumer.commit({P0: Committed(1)}, member.generation)
            assert clock.monotonic() - began == pytest.approx(5)
            await member.consumer.commit({P0: Committed(2)}, member.generation)
            assert cluster.broker.committed("g") == {P0: Committed(2)}
            await asyncio.sleep(4)
        assert cluster.broker.committed("g") == {P0: Committed(1)}
        assert [entry.offsets[P0].offset for entry in cluster.broker.commits("g")] == [2, 1]

    run_in_virtual_time(main)


def test_delays_count_their_calls_and_stay_under_the_timeout_without_an_error() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        async with joined(cluster, "t", "g") as member:
            await member.until_assigned(1)
            cluster.broker.delay_next("end_offsets", 2.0, times=2, answer=True)
            began = clock.monotonic()
            for _ in range(3):
                await member.consumer.end_offsets([P0])
            assert clock.monotonic() - began == pytest.approx(4)

    run_in_virtual_time(main)


async def test_a_crashed_member_raises_on_everything_tells_nothing_and_cannot_commit() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        waiting = asyncio.ensure_future(member.consumer.poll({P0: 9}, NO_FAULT_TIMEOUT_S))
        assert await goes_on_for_a_while(waiting)
        events = list(member.events)
        cluster.broker.crash("g", "one-1", session_s=0)
        for call in (
            waiting,
            member.consumer.poll({P0: 9}, 0),
            member.consumer.commit({P0: Committed(1)}, member.generation),
            member.consumer.committed([P0]),
            member.consumer.end_offsets([P0]),
            member.consumer.check(),
        ):
            with pytest.raises(TransientBrokerError, match="one-1 has crashed"):
                await call
        with pytest.raises(NotOwnerError):
            member.consumer.start_at({P0: 0})
        await member.consumer.stop()
        assert member.events == events
        assert cluster.broker.commits("g") == ()


def test_a_crashed_member_s_partitions_move_when_its_session_has_ended() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(2, {"session_timeout_ms": 20_000})
        async with joined(cluster, "t", "g", "one") as one, joined(cluster, "t", "g", "two") as two:
            await one.until_assigned(1)
            await two.until_assigned(1)
            began = clock.monotonic()
            cluster.broker.crash("g", "one-1")
            assert cluster.broker.members("g")["one-1"] == frozenset()
            await two.until(lambda: len(two.owned) == 2, 100)
            assert clock.monotonic() - began == pytest.approx(20, abs=0.1)
            assert list(cluster.broker.members("g")) == ["two-2"]

    run_in_virtual_time(main)


@pytest.mark.parametrize("while_revoking", [False, True], ids=["before", "while it lets go"])
def test_a_rebalance_waits_for_a_crashed_member_until_its_session_has_ended(
    while_revoking: bool,
) -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(2)
        in_revocation = asyncio.Event()

        async def hang() -> None:
            in_revocation.set()
            await asyncio.Event().wait()

        async with joined(cluster, "t", "g", "one") as one:
            await one.until_assigned(2)
            one.while_revoked = hang
            if while_revoking:
                cluster.broker.rebalance("g")
                await in_revocation.wait()
            began = clock.monotonic()
            cluster.broker.crash("g", "one-1", session_s=15)
            async with joined(cluster, "t", "g", "two") as two:
                await two.until(lambda: len(two.owned) == 2, 100)
                assert clock.monotonic() - began == pytest.approx(15, abs=0.1)
            assert in_revocation.is_set() == while_revoking

    run_in_virtual_time(main)


async def test_what_a_crashed_member_had_sent_still_lands_while_it_counts_as_a_member() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        hold = cluster.broker.hold("commit")
        sent = asyncio.ensure_future(member.consumer.commit({P0: Committed(1)}, member.generation))
        await hold.arrived()
        cluster.broker.crash("g", "one-1")
        hold.release()
        await sent
        assert cluster.broker.committed("g") == {P0: Committed(1)}
        await member.consumer.stop()
        assert list(cluster.broker.members("g")) == ["one-1"]
    await cluster.broker.close()


async def test_a_topic_is_not_created_by_its_use_where_the_broker_does_not_allow_it() -> None:
    broker = MemoryBroker(auto_create=False)
    cluster = MemoryCluster(broker)
    async with joined(cluster, "t", "g") as member, producing(cluster) as producer:
        with pytest.raises(FatalBrokerError, match="'t' does not exist"):
            await (await producer.send("t", b"x"))
        with pytest.raises(LookupError):
            broker.produce("t", b"x")
        await member.until(lambda: ("assigned", frozenset()) in member.events)
        assert broker.topics() == {}
        broker.create_topic("t", 2)
        await member.until_assigned(2)


async def test_a_topic_that_its_readers_create_again_costs_them_one_rebalance() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member:
        await member.until_assigned(1)
        before = member.generation
        cluster.broker.delete_topic("t")
        await member.until_assigned(4)
        await member.polls_nothing({}, 0.05)
        assert cluster.broker.generation("g") == before + 1


async def test_asking_creates_no_topic() -> None:
    broker = MemoryBroker()
    async with inspecting(MemoryCluster(broker)) as inspector:
        with pytest.raises(TransientBrokerError, match="t-0"):
            await inspector.end_offsets([P0])
    assert broker.topics() == {}


async def test_a_named_partition_that_appears_later_flows() -> None:
    cluster = cluster_with(1)
    later = TopicPartition("t", 3)
    async with joined(cluster, None, None, partitions=[later], starts_by_itself=False) as member:
        await member.until_assigned(1)
        member.consumer.start_at({later: 0})
        cluster.broker.create_topic("t", 4)
        cluster.broker.produce("t", b"x", partition=3)
        assert len((await member.take(1))[later]) == 1


async def test_a_topic_created_by_a_first_use_reaches_who_reads_a_pattern() -> None:
    cluster = cluster_with(1)
    async with (
        joined(cluster, None, "g", pattern="orders-.*") as member,
        producing(cluster) as producer,
    ):
        await member.until(lambda: ("assigned", frozenset()) in member.events)
        await (await producer.send("orders-eu", b"x", partition=2))
        assert len(await member.until_assigned(4)) == 4


async def test_a_failed_auto_commit_is_logged_and_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_with(1)
    cluster.broker.produce("t", b"x", partition=0)
    cluster.broker.fail_next("commit", TransientBrokerError("loading"), times=2)
    properties = {"enable_auto_commit": True, "auto_commit_interval_ms": 20}
    async with joined(cluster, "t", "g", properties=properties) as member:
        await member.until_assigned(1)
        await member.take(1)
        await until_committed(cluster, "g", {P0: 1})
    assert caplog.messages == ["auto commit: TransientBrokerError: loading"] * 2
    assert len(cluster.broker.commits("g")) == 1


def has_more_than(member: Member, events: int) -> bool:
    return len(member.events) > events


async def test_auto_commit_stores_positions_again_in_each_generation_and_nothing_twice_in_one() -> (
    None
):
    cluster = cluster_with(1)
    cluster.broker.produce("t", b"x", partition=0)
    async with joined(cluster, "t", "g", properties={"enable_auto_commit": True}) as member:
        await member.until_assigned(1)
        await member.take(1)
        for _ in range(2):
            events = len(member.events)
            cluster.broker.rebalance("g")
            await member.until(partial(has_more_than, member, events + 2))
    assert [
        (entry.generation, entry.offsets[P0].offset) for entry in cluster.broker.commits("g")
    ] == [
        (1, 1),
        (2, 1),
        (3, 1),
    ]


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


async def test_a_topic_that_nobody_can_write_to_says_why_and_takes_records_again() -> None:
    cluster = cluster_with(1)
    async with producing(cluster) as producer:
        for error in (None, FatalBrokerError("the right WRITE is missing")):
            cluster.broker.topic_away("t", error)
            with pytest.raises(TransientBrokerError if error is None else FatalBrokerError):
                await producer.write(P0, [RecordBytes(b"x", None, (), None)])
            cluster.broker.topic_back("t")
            await producer.write(P0, [RecordBytes(b"x", None, (), None)])
    assert len(cluster.broker.log(P0)) == 2
    await cluster.broker.close()


def test_the_session_of_a_member_that_has_stopped_is_not_kept_up_by_the_time_that_passes() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = MemoryCluster(MemoryBroker(clock))
        cluster.broker.create_topic("t", 1)
        async with joined(cluster, "t", "g") as member:
            await member.until_assigned(1)
            await asyncio.sleep(60)
            assert member.consumer.session_ends_at() > clock.monotonic()
        left_at = clock.monotonic()
        ends_at = member.consumer.session_ends_at()
        await asyncio.sleep(60)
        assert left_at < member.consumer.session_ends_at() == ends_at < clock.monotonic()
        await cluster.broker.close()

    run_in_virtual_time(main)
