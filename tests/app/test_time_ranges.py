"""Channels that read ranges of times: the records of those times, and then they are done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reactive_kafka import App, Message
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import facts, in_virtual_time, make_broker, positions, running, until
from tests.app.test_until_end import run_to_its_end

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def range_of(partition: str, first: int, last: int) -> str:
    """The item of ``assign`` for some minutes after noon."""
    return f"orders:{partition}@{at(first).isoformat()}..{at(last).isoformat()}"


def broker_with(*minutes: list[int]) -> MemoryBroker:
    """A broker whose records of orders, partition by partition, are of these minutes after noon."""
    broker = make_broker(len(minutes))
    broker.create_topic("orders", len(minutes))
    for partition, its in enumerate(minutes):
        for minute in its:
            stamp = int(at(minute).timestamp() * 1000)
            broker.produce("orders", b"", partition=partition, timestamp_ms=stamp)
    return broker


def noting_app(*assign: str, **orders: Any) -> tuple[App, list[tuple[int, int]]]:
    """An application that notes partition and offset of what it gets."""
    app = App({"incoming": {"orders": {"assign": list(assign), **orders}}})
    seen: list[tuple[int, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))

    return app, seen


@in_virtual_time
async def test_one_partition_is_read_between_two_times() -> None:
    broker = broker_with([0, 5, 10, 15, 20], [10, 12])
    app, seen = noting_app(range_of("0", 5, 15))
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        broker.produce("orders", b"", partition=0)
        await test.settled()
    # The end is not included.
    assert seen == [(0, 1), (0, 2)]
    assert positions(broker) == []
    await broker.close()


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_all_partitions_are_read_between_two_times(ordering: str) -> None:
    broker = broker_with([0, 5, 10, 15], [9, 11, 30], [], [1], [20, 21], [6])
    app, seen = noting_app(range_of("*", 5, 15), ordering=ordering)
    assert await run_to_its_end(app, broker) == 0
    assert sorted(seen) == [(0, 1), (0, 2), (1, 0), (1, 1), (5, 0)]
    await broker.close()


@in_virtual_time
async def test_a_range_without_records_is_done_at_once() -> None:
    broker = broker_with([0, 30])
    app, seen = noting_app(range_of("0", 10, 20))
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        assert test.app.health().ready.is_up
    app, seen_later = noting_app(range_of("*", 40, 50))
    assert await run_to_its_end(app, broker) == 0
    assert seen == seen_later == []
    await broker.close()


@in_virtual_time
async def test_an_end_after_all_records_is_the_end_of_the_log_at_the_start() -> None:
    broker = broker_with([0, 10, 20])
    app, seen = noting_app(range_of("*", 5, 500))
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        late = int(at(30).timestamp() * 1000)
        broker.produce("orders", b"", partition=0, timestamp_ms=late)
        await test.app.channel("orders").stop()
        await test.app.channel("orders").start()
        await until(lambda: facts(test).state == "done")
    # A restart reads no more than the first start has found.
    assert seen == [(0, 1), (0, 2)]
    await broker.close()


@in_virtual_time
async def test_with_a_group_each_start_begins_at_the_first_time() -> None:
    broker = broker_with([0, 5, 10, 15], [5, 15])
    for _ in range(2):
        app, seen = noting_app(range_of("*", 5, 15), group_id="replay", commit_interval="100ms")
        assert await run_to_its_end(app, broker) == 0
        assert sorted(seen) == [(0, 1), (0, 2), (1, 0)]
    stored = {one.partition: found.offset for one, found in broker.committed("replay").items()}
    assert stored == {0: 3, 1: 1}
    await broker.close()


@in_virtual_time
async def test_a_partition_that_comes_later_has_the_range_too() -> None:
    broker = broker_with([5])
    app, seen = noting_app(range_of("*", 0, 15), auto_offset_reset="earliest")
    async with running(app, broker=broker):
        await until(lambda: len(seen) == 1)
        broker.create_topic("orders", 2)
        for minute in (5, 10, 20):
            stamp = int(at(minute).timestamp() * 1000)
            broker.produce("orders", b"", partition=1, timestamp_ms=stamp)
        await until(lambda: len(seen) == 3, within_s=400)
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1)]
    await broker.close()


@in_virtual_time
async def test_an_outage_at_the_start_is_waited_for() -> None:
    broker = broker_with([0, 5, 10, 15])
    app, seen = noting_app(range_of("*", 5, 15), enabled=False)
    async with running(app, broker=broker) as test:
        broker.down = True
        await test.app.channel("orders").start()
        await until(lambda: not test.app.health().ready.is_up)
        broker.down = False
        await until(lambda: facts(test).state == "done", within_s=60)
    assert seen == [(0, 1), (0, 2)]
    await broker.close()
