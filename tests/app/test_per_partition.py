"""How many handlers of one partition run at once: ``concurrency_per_partition``, and how all of
them share without.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import Batch, Message
from tests.app.helpers import facts, in_virtual_time, make_app, now, rebalanced, running, until


class Inside:
    """Counts the handlers of each partition that run."""

    def __init__(self) -> None:
        self.now, self.most, self.all, self.done = (
            Counter[int](),
            Counter[int](),
            0,
            list[tuple[int, int]](),
        )

    async def work(self, message: Message[Any], takes_s: float = 1.0) -> None:
        self.now[message.partition] += 1
        self.most[message.partition] = max(
            self.most[message.partition], self.now[message.partition]
        )
        self.all = max(self.all, self.now.total())
        await asyncio.sleep(takes_s)
        self.now[message.partition] -= 1
        self.done.append((message.partition, message.offset))


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_a_partition_has_no_more_than_its_cap_at_once(ordering: str) -> None:
    inside = Inside()
    app = make_app(
        ordering=ordering, concurrency=12, concurrency_per_partition=3, value_deserializer="bytes"
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await inside.work(message)

    async with running(app, partitions=4) as test:
        began = now()
        for number in range(60):
            await test.send(
                "orders", b"", key=b"%d" % number, partition=0 if number < 30 else 1 + number % 3
            )
        await test.settled(60)
        assert max(inside.most.values()) == 3
        assert inside.all == 12
        assert len(set(inside.done)) == 60
        # 30 records of one partition, three at once.
        assert 10 <= now() - began < 10.5
        test.broker.rebalance("billing")
        await test.settled()


@in_virtual_time
async def test_a_key_keeps_its_order_under_a_cap_through_rebalances() -> None:
    inside = Inside()
    app = make_app(
        ordering="key",
        concurrency=8,
        concurrency_per_partition=2,
        revoke_grace="100ms",
        value_deserializer="bytes",
    )
    seen = dict[bytes, list[int]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.setdefault(message.record.key or b"", []).append(message.offset)
        await inside.work(message, 0.05)

    async with running(app) as test:
        for number in range(100):
            await test.send("orders", b"", key=b"%d" % (number % 7), partition=0)
        for _ in range(3):
            await asyncio.sleep(0.3)
            await rebalanced(test)
        await test.settled(60)
        assert inside.most[0] == 2
        assert all(offsets == sorted(offsets) for offsets in seen.values())
        assert {offset for offsets in seen.values() for offset in offsets} == set(range(100))


@in_virtual_time
async def test_a_record_that_waits_for_its_retry_counts_and_others_of_the_cap_go_on() -> None:
    seen = list[int]()
    app = make_app(
        ordering="unordered",
        concurrency=4,
        concurrency_per_partition=2,
        value_deserializer="bytes",
        retry={"max_attempts": 3, "backoff": "1s", "max_backoff": "1s"},
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == 0 and seen.count(0) < 3:
            raise ValueError("not yet")

    async with running(app) as test:
        for _ in range(10):
            await test.send("orders", b"", partition=0)
        await until(lambda: len(set(seen)) == 10, 0.9)
        await test.settled()
        assert seen.count(0) == 3


@in_virtual_time
async def test_batches_of_one_partition_are_capped_too() -> None:
    now_running, most = 0, 0
    app = make_app(
        ordering="unordered",
        concurrency=4,
        concurrency_per_partition=2,
        value_deserializer="bytes",
        batch_max_records=5,
        batch_max_wait="0s",
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        nonlocal now_running, most
        now_running += 1
        most = max(most, now_running)
        await asyncio.sleep(1)
        now_running -= 1

    async with running(app) as test:
        for _ in range(50):
            await test.send("orders", b"", partition=0)
        await test.settled(60)
        assert most == 2


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_partitions_with_work_share_the_workers_alike_whoever_came_first(
    ordering: str,
) -> None:
    inside = Inside()
    app = make_app(ordering=ordering, concurrency=30, value_deserializer="bytes")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await inside.work(message, 0.02)

    async with running(app, partitions=3) as test:
        for partition in range(3):
            for number in range(2000):
                await test.send("orders", b"", key=b"%d" % number, partition=partition)
            if not partition:
                await until(lambda: inside.now[0] == 30, 1)
        began = now()
        await until(lambda: all(inside.now[partition] >= 8 for partition in range(3)), 0.3)
        await asyncio.sleep(0.2)
        assert [9 <= inside.now[partition] <= 11 for partition in range(3)] == [True] * 3, dict(
            inside.now
        )
        await test.settled(60)
        assert now() - began < 5, "workers had nothing to do while records waited"
        assert len(set(inside.done)) == 6000


@in_virtual_time
async def test_calls_that_return_at_once_are_counted_while_others_wait() -> None:
    called = 0
    app = make_app(ordering="unordered", concurrency=4, value_deserializer="bytes")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        nonlocal called
        called += 1
        if message.offset % 2:
            await asyncio.sleep(0.1)

    async with running(app) as test:
        for _ in range(1000):
            await test.send("orders", b"", partition=0)
        await until(lambda: called >= 500, 30)
        assert sum(facts(test).handler_durations.counts) >= called - 2 * 4
        await test.settled(60)
        durations = facts(test).handler_durations
        assert sum(durations.counts) == 1000
        assert durations.sum_s == pytest.approx(50, rel=0.01)
