"""A handler that cancels itself, its children or its task late: as in a task of its own, it
concerns that call only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp, run_in_virtual_time
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    send,
    tp,
    until,
)

TWICE = {"max_attempts": 2, "backoff": "10s"}

Does = Callable[[], Awaitable[None]]

trace: ContextVar[bytes] = ContextVar("trace")


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancels_itself() -> None:
    own_task().cancel()
    await asyncio.sleep(0)


async def cancels_itself_and_returns() -> None:
    own_task().cancel()


async def cancels_itself_and_raises() -> None:
    own_task().cancel()
    raise KeyError("x")


async def cancels_itself_and_goes_on() -> None:
    own_task().cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


async def awaits_a_cancelled_child() -> None:
    child = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    child.cancel()
    await child


async def times_out_by_hand() -> None:
    timer = asyncio.get_running_loop().call_later(0.1, own_task().cancel)
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        raise TimeoutError from None
    finally:
        timer.cancel()


async def cancels_itself_twice() -> None:
    for _ in range(2):
        own_task().cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
    raise asyncio.CancelledError


FAILING = [
    cancels_itself,
    cancels_itself_and_returns,
    cancels_itself_and_raises,
    awaits_a_cancelled_child,
    times_out_by_hand,
    cancels_itself_twice,
]


async def swallows_its_timeout() -> None:
    own_task().get_loop().call_later(0.1, own_task().cancel)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(10)


async def as_under_plain_asyncio() -> None:
    """Everything here misbehaves in a task that has been cancelled before."""
    assert own_task().cancelling() == 0
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(1)
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_fails())
            await asyncio.sleep(1)
    child = asyncio.create_task(asyncio.sleep(1))
    child.cancel()
    with pytest.raises(asyncio.CancelledError):
        await child
    assert own_task().cancelling() == 0


async def _fails() -> None:
    raise ValueError("a child")


def app_of(does: Does, done: list[bytes], shape: str = "payload", **orders: Any) -> App:
    """A handler that does that for ``bad`` records, and checks all that asyncio has at any
    other.
    """
    app = make_app(value_deserializer="bytes", batch_max_records=1, **orders)

    async def work(value: bytes) -> None:
        if value == b"bad":
            await does()
        else:
            await as_under_plain_asyncio()
            done.append(value)

    async def handler(given: Any) -> None:
        if shape == "payload":
            await work(given)
        elif shape == "message":
            await work(given.payload)
            if given.payload != b"bad":
                given.ack()
        else:
            for payload in given.payloads:
                await work(payload)

    kinds = {"payload": bytes, "message": Message[bytes], "batch": Batch[bytes]}
    handler.__annotations__["given"] = kinds[shape]
    app.incoming("orders")(handler)
    return app


async def runs_on(test: TestApp) -> None:
    """The application has lost nothing but those records."""
    assert facts(test).state == "running"
    health = test.app.health()
    assert (health.live.status, health.ready.status) == ("UP", "UP")


@pytest.mark.parametrize("does", FAILING)
@pytest.mark.parametrize(
    ("shape", "orders"),
    [
        ("payload", {}),
        ("payload", {"ordering": "key"}),
        ("payload", {"ordering": "unordered"}),
        ("payload", {"commit_strategy": "latest"}),
        ("message", {"ack": "manual"}),
        ("batch", {}),
    ],
)
@in_virtual_time
async def test_a_handler_that_is_cancelled_by_its_own_doing_has_failed_and_nothing_else_has(
    does: Does, shape: str, orders: dict[str, Any]
) -> None:
    done = list[bytes]()
    app = app_of(does, done, shape, concurrency=1, failure_strategy="ignore", **orders)
    async with running(app) as test:
        await send(test, b"1", b"bad", b"2", b"bad", b"3", b"4")
        await test.settled(60)
        assert done == [b"1", b"2", b"3", b"4"]
        assert facts(test).totals[tp()].nacked == {"ignore": 2}
        assert committed(test) == 6
        await runs_on(test)


@pytest.mark.parametrize("ack", ["pre", "post"])
@pytest.mark.parametrize("does", FAILING)
@in_virtual_time
async def test_it_is_told_where_its_record_was_acked_before_and_tried_again_where_it_was_not(
    does: Does, ack: str
) -> None:
    done, calls = list[bytes](), list[int]()

    async def noted() -> None:
        calls.append(len(calls))
        await does()

    app = app_of(
        noted, done, ack=ack, failure_strategy="ignore", retry={"max_attempts": 3, "backoff": "1s"}
    )
    async with running(app) as test:
        await send(test, b"bad", b"1")
        await until(lambda: done == [b"1"])
        await test.settled()
        assert len(calls) == (1 if ack == "pre" else 3)
        assert facts(test).totals[tp()].nacked == {"pre" if ack == "pre" else "ignore": 1}
        await runs_on(test)


@in_virtual_time
async def test_a_timeout_that_a_handler_swallows_is_no_failure_and_leaves_the_next_ones_alone() -> (
    None
):
    done = list[bytes]()
    async with running(
        app_of(swallows_its_timeout, done, failure_strategy="ignore", concurrency=1)
    ) as test:
        await send(test, b"bad", b"1", b"bad", b"2")
        await test.settled(60)
        assert done == [b"1", b"2"]
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.nacked) == (4, {})


@in_virtual_time
async def test_a_timer_that_nobody_stopped_cancels_no_record_once_one_has_gone_off() -> None:
    """In a task of its own each of them would find its task done."""
    app, done = make_app(concurrency=1, failure_strategy="ignore"), list[float]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        own_task().get_loop().call_later(1.0, own_task().cancel)
        await asyncio.sleep(0.3)
        done.append(now())

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: done)
        # It goes off while no handler runs.
        await asyncio.sleep(2)
        await send(test, *[b""] * 20)
        await test.settled(60)
        assert len(done) == 21
        assert facts(test).totals[tp()].nacked == {}
        await runs_on(test)


@in_virtual_time
async def test_a_timer_that_goes_off_while_the_next_attempt_or_a_dead_letter_is_waited_for_ends_neither() -> (
    None
):
    app, calls = (
        make_app(failure_strategy="dead-letter-queue", retry={"max_attempts": 2, "backoff": "10s"}),
        list[float](),
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        for after_s in (1.0, 2.0, 3.0):
            own_task().get_loop().call_later(after_s, own_task().cancel)
        calls.append(now())
        if value == b"bad":
            raise ValueError("bad")

    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), 3)
        await send(test, b"bad", b"good")
        await test.settled(60)
        assert len(calls) == 3
        assert calls[1] - calls[0] == pytest.approx(10)
        assert committed(test) == 2
        assert len(test.records("dead-letter-topic-orders")) == 1
        await runs_on(test)


@pytest.mark.parametrize("seen_before", [False, True])
@in_virtual_time
async def test_a_handler_that_is_cancelled_for_poison_may_clean_up_and_even_cancel_itself(
    seen_before: bool,
) -> None:
    app = make_app(unprocessed_record_max_age="5s", on_poison="dead-letter-queue", concurrency=1)
    done, story = list[bytes](), list[str]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"self":
            own_task().cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if value != b"stuck":
            await as_under_plain_asyncio() if value != b"self" else None
            done.append(value)
            return
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.2)
            story.append("cleaned up")
            own_task().cancel()

    async with running(app) as test:
        await send(test, b"self" if seen_before else b"1", b"stuck", b"2", b"3")
        await test.settled(60)
        assert done[1:] == [b"2", b"3"]
        assert story == ["cleaned up"]
        assert [record.value for record in test.records("dead-letter-topic-orders")] == [b"stuck"]
        # The next look finds it settled.
        await until(lambda: test.app.health().ready.status == "UP")
        await runs_on(test)


@pytest.mark.parametrize("apart_by", ["nothing", "its context", "its task"])
@pytest.mark.parametrize("shape", ["payload", "batch"])
@in_virtual_time
async def test_at_the_drain_deadline_a_handler_is_cancelled_once_and_its_cleanup_may_wait(
    shape: str, apart_by: str
) -> None:
    """Wherever its calls are made: inline, and once a handler has set a context variable or
    cancelled itself.
    """
    app, story = make_app(drain_timeout="1s", concurrency=1, batch_max_records=1), list[str]()

    async def handler(given: Any) -> None:
        value = given if shape == "payload" else given[0].payload
        if apart_by == "its context":
            trace.set(value)
        if value == b"first":
            if apart_by == "its task":
                await cancels_itself_and_goes_on()
            return
        try:
            story.append("began")
            await asyncio.sleep(1000)
        finally:
            story.append("cancelled")
            await asyncio.sleep(0.5)
            story.append("rolled back")

    handler.__annotations__["given"] = bytes if shape == "payload" else Batch[bytes]
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, b"first", b"stuck", b"never called")
        await until(lambda: story)
        began = now()
        await app.stop()
        assert story == ["began", "cancelled", "rolled back"]
        assert now() - began == pytest.approx(1.5, abs=0.1)
        assert committed(test) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_loop_that_ends_under_an_application_fails_no_record(seen_before: bool) -> None:
    """``asyncio.run`` cancels every task when what it runs has raised: the record is left for the
    next start.
    """
    story, brokers = list[bytes](), list[MemoryBroker]()

    async def main(clock: FakeClock) -> None:
        table = {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "failure_strategy": "ignore",
            "concurrency": 1,
        }
        app = App(
            {
                "http": {"enabled": False},
                "incoming": {"orders": {**table, "commit_interval": "10ms"}},
            }
        )

        @app.incoming("orders")
        async def handler(value: bytes) -> None:
            if value == b"self":
                own_task().cancel()
                await asyncio.sleep(0)
            story.append(value)
            await asyncio.sleep(100)

        broker = MemoryBroker(clock, partitions=1)
        brokers.append(broker)
        app._connector, app._clock = broker.connector(), clock
        await app.start()
        for value in [*[b"self"] * seen_before, b"1", b"2"]:
            broker.produce("orders", value, partition=0)
        await until(lambda: story)
        await asyncio.sleep(1)
        raise LookupError("main")

    with pytest.raises(LookupError):
        run_in_virtual_time(main)
    assert story == [b"1"]
    assert [one.offset for one in brokers[0].committed("billing").values()] == [1] * seen_before


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@in_virtual_time
async def test_a_handler_may_still_end_the_process_when_calls_have_tasks_of_their_own(
    error: BaseException,
) -> None:
    app = make_app(drain_timeout="30s", failure_strategy="ignore", concurrency=1)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"self":
            own_task().cancel()
            await asyncio.sleep(0)
        raise error

    async with running(app) as test:
        await send(test, b"self", b"ends")
        run = app._run
        assert run is not None
        await run.wait_asked()
        await app.stop()
        assert run.exit_code() == (3 if isinstance(error, SystemExit) else 0)
        assert test.broker.commits("billing")[-1].offsets[tp()].offset == 1
