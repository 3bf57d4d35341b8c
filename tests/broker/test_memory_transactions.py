"""Transactions in memory meet faults as those of Kafka do, and keep out who is late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.client import TransactionalProducer, WrittenBatch
from reactive_kafka.errors import (
    BrokerError,
    MetadataTooLargeError,
    NotOwnerError,
    OutcomeUnknownError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.records import RecordBytes
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.members import joined
from tests.broker.test_memory import MemoryCluster

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
BATCH = [RecordBytes(b"a"), RecordBytes(b"b")]
FENCED = "fenced"


def cluster_with(partitions: int) -> MemoryCluster:
    cluster = MemoryCluster(MemoryBroker())
    cluster.broker.create_topic("t", partitions)
    return cluster


@asynccontextmanager
async def claimed(
    cluster: MemoryCluster, timeout_ms: int = 10_000
) -> AsyncIterator[TransactionalProducer]:
    producer = cluster.connector.transactional_producer(
        name="test", transactional_id="id", properties={"transaction_timeout_ms": timeout_ms}
    )
    await producer.claim()
    try:
        yield producer
    finally:
        await producer.stop()
        await cluster.broker.close()


def seen(broker: MemoryBroker, partition: TopicPartition = P0) -> list[bytes | None]:
    return [record.value for record in broker.committed_log(partition)]


def stored(broker: MemoryBroker) -> list[bytes | None]:
    return [record.value for record in broker.log(P0)]


async def test_a_write_that_arrives_after_the_id_was_claimed_again_is_refused() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as old:
        old.begin()
        hold = cluster.broker.hold("send")
        late = asyncio.ensure_future(old.write(P0, BATCH))
        await hold.arrived()
        async with claimed(cluster) as new:
            hold.release()
            with pytest.raises(TransientBrokerError, match=FENCED):
                await late
            assert cluster.broker.end(P0) == 0
            new.begin()
            assert await new.write(P0, BATCH) == WrittenBatch(0, 2)
            await new.commit()
    assert seen(cluster.broker) == [b"a", b"b"]


async def test_a_write_whose_caller_was_cancelled_lands_and_is_aborted_by_the_claim() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        producer.begin()
        hold = cluster.broker.hold("send")
        writing = asyncio.ensure_future(producer.write(P0, BATCH))
        await hold.arrived()
        writing.cancel()
        await asyncio.wait([writing])
        hold.release()
        async with asyncio.timeout(5):
            while not cluster.broker.end(P0):  # noqa: ASYNC110
                await asyncio.sleep(0)
        await producer.claim()
    assert (stored(cluster.broker), seen(cluster.broker), cluster.broker.end(P0)) == (
        [b"a", b"b"],
        [],
        3,
    )


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_commit_whose_answer_is_lost_is_decided_once_the_id_is_claimed(
    is_stored: bool,
) -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        producer.begin()
        await producer.write(P0, BATCH)
        cluster.broker.fail_next("end", OutcomeUnknownError("lost"), stored=is_stored, of="id")
        with pytest.raises(OutcomeUnknownError):
            await producer.commit()
        assert cluster.broker.end(P0) == 2 + is_stored
        await producer.claim()
        assert cluster.broker.end(P0) == 3
        assert seen(cluster.broker) == ([b"a", b"b"] if is_stored else [])


def test_a_commit_that_is_held_for_too_long_is_unknown_and_refused_after_a_claim() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        cluster.broker.answer_timeout_s = 3
        async with claimed(cluster) as producer:
            producer.begin()
            await producer.write(P0, BATCH)
            hold = cluster.broker.hold("end")
            began = clock.monotonic()
            with pytest.raises(OutcomeUnknownError, match="did not answer end within 3 s"):
                await producer.commit()
            assert clock.monotonic() - began == pytest.approx(3)
            await producer.claim()
            hold.release()
            await asyncio.sleep(1)
        assert (seen(cluster.broker), cluster.broker.end(P0)) == ([], 3)

    run_in_virtual_time(main)


def test_a_transaction_that_nobody_ends_is_aborted_in_time_and_its_producer_fenced() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        async with joined(cluster, "t", "g") as member, claimed(cluster, 2_000) as producer:
            await member.until_assigned(1)
            producer.begin()
            # The broker hears of it with the first write.
            await asyncio.sleep(5)
            transaction = await producer.add_group("g")
            await member.consumer.commit_in(transaction, {P0: Committed(9)}, member.generation)
            await asyncio.sleep(1.5)
            await producer.write(P0, BATCH)
            cluster.broker.produce("t", b"after", partition=0)
            assert seen(cluster.broker) == []
            await asyncio.sleep(0.6)
            assert seen(cluster.broker) == [b"after"]
            assert cluster.broker.committed("g") == {}
            assert await member.consumer.committed([P0]) == {P0: None}
            with pytest.raises(TransientBrokerError, match=FENCED):
                await member.consumer.commit_in(transaction, {P0: Committed(9)}, member.generation)
            with pytest.raises(TransientBrokerError, match=FENCED):
                await producer.commit()
            await producer.claim()
            for _ in range(2):
                producer.begin()
                # No timer of the one before runs on.
                await asyncio.sleep(1.5)
                await producer.write(P0, BATCH)
                await asyncio.sleep(1.5)
                await producer.commit()
            assert seen(cluster.broker) == [b"after", b"a", b"b", b"a", b"b"]

    run_in_virtual_time(main)


def test_what_may_have_taken_effect_is_unknown_when_it_is_not_answered() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
            await member.until_assigned(1)
            producer.begin()
            transaction = await producer.add_group("g")
            cluster.broker.delay_next("commit_in", 5, of="g")
            await member.consumer.commit_in(transaction, {P0: Committed(1)}, member.generation)
            cluster.broker.answer_timeout_s = 2
            cluster.broker.delay_next("commit_in", 3, answer=True, of="g")
            with pytest.raises(OutcomeUnknownError):
                await member.consumer.commit_in(transaction, {P0: Committed(2)}, member.generation)
            for call in ("add_group", "claim"):
                cluster.broker.delay_next(call, 3)
            with pytest.raises(TransientBrokerError) as of_the_group:
                await producer.add_group("g")
            with pytest.raises(TransientBrokerError) as of_the_claim:
                await producer.claim()
            assert not isinstance(of_the_group.value, OutcomeUnknownError)
            assert not isinstance(of_the_claim.value, OutcomeUnknownError)
            await asyncio.sleep(5)
            # The late claim has aborted it.
            assert await member.consumer.committed([P0]) == {P0: None}

    run_in_virtual_time(main)


async def test_a_fault_of_one_id_or_group_leaves_the_others_alone() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        for call in ("claim", "end"):
            cluster.broker.fail_next(call, TransientBrokerError("no"), of="another id")
        cluster.broker.fail_next("add_group", TransientBrokerError("no"), of="another group")
        await producer.claim()
        producer.begin()
        await producer.add_group("g")
        await producer.commit()
        producer.begin()
        with pytest.raises(TransientBrokerError, match="no"):
            await producer.add_group("another group")


async def test_a_producer_that_failed_has_to_claim_before_anything_else() -> None:
    cluster = cluster_with(2)
    async with claimed(cluster) as producer:
        producer.begin()
        cluster.broker.fail_next("add_group", TransientBrokerError("no"), of="g")
        with pytest.raises(TransientBrokerError, match="no"):
            await producer.add_group("g")
        for call in (
            producer.write(P0, BATCH),
            producer.add_group("g"),
            producer.commit(),
            producer.abort(),
        ):
            with pytest.raises(BrokerError, match="claimed first"):
                await call
        with pytest.raises(BrokerError, match="claimed first"):
            producer.begin()
        cluster.broker.fail_next("claim", TransientBrokerError("not yet"), of="id")
        with pytest.raises(TransientBrokerError, match="not yet"):
            await producer.claim()
        await producer.claim()
        producer.begin()
        with pytest.raises(RejectedRecordError):
            await producer.write(TopicPartition("t", 2), BATCH)
        with pytest.raises(BrokerError, match="claimed first"):
            await producer.write(P0, BATCH)


async def test_calls_in_an_order_that_the_seam_does_not_allow_are_errors() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        with pytest.raises(BrokerError, match="has begun no transaction"):
            await producer.write(P0, BATCH)
        producer.begin()
        with pytest.raises(BrokerError, match="has begun a transaction, and not ended it"):
            producer.begin()
        hold = cluster.broker.hold("send")
        writing = asyncio.ensure_future(producer.write(P0, BATCH))
        await hold.arrived()
        with pytest.raises(BrokerError, match="1 calls of 'id' are still on their way"):
            await producer.commit()
        hold.release()
        await writing


async def test_a_claim_that_fails_leaves_nothing_to_write_with() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        cluster.broker.fail_next("claim", TransientBrokerError("no"))
        with pytest.raises(TransientBrokerError, match="no"):
            await producer.claim()
        with pytest.raises(BrokerError, match="claimed first"):
            producer.begin()


async def test_what_is_open_is_aborted_by_a_stop_which_is_the_end() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        producer.begin()
        await producer.write(P0, BATCH)
        await producer.stop()
        assert (seen(cluster.broker), cluster.broker.end(P0)) == ([], 3)
        with pytest.raises(BrokerError, match="claimed first"):
            await producer.write(P0, BATCH)


async def test_what_took_part_in_one_transaction_takes_no_part_in_the_next() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(2)
        producer.begin()
        transaction = await producer.add_group("g")
        await producer.write(P0, BATCH)
        await producer.commit()
        producer.begin()
        await producer.write(P1, BATCH)
        with pytest.raises(TransientBrokerError, match="takes no part"):
            await member.consumer.commit_in(transaction, {P0: Committed(1)}, member.generation)
        await producer.commit()
    assert (cluster.broker.end(P0), cluster.broker.end(P1)) == (3, 3)


def test_a_broker_that_is_closed_ends_nothing_any_more() -> None:
    async def main(clock: FakeClock) -> None:
        cluster = cluster_with(1)
        async with claimed(cluster) as producer:
            producer.begin()
            await producer.write(P0, BATCH)
            await cluster.broker.close()
            await asyncio.sleep(60)
            assert cluster.broker.end(P0) == 2

    run_in_virtual_time(main)


async def test_a_stop_of_a_producer_that_was_fenced_ends_nothing_of_its_follower() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as new:
        async with claimed(cluster) as old:
            old.begin()
            await old.write(P0, BATCH)
            await new.claim()
            new.begin()
            await new.write(P0, [RecordBytes(b"new")])
        await new.commit()
    assert seen(cluster.broker) == [b"new"]


async def test_a_transaction_of_nothing_asks_the_broker_nothing() -> None:
    cluster = cluster_with(1)
    async with claimed(cluster) as producer:
        producer.begin()
        await producer.write(P0, BATCH)
        await producer.commit()
        cluster.broker.down = True
        producer.begin()
        await producer.commit()
        producer.begin()
        await producer.abort()
        cluster.broker.down = False
        producer.begin()
        await producer.write(P0, BATCH)
        cluster.broker.down = True
        with pytest.raises(TransientBrokerError, match="down"):
            await producer.commit()
        with pytest.raises(TransientBrokerError, match="down"):
            await producer.claim()
        cluster.broker.down = False
        await producer.claim()
    assert (seen(cluster.broker), cluster.broker.end(P0)) == ([b"a", b"b"], 6)


async def test_the_next_transaction_waits_for_a_leader_that_is_away_at_the_end_of_the_last_one() -> (
    None
):
    cluster = cluster_with(2)
    async with claimed(cluster) as producer:
        producer.begin()
        await producer.write(P0, BATCH)
        cluster.broker.leader_away(P0)
        await producer.commit()
        producer.begin()
        with pytest.raises(TransientBrokerError, match="ends once the leader of t-0 answers"):
            await producer.write(P1, BATCH)
        with pytest.raises(TransientBrokerError, match="ends once the leader of t-0 answers"):
            await producer.claim()
        cluster.broker.leader_back(P0)
        await producer.claim()
        producer.begin()
        cluster.broker.leader_away(P0)
        with pytest.raises(TransientBrokerError, match="does not answer"):
            await producer.write(P0, BATCH)
        # It takes no part in a transaction that has not reached it.
        await producer.claim()
    assert seen(cluster.broker) == [b"a", b"b"]


async def test_the_crash_of_a_member_leaves_its_positions_to_the_transaction() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(1)
        producer.begin()
        transaction = await producer.add_group("g")
        await member.consumer.commit_in(transaction, {P0: Committed(7, "kept")}, member.generation)
        (member_id,) = cluster.broker.members("g")
        cluster.broker.crash("g", member_id, session_s=0)
        entries = list[object]()
        cluster.broker.watch_commits("g", entries.append)
        await producer.commit()
        assert cluster.broker.committed("g") == {P0: Committed(7, "kept")}
        assert list(cluster.broker.commits("g")) == entries
        (entry,) = cluster.broker.commits("g")
        assert (entry.member, entry.generation) == (member_id, member.generation)


async def test_a_position_that_arrived_before_the_one_that_is_stored_is_dropped() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(2)
        producer.begin()
        transaction = await producer.add_group("g")
        consumer, generation = member.consumer, member.generation
        await consumer.commit({P1: Committed(1)}, generation)
        await consumer.commit_in(transaction, {P0: Committed(5), P1: Committed(5)}, generation)
        await consumer.commit_in(transaction, {P1: Committed(6)}, generation)
        await consumer.commit({P0: Committed(3)}, generation)
        await producer.commit()
        assert cluster.broker.committed("g") == {P0: Committed(3), P1: Committed(6)}
        assert [dict(entry.offsets) for entry in cluster.broker.commits("g")] == [
            {P1: Committed(1)},
            {P0: Committed(3)},
            {P1: Committed(6)},
        ]


async def test_positions_in_a_transaction_are_checked_as_those_of_a_commit() -> None:
    cluster = cluster_with(3)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(3)
        cluster.broker.limit_metadata("g", 3)
        producer.begin()
        transaction = await producer.add_group("g")
        consumer, generation = member.consumer, member.generation
        with pytest.raises(NotOwnerError):
            await consumer.commit_in(
                transaction, {TopicPartition("t", 3): Committed(1)}, generation
            )
        with pytest.raises(NotOwnerError, match="generation 99 is over"):
            await consumer.commit_in(transaction, {P0: Committed(1)}, 99)
        with pytest.raises(MetadataTooLargeError):
            await consumer.commit_in(
                transaction, {P0: Committed(1, "long"), P1: Committed(2, "abc")}, generation
            )
        cluster.broker.fail_next("commit_in", OutcomeUnknownError("lost"), stored=True, of="g")
        with pytest.raises(OutcomeUnknownError):
            await consumer.commit_in(transaction, {P2: Committed(4)}, generation)
        await producer.commit()
        assert cluster.broker.committed("g") == {P1: Committed(2, "abc"), P2: Committed(4)}


async def test_positions_of_a_group_that_was_not_added_are_refused() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(1)
        producer.begin()
        transaction = await producer.add_group("other")
        with pytest.raises(
            TransientBrokerError,
            match="group 'g' takes no part in a transaction of 'id' of epoch 0",
        ):
            await member.consumer.commit_in(transaction, {P0: Committed(1)}, member.generation)
        await producer.commit()
        assert cluster.broker.committed("g") == {}


async def test_positions_held_across_a_rebalance_are_refused() -> None:
    cluster = cluster_with(2)
    async with joined(cluster, "t", "g", "one") as one, claimed(cluster) as producer:
        await one.until_assigned(2)
        producer.begin()
        transaction = await producer.add_group("g")
        hold = cluster.broker.hold("commit_in", of="g")
        sending = asyncio.ensure_future(
            one.consumer.commit_in(transaction, {P1: Committed(1)}, one.generation)
        )
        await hold.arrived()
        async with joined(cluster, "t", "g", "two") as two:
            await two.until_assigned(1)
            hold.release()
            with pytest.raises(NotOwnerError):
                await sending
            await producer.commit()
            assert cluster.broker.committed("g") == {}


async def test_positions_that_are_cancelled_on_their_way_are_stored_with_the_transaction() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(1)
        producer.begin()
        transaction = await producer.add_group("g")
        hold = cluster.broker.hold("commit_in", answer=True)
        sending = asyncio.ensure_future(
            member.consumer.commit_in(transaction, {P0: Committed(4)}, member.generation)
        )
        await hold.arrived()
        sending.cancel()
        await asyncio.wait([sending])
        await producer.commit()
        assert cluster.broker.committed("g") == {P0: Committed(4)}


async def test_a_topic_that_is_deleted_takes_its_positions_along() -> None:
    cluster = cluster_with(1)
    async with joined(cluster, "t", "g") as member, claimed(cluster) as producer:
        await member.until_assigned(1)
        producer.begin()
        await producer.write(P0, BATCH)
        transaction = await producer.add_group("g")
        await member.consumer.commit({P0: Committed(1)}, member.generation)
        await member.consumer.commit_in(transaction, {P0: Committed(4)}, member.generation)
        cluster.broker.delete_topic("t")
        await producer.commit()
        assert cluster.broker.committed("g") == {}
