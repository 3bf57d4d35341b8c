"""Applications on the broker in memory: what they take to start, to run, to be asked, and what they
hold.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.growth.model import RUNS, least_ms
from reactive_kafka import App
from reactive_kafka.observe.prometheus import render, snapshot
from reactive_kafka.testing import MemoryBroker, TestApp

WAIT_S = 120.0
# In flight.
RECORDS_OF_A_PARTITION = 100


def _app(channels: int = 1, **settings: Any) -> App:
    tables = {
        f"orders{number}": {"group_id": f"shop{number}", **settings} for number in range(channels)
    }
    return App(
        {
            "incoming": {
                name: {"auto_offset_reset": "earliest", **one} for name, one in tables.items()
            }
        }
    )


async def _nothing(payload: bytes) -> None:
    """A handler."""


async def _until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not fact():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _running(
    look: Callable[[TestApp, MemoryBroker], Awaitable[float]],
    *,
    partitions: int = 1,
    channels: int = 1,
) -> float:
    """What is found when an application runs and has nothing to do."""
    broker = MemoryBroker(partitions=partitions)
    app = _app(channels)
    for name in app.settings.incoming:
        app.incoming(name)(_nothing)
        broker.create_topic(name, partitions)
    try:
        async with TestApp(app, broker=broker, start_timeout_s=WAIT_S) as test:
            await _until(lambda: all(app.channel(name).is_ready for name in app.settings.incoming))
            return await look(test, broker)
    finally:
        await broker.close()


def on_app(look: Callable[[TestApp, MemoryBroker], Awaitable[float]], **sizes: int) -> float:
    """What is found when an application of these sizes runs."""
    return asyncio.run(_running(look, **sizes))


async def scrape_ms(test: TestApp, _: MemoryBroker) -> float:
    """Read the numbers, which the loop does."""
    return least_ms(lambda: snapshot(test.app.registry))


async def text_ms(test: TestApp, _: MemoryBroker) -> float:
    """Write them as text, which a thread does."""
    families = snapshot(test.app.registry)
    return least_ms(lambda: render(families, ""))


async def text_kb(test: TestApp, _: MemoryBroker) -> float:
    """How long the text is."""
    return len(render(snapshot(test.app.registry), "")[0]) / 1e3


async def rebalance(test: TestApp, broker: MemoryBroker) -> float:
    """A rebalance that changes nothing, in ms: what the broker in memory does for it is in it."""
    found = []
    for _ in range(RUNS):
        began = time.process_time()
        was = _assigned(test)
        broker.rebalance("shop0")
        await _until(lambda was=was: _assigned(test) > was and test.app.channel("orders0").is_ready)  # type: ignore[misc]
        found.append((time.process_time() - began) * 1e3)
    return min(found)


def _assigned(test: TestApp) -> int:
    return sum(one.rebalances["assigned"] for one in test.app.facts().channels)


async def _idle(_: TestApp, __: MemoryBroker) -> float:
    began = time.process_time()
    await asyncio.sleep(2.0)
    return (time.process_time() - began) / 2.0 * 1e3


async def _held(_: TestApp, __: MemoryBroker) -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e3


def memory_kb(**sizes: int) -> float:
    """What Python holds for an application that runs and has nothing to do, and for the broker in
    memory.
    """
    return _traced(lambda: on_app(_held, **sizes))


def _traced(run: Callable[[], float]) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        return run()
    finally:
        tracemalloc.stop()


def in_flight_kb(records: int) -> float:
    """What Python holds with so many handlers that wait, each with a record of 100 bytes."""
    return _traced(lambda: asyncio.run(_in_flight(records)))


async def _in_flight(records: int) -> float:
    partitions = records // RECORDS_OF_A_PARTITION
    broker = MemoryBroker()
    app = _app(concurrency=records, ordering="unordered")
    begun = 0
    go_on = asyncio.Event()

    @app.incoming("orders0")
    async def handle(payload: bytes) -> None:
        nonlocal begun
        begun += 1
        await go_on.wait()

    broker.create_topic("orders0", partitions)
    for number in range(records):
        broker.produce("orders0", b"." * 100, partition=number % partitions)
    try:
        async with TestApp(app, broker=broker, start_timeout_s=WAIT_S) as test:
            await _until(lambda: begun == records)
            held = await _held(test, broker)
            go_on.set()
            return held
    finally:
        await broker.close()


def start_ms(channels: int) -> float:
    """Configure an application and start it, until all channels are ready."""

    def start() -> float:
        began = time.process_time()

        async def look(_: TestApp, __: MemoryBroker) -> float:
            return (time.process_time() - began) * 1e3

        return on_app(look, channels=channels)

    return min(start() for _ in range(RUNS))


def idle_ms(channels: int) -> float:
    """A second in which there is nothing to read."""
    return on_app(_idle, channels=channels)
