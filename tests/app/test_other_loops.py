"""Channels that are used on other event loops than the application's, as by blocking handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import pytest

from reactive_kafka import Channel, ChannelClosedError, Message, NotOwnerError, TopicPartition
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import facts, make_app, make_broker, running, send, settle_down, until

PARTITION = TopicPartition("orders", 0)

CALLS: dict[
    str,
    tuple[
        Callable[[Channel], Coroutine[Any, Any, Any]],
        Literal["commit", "committed", "end_offsets"],
        Any,
    ],
] = {
    "commit": (lambda channel: channel.commit(), "commit", None),
    "committed": (lambda channel: channel.committed(), "committed", {PARTITION: None}),
    "lag": (lambda channel: channel.lag(), "end_offsets", {PARTITION: 1}),
    "offset_metadata": (lambda channel: channel.offset_metadata(PARTITION), "committed", ""),
    "seek": (lambda channel: channel.seek(PARTITION, "end"), "end_offsets", None),
}
"""Name -> the call, what it asks the broker, and its result."""


@pytest.mark.parametrize("name", CALLS)
async def test_what_asks_a_broker_is_asked_on_the_loop_of_the_application(name: str) -> None:
    call, question, result = CALLS[name]
    app = make_app(commit_interval="1h", offset_metadata_cache=False)
    seen: list[bytes] = []

    @app.incoming("orders")
    async def take(order: bytes) -> None:
        seen.append(order)

    async with running(app, partitions=1) as test:
        channel = app.channel("orders")
        await send(test, b"one")
        await until(lambda: seen and not channel.in_flight)
        held = test.broker.hold(question)
        asked = asyncio.create_task(asyncio.to_thread(asyncio.run, call(channel)))
        async with asyncio.timeout(10):
            await held.arrived()
            held.release()
            assert await asked == result


async def test_an_error_is_raised_there_and_a_cancellation_ends_the_call() -> None:
    app = make_app()
    orders: list[bytes] = []

    @app.incoming("orders")
    async def take(order: bytes) -> None:
        orders.append(order)

    async with running(app, partitions=1) as test:
        channel = app.channel("orders")
        with pytest.raises(NotOwnerError):
            await asyncio.to_thread(asyncio.run, channel.seek(("orders", 7), "end"))
        held = test.broker.hold("end_offsets")

        async def give_up() -> None:
            async with asyncio.timeout(0.01):
                await channel.lag()

        with pytest.raises(TimeoutError):
            await asyncio.to_thread(asyncio.run, give_up())
        held.release()
        await settle_down()
        await send(test, b"one")
        await test.settled()
    assert orders == [b"one"]
    with pytest.raises(ChannelClosedError):
        await asyncio.to_thread(asyncio.run, channel.start())


async def test_an_iteration_on_another_loop_is_refused() -> None:
    app = make_app()

    async def iterate() -> None:
        async for message in app.channel("orders"):
            message.ack()

    async with running(app):
        with pytest.raises(RuntimeError, match="'orders' is iterated over on the event loop of"):
            await asyncio.to_thread(asyncio.run, iterate())


async def test_a_blocking_handler_of_the_failed_channel_restarts_it_without_a_wait() -> None:
    app = make_app(concurrency=2, drain_timeout="60s")
    has_begun, has_failed = threading.Event(), threading.Event()
    handled: list[tuple[int, bytes]] = []

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        if has_failed.is_set():
            handled.append((message.partition, message.payload))
        elif message.partition == 0:
            has_begun.set()
            has_failed.wait(30)
            asyncio.run(app.channel("orders").restart())
        else:
            raise ValueError("no")

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await until(has_begun.is_set)
        await send(test, b"", partition=1)
        await until(lambda: facts(test).state == "failed")
        has_failed.set()
        # The stop of the failed channel waits a minute for a handler that does not return.
        async with asyncio.timeout(20):
            await until(lambda: facts(test).state == "running", 20)
            await until(lambda: handled == [(1, b"")], 20)


async def test_the_application_is_stopped_and_gets_channels_from_another_loop() -> None:
    app = make_app()
    seen: list[bytes] = []

    @app.incoming("orders")
    async def take(order: bytes) -> None:
        seen.append(order)

    async def take_too(bill: bytes) -> None:
        seen.append(bill)

    async with running(app, partitions=1) as test:
        added = app.add_channel("bills", {"group_id": "bills", "topic": "bills"}, take_too)
        channel = await asyncio.to_thread(asyncio.run, added)
        assert channel is app.channel("bills")
        await until(lambda: channel.is_ready)
        await send(test, b"one")
        test.broker.produce("bills", b"two")
        await until(lambda: sorted(seen) == [b"one", b"two"])
        async with asyncio.timeout(10):
            await asyncio.to_thread(asyncio.run, app.stop())
        assert not app.health().ready.is_up
    # Its loop may be closed by now.
    await asyncio.to_thread(asyncio.run, app.stop())


class BrokenAtTheEnd:
    """A connector that cannot be closed, with the error of a channel that is closed."""

    def __init__(self, broker: MemoryBroker) -> None:
        connector = broker.connector()
        self.consumer = connector.consumer
        self.producer = connector.producer

    async def close(self) -> None:
        raise ChannelClosedError("a bug")


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_stop_raises_what_the_application_has_failed_with(is_elsewhere: bool) -> None:
    app, broker = make_app(), make_broker()
    app._connector = BrokenAtTheEnd(broker)  # type: ignore[assignment]
    app.configure(overrides={"http": {"enabled": False}})

    @app.incoming("orders")
    async def take(order: bytes) -> None:
        """Handle nothing."""

    await app.start()
    with pytest.raises(ChannelClosedError, match="a bug"):
        await (asyncio.to_thread(asyncio.run, app.stop()) if is_elsewhere else app.stop())
    await broker.close()
