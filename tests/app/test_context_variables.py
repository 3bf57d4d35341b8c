"""Each call of a handler has context variables of its own: a trace id of one record is not that of
the next.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest

from reactive_kafka import App, Batch, Message
from reactive_kafka.events import RecordIgnored
from reactive_kafka.records import RawRecord
from tests.app.helpers import (
    Recorder,
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

trace: ContextVar[Any] = ContextVar("trace", default="none")
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Incomparable:
    """As arrays are: whether two of them are equal is no bool."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of this is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class Ends(Incomparable):
    def __eq__(self, other: object) -> bool:
        raise SystemExit(1)


def tracing_app(
    seen: list[Any],
    value_of: Callable[[bytes], Any] = bytes.decode,
    shape: str = "payload",
    **orders: Any,
) -> App:
    """A handler that notes the trace that it finds, and sets its own."""
    app = make_app(value_deserializer="bytes", batch_max_records=1, **orders)

    async def handler(given: Any) -> None:
        seen.append(trace.get())
        for payload in (
            [given]
            if shape == "payload"
            else [given.payload]
            if shape == "message"
            else given.payloads
        ):
            trace.set(value_of(payload))
        await asyncio.sleep(0)
        if b"bad" in payload:
            raise ValueError("bad")

    handler.__annotations__["given"] = {
        "payload": bytes,
        "message": Message[bytes],
        "batch": Batch[bytes],
    }[shape]
    app.incoming("orders")(handler)
    return app


@pytest.mark.parametrize("shape", ["payload", "message", "batch"])
@pytest.mark.parametrize(
    "orders",
    [
        {},
        {"ordering": "key"},
        {"ordering": "unordered", "concurrency": 2},
        {"ack": "pre"},
        {"commit_strategy": "latest"},
        {"retry": {"max_attempts": 3, "backoff": "1s"}},
    ],
)
@in_virtual_time
async def test_what_a_handler_sets_is_seen_by_no_other_call(
    shape: str, orders: dict[str, Any]
) -> None:
    if shape == "batch" and orders.get("ordering") == "key":
        return
    seen = list[Any]()
    async with running(
        tracing_app(seen, shape=shape, failure_strategy="ignore", **orders), partitions=2
    ) as test:
        for partition in (0, 1):
            await send(
                test, b"1", b"2", b"bad 3", b"4", b"bad 5", b"bad 6", b"7", partition=partition
            )
        await until(lambda: len(seen) == (26 if "retry" in orders else 14), 60)
        await test.settled()
        assert set(seen) == {"none"}
        assert committed(test) == committed(test, 1) == 7


@pytest.mark.parametrize("kind", [Incomparable, Ends, lambda: float("nan"), object, dict])
@in_virtual_time
async def test_values_that_cannot_be_compared_leave_no_trace_either(
    kind: Callable[[], Any],
) -> None:
    seen = list[Any]()
    async with running(
        tracing_app(seen, lambda _: kind(), failure_strategy="ignore", concurrency=1)
    ) as test:
        await send(test, b"1", b"2", b"3")
        await test.settled()
        assert seen == ["none"] * 3
        assert facts(test).totals[tp()].nacked == {}


@in_virtual_time
async def test_what_stands_in_the_context_of_the_start_is_seen_by_every_call() -> None:
    app, seen = make_app(concurrency=1), list[Any]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append((tenant.get(), trace.get()))
        # Compares equal to what is there.
        trace.set([value])
        tenant.set(value.decode())

    tenant.set("acme")
    trace.set([b"1"])
    async with running(app) as test:
        tenant.set("another")
        await send(test, b"1", b"2", b"3")
        await test.settled()
    assert seen == [("acme", [b"1"])] * 3


@in_virtual_time
async def test_a_worker_that_a_handler_wakes_has_nothing_of_that_handlers_context() -> None:
    app, seen = make_app(concurrency=2), list[str]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(tenant.get())
        tenant.set(f"of partition {message.partition}")
        if message.partition == 0:
            app.channel("orders").resume()
            await asyncio.sleep(1)

    async with running(app, partitions=2) as test:
        app.channel("orders").pause(partitions=[tp(1)])
        await send(test, b"", partition=1)
        await asyncio.sleep(1)
        await send(test, b"", partition=0)
        await test.settled()
    assert seen == ["nobody", "nobody"]


