"""Blocking calls in threads are known as long as they run, whoever still waits for them."""

from __future__ import annotations

import asyncio
import threading

import pytest
from anyio import CapacityLimiter

from reactive_kafka.handlers.blocking_calls import as_async, calls_in_threads
from tests.app.helpers import make_app, running, send


async def test_a_blocking_function_runs_in_another_thread() -> None:
    assert await as_async(threading.get_ident)() != threading.get_ident()
    assert calls_in_threads() == 0


async def test_what_a_blocking_function_raises_comes_back_and_ends_the_call() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await as_async(fail)()
    assert calls_in_threads() == 0


async def test_a_cancelled_call_counts_until_its_thread_returns() -> None:
    began, may_end = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        may_end.wait(10)

    limiter = CapacityLimiter(1)
    call = asyncio.ensure_future(as_async(block, limiter)())
    await asyncio.to_thread(began.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # The slot is free for the next call.
    assert limiter.borrowed_tokens == 0
    assert calls_in_threads() == 1
    may_end.set()
    async with asyncio.timeout(10):
        # The thread has no loop to tell.
        while calls_in_threads():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_no_thread_is_left_when_the_loop_has_ended() -> None:
    app, before = make_app(ordering="unordered", concurrency=4), set(threading.enumerate())

    @app.incoming("orders")
    def handler(value: bytes) -> None: ...

    @app.before_stop
    def hook() -> None: ...

    async def main() -> None:
        async with running(app) as test:
            await send(test, *[b""] * 20)
            await test.settled()

    asyncio.run(main())
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5)
    assert not any(thread.is_alive() for thread in left)
    assert calls_in_threads() == 0
