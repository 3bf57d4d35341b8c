"""What a scope ends, and in which order, if its caller is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reactive_kafka.handlers.dependencies.making import ScopeEnds
from reactive_kafka.handlers.dependencies.threads import in_thread
from tests.app.helpers import settle_down, until

PATIENCE_S = 5.0


@pytest.mark.parametrize("left_in", ["the call", "an end"])
async def test_what_a_thread_that_is_left_behind_still_uses_is_not_ended(left_in: str) -> None:
    ended: list[str] = []
    is_waiting = threading.Event()
    go_on = threading.Event()

    def wait() -> None:
        is_waiting.set()
        go_on.wait(PATIENCE_S)

    @contextmanager
    def pool() -> Iterator[None]:
        try:
            yield
        finally:
            ended.append("pool")

    @contextmanager
    def session() -> Iterator[None]:
        try:
            yield
        finally:
            if left_in == "an end":
                # It gives a connection back to the pool.
                wait()
            ended.append("session")

    async def call() -> None:
        async with ScopeEnds() as ends:
            for manager in (pool(), session()):
                manager.__enter__()
                ends.push_in_thread(manager)
            if left_in == "the call":
                await in_thread(wait)

    task = asyncio.ensure_future(call())
    await until(is_waiting.is_set)
    task.cancel()
    await settle_down()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A generator that nothing refers to is ended by the garbage collector.
    gc.collect()
    assert ended == []
    go_on.set()
    if left_in == "an end":
        await until(lambda: ended)
        assert ended == ["session"]