def tagged(value: bytes) -> str:
    """A deserializer that says in a context variable whose record this is."""
    tenant.set(value.decode())
    return value.decode()


@in_virtual_time
async def test_what_a_deserializer_sets_is_seen_by_the_handler_of_its_record() -> None:
    app = make_app(concurrency=1, value_deserializer=f"{__name__}:tagged")
    seen = list[str]()

    @app.incoming("orders")
    async def handler(value: str) -> None:
        assert tenant.get() == value
        seen.append(trace.get())
        trace.set(value)

    async with running(app) as test:
        test.broker.produce("orders", b"a", partition=0)
        test.broker.produce("orders", b"b", partition=0)
        test.broker.produce("orders", b"c", partition=0)
        await test.settled()
    assert seen == ["none"] * 3


@pytest.mark.parametrize("cancels_itself", [False, True])
async def test_in_a_context_of_its_own_a_handler_has_all_that_asyncio_and_anyio_have(
    cancels_itself: bool,
) -> None:
    """Driven step by step: what is awaited, thrown in, and raised goes through as it is. The thread
    needs real time.
    """
    app, done = make_app(concurrency=1, failure_strategy="ignore"), list[bytes]()

    async def child() -> str:
        await asyncio.sleep(0.01)
        return str(trace.get())

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        trace.set(value.decode())
        task = asyncio.current_task()
        assert task is not None
        if value == b"first":
            if cancels_itself:
                task.cancel()
            await asyncio.sleep(0)
            return
        assert await asyncio.create_task(child()) == "second"
        assert await asyncio.gather(child(), child()) == ["second"] * 2
        async with asyncio.TaskGroup() as group:
            made = group.create_task(child())
        assert made.result() == "second"
        began = now()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.sleep(5)
        with anyio.move_on_after(0.05) as scope:
            await anyio.sleep(5)
        assert scope.cancelled_caught
        with pytest.raises(ExceptionGroup):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_fails)
                await anyio.sleep(5)
        assert 0.09 < now() - began < 4
        assert await anyio.to_thread.run_sync(trace.get) == "second"
        later = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: later.set_exception(KeyError(trace.get())))
        with pytest.raises(KeyError, match="second"):
            await later
        assert trace.get() == "second"
        assert task.cancelling() == 0
        done.append(value)

    async with running(app) as test:
        await send(test, b"first", b"second", b"second")
        await test.settled()
        assert done == [b"second"] * 2


async def _fails() -> None:
    raise ValueError("a child")


async def test_an_error_keeps_the_traceback_of_the_child_or_the_thread_that_it_comes_from() -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="ignore", value_deserializer="bytes")

    def in_a_thread() -> None:
        raise KeyError("a thread")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        trace.set(value)
        await (
            asyncio.create_task(_fails())
            if value == b"child"
            else anyio.to_thread.run_sync(in_a_thread)
        )

    async with running(app) as test:
        await send(test, b"child", b"thread", b"child", b"thread")
        await test.settled()
    tracebacks = [
        traceback.extract_tb(event.error.__traceback__)
        for event in recorder.of(RecordIgnored)
        if event.error
    ]
    assert [frames[-1].name for frames in tracebacks] == ["_fails", "in_a_thread"] * 2
    assert [[frame.name for frame in frames].count("handler") for frames in tracebacks] == [1] * 4


@in_virtual_time
async def test_once_a_handler_sets_variables_its_workers_go_on_and_none_is_too_many() -> None:
    app, running_now, most = make_app(concurrency=3), 0, 0

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        trace.set(value)
        await asyncio.sleep(0.01)
        running_now -= 1

    async with running(app, partitions=8) as test:
        for partition in range(8):
            await send(test, *[b""] * 10, partition=partition)
        began = now()
        await test.settled(60)
        assert most == 3
        assert now() - began < 0.5
    assert asyncio.all_tasks() == {asyncio.current_task()}


def by_offset(record: RawRecord) -> object:
    """An ordering key."""
    tenant.set("a key function's")
    return record.offset


@in_virtual_time
async def test_what_a_key_function_sets_is_seen_by_no_handler() -> None:
    app, seen = make_app(ordering="key", key=f"{__name__}:by_offset"), list[str]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(tenant.get())
        assert copy_context().get(tenant) is None

    async with running(app) as test:
        await send(test, b"1", b"2", b"3")
        await test.settled()
    assert seen == ["nobody"] * 3
