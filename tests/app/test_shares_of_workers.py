"""What many partitions bring where several workers take from them: no crumbs, and something for
each worker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import App, Message
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import take_all
from tests.app.helpers import facts, in_virtual_time, make_app, make_broker, now, running, until
from tests.fetching.noting import sizes_of_chunks, times_of_looks

ORDERS: list[dict[str, Any]] = [{}, {"ordering": "key"}, {"ordering": "unordered"}]


def waiting_handler(app: App, wait_s: float) -> list[None]:
    """Give the channel a handler that waits so long; one more for each of its calls."""
    calls = list[None]()

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        calls.append(None)
        await asyncio.sleep(wait_s)

    return calls


def write(broker: MemoryBroker, records: int, partitions: int) -> None:
    """Write records with different keys, to each partition as many."""
    for number in range(records):
        broker.produce("orders", b"", key=b"%d" % number, partition=number % partitions)


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each chunk has brought."""
    return sizes_of_chunks(monkeypatch)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("concurrency", [100, 1000])
async def test_fast_handlers_get_no_crumbs_however_many_workers_there_may_be(
    order: dict[str, Any], concurrency: int, chunks: list[int]
) -> None:
    app = make_app(concurrency=concurrency, **order)
    take_all(app)

    broker = make_broker(100)
    write(broker, 100 * 200, 100)
    async with running(app, broker=broker) as test:
        await test.settled(timeout=60)
    assert sum(chunks) == 20_000
    # Of which 100 are the first ones: how fast handlers are is not known by then.
    assert len(chunks) < 2_000


@in_virtual_time
async def test_consumers_that_share_the_workers_read_pieces_as_large_as_one_would(
    chunks: list[int],
) -> None:
    app, broker = make_app(concurrency=8, consumers=4, max_in_flight=4000), make_broker(32)
    waiting_handler(app, 0.002)
    write(broker, 32 * 500, 32)
    async with running(app, broker=broker) as test:
        await test.settled(timeout=60)
    assert sum(chunks) == 16_000
    # 864 where each consumer reckons with all the workers.
    assert len(chunks) < 400


@in_virtual_time
async def test_by_key_pieces_are_large_because_workers_share_a_partition(chunks: list[int]) -> None:
    app, broker = make_app(concurrency=100, ordering="key"), make_broker(100)
    waiting_handler(app, 0.002)
    write(broker, 100 * 200, 100)
    async with running(app, broker=broker) as test:
        await test.settled(timeout=60)
    # 7 where each of the busy workers is to have a partition.
    assert sum(chunks) / len(chunks) > 15


