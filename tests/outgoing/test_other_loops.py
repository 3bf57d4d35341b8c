"""Emitters that are used from another event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import uvloop

from reactive_kafka import ChannelClosedError
from reactive_kafka.outgoing.emitter import Emitter
from reactive_kafka.tasks import HomeLoop
from tests.app.helpers import until

PATIENCE_S = 5.0


class FlushedTarget:
    """An outgoing channel, and its own writer. What it has accepted is never written."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @property
    def writer(self) -> FlushedTarget:
        return self

    async def flush(self) -> None:
        self.events.append("begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.events.append("ended")


def emitter_of(target: FlushedTarget, home: HomeLoop) -> Emitter:
    running = (cast(Any, target), home)
    return Emitter("invoices", lambda: running)


async def home_loop() -> HomeLoop:
    return HomeLoop()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_caller_is_answered_if_the_loop_is_closed_before_it_turns(new_loop: Any) -> None:
    loop: asyncio.AbstractEventLoop = new_loop()
    target = FlushedTarget()
    emitter = emitter_of(target, loop.run_until_complete(home_loop()))

    async def ask() -> None:
        flushing = asyncio.ensure_future(emitter.flush())
        # Its first step hands the call over.
        await asyncio.sleep(0)
        loop.close()
        with pytest.raises(ChannelClosedError, match="the application has stopped"):
            await asyncio.wait_for(flushing, PATIENCE_S)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, ask()).result()
    assert target.events == []


async def test_a_caller_is_answered_if_the_loop_cancels_its_call() -> None:
    target = FlushedTarget()
    emitter = emitter_of(target, HomeLoop())
    asking = asyncio.create_task(asyncio.to_thread(asyncio.run, emitter.flush()))
    await until(lambda: target.events)
    # As asyncio.run does at its end.
    for task in asyncio.all_tasks() - {asyncio.current_task(), asking}:
        task.cancel()
    with pytest.raises(ChannelClosedError, match="the application has stopped"):
        await asking
    assert target.events == ["begun", "ended"]


async def test_a_caller_that_gives_up_cancels_its_call() -> None:
    target = FlushedTarget()
    emitter = emitter_of(target, HomeLoop())

    async def give_up() -> None:
        flushing = asyncio.ensure_future(emitter.flush())
        await until(lambda: target.events)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing

    await asyncio.to_thread(asyncio.run, give_up())
    await until(lambda: target.events == ["begun", "ended"])
