"""An application that has nothing to read rests: how often its loop is woken is counted, in time
that jumps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from reactive_kafka import App
from reactive_kafka.events import RecordPoisoned
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp
from reactive_kafka.testing.fake_clock import run_in_virtual_time
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)

IDLE_S = 60
# Of the loop's lag, for the whole application.
TICKS_S = 10.0
PER_CHANNEL = 1.8
"""Timers a second, for polls, checks and commits."""


@contextmanager
def counted_timers(fired: Counter[str]) -> Iterator[None]:
    run = asyncio.TimerHandle._run  # type: ignore[attr-defined]

    def noted(self: asyncio.TimerHandle) -> None:
        fired["timers"] += 1
        run(self)

    with patch.object(asyncio.TimerHandle, "_run", noted):
        yield


def timers_of(channels: int) -> float:
    """Timers that fire in a second of an application with so many channels, while nothing comes."""
    fired = Counter[str]()
    names = [f"c{number}" for number in range(channels)]
    app = App(
        {"incoming": {name: {"group_id": name, "auto_offset_reset": "earliest"} for name in names}}
    )
    for name in names:
        app.incoming(name)(_nothing)

    async def main(clock: FakeClock) -> None:
        broker = MemoryBroker(clock, partitions=10)
        async with TestApp(app, broker=broker) as test:
            for name in names:
                await test.send(name, b"first")
            await asyncio.sleep(30)
            with counted_timers(fired):
                await asyncio.sleep(IDLE_S)
        await broker.close()

    run_in_virtual_time(main)
    return fired["timers"] / IDLE_S


async def _nothing(value: bytes) -> None:
    """Handle it at once."""


@pytest.mark.parametrize("channels", [1, 20])
def test_an_idle_second_wakes_the_loop_few_times_for_each_channel(channels: int) -> None:
    assert timers_of(channels) <= TICKS_S + 1 + PER_CHANNEL * channels


@in_virtual_time
async def test_only_partitions_that_hold_something_are_looked_at_between_commits() -> None:
    app, hangs = make_app(), asyncio.Event()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"hangs":
            await hangs.wait()

    async with running(app, partitions=50) as test:
        clients = inside(app).session.clients
        for partition in range(50):
            await send(test, b"first", partition=partition)
        await asyncio.sleep(1)
        assert clients.holding() == []
        await send(test, b"hangs", partition=7)
        await asyncio.sleep(1)
        assert [one.partition for one in clients.holding()] == [tp(7)]
        hangs.set()
        await asyncio.sleep(1)
        assert clients.holding() == []


@in_virtual_time
async def test_what_comes_after_long_rest_is_handled_at_once_and_is_poison_at_its_limit() -> None:
    recorder, began = Recorder(), list[float]()
    app = make_app(recorder, unprocessed_record_max_age="5s", on_poison="warn")

    @app.incoming("orders")
    async def hangs(value: bytes) -> None:
        began.append(now())
        await asyncio.Event().wait()

    broker = make_broker(10)
    async with TestApp(app, broker=broker) as test:
        await asyncio.sleep(60)
        sent = now()
        await send(test, "first", partition=7)
        await until(lambda: began)
        assert began[0] - sent < 0.1
        await until(lambda: recorder.of(RecordPoisoned))
        assert 5.0 <= now() - began[0] <= 6.0
    await broker.close()


@in_virtual_time
async def test_a_seek_and_another_member_are_followed_at_once_after_long_rest() -> None:
    read, app, other = list[str](), make_app(), make_app()

    @app.incoming("orders")
    async def handle(value: bytes) -> None:
        read.append("first")

    @other.incoming("orders")
    async def handles(value: bytes) -> None:
        read.append("other")

    broker = make_broker(2)
    async with TestApp(app, broker=broker) as test:
        await send(test, "a", partition=0)
        await send(test, "b", partition=1)
        await asyncio.sleep(60)
        read.clear()
        began = now()
        await app.channel("orders").seek(tp(0), "beginning")
        await until(lambda: read)
        assert now() - began < 0.1
        await asyncio.sleep(60)
        began = now()
        async with TestApp(other, broker=broker):
            await until(lambda: len(inside(other).session.clients.trackers()) == 1)
            assert now() - began < 0.5
            assert len(inside(app).session.clients.trackers()) == 1
            read.clear()
            began = now()
            for partition in range(2):
                await send(test, "c", partition=partition)
            await until(lambda: {"first", "other"} <= set(read))
            assert now() - began < 0.1
    await broker.close()