@pytest.mark.parametrize("order", ORDERS, ids=str)
@in_virtual_time
async def test_partitions_whose_records_came_first_leave_room_for_those_of_all_workers(
    order: dict[str, Any],
) -> None:
    app, calls = make_app(concurrency=100, **order), Counter[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls[message.partition] += 1
        await asyncio.sleep(0.01)

    broker = make_broker(100)
    for number in range(8 * 2_000):
        broker.produce("orders", b"", key=b"%d" % number, partition=number % 8)
    async with running(app, broker=broker):
        await until(lambda: calls.total() > 100)
        for number in range(92 * 300):
            broker.produce("orders", b"", key=b"%d" % number, partition=8 + number % 92)
        await asyncio.sleep(0.3)
        calls.clear()
        await asyncio.sleep(1)
        # Each of 100 workers has one each 10 ms.
        assert calls.total() > 9_500


@pytest.mark.parametrize("order", ORDERS, ids=str)
@in_virtual_time
async def test_messages_that_are_kept_without_an_ack_keep_back_none_of_the_records_that_they_wait_for(
    order: dict[str, Any],
) -> None:
    app, kept = make_app(concurrency=10, **order), list[Message[bytes]]()

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        if len(kept) == 500:
            for one in kept:
                one.ack()

    broker = make_broker(100)
    for number in range(500):
        broker.produce("orders", b"", key=b"%d" % number, partition=0)
    async with running(app, broker=broker) as test:
        await test.settled(timeout=30)
    assert len(kept) == 500


@pytest.mark.parametrize("order", ORDERS[1:], ids=str)
@in_virtual_time
async def test_records_that_wait_for_a_retry_have_no_share_in_what_workers_could_do(
    order: dict[str, Any],
) -> None:
    retry = {"max_attempts": 3, "backoff": "20s", "max_backoff": "20s"}
    app, done, failed = (
        make_app(concurrency=10, retry=retry, **order),
        list[int](),
        set[tuple[int, int]](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        place = message.partition, message.offset
        if (message.partition or message.offset % 2) and place not in failed:
            failed.add(place)
            raise ValueError
        done.append(message.offset)

    broker = make_broker(20)
    for partition in range(1, 20):
        broker.produce("orders", b"", key=b"", partition=partition)
    for number in range(3_000):
        broker.produce("orders", b"", key=b"%d" % number, partition=0)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(5)
        # With as many that failed: two thirds of the window.
        assert len(done) > 600
        await test.settled(timeout=300)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When partitions were looked at for room, one by one."""
    return times_of_looks(monkeypatch)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("concurrency", [1, 20])
@in_virtual_time
async def test_a_thousand_partitions_that_fill_the_window_are_not_looked_at_for_each_record(
    concurrency: int, order: dict[str, Any], looks: list[float]
) -> None:
    app, broker = make_app(concurrency=concurrency, **order), make_broker(1000)
    calls = waiting_handler(app, 0.01)
    write(broker, 1000 * 10, 1000)
    async with running(app, broker=broker):
        await until(lambda: len(calls) > 5 * concurrency)
        before, seen = len(calls), len(looks)
        await asyncio.sleep(2)
        # Each worker has one each 10 ms.
        assert len(calls) - before >= 199 * concurrency
        # 220 to 250 where each record that is settled may bring one.
        assert len(looks) - seen < 100


@pytest.mark.parametrize(
    ("partitions", "concurrency", "wait_s"), [(500, 8, 0.001), (200, 20, 0.001), (150, 20, 0.001)]
)
@in_virtual_time
async def test_no_poll_is_made_for_the_little_that_a_few_partitions_may_bring(
    partitions: int, concurrency: int, wait_s: float, looks: list[float]
) -> None:
    app, broker = make_app(concurrency=concurrency), make_broker(partitions)
    calls = waiting_handler(app, wait_s)
    write(broker, int(2 * concurrency / wait_s), partitions)
    async with running(app, broker=broker):
        await until(lambda: len(calls) > 5 * concurrency)
        before, seen = len(calls), len(looks)
        await asyncio.sleep(0.4)
        assert len(calls) - before >= 0.99 * concurrency * 0.4 / wait_s
        # 140 to 210 where pieces and equal shares leave a third of the window.
        assert len(looks) - seen < 60


@in_virtual_time
async def test_where_no_more_comes_the_end_of_a_record_is_no_reason_to_poll(
    looks: list[float],
) -> None:
    app, broker = make_app(concurrency=8), make_broker(500)
    calls = waiting_handler(app, 0.005)
    async with running(app, broker=broker) as test:
        await test.settled()
        write(broker, 1000, 500)
        seen, began = len(looks), now()
        await test.settled(timeout=60)
        assert len(calls) == 1000
        # 16; 69 where it is one.
        assert len(looks) - seen < 10 + 60 * (now() - began)


@pytest.mark.parametrize(
    ("partitions", "concurrency", "more", "wait_s", "least"),
    [
        (100, 1000, {"ordering": "unordered"}, 0.01, 0.98),
        (1000, 1000, {"ordering": "unordered"}, 0.01, 0.98),
        # 0.72 where a piece is what all workers do in its time, and not what one does.
        (200, 100, {}, 0.002, 0.99),
        # 0.61.
        (100, 100, {}, 0.002, 0.99),
        # 0.64.
        (1000, 100, {}, 0.002, 0.99),
        # 0.71.
        (100, 20, {"max_in_flight": 100}, 0.001, 0.99),
        # 0.4.
        (50, 20, {"max_in_flight": 30}, 0.001, 0.99),
        # 0.23.
        (1000, 1000, {}, 0.01, 0.99),
        # 0.83 where lanes count as work that others are on the way to.
        (20, 20, {}, 0.0005, 0.95),
        (200, 100, {"consumers": 4}, 0.002, 0.99),
        # An eighth where what is settled does not wake the poll.
        (100, 1, {"max_in_flight": 10}, 0.0005, 0.98),
        # 0.925 in that case.
        (50, 20, {"max_in_flight": 200, "ordering": "unordered"}, 0.0005, 0.9987),
    ],
    ids=str,
)
@in_virtual_time
async def test_workers_have_what_they_can_do_where_the_window_is_full(
    partitions: int, concurrency: int, more: dict[str, Any], wait_s: float, least: float
) -> None:
    app, broker, seconds = make_app(concurrency=concurrency, **more), make_broker(partitions), 0.4
    calls, possible = waiting_handler(app, wait_s), concurrency * seconds / wait_s
    write(broker, int(2 * possible), partitions)
    async with running(app, broker=broker):
        await until(lambda: len(calls) > 5 * concurrency)
        before = len(calls)
        await asyncio.sleep(seconds)
        assert len(calls) - before >= least * possible


@in_virtual_time
async def test_where_there_is_room_the_next_poll_is_not_put_off() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        await asyncio.sleep(0.01)

    broker = make_broker(1000)
    for partition in range(200):
        broker.produce("orders", b"", partition=partition)
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).partitions[199].queued)
        for partition in range(200, 300):
            broker.produce("orders", b"", partition=partition)
            await asyncio.sleep(0.001)
            # 20 ms later where a poll that left room put it off.
            assert facts(test).partitions[partition].position == 1
