"""A channel with a rate limit: when its records start, and that nothing waits for those that do
not.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import Batch, Message
from reactive_kafka.events import RecordPoisoned
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    running,
    send,
    tp,
    until,
)
from tests.app.spark_stage import spark_app

HERE = "tests.app.test_rate_limit"
KINDS: list[dict[str, Any]] = [
    {},
    {"ordering": "key"},
    {"ordering": "unordered", "concurrency": 4},
    {"ack": "manual", "concurrency": 4},
]


class Starting:
    """An application that notes when each record starts, counted from the first."""

    def __init__(
        self, handler_s: float = 0.0, recorder: Recorder | None = None, **orders: Any
    ) -> None:
        self.at: list[float] = []
        self.app = make_app(recorder, **orders)

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.at.append(now())
            if handler_s:
                await asyncio.sleep(handler_s)
            await message.ack()

    def most_within(self, seconds: float) -> int:
        """The most records that start in any time of that length, its end aside."""
        return max(sum(since <= at < since + seconds - 1e-6 for at in self.at) for since in self.at)


@pytest.mark.parametrize("orders", KINDS, ids=str)
@in_virtual_time
async def test_after_a_burst_of_a_second_the_others_start_one_by_one(
    orders: dict[str, Any],
) -> None:
    starting = Starting(rate_limit="10/s", **orders)
    async with running(starting.app, partitions=3) as test:
        for number in range(60):
            await test.send("orders", b"", key=str(number).encode(), partition=number % 3)
        await until(lambda: len(starting.at) == 60, within_s=20)
        await test.settled()
    assert starting.at[9] - starting.at[0] < 0.1
    assert starting.at[59] - starting.at[0] == pytest.approx(5.0, abs=0.15)
    assert starting.most_within(1.0) <= 20
    assert starting.most_within(0.1) <= 11


@pytest.mark.parametrize("orders", KINDS, ids=str)
@in_virtual_time
async def test_a_stop_waits_for_no_record_that_has_not_started(orders: dict[str, Any]) -> None:
    broker, starting = make_broker(), Starting(rate_limit="1/h", **orders)
    async with running(starting.app, broker=broker) as test:
        await send(test, *[b""] * 5)
        await until(lambda: len(starting.at) == 1 and facts(test).partitions[0].queued == 4)
        assert facts(test).limited_by == "rate_limit = 1/h"
        assert facts(test).state == "running"
        began = now()
        await test.app.stop()
        assert now() - began < 1.0
    assert (len(starting.at), positions(broker)[-1]) == (1, 1)
    await broker.close()


@in_virtual_time
async def test_one_an_hour_is_one_an_hour_and_what_waits_is_no_poison() -> None:
    recorder = Recorder()
    starting = Starting(recorder=recorder, rate_limit="1/h", unprocessed_record_max_age="10s")
    async with running(starting.app) as test:
        await send(test, b"", b"")
        await asyncio.sleep(300)
        assert len(starting.at) == 1
    assert not recorder.of(RecordPoisoned)


@in_virtual_time
async def test_the_limit_holds_through_a_restart_of_the_channel() -> None:
    failing = make_app(rate_limit="2/m", failure_strategy="fail")
    started: list[float] = []

    @failing.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        started.append(now())
        if len(started) == 1:
            raise ValueError("the first time")

    async with running(failing) as test:
        await send(test, b"")
        await until(lambda: facts(test).state == "failed")
        await failing.channel("orders").restart()
        await until(lambda: len(started) == 2, within_s=60)
        await test.settled()
    assert started[1] - started[0] == pytest.approx(30, abs=0.1)


@in_virtual_time
async def test_a_retry_in_place_is_no_start() -> None:
    app, calls = (
        make_app(rate_limit="1/h", retry={"max_attempts": 3, "backoff": "1s"}),
        list[float](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append(now())
        if len(calls) < 3:
            raise ValueError("again")

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
    assert len(calls) == 3


@in_virtual_time
async def test_a_batch_counts_its_records_and_runs_though_it_is_larger_than_the_burst() -> None:
    app, calls = (
        make_app(rate_limit="10/s", batch_max_wait="100ms", batch_max_records=30),
        list[tuple[float, int]](),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        calls.append((now(), len(batch)))

    async with running(app) as test:
        await send(test, *[b""] * 75)
        await test.settled(timeout=20)
    assert [size for _, size in calls] == [30, 30, 15]
    assert [at - calls[0][0] for at, _ in calls] == pytest.approx([0, 3.0, 6.0], abs=0.15)


@in_virtual_time
async def test_an_application_that_iterates_gets_them_no_faster() -> None:
    app, at = make_app(rate_limit="2/s", value_deserializer="bytes"), list[float]()
    async with running(app) as test:
        await send(test, *[b""] * 6)
        async for message in app.channel("orders"):
            at.append(now())
            await message.ack()
            if len(at) == 6:
                break
    assert at[5] - at[0] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_a_record_that_is_skipped_is_no_start(ordering: str) -> None:
    """A channel that skips what is too old, to catch up, must not take its rate for that."""
    starting = Starting(rate_limit="1/m", max_record_age="1h", ordering=ordering, concurrency=4)
    async with running(starting.app) as test:
        for _ in range(100):
            test.broker.produce("orders", b"old", partition=0, timestamp_ms=1000)
        await send(test, b"", b"")
        began = now()
        await test.settled(timeout=200)
        assert facts(test).totals[tp()].skipped == {"age": 100}
    assert [at - began for at in starting.at] == pytest.approx([0, 60], abs=1)


@in_virtual_time
async def test_of_a_batch_only_what_is_not_skipped_counts() -> None:
    app, calls = (
        make_app(rate_limit="1/s", max_record_age="1h", batch_max_wait="100ms"),
        list[tuple[float, int]](),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        calls.append((now(), len(batch)))

    async with running(app) as test:
        for _ in range(100):
            test.broker.produce("orders", b"old", partition=0, timestamp_ms=1000)
        await send(test, b"", b"")
        await until(lambda: calls)
        await send(test, b"")
        await test.settled(timeout=200)
    assert [size for _, size in calls] == [2, 1]
    assert calls[1][0] - calls[0][0] == pytest.approx(2.0, abs=0.2)


@in_virtual_time
async def test_an_application_that_iterates_does_not_wait_for_records_that_are_skipped() -> None:
    app = make_app(rate_limit="1/m", max_record_age="1h", value_deserializer="bytes")
    async with running(app) as test:
        for _ in range(100):
            test.broker.produce("orders", b"old", partition=0, timestamp_ms=1000)
        await send(test, b"new")
        began = now()
        async for message in app.channel("orders"):
            assert message.payload == b"new"
            await message.ack()
            break
    assert now() - began < 5


@in_virtual_time
async def test_a_record_that_is_skipped_at_a_retry_has_started() -> None:
    app, at = (
        make_app(rate_limit="1/m", filter=f"{HERE}:gives_up_later", retry=NO_WAIT),
        list[float](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        at.append(now())
        if len(at) == 1:
            raise ValueError("once")

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(at) == 2, within_s=100)
        assert facts(test).totals[tp()].skipped == {"filter": 1}
    assert at[1] - at[0] == pytest.approx(60, abs=1)


NO_WAIT = {"max_attempts": 2, "backoff": 0}


def gives_up_later(message: Message[bytes]) -> bool:
    return message.attempt == 1


@in_virtual_time
async def test_fetching_ends_where_there_is_no_room_and_what_waits_goes_to_the_next_owner() -> None:
    broker = make_broker()
    slow = Starting(rate_limit="1/h", max_in_flight=5)
    async with running(slow.app, broker=broker) as test:
        await send(test, *[b""] * 20)
        await asyncio.sleep(60)
        assert 2 <= facts(test).partitions[0].position <= 6
    quick = Starting()
    async with running(quick.app, broker=broker) as test:
        await test.settled()
        assert committed(test) == 20
    assert (len(slow.at), len(quick.at)) == (1, 19)
    await broker.close()


@in_virtual_time
async def test_what_no_loop_reaches_limits_nothing() -> None:
    starting = Starting(rate_limit="1000000/s")
    async with running(starting.app) as test:
        await send(test, *[b""] * 500)
        await test.settled()
    assert len(starting.at) == 500
    assert starting.at[-1] - starting.at[0] < 1.0


@in_virtual_time
async def test_spark_batches_count_their_records_too() -> None:
    broker, began = make_broker(), list[float]()
    app, engine = spark_app(broker, rate_limit="10/s", spark={"batch_max_records": 20})
    engine.inside = lambda batch: began.append(now())
    async with running(app, broker=broker) as test:
        await send(test, *[b"1"] * 50)
        await test.settled()
    assert [len(job.rows) for job in engine.jobs] == [20, 20, 10]
    assert [at - began[0] for at in began] == pytest.approx([0, 2.0, 4.0], abs=0.2)
    await broker.close()


@in_virtual_time
async def test_a_spark_batch_that_waits_for_another_channels_job_starts_when_it_is_called() -> None:
    broker, began, turns = make_broker(), list[float](), iter([1.5, 0.0, 0.0])
    app, engine = spark_app(broker, rate_limit="10/s", spark={"batch_max_records": 20})
    engine.inside = lambda batch: began.append(now())
    run = engine.run

    async def run_in_turn(job: Any, **how: Any) -> Any:
        await asyncio.sleep(next(turns))
        return await run(job, **how)

    engine.run = run_in_turn  # type: ignore[method-assign]
    async with running(app, broker=broker) as test:
        await send(test, *[b"1"] * 50)
        await test.settled(timeout=20)
    assert [at - began[0] for at in began] == pytest.approx([0, 2.0, 4.0], abs=0.2)
    await broker.close()
