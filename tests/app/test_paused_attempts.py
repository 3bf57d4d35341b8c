"""A pause holds attempts in place: none starts while the channel or the partition is paused."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import App, Batch, Message
from reactive_kafka.errors import BadDataError
from reactive_kafka.events import RecordPoisoned
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.app.spark_stage import WAITS, spark_app

LONG_S = 20.0
RETRY = {"max_attempts": 3, "backoff": "1s", "max_backoff": "1s"}


class Failing:
    """An application whose handler fails at first, and notes each of its attempts."""

    def __init__(self, recorder: Recorder | None = None, **orders: object) -> None:
        self.app = make_app(recorder, **{"commit_interval": "100ms", "retry": RETRY, **orders})
        self.attempts: list[tuple[int, int, int]] = []

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.attempts.append((message.partition, message.offset, message.attempt))
            if message.attempt == 1:
                raise ValueError("not yet")


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_a_retry_waits_for_the_end_of_the_pause_and_its_record_does_not_age(
    ordering: str,
) -> None:
    recorder = Recorder()
    failing = Failing(recorder, ordering=ordering, unprocessed_record_max_age="3s")
    async with running(failing.app) as test:
        await send(test, b"")
        await until(lambda: failing.attempts == [(0, 0, 1)])
        test.app.channel("orders").pause()
        await asyncio.sleep(LONG_S)
        assert (failing.attempts, recorder.of(RecordPoisoned)) == ([(0, 0, 1)], [])
        test.app.channel("orders").resume()
        await test.settled()
    assert failing.attempts == [(0, 0, 1), (0, 0, 2)]


@in_virtual_time
async def test_a_pause_of_one_partition_holds_its_own_retries_only() -> None:
    failing = Failing(concurrency=2)
    async with running(failing.app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: len(failing.attempts) == 2)
        test.app.channel("orders").pause("lunch", partitions=[tp(1)])
        await until(lambda: committed(test, 0) == 1)
        await asyncio.sleep(LONG_S)
        assert sorted(failing.attempts) == [(0, 0, 1), (0, 0, 2), (1, 0, 1)]
        test.app.channel("orders").resume("lunch")
        await test.settled()


@in_virtual_time
async def test_a_retry_that_waits_for_a_place_when_the_pause_comes_waits_for_its_end() -> None:
    app = make_app(ordering="unordered", retry=RETRY)
    seen: list[tuple[bytes, int]] = []
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.payload, message.attempt))
        if message.payload == b"holds the place":
            await go_on.wait()
        elif message.attempt == 1:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"fails", b"holds the place")
        await until(lambda: len(seen) == 2)
        # The attempt is due, and the only place is taken.
        await asyncio.sleep(2)
        app.channel("orders").pause()
        go_on.set()
        await asyncio.sleep(LONG_S)
        assert seen == [(b"fails", 1), (b"holds the place", 1)]
        app.channel("orders").resume()
        await test.settled()
    assert seen[2:] == [(b"fails", 2)]


@in_virtual_time
async def test_the_next_handler_of_a_broadcast_waits_after_one_has_failed_for_good() -> None:
    app = make_app(broadcast=True, failure_strategy="ignore")
    called: list[str] = []

    @app.incoming("orders")
    async def first(value: bytes) -> None:
        called.append("first")
        app.channel("orders").pause()
        raise ValueError("for good")

    @app.incoming("orders")
    async def second(value: bytes) -> None:
        called.append("second")

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(LONG_S)
        assert called == ["first"]
        app.channel("orders").resume()
        await test.settled()
    assert called == ["first", "second"]


@in_virtual_time
async def test_a_batch_waits_as_a_whole() -> None:
    app = make_app(retry=RETRY, batch_max_wait=0)
    sizes: list[int] = []

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"1", b"2")
        await until(lambda: sizes)
        before = list(sizes)
        app.channel("orders").pause()
        await asyncio.sleep(LONG_S)
        assert sizes == before
        app.channel("orders").resume()
        await test.settled()
    assert len(sizes) > len(before)


@in_virtual_time
async def test_a_stop_and_a_revocation_end_the_wait_and_commit_nothing() -> None:
    failing = Failing(drain_timeout="5s")
    async with running(failing.app) as test:
        await send(test, b"")
        await until(lambda: failing.attempts)
        test.app.channel("orders").pause()
        await asyncio.sleep(LONG_S)
        await rebalanced(test)
        await asyncio.sleep(LONG_S)
        assert failing.attempts == [(0, 0, 1)]
        began = asyncio.get_running_loop().time()
        await failing.app.stop()
        assert asyncio.get_running_loop().time() - began < 1
        assert test.broker.commits("billing") == ()
    assert failing.attempts == [(0, 0, 1)]


@in_virtual_time
async def test_a_record_that_gets_its_verdict_meanwhile_does_not_wait_for_the_end() -> None:
    app = make_app(retry=RETRY, commit_interval="100ms")
    kept: list[Message[bytes]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        app.channel("orders").pause()
        await asyncio.sleep(LONG_S)
        kept[0].ack()
        await until(lambda: committed(test) == 1)
        app.channel("orders").resume()
        await until(lambda: facts(test).partitions[0].in_flight == 0)
    assert len(kept) == 1


@in_virtual_time
async def test_the_next_attempt_of_a_spark_batch_waits() -> None:
    broker = make_broker()
    app, engine = spark_app(
        broker, commit_interval="100ms", retry=RETRY, spark={"batch_max_records": 5}
    )
    engine.judge = lambda job: WAITS if job is engine.jobs[0] else None
    async with running(app, broker=broker) as test:
        await send(test, *range(5))
        await until(lambda: len(engine.jobs) == 1)
        app.channel("orders").pause()
        engine.jobs[0].end(BadDataError("not yet"))
        await asyncio.sleep(LONG_S)
        assert len(engine.jobs) == 1
        app.channel("orders").resume()
        await until(lambda: committed(test) == 5)
    assert len(engine.jobs) == 2


@in_virtual_time
async def test_a_stop_ends_the_wait_of_a_spark_batch() -> None:
    broker = make_broker()
    app: App
    app, engine = spark_app(
        broker, commit_interval="100ms", retry=RETRY, spark={"batch_max_records": 5}
    )
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker) as test:
        await send(test, *range(5))
        await until(lambda: len(engine.jobs) == 1)
        app.channel("orders").pause()
        engine.jobs[0].end(BadDataError("not yet"))
        await asyncio.sleep(LONG_S)
        began = asyncio.get_running_loop().time()
        await app.stop()
        assert asyncio.get_running_loop().time() - began < 5
        # The position before the batch, with its plan.
        assert committed(test) == 0
    assert len(engine.jobs) == 1
