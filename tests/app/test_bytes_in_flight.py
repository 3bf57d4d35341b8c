"""``max_in_flight_bytes`` and ``batch_max_bytes``: bounds by the sizes of records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Batch, ConfigError, Message
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    tp,
    until,
)
from tests.app.spark_stage import WAITS, ranges, spark_app, stored


def produce(test: TestApp, size: int, partition: int = 0, **more: Any) -> None:
    test.broker.produce("orders", b"x" * size, partition=partition, **more)


class Holding:
    """A handler that keeps each message until it is told to ack it."""

    def __init__(self, **orders: Any) -> None:
        self.held: list[Message[bytes]] = []
        self.most_bytes = 0
        self.handled = 0
        self.app = make_app(ack="manual", ordering="unordered", **orders)
        self.app.incoming("orders")(self.handle)

    async def handle(self, message: Message[bytes]) -> None:
        self.held.append(message)
        self.handled += 1
        self.most_bytes = max(self.most_bytes, self.bytes_held)

    @property
    def bytes_held(self) -> int:
        return sum(len(message.payload) for message in self.held)

    def ack(self, count: int = 1) -> None:
        for _ in range(count):
            self.held.pop(0).ack()


# -- max_in_flight_bytes


@in_virtual_time
async def test_fetching_pauses_at_the_number_of_bytes_and_goes_on_when_there_is_room() -> None:
    holding = Holding(max_in_flight_bytes=1000, concurrency=50)
    async with running(holding.app) as test:
        for _ in range(30):
            produce(test, 100)
        await until(lambda: len(holding.held) == 10)
        await asyncio.sleep(20)
        assert (len(holding.held), facts(test).partitions[0].position) == (10, 10)
        began = now()
        while holding.handled < 30:
            holding.ack(len(holding.held))
            await until(lambda: bool(holding.held))
        assert now() - began < 0.1
        holding.ack(len(holding.held))
        await until(lambda: committed(test) == 30)
    assert holding.most_bytes == 1000


@pytest.mark.parametrize("partitions", [1, 20])
@in_virtual_time
async def test_with_less_than_one_record_each_partition_has_one_at_a_time(partitions: int) -> None:
    holding = Holding(max_in_flight_bytes=1, concurrency=50)
    async with running(holding.app, partitions=partitions) as test:
        for number in range(3 * partitions):
            produce(test, 500, number % partitions)
        began = now()
        for _ in range(3):
            await until(lambda: len(holding.held) == partitions)
            await asyncio.sleep(2)
            assert {message.partition for message in holding.held} == set(range(partitions))
            holding.ack(len(holding.held))
        await test.settled()
        assert now() - began < 3 * 2 + 1
    assert holding.handled == 3 * partitions


@in_virtual_time
async def test_keys_and_headers_count_and_an_empty_record_has_no_bytes() -> None:
    holding = Holding(max_in_flight_bytes=100, concurrency=50)
    async with running(holding.app) as test:
        for _ in range(20):
            produce(test, 5, key=b"k" * 10, headers=[("name", b"value-")])
        # 25 bytes each.
        await until(lambda: len(holding.held) == 4)
        await asyncio.sleep(5)
        assert len(holding.held) == 4
        holding.ack(4)
        await until(lambda: len(holding.held) == 4)
        while holding.handled < 20:
            holding.ack()
            await until(lambda: len(holding.held) >= 4 or holding.handled == 20)
        holding.ack(len(holding.held))
        for _ in range(50):
            produce(test, 0)
        await until(lambda: len(holding.held) == 50)
        holding.ack(50)
        await test.settled()


@in_virtual_time
async def test_without_the_bound_only_the_number_of_records_counts() -> None:
    holding = Holding(concurrency=500, max_in_flight=500)
    async with running(holding.app) as test:
        for _ in range(400):
            produce(test, 10_000)
        await until(lambda: len(holding.held) == 400)
        holding.ack(400)
        await test.settled()


@in_virtual_time
async def test_a_stuck_partition_leaves_room_for_the_others() -> None:
    app = make_app(max_in_flight_bytes=1000, concurrency=4, unprocessed_record_max_age=0)
    go_on = asyncio.Event()
    done: list[int] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        if message.partition == 0:
            await go_on.wait()
        done.append(message.partition)

    async with running(app, partitions=4) as test:
        for _ in range(50):
            produce(test, 100)
        await asyncio.sleep(5)
        for number in range(300):
            produce(test, 100, 1 + number % 3)
        began = now()
        await until(lambda: len(done) == 300)
        assert now() - began < 5
        go_on.set()
        await test.settled()
        assert len(done) == 350


@in_virtual_time
async def test_settled_records_behind_an_open_one_take_no_room() -> None:
    holding = Holding(max_in_flight_bytes=1000, concurrency=50)
    async with running(holding.app) as test:
        for _ in range(200):
            produce(test, 100)
        await until(lambda: len(holding.held) == 10)
        first = holding.held.pop(0)
        while holding.handled < 200:
            holding.ack(len(holding.held))
            await until(lambda: bool(holding.held))
        holding.ack(len(holding.held))
        assert facts(test).partitions[0].position == 200
        first.ack()
        await test.settled()


@in_virtual_time
async def test_consumers_share_the_bytes() -> None:
    holding = Holding(max_in_flight_bytes=1000, concurrency=50, consumers=2)
    async with running(holding.app, partitions=2) as test:
        for number in range(60):
            produce(test, 100, number % 2)
        await until(lambda: len(holding.held) == 10)
        await asyncio.sleep(5)
        assert sorted(message.partition for message in holding.held) == [0] * 5 + [1] * 5
        while holding.handled < 60:
            holding.ack(len(holding.held))
            await until(lambda: bool(holding.held))
        holding.ack(len(holding.held))
        await test.settled()


@in_virtual_time
async def test_many_partitions_that_take_turns_keep_the_bound() -> None:
    holding = Holding(max_in_flight_bytes=20_000, max_in_flight=200, concurrency=200)
    async with running(holding.app, partitions=100) as test:
        for number in range(2000):
            produce(test, 1000, number % 100)
        began = now()
        while holding.handled < 2000:
            await until(lambda: bool(holding.held))
            await asyncio.sleep(0.01)
            holding.ack(len(holding.held))
        assert now() - began < 10
        await test.settled()
    # A record for each partition is allowed in any case.
    assert holding.most_bytes <= 20_000 + 100 * 1000


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_records_of_any_size_are_handled_once_in_every_order(ordering: str) -> None:
    app = make_app(
        max_in_flight_bytes=300, ordering=ordering, concurrency=7, failure_strategy="ignore"
    )
    done: list[tuple[int, int]] = []

    @app.incoming("orders", retry=2)
    async def handle(message: Message[bytes]) -> None:
        if message.offset % 5 == 0 and message.attempt == 1:
            raise ValueError("once")
        await asyncio.sleep(0.001 * (message.offset % 3))
        done.append((message.partition, message.offset))

    async with running(app, partitions=3) as test:
        for number in range(150):
            produce(test, number * 37 % 400, number % 3, key=b"%d" % (number % 11))
        await test.settled(timeout=120)
    assert sorted(done) == sorted((number % 3, number // 3) for number in range(150))


@in_virtual_time
async def test_delayed_retries_that_are_not_due_do_not_stop_the_channel() -> None:
    app = make_app(
        max_in_flight_bytes=100,
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": ["orders_retry_10000"]},
    )
    attempts: list[str] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        attempts.append(message.topic)
        if message.topic == "orders":
            raise ValueError("later")

    async with running(app) as test:
        for _ in range(20):
            produce(test, 90)
        await until(lambda: attempts.count("orders") == 20, 5)
        await until(lambda: attempts.count("orders_retry_10000") == 20, 60)
        await test.settled(timeout=60)


# -- planned ranges of a Spark channel


@pytest.mark.parametrize("spark", [{}, {"on_failure": "bisect", "max_concurrent_jobs": 3}])
@pytest.mark.parametrize("most_bytes", [1, 100, 450])
@in_virtual_time
async def test_a_planned_range_comes_whole_although_the_bound_is_smaller_now(
    most_bytes: int, spark: dict[str, Any]
) -> None:
    broker = make_broker(2)
    first, engine = spark_app(broker, spark=spark)
    engine.judge = lambda job: WAITS
    async with running(first, broker=broker, partitions=2) as test:
        for _ in range(5):
            produce(test, 100)
        await until(lambda: engine.jobs)
        await first.stop(drain=False)
    assert stored(broker) == (0, ["[0, 5)"])

    second, later = spark_app(broker, spark=spark, max_in_flight_bytes=most_bytes)
    async with running(second, broker=broker, partitions=2) as test:
        for number in range(10):
            produce(test, 100, number % 2)
        await until(lambda: test.committed("orders") == {tp(0): 10, tp(1): 5}, 60)
    assert ranges(later.jobs)[0][0] == ranges(engine.jobs)[0][0]
    # A record for each partition is allowed in any case.
    sizes = [len(job.rows) for job in later.jobs if job.offsets[0] != (0, 0)]
    assert max(sizes) <= most_bytes // 100 + 2


@in_virtual_time
async def test_only_the_planned_range_that_has_begun_to_come_passes_the_bound() -> None:
    broker = make_broker()
    spark = {"batch_max_records": 2, "max_concurrent_jobs": 3}
    first, engine = spark_app(broker, ordering="unordered", spark=spark)
    engine.judge = lambda job: WAITS
    async with running(first, broker=broker) as test:
        for _ in range(6):
            produce(test, 100)
        await until(lambda: len(engine.jobs) == 3)
        await first.stop(drain=False)
    assert stored(broker) == (0, ["[0, 2)", "[2, 4)", "[4, 6)"])

    second, later = spark_app(broker, ordering="unordered", spark=spark, max_in_flight_bytes=100)
    later.judge = lambda job: WAITS
    async with running(second, broker=broker) as test:
        for number in range(3):
            await until(lambda: bool(later.running))
            await asyncio.sleep(5)
            assert facts(test).partitions[0].position == 2 * (number + 1)
            later.running[0].end()
        await until(lambda: test.committed("orders").get(tp()) == 6)
    assert ranges(later.jobs) == ranges(engine.jobs)


# -- batches


def batching(**orders: Any) -> tuple[App, list[list[int]]]:
    """An application and the sizes of the records of each of its batches."""
    app = make_app(**orders)
    batches: list[list[int]] = []

    @app.incoming("orders")
    async def handle(batch: Batch[bytes]) -> None:
        batches.append([len(payload) for payload in batch.payloads])
        await asyncio.sleep(0.01)

    return app, batches


@in_virtual_time
async def test_a_batch_is_closed_before_it_would_have_too_many_bytes() -> None:
    app, batches = batching(batch_max_bytes=1000, batch_max_wait="10s")
    async with running(app) as test:
        for size in (400, 400, 400, 999, 1, 1, 1000, 1001, 5, 3000, 3000, 700):
            produce(test, size)
        await test.settled(timeout=60)
    assert batches == [[400, 400], [400], [999, 1], [1], [1000], [1001], [5], [3000], [3000], [700]]


@in_virtual_time
async def test_a_batch_that_is_full_of_bytes_does_not_wait() -> None:
    app, batches = batching(batch_max_bytes=1000, batch_max_wait="10s")
    async with running(app) as test:
        began = now()
        for _ in range(10):
            produce(test, 100)
        await until(lambda: len(batches) == 1)
        assert now() - began < 1
        produce(test, 999)
        await asyncio.sleep(5)
        assert len(batches) == 1
        await until(lambda: len(batches) == 2)
        assert 9.9 < now() - began < 11.5
    assert batches == [[100] * 10, [999]]


@in_virtual_time
async def test_the_bytes_of_a_batch_are_those_of_all_its_partitions() -> None:
    app, batches = batching(batch_max_bytes=1000, batch_max_wait="1s")
    async with running(app, partitions=3) as test:
        for number in range(60):
            produce(test, 150, number % 3)
        await test.settled(timeout=60)
    assert sum(map(len, batches)) == 60
    assert max(map(sum, batches)) <= 1000
    assert batches.count([150] * 6) >= 8


@pytest.mark.parametrize("most_bytes", [1, 100, 1000, 10_000])
@pytest.mark.parametrize("partitions", [1, 5])
@in_virtual_time
async def test_a_batch_does_not_wait_for_records_that_have_no_room(
    most_bytes: int, partitions: int
) -> None:
    app, batches = batching(max_in_flight_bytes=most_bytes, batch_max_wait="1h")
    async with running(app, partitions=partitions) as test:
        for number in range(100):
            produce(test, 200, number % partitions)
        began = now()
        # The last batch may wait for more: there is room for that.
        await until(lambda: sum(map(len, batches)) > 100 - most_bytes // 200 - 1, 60)
        assert now() - began < 20
        assert len(test.app.channel("orders").assignment) == partitions
    assert max(map(sum, batches)) <= most_bytes + 200 * partitions


@in_virtual_time
async def test_both_bounds_together_fill_batches() -> None:
    app, batches = batching(max_in_flight_bytes=2000, batch_max_bytes=1000, batch_max_wait="1h")
    async with running(app) as test:
        for _ in range(100):
            produce(test, 100)
        await test.settled(timeout=60)
    assert batches == [[100] * 10] * 10


# -- what is refused


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ({"max_in_flight_bytes": 0}, "max_in_flight_bytes = 0: expected a size"),
        ({"max_in_flight_bytes": "64 mb"}, "max_in_flight_bytes = '64 mb': expected a size"),
        ({"batch_max_bytes": "0B"}, "batch_max_bytes = '0B': expected a size"),
        (
            {"max_in_flight_bytes": "1MiB", "batch_max_bytes": "2MiB"},
            "max_in_flight_bytes is below batch_max_bytes, so no batch could ever fill",
        ),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(orders: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_app(**orders).configure()
    assert said in str(caught.value)


def test_a_size_is_read_in_its_units_and_there_is_none_by_default() -> None:
    orders = make_app(max_in_flight_bytes="64MiB", batch_max_bytes="1.5kB").settings
    settings = orders.incoming["orders"]
    assert (settings.max_in_flight_bytes, settings.batch_max_bytes) == (64 << 20, 1500)
    default = make_app().settings.incoming["orders"]
    assert (default.max_in_flight_bytes, default.batch_max_bytes) == (None, None)
