"""A consumer with a store: when it asks for rows, what it claims, and what it commits to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from reactive_kafka import Committed, IncomingSettings, TopicPartition
from reactive_kafka.checkpoint.channel_rows import CheckpointRows, StoreOutage
from reactive_kafka.checkpoint.consumer import CheckpointConsumer
from reactive_kafka.checkpoint.store import Checkpoint
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore, Rows
from reactive_kafka.errors import (
    BrokerError,
    NotOwnerError,
    PositionsRefusedError,
    StoreAwayError,
    TransientBrokerError,
)
from reactive_kafka.events import KafkaCommitFailed
from reactive_kafka.testing import VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, tp, until

GENERATION = 7
Offsets = Mapping[TopicPartition, Committed]


class Group:
    """The consumer that reads: it keeps what is committed to Kafka, and fails as it is told."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, Committed] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.failures: list[BrokerError] = []

    async def start(self, listener: object) -> None:
        """It reads nothing."""

    async def stop(self) -> None:
        """It has nothing to close."""

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        return {partition: self.stored.get(partition) for partition in partitions}

    async def commit(self, offsets: Offsets, generation: int) -> None:
        assert generation == GENERATION
        self.commits.append({name: committed.offset for name, committed in offsets.items()})
        if self.failures:
            raise self.failures.pop(0)
        self.stored |= offsets


class Listener:
    """A channel that asks where to read while its partitions are being taken away."""

    def __init__(self) -> None:
        self.consumer: CheckpointConsumer | None = None
        self.asked: list[BaseException] = []

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """It asks later."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if self.consumer is not None:
            try:
                await self.consumer.committed(partitions)
            except BrokerError as error:
                self.asked.append(error)


class Member:
    """A consumer of partitions 0 and 1 of orders, on a group and a store of its own."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        settings = IncomingSettings(name="orders", topics=("orders",), group_id="billing")
        self.store = MemoryStore(Rows())
        self.recorder = Recorder()
        self.rows = CheckpointRows(
            settings, self.store, lambda: (), loop.clock, self.recorder, StoreOutage()
        )
        self.group = Group()
        self.listener = Listener()
        self.consumer = self.make_consumer()

    def make_consumer(self) -> CheckpointConsumer:
        """Another consumer has the same name, as after a client that broke."""
        inner: Any = self.group
        return CheckpointConsumer(inner, self.rows, "orders", "billing", 10.0)

    def stored(self, partition: int) -> Checkpoint | None:
        return self.store.rows.row("billing", tp(partition))

    def put(self, partition: int, row: Checkpoint) -> None:
        self.store.rows.put("billing", tp(partition), row)

    async def begin(self, *partitions: int) -> None:
        """Start, and get the partitions."""
        await self.consumer.start(self.listener)
        names = frozenset(map(tp, partitions))
        await self.consumer.on_assigned(names, GENERATION)

    async def commit(self, offsets: dict[int, int]) -> None:
        """Commit positions to the store."""
        wanted = {tp(number): Committed(offset) for number, offset in offsets.items()}
        await self.consumer.commit(wanted, GENERATION)


@in_virtual_time
async def test_an_assignment_asks_a_store_at_once_that_was_away_before_it() -> None:
    member = Member()
    await member.begin(0)
    member.put(0, Checkpoint(1, 5))
    await fail_to_ask(member)
    with pytest.raises(StoreAwayError):
        # The store is back, but it is not asked so soon.
        await member.consumer.committed([tp(0)])
    await member.consumer.on_assigned(frozenset({tp(0)}), GENERATION)
    assert await member.consumer.committed([tp(0)]) == {tp(0): Committed(5)}
    await member.consumer.stop()


@pytest.mark.parametrize("progress", ["an answer", "an assignment"])
@in_virtual_time
async def test_waits_for_the_store_are_short_again_after_progress(progress: str) -> None:
    member = Member()
    await member.begin(0)
    member.put(0, Checkpoint(1, 5))
    for _ in range(6):
        await fail_to_ask(member)
        await asyncio.sleep(5)
    if progress == "an answer":
        await member.consumer.committed([tp(0)])
    else:
        await member.consumer.on_assigned(frozenset({tp(0)}), GENERATION)
    await fail_to_ask(member)
    await asyncio.sleep(0.5)
    assert await member.consumer.committed([tp(0)]) == {tp(0): Committed(5)}
    await member.consumer.stop()


async def fail_to_ask(member: Member) -> None:
    member.store.faults.script("read", "away")
    with pytest.raises(StoreAwayError):
        await member.consumer.committed([tp(0)])


@in_virtual_time
async def test_a_commit_to_kafka_that_fails_again_after_a_success_is_told_again() -> None:
    member = Member()
    await member.begin(0)
    await member.consumer.committed([tp(0)])
    for position in (3, 6):
        await member.commit({0: position})
        member.group.failures += [TransientBrokerError("no answer")] * 2
        await until_in_kafka(member, position)
    assert [told.reason for told in member.recorder.of(KafkaCommitFailed)] == ["no answer"] * 2
    await member.consumer.stop()


async def until_in_kafka(member: Member, position: int) -> None:
    await until(lambda: member.group.stored.get(tp(0)) == Committed(position), 60)


@in_virtual_time
async def test_a_position_that_came_from_kafka_is_not_committed_to_it() -> None:
    member = Member()
    member.group.stored[tp(0)] = Committed(5)
    await member.begin(0)
    assert await member.consumer.committed([tp(0)]) == {tp(0): Committed(5)}
    await asyncio.sleep(60)
    await member.consumer.stop()
    assert member.group.commits == []


@in_virtual_time
async def test_only_a_position_that_kafka_has_refused_is_committed_to_it_again() -> None:
    member = Member()
    await member.begin(0, 1)
    await member.consumer.committed([tp(0), tp(1)])
    await member.commit({0: 3, 1: 4})
    refusal = TransientBrokerError("an open transaction")
    member.group.failures.append(PositionsRefusedError({tp(1): refusal}))
    await asyncio.sleep(60)
    assert member.group.commits == [{tp(0): 3, tp(1): 4}, {tp(1): 4}]
    await member.consumer.stop()


@in_virtual_time
async def test_a_row_that_no_other_owner_has_taken_is_claimed_without_a_commit_to_kafka() -> None:
    member = Member()
    await member.begin(0)
    member.put(0, Checkpoint(4, 9))
    assert await member.consumer.committed([tp(0)]) == {tp(0): Committed(9)}
    assert member.stored(0) == Checkpoint(5, 9)
    assert member.group.commits == []


@in_virtual_time
async def test_no_row_is_claimed_while_its_partition_is_being_taken_away() -> None:
    member = Member()
    await member.begin(0)
    member.put(0, Checkpoint(4, 9))
    member.listener.consumer = member.consumer
    await member.consumer.on_revoked(frozenset({tp(0)}))
    (error,) = member.listener.asked
    assert isinstance(error, NotOwnerError)
    assert member.stored(0) == Checkpoint(4, 9)


@in_virtual_time
async def test_a_consumer_that_was_replaced_under_its_name_commits_nothing_for_the_next_one() -> (
    None
):
    member = Member()
    await member.begin(0)
    await member.consumer.committed([tp(0)])
    before = member.consumer
    await before.stop()
    member.consumer = member.make_consumer()
    await member.begin(0)
    await member.consumer.committed([tp(0)])
    with pytest.raises(NotOwnerError):
        await before.commit({tp(0): Committed(3)}, GENERATION)
    row = member.stored(0)
    assert row is not None
    assert row.position is None
