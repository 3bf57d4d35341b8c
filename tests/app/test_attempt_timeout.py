"""``attempt_timeout``: an attempt that takes longer is cancelled, and fails as any other does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from reactive_kafka import App, Batch, ConfigError, Message
from reactive_kafka.events import HandlerRetried, RecordDeadLettered
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    send,
    until,
)

LETTERS = "dead-letter-topic-orders"
LIMIT_S = 10.0
WHY = "the handler took longer than attempt_timeout = 10s"


def limited_app(recorder: Recorder | None = None, **orders: Any) -> App:
    """An application whose attempts may take ten seconds, and whose failures are dead letters."""
    return make_app(
        recorder,
        **{
            "attempt_timeout": "10s",
            "unprocessed_record_max_age": "10m",
            "failure_strategy": "dead-letter-queue",
            **orders,
        },
    )


def letters(test: TestApp) -> list[bytes | None]:
    return [letter.value for letter in test.records(LETTERS)]


@in_virtual_time
async def test_an_attempt_that_takes_longer_is_cancelled_and_retried_then_nacked() -> None:
    recorder = Recorder()
    app = limited_app(recorder, retry={"max_attempts": 2, "backoff": "5s"})
    began: list[float] = []
    cancelled: list[float] = []
    seen: list[bytes] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.payload)
        if message.payload != b"slow":
            return
        began.append(now())
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(now())
            raise

    async with running(app) as test:
        await send(test, b"quick", b"slow", b"last")
        await test.settled(timeout=60)
        assert letters(test) == [b"slow"]
        assert committed(test) == 3
    assert seen == [b"quick", b"slow", b"slow", b"last"]
    assert [round(end - begin, 3) for begin, end in zip(began, cancelled, strict=True)] == [
        LIMIT_S,
        LIMIT_S,
    ]
    assert round(began[1] - cancelled[0], 3) == 5.0
    (retried,) = recorder.of(HandlerRetried)
    assert retried.reason == f"TimeoutError: {WHY}"
    (nacked,) = recorder.of(RecordDeadLettered)
    assert type(nacked.error) is TimeoutError


@in_virtual_time
async def test_a_route_names_the_timeout() -> None:
    app = limited_app(
        failure_strategy="fail",
        failure_routes={"TimeoutError": "ignore"},
        retry={"max_attempts": 5},
    )
    calls: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(value)
        if value == b"slow":
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"slow", b"next")
        await test.settled(timeout=60)
        assert committed(test) == 2
    assert calls == [b"slow", b"next"]


@in_virtual_time
async def test_an_attempt_that_takes_as_long_as_it_may_is_not_cancelled() -> None:
    app = limited_app()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(LIMIT_S - 0.001)

    async with running(app) as test:
        await send(test, *range(5))
        await test.settled(timeout=100)
        assert (letters(test), committed(test)) == ([], 5)


@in_virtual_time
async def test_a_batch_fails_as_a_whole() -> None:
    app = limited_app(batch_max_wait="1s")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        if b"slow" in batch.payloads:
            batch[0].ack()
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"done", b"slow", b"with it")
        await test.settled(timeout=60)
        assert letters(test) == [b"slow", b"with it"]
        assert committed(test) == 3


async def swallows_and_returns() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def swallows_and_raises() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise KeyError("cleaning up") from None


async def works_on_for_a_while() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.sleep(3)


@pytest.mark.parametrize("does", [swallows_and_returns, swallows_and_raises, works_on_for_a_while])
@pytest.mark.parametrize("concurrency", [1, 3])
@in_virtual_time
async def test_a_handler_that_ignores_its_cancellation_has_failed_all_the_same(
    does: Any, concurrency: int
) -> None:
    recorder = Recorder()
    app = limited_app(recorder, concurrency=concurrency, ordering="unordered")
    running_now: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        running_now.append(value)
        if value == b"slow":
            await does()
        running_now.remove(value)

    async with running(app) as test:
        await send(test, b"slow", b"next", b"last")
        await test.settled(timeout=60)
        assert (letters(test), committed(test)) == ([b"slow"], 3)
    (nacked,) = recorder.of(RecordDeadLettered)
    assert nacked.reason == f"TimeoutError: {WHY}"


@in_virtual_time
async def test_a_timeout_of_the_handler_itself_is_its_own() -> None:
    recorder = Recorder()
    app = limited_app(recorder)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"both at the same moment")
        await test.settled(timeout=60)
    (nacked,) = recorder.of(RecordDeadLettered)
    assert type(nacked.error) is TimeoutError


@in_virtual_time
async def test_an_outage_of_the_broker_is_not_the_attempts_time() -> None:
    app = limited_app()
    invoices = app.emitter("invoices")
    seen: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(LIMIT_S / 2)
        await invoices.send(value)
        await asyncio.sleep(LIMIT_S / 2 - 1)
        seen.append(value)

    async with running(app) as test:
        await send(test, b"1")
        await asyncio.sleep(1)
        test.broker.down = True
        await asyncio.sleep(120)
        assert seen == []
        test.broker.down = False
        await test.settled(timeout=60)
        assert (letters(test), seen) == ([], [b"1"])


@in_virtual_time
async def test_the_time_after_an_outage_counts_again() -> None:
    app = limited_app()
    invoices = app.emitter("invoices")
    failed: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(1)
        await invoices.send(value)
        back = now()
        try:
            await asyncio.Event().wait()
        finally:
            failed.append(now() - back)

    async with running(app) as test:
        test.broker.down = True
        await asyncio.sleep(1)
        test.broker.down = False
        await send(test, b"1")
        await asyncio.sleep(0.5)
        test.broker.down = True
        await asyncio.sleep(60)
        test.broker.down = False
        await test.settled(timeout=100)
        assert letters(test) == [b"1"]
    assert failed == [pytest.approx(LIMIT_S - 1, abs=0.01)]


@in_virtual_time
async def test_a_handler_that_yields_is_limited_as_a_whole() -> None:
    app = limited_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> AsyncIterator[bytes]:
        for _ in range(3 if value == b"quick" else 10):
            await asyncio.sleep(3)
            yield value

    async with running(app) as test:
        await send(test, b"quick", b"slow")
        await test.settled(timeout=100)
        assert letters(test) == [b"slow"]
        assert [record.value for record in test.records("invoices")] == 3 * [b"quick"] + 3 * [
            b"slow"
        ]


@in_virtual_time
async def test_middleware_is_part_of_the_attempt() -> None:
    app = limited_app()

    @app.middleware
    async def slow(message: Any, call_next: Any) -> Any:
        await asyncio.sleep(LIMIT_S)
        return await call_next(message)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(1)

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=60)
        assert letters(test) == [b"1"]


@pytest.mark.parametrize("broadcast", [False, True])
@in_virtual_time
async def test_each_of_several_handlers_has_its_own_time(broadcast: bool) -> None:
    app = limited_app(broadcast=broadcast)
    done: list[str] = []

    @app.incoming("orders", when=lambda message: message.payload != b"other")
    async def first(value: bytes) -> None:
        await asyncio.sleep(LIMIT_S - 1)
        done.append("first")

    @app.incoming("orders")
    async def second(value: bytes) -> None:
        await asyncio.sleep(LIMIT_S - 1 if value == b"quick" else LIMIT_S + 1)
        done.append("second")

    async with running(app) as test:
        await send(test, b"quick", b"other")
        await test.settled(timeout=100)
        assert letters(test) == [b"other"]
    assert done == (["first", "second"] if broadcast else ["first"])


@in_virtual_time
async def test_a_stop_at_the_moment_of_the_timeout_leaves_the_record() -> None:
    app = limited_app(
        drain_timeout="10s", retry={"max_attempts": 9, "backoff": "1h", "max_backoff": "1h"}
    )
    calls: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(now())
        await asyncio.Event().wait()

    broker = None
    async with running(app) as test:
        await send(test, b"1")
        await until(lambda: calls, to_the_moment=True)
        broker = test.broker
        began = now()
        await app.stop()
        assert now() - began < LIMIT_S + 5
        assert (letters(test), broker.commits("billing")) == ([], ())
    assert len(calls) == 1


@in_virtual_time
async def test_a_stop_between_two_attempts_leaves_the_record() -> None:
    recorder = Recorder()
    app = limited_app(recorder, retry={"max_attempts": 9, "backoff": "1h", "max_backoff": "1h"})
    calls: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(now())
        await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"1")
        await until(lambda: len(calls) == 1)
        await asyncio.sleep(LIMIT_S + 1)
        began = now()
        await app.stop()
        assert now() - began < 5
        assert (letters(test), test.broker.commits("billing")) == ([], ())
    assert (len(calls), recorder.of(RecordDeadLettered)) == (1, [])


@in_virtual_time
async def test_poison_at_the_moment_of_the_timeout_has_one_verdict() -> None:
    recorder = Recorder()
    app = limited_app(
        recorder, unprocessed_record_max_age="10s", on_poison="dead-letter-queue", concurrency=2
    )
    seen: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)
        if value == b"slow":
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"slow", b"next")
        await test.settled(timeout=60)
        assert (letters(test), committed(test)) == ([b"slow"], 2)
        await send(test, b"last")
        await test.settled(timeout=60)
    assert seen == [b"slow", b"next", b"last"]


@in_virtual_time
async def test_one_of_a_shared_context_gets_no_cancellation_of_an_earlier_attempt() -> None:
    """What a timeout has done to a worker's task must be gone before the next record."""
    app = limited_app()
    left: list[int] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        task = asyncio.current_task()
        assert task is not None
        left.append(task.cancelling())
        if value == b"slow":
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.sleep(0)

    async with running(app) as test:
        await send(test, b"slow", b"1", b"slow", b"2")
        await test.settled(timeout=60)
        assert letters(test) == [b"slow", b"slow"]
    assert left == [0, 0, 0, 0]


async def test_a_thread_is_left_behind_and_counted() -> None:
    """A thread cannot be cancelled: its attempt fails in time, and the thread still runs."""
    recorder = Recorder()
    app = limited_app(recorder, attempt_timeout="50ms")
    release = threading.Event()
    ended = threading.Event()

    @app.incoming("orders")
    def handler(value: bytes) -> None:
        if value == b"slow":
            release.wait(30)
            ended.set()

    async with running(app) as test:
        await send(test, b"slow", b"next")
        await test.settled(timeout=10)
        assert (letters(test), committed(test), ended.is_set()) == ([b"slow"], 2, False)
        assert facts(test).abandoned_handlers == 1
        release.set()
        await asyncio.to_thread(ended.wait, 10)
    (nacked,) = recorder.of(RecordDeadLettered)
    assert nacked.reason.endswith("its thread cannot be cancelled and still runs")


@pytest.mark.parametrize("value", ["0s", 0, -1, "soon", True])
def test_a_wrong_value_is_named(value: Any) -> None:
    app = make_app(attempt_timeout=value)

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match=r"attempt_timeout = .*expected a duration") as caught:
        app.configure()
    assert "[incoming.orders]" in str(caught.value)
