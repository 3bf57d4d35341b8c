"""What transactions must be: one suite, run on the in-memory broker and on Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.client import (
    TRANSACTION_TIMEOUT_MS,
    SomePositionsUnknownError,
    TransactionalProducer,
    WrittenBatch,
)
from reactive_kafka.errors import NotOwnerError, PositionsRefusedError, TransientBrokerError
from reactive_kafka.records import RecordBytes
from tests.broker.contract import goes_on_for_a_while
from tests.broker.contract_writing import numbered
from tests.broker.members import (
    PATIENCE_S,
    Cluster,
    Member,
    fill,
    inspecting,
    joined,
    texts,
    until_committed,
)

COMMITTED = {"isolation_level": "read_committed"}
# More than the deadline of a question that is asked again and again while a position is unstable.
PATIENT_MS = 60_000
# More than a partition has.
MANY = 1000


def named() -> str:
    """A transactional id that nobody has had."""
    return f"id-{uuid.uuid4().hex[:8]}"


@asynccontextmanager
async def transacting(
    cluster: Cluster, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> AsyncIterator[TransactionalProducer]:
    """A producer that has claimed its id; it has stopped when this ends."""
    producer = cluster.connector.transactional_producer(
        name="test",
        transactional_id=transactional_id,
        properties={"transaction_timeout_ms": timeout_ms},
    )
    try:
        await producer.claim()
        yield producer
    finally:
        await producer.stop()


def reading(
    cluster: Cluster, partitions: Collection[TopicPartition], *, is_committed: bool = True
) -> AbstractAsyncContextManager[Member]:
    """A reader of partitions from their beginning; of what is committed, or of everything."""
    properties = COMMITTED if is_committed else {"isolation_level": "read_uncommitted"}
    return joined(cluster, None, None, partitions=partitions, properties=properties)


async def write(
    producer: TransactionalProducer, to: TopicPartition, values: Sequence[str]
) -> WrittenBatch:
    return await producer.write(to, [RecordBytes(value.encode()) for value in values])


async def partition_of(cluster: Cluster) -> TopicPartition:
    return TopicPartition(await cluster.create_topic(1), 0)


async def taken_until(member: Member, partition: TopicPartition, position: int) -> list[str]:
    """Poll until the position is there, past what has no record for this reader: the values until
    then.
    """
    values = list[str]()
    async with asyncio.timeout(PATIENCE_S):
        while member.consumer.positions().get(partition) != position:
            poll = await member.consumer.poll({partition: MANY}, 0.2)
            assert not poll.errors
            for chunk in poll.chunks:
                values += texts(chunk.records)
                assert [
                    one.offset for one in chunk.records if one.offset >= chunk.next_offset
                ] == []
                assert chunk.next_offset <= chunk.high_watermark
                assert chunk.next_offset == member.consumer.positions()[partition]
    return values


async def stable_end(member: Member, partition: TopicPartition) -> int:
    return (await member.consumer.end_offsets([partition]))[partition]


async def until_stable_end(member: Member, partition: TopicPartition, end: int) -> None:
    """Wait until no transaction holds a reader back any more."""
    async with asyncio.timeout(PATIENCE_S):
        while await stable_end(member, partition) != end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def stable_position(member: Member, partition: TopicPartition) -> Committed | None:
    """What the group has stored, once the markers of the transaction that has ended are
    everywhere.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return (await member.consumer.committed([partition]))[partition]
            except TransientBrokerError:
                await asyncio.sleep(0.02)


