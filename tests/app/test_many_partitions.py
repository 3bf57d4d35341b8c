"""A rebalance and a tick of many partitions: the client is asked as often as with few, for all of
them at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from reactive_kafka import Checkpoint, Message, TopicPartition
from reactive_kafka.errors import StoreAwayError
from reactive_kafka.events import PositionsUnknown
from reactive_kafka.testing import TestApp
from tests.app.brokers import BrokerWithWrappedConsumers, WrappedConsumer
from tests.app.checkpoints import MemoryStore, Rows, Write, app_on
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    rebalanced,
    send,
    tp,
    until,
)

BY_TIME = ("poll", "wake", "check", "is_member", "session_ends_at", "look", "topic_ids")
"""What is called from time to time, however many partitions there are."""


class Counted(WrappedConsumer):
    """Counts the calls of a client's methods."""

    def __init__(self, inner: Any, calls: Counter[str]) -> None:
        super().__init__(inner)
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self._calls[name] += name not in BY_TIME
        return super().__getattr__(name)


class CountedBroker(BrokerWithWrappedConsumers):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.calls = Counter[str]()

    def wrapped(self, consumer: Any) -> Counted:
        return Counted(consumer, self.calls)


async def calls_with(partitions: int) -> Counter[str]:
    """The calls of a rebalance after which everything is retained, with a record in flight in each
    partition.
    """
    broker, kept = CountedBroker(partitions=partitions), list[Message[bytes]]()
    app = make_app(ack="manual", revoke_grace="100ms", commit_interval="1s")
    keep_messages(app, kept)

    async with TestApp(app, broker=broker) as test:
        for partition in range(partitions):
            await send(test, b"", partition=partition)
        await until(lambda: len(kept) == partitions)
        broker.calls.clear()
        await rebalanced(test)
        for message in kept:
            message.ack()
        since = now()
        await until(lambda: facts(test).commits["ok"] >= 1 and now() > since + 2)
        # All of them were retained.
        assert len(kept) == partitions
        calls = Counter(broker.calls)
    await broker.close()
    return +calls


@in_virtual_time
async def test_a_rebalance_and_a_commit_take_as_many_calls_for_forty_partitions_as_for_two() -> (
    None
):
    few, many = await calls_with(2), await calls_with(40)
    assert few == many
    assert few["start_at"] == few["commit"] == 1


class OneByOne(MemoryStore):
    """Takes its time for each row, as a folder on a slow disk or a database far away does."""

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        await self._take_time(len(partitions))
        return await super().read(group, partitions)

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        await self._take_time(len(writes))
        return await super().write(group, writes)

    async def _take_time(self, rows: int) -> None:
        try:
            async with asyncio.timeout(self.deadline_s):
                await asyncio.sleep(0.06 * rows)
        except TimeoutError:
            raise StoreAwayError("it did not answer in time") from None


def position_in(rows: Rows, partition: int) -> int | None:
    stored = rows.row("billing", tp(partition))
    return None if stored is None else stored.position


@in_virtual_time
async def test_the_rows_of_many_partitions_are_claimed_and_written_though_each_takes_its_time() -> (
    None
):
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder)
    store = OneByOne(rows)
    app._stores = lambda _: store

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None: ...

    broker = make_broker(300)
    async with TestApp(app, broker=broker, start_timeout_s=300) as test:
        for partition in range(300):
            await send(test, b"", partition=partition)
        await until(lambda: all(position_in(rows, number) == 1 for number in range(300)), 300)
        await until(lambda: app.health().ready.is_up, 60)
    # A rebalance would have waited no longer.
    (unknown,) = recorder.of(PositionsUnknown)
    assert "200 of 300 partitions are claimed in the checkpoint store after 10 s" in unknown.reason
    await broker.close()