class TransactionContract:
    """What readers see."""

    async def test_records_of_a_transaction_are_seen_when_it_is_committed(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            producer.begin()
            assert await write(producer, at, ["a", "b"]) == WrittenBatch(0, 2)
            assert await write(producer, at, ["c"]) == WrittenBatch(2, 1)
            assert await stable_end(member, at) == 0
            assert await member.polls_nothing({at: MANY})
            await producer.commit()
            assert await taken_until(member, at, 4) == ["a", "b", "c"]
            assert await stable_end(member, at) == 4

    async def test_a_poll_ends_when_a_transaction_does(self, cluster: Cluster) -> None:
        at = await partition_of(cluster)
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["a"])
            poll = asyncio.ensure_future(member.consumer.poll({at: MANY}, 2 * PATIENCE_S))
            assert await goes_on_for_a_while(poll)
            await producer.commit()
            async with asyncio.timeout(PATIENCE_S):
                [chunk] = (await poll).chunks
            assert texts(chunk.records) == ["a"]

    async def test_records_of_an_aborted_transaction_are_passed_over(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["a", "b"])
            await producer.abort()
            await fill(cluster, at.topic, {0: ["after"]})
            assert await taken_until(member, at, 4) == ["after"]

    async def test_a_position_goes_past_aborted_records_at_the_log_s_end(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["a", "b"])
            await producer.commit()
            producer.begin()
            await write(producer, at, ["c", "d", "e"])
            await producer.abort()
            assert await taken_until(member, at, 7) == ["a", "b"]

    async def test_what_stands_behind_an_open_transaction_waits_for_its_end(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        await fill(cluster, at.topic, {0: ["before"]})
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["a"])
            await fill(cluster, at.topic, {0: ["behind"]})
            poll = await member.poll_until(lambda poll: bool(poll.chunks), {at: MANY})
            [chunk] = poll.chunks
            assert (texts(chunk.records), chunk.next_offset, chunk.high_watermark) == (
                ["before"],
                1,
                1,
            )
            assert await member.polls_nothing({at: MANY})
            assert await member.consumer.offsets_for_times({at: 0}) == {at: 0}
            await producer.abort()
            assert await taken_until(member, at, 4) == ["behind"]

    async def test_no_time_leads_into_an_open_transaction(self, cluster: Cluster) -> None:
        at = await partition_of(cluster)
        async with (
            transacting(cluster, named()) as producer,
            reading(cluster, [at]) as member,
            reading(cluster, [at], is_committed=False) as other,
        ):
            await member.until_assigned(1)
            await other.until_assigned(1)
            producer.begin()
            await write(producer, at, ["a"])
            assert await other.consumer.offsets_for_times({at: 0}) == {at: 0}
            assert await member.consumer.offsets_for_times({at: 0}) == {at: None}
            await producer.commit()
            await until_stable_end(member, at, 2)
            assert await member.consumer.offsets_for_times({at: 0}) == {at: 0}

    async def test_who_reads_uncommitted_records_sees_all_of_them_at_once(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with (
            transacting(cluster, named()) as producer,
            reading(cluster, [at], is_committed=False) as member,
        ):
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["aborted"])
            assert texts((await member.take(1))[at]) == ["aborted"]
            await producer.abort()
            producer.begin()
            await write(producer, at, ["open"])
            assert await taken_until(member, at, 3) == ["open"]
            assert await stable_end(member, at) == 3
        async with reading(cluster, [at], is_committed=False) as member:
            await member.until_assigned(1)
            assert texts((await member.take(2))[at]) == ["aborted", "open"]

    async def test_transactions_of_two_producers_end_in_any_order(self, cluster: Cluster) -> None:
        at = await partition_of(cluster)
        async with (
            transacting(cluster, named()) as one,
            transacting(cluster, named()) as two,
            reading(cluster, [at]) as member,
        ):
            await member.until_assigned(1)
            one.begin()
            two.begin()
            for number in range(3):
                await write(one, at, [f"one {number}"])
                await write(two, at, [f"two {number}"])
            await two.commit()
            assert await stable_end(member, at) == 0
            assert await member.polls_nothing({at: MANY})
            await one.abort()
            assert await taken_until(member, at, 8) == ["two 0", "two 1", "two 2"]

    async def test_a_transaction_has_several_partitions_and_batches(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(3)
        partitions = [TopicPartition(topic, number) for number in range(3)]
        async with (
            transacting(cluster, named()) as producer,
            reading(cluster, partitions) as member,
        ):
            await member.until_assigned(3)
            assert await producer.partitions(topic) == producer.known_partitions(topic) == 3
            for letter, end in (
                ("a", producer.commit),
                ("b", producer.abort),
                ("c", producer.commit),
            ):
                producer.begin()
                for turn in range(2):
                    await asyncio.gather(
                        *(write(producer, at, [f"{letter}{turn}"]) for at in partitions[:2])
                    )
                await end()
            for at in partitions[:2]:
                assert await taken_until(member, at, 9) == ["a0", "a1", "c0", "c1"]
            assert await member.polls_nothing({partitions[2]: MANY})
            # A marker is only where something was written.
            assert await stable_end(member, partitions[2]) == 0

    async def test_one_transaction_follows_the_other_and_some_have_nothing(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            for number in range(5):
                producer.begin()
                await producer.commit()
                producer.begin()
                assert await write(producer, at, [str(number)]) == WrittenBatch(2 * number, 1)
                await producer.commit()
                producer.begin()
                await producer.abort()
            assert await taken_until(member, at, 10) == ["0", "1", "2", "3", "4"]

    async def test_a_large_transaction_is_seen_whole_and_in_order(self, cluster: Cluster) -> None:
        topic = await cluster.create_topic(4)
        partitions = [TopicPartition(topic, number) for number in range(4)]
        # More than a batch holds.
        records = numbered(range(2500), size=300)

        async def write_all(at: TopicPartition) -> None:
            done = 0
            while done < len(records):
                done += (await producer.write(at, records[done:])).count

        async with (
            transacting(cluster, named()) as producer,
            reading(cluster, partitions) as member,
        ):
            await member.until_assigned(4)
            producer.begin()
            await asyncio.gather(*map(write_all, partitions))
            assert await member.polls_nothing(dict.fromkeys(partitions, MANY))
            await producer.commit()
            taken = await member.take(10_000)
            for at in partitions:
                assert [(one.offset, one.value) for one in taken[at]] == [
                    (offset, record.value) for offset, record in enumerate(records)
                ]
                await until_stable_end(member, at, 2501)


class FencingContract:
    """Who has a transactional id, and who has it no more."""

    async def test_a_claim_aborts_what_its_own_producer_has_left_open(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with transacting(cluster, named()) as producer, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["given up"])
            await producer.claim()
            # It has ended when the claim returns.
            assert await stable_end(member, at) == 2
            producer.begin()
            await write(producer, at, ["kept"])
            await producer.commit()
            assert await taken_until(member, at, 4) == ["kept"]

    async def test_a_second_producer_with_the_same_id_fences_the_first(
        self, cluster: Cluster
    ) -> None:
        at, id_ = await partition_of(cluster), named()
        async with transacting(cluster, id_) as new, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            async with transacting(cluster, id_) as old:
                old.begin()
                await write(old, at, ["old"])
                await new.claim()
                assert await stable_end(member, at) == 2
                with pytest.raises(TransientBrokerError):
                    await write(old, at, ["late"])
                new.begin()
                await write(new, at, ["new"])
            # The stop of the other one has not touched it.
            await new.commit()
            assert await taken_until(member, at, 4) == ["new"]

    async def test_who_is_fenced_cannot_commit_and_gets_the_id_back_by_a_claim(
        self, cluster: Cluster
    ) -> None:
        at, id_ = await partition_of(cluster), named()
        async with transacting(cluster, id_) as old, reading(cluster, [at]) as member:
            await member.until_assigned(1)
            old.begin()
            await write(old, at, ["old"])
            async with transacting(cluster, id_) as new:
                with pytest.raises(TransientBrokerError):
                    await old.commit()
                await old.claim()
                new.begin()
                with pytest.raises(TransientBrokerError):
                    await write(new, at, ["new"])
            old.begin()
            await write(old, at, ["old again"])
            await old.commit()
            assert await taken_until(member, at, 4) == ["old again"]

    async def test_positions_of_who_is_fenced_are_refused(
        self, cluster: Cluster, group: str
    ) -> None:
        at, id_ = await partition_of(cluster), named()
        async with joined(cluster, at.topic, group) as member, transacting(cluster, id_) as old:
            await member.until_assigned(1)
            old.begin()
            transaction = await old.add_group(group)
            async with transacting(cluster, id_) as new:
                with pytest.raises(TransientBrokerError):
                    await member.consumer.commit_in(
                        transaction, {at: Committed(1)}, member.generation
                    )
                new.begin()
                later = await new.add_group(group)
                assert later.producer_id == transaction.producer_id
                assert later.epoch > transaction.epoch
                await member.consumer.commit_in(later, {at: Committed(2)}, member.generation)
                await new.commit()
            assert await stable_position(member, at) == Committed(2)

    async def test_a_transaction_that_nobody_ends_is_aborted_and_its_producer_fenced(
        self, cluster: Cluster
    ) -> None:
        at = await partition_of(cluster)
        async with (
            transacting(cluster, named(), 1_000) as producer,
            reading(cluster, [at]) as member,
        ):
            await member.until_assigned(1)
            producer.begin()
            await write(producer, at, ["forgotten"])
            assert await stable_end(member, at) == 0
            await until_stable_end(member, at, 2)
            with pytest.raises(TransientBrokerError):
                await producer.commit()
            await producer.claim()
            producer.begin()
            await write(producer, at, ["kept"])
            await producer.commit()
            assert await taken_until(member, at, 4) == ["kept"]

    async def test_a_stop_aborts_what_is_open(self, cluster: Cluster) -> None:
        at = await partition_of(cluster)
        async with reading(cluster, [at]) as member:
            await member.until_assigned(1)
            async with transacting(cluster, named()) as producer:
                producer.begin()
                await write(producer, at, ["given up"])
            await fill(cluster, at.topic, {0: ["after"]})
            assert await taken_until(member, at, 3) == ["after"]


class PositionsContract:
    """Positions that take part."""

    # A rebalance leaves partitions with their owner, which may commit them as before.
    keeps_partitions: ClassVar[bool] = False

    async def test_positions_are_stored_when_the_transaction_is_committed(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with (
            joined(cluster, topic, group) as member,
            transacting(cluster, named(), PATIENT_MS) as producer,
        ):
            await member.until_assigned(2)
            consumer, generation = member.consumer, member.generation
            await consumer.commit({first: Committed(1), second: Committed(1)}, generation)
            producer.begin()
            await write(producer, first, ["a"])
            transaction = await producer.add_group(group)
            await consumer.commit_in(transaction, {first: Committed(4)}, generation)
            await consumer.commit_in(
                transaction, {first: Committed(5, "with metadata")}, generation
            )
            with pytest.raises(TransientBrokerError):
                await consumer.committed([first])
            assert await consumer.committed([second]) == {second: Committed(1)}
            with pytest.raises(SomePositionsUnknownError) as caught:
                await consumer.committed([first, second])
            assert caught.value.found == {second: Committed(1)}
            assert caught.value.unknown.keys() == {first}
            # Tools do not wait.
            await until_committed(cluster, group, {first: 1, second: 1})
            await producer.commit()
            assert await stable_position(member, first) == Committed(5, "with metadata")
            await until_committed(cluster, group, {first: 5, second: 1})

    async def test_a_position_that_is_refused_is_named_and_the_others_take_part(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        there, missing = TopicPartition(topic, 0), TopicPartition(topic, 7)
        static = joined(cluster, None, group, starts_by_itself=False, partitions=[there, missing])
        async with static as member, transacting(cluster, named()) as producer:
            await member.until_assigned(2)
            producer.begin()
            transaction = await producer.add_group(group)
            with pytest.raises(PositionsRefusedError) as caught:
                offsets = {there: Committed(3), missing: Committed(4)}
                await member.consumer.commit_in(transaction, offsets, member.generation)
            assert caught.value.refused.keys() == {missing}
            await producer.commit()
            assert await stable_position(member, there) == Committed(3)

    async def test_positions_are_dropped_when_the_transaction_is_aborted(
        self, cluster: Cluster, group: str
    ) -> None:
        at = await partition_of(cluster)
        async with (
            joined(cluster, at.topic, group) as member,
            transacting(cluster, named()) as producer,
        ):
            await member.until_assigned(1)
            for stored in (None, Committed(3)):
                if stored is not None:
                    await member.consumer.commit({at: stored}, member.generation)
                producer.begin()
                transaction = await producer.add_group(group)
                await member.consumer.commit_in(transaction, {at: Committed(7)}, member.generation)
                await producer.abort()
                assert await stable_position(member, at) == stored

    async def test_positions_are_dropped_by_a_claim(self, cluster: Cluster, group: str) -> None:
        at = await partition_of(cluster)
        async with (
            joined(cluster, at.topic, group) as member,
            transacting(cluster, named()) as producer,
        ):
            await member.until_assigned(1)
            producer.begin()
            transaction = await producer.add_group(group)
            await member.consumer.commit_in(transaction, {at: Committed(7)}, member.generation)
            await producer.claim()
            assert await stable_position(member, at) is None

    async def test_the_position_that_arrived_last_wins(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with (
            joined(cluster, topic, group) as member,
            transacting(cluster, named()) as producer,
        ):
            await member.until_assigned(2)
            consumer, generation = member.consumer, member.generation
            producer.begin()
            transaction = await producer.add_group(group)
            await consumer.commit_in(
                transaction, {first: Committed(9), second: Committed(9)}, generation
            )
            await consumer.commit({first: Committed(2)}, generation)
            await producer.commit()
            assert await stable_position(member, first) == Committed(2)
            assert await stable_position(member, second) == Committed(9)

    async def test_positions_of_one_transaction_after_the_other(
        self, cluster: Cluster, group: str
    ) -> None:
        at = await partition_of(cluster)
        async with (
            joined(cluster, at.topic, group) as member,
            transacting(cluster, named()) as producer,
        ):
            await member.until_assigned(1)
            # Lower ones, too.
            for position in (3, 8, 5):
                producer.begin()
                transaction = await producer.add_group(group)
                await member.consumer.commit_in(
                    transaction, {at: Committed(position)}, member.generation
                )
                await producer.commit()
            assert await stable_position(member, at) == Committed(5)

    async def test_a_member_sends_positions_of_its_own_partitions_and_generation_only(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with (
            joined(cluster, topic, group, "one") as one,
            transacting(cluster, named()) as producer,
        ):
            await one.until_assigned(2)
            before = one.generation
            async with joined(cluster, topic, group, "two") as two:
                async with asyncio.TaskGroup() as polling:
                    polls = [polling.create_task(self._polls_on(member)) for member in (one, two)]
                    (kept,) = await one.until_assigned(1)
                    (lost,) = await two.until_assigned(1)
                    for poll in polls:
                        poll.cancel()
                producer.begin()
                transaction = await producer.add_group(group)
                if not self.keeps_partitions:
                    with pytest.raises(NotOwnerError):
                        await one.consumer.commit_in(transaction, {kept: Committed(1)}, before)
                with pytest.raises(NotOwnerError):
                    await one.consumer.commit_in(transaction, {lost: Committed(1)}, one.generation)
                await two.consumer.commit_in(transaction, {lost: Committed(4)}, two.generation)
                await producer.commit()
                assert await stable_position(one, kept) is None
                assert await stable_position(two, lost) == Committed(4)

    @staticmethod
    async def _polls_on(member: Member) -> None:
        while True:
            await member.consumer.poll({}, 0.1)

    async def test_records_and_positions_of_a_transaction_are_there_for_the_next_member(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(1)
        out = await partition_of(cluster)
        at = TopicPartition(topic, 0)
        await fill(cluster, topic, {0: ["a", "b", "c"]})
        async with (
            joined(cluster, topic, group) as member,
            transacting(cluster, named()) as producer,
        ):
            await member.until_assigned(1)
            for _ in range(2):
                [record] = (await member.take(1, {at: 1}))[at]
                producer.begin()
                await write(producer, out, [f"of {texts([record])[0]}"])
                transaction = await producer.add_group(group)
                await member.consumer.commit_in(
                    transaction, {at: Committed(record.offset + 1)}, member.generation
                )
                await producer.commit()
            assert await stable_position(member, at) == Committed(2)
        async with joined(cluster, topic, group) as member, reading(cluster, [out]) as reader:
            await member.until_assigned(1)
            assert texts((await member.take(1))[at]) == ["c"]
            await reader.until_assigned(1)
            assert await taken_until(reader, out, 4) == ["of a", "of b"]

    async def test_an_inspector_tells_the_stable_end_if_it_is_to(self, cluster: Cluster) -> None:
        at = await partition_of(cluster)
        await fill(cluster, at.topic, {0: ["before"]})
        async with transacting(cluster, named()) as producer, inspecting(cluster) as inspector:
            producer.begin()
            await write(producer, at, ["open"])
            assert await inspector.end_offsets([at]) == {at: 2}
            stable = cluster.connector.inspector(properties=COMMITTED)
            await stable.start()
            try:
                assert await stable.end_offsets([at]) == {at: 1}
            finally:
                await stable.stop()
