"""The application's hooks: when they run, on what, and that a broken one holds nothing up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from reactive_kafka import ConfigError, Message, TopicPartition
from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.observe.events import HookFailed
from reactive_kafka.testing import TestApp
from tests.app.helpers import Recorder, in_virtual_time, make_app, make_broker, now, running, send, tp, until

Partitions = frozenset[TopicPartition]


async def test_hooks_come_in_their_order_around_the_records() -> None:
    app, story = make_app(), list[str]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        story.append("record")

    @app.on_start
    async def start() -> None:
        story.append("start")

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        await asyncio.sleep(0.01)
        story.append(f"assigned {sorted(partitions)}")

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions) -> None:
        story.append(f"revoked {sorted(partitions)}")

    @app.before_stop
    async def stop() -> None:
        story.append("before stop")

    broker = make_broker(2)
    broker.produce("orders", b"", partition=0)
    async with running(app, broker=broker) as test:
        await test.settled()
    both = [tp(0), tp(1)]
    assert story == ["start", f"assigned {both}", "record", "before stop", f"revoked {both}"]


async def test_blocking_hooks_run_in_threads() -> None:
    app, threads = make_app(), dict[str, int]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    app.on_start(lambda: threads.setdefault("start", threading.get_ident()))
    app.before_stop(lambda: threads.setdefault("stop", threading.get_ident()))
    app.on_assigned("orders")(lambda partitions: threads.setdefault("assigned", threading.get_ident()))
    app.on_revoked("orders")(lambda partitions: threads.setdefault("revoked", threading.get_ident()))
    async with running(app):
        pass
    assert set(threads) == {"start", "stop", "assigned", "revoked"}
    assert threading.get_ident() not in threads.values()


@in_virtual_time
async def test_reading_begins_when_the_assigned_hooks_have_ended_however_long_they_take() -> None:
    app, began = make_app(), list[float]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        began.append(now())

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        await asyncio.sleep(20)

    broker = make_broker()
    broker.produce("orders", b"")
    async with TestApp(app, broker=broker, start_timeout_s=60) as test:
        await test.settled()
    assert began[0] > 19.9


async def test_several_hooks_of_a_kind_run_one_after_the_other() -> None:
    app, story = make_app(), list[int]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    for number in range(3):

        async def hook(partitions: Partitions, number: int = number) -> None:
            await asyncio.sleep(0.01 * (3 - number))
            story.append(number)

        app.on_assigned("orders")(hook)
    async with running(app):
        assert story == [0, 1, 2]


@in_virtual_time
async def test_hooks_are_told_at_every_rebalance_and_never_of_nothing() -> None:
    app, story, broker = make_app(), list[tuple[str, int]](), make_broker(2)

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        assert isinstance(partitions, frozenset)
        story.append(("assigned", len(partitions)))

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions) -> None:
        story.append(("revoked", len(partitions)))

    async with running(app, broker=broker):
        others = [make_app() for _ in range(2)]
        for other in others:
            other.incoming("orders")(handler)
        async with TestApp(others[0], broker=broker), TestApp(others[1], broker=broker):
            await until(lambda: len(app.channel("orders").assignment) == 1)
        await until(lambda: len(app.channel("orders").assignment) == 2)
    assert story[:4] == [("assigned", 2), ("revoked", 2), ("assigned", 1), ("revoked", 1)]
    assert story[-2:] == [("assigned", 2), ("revoked", 2)]
    assert all(count for _, count in story)


@in_virtual_time
async def test_an_ack_in_a_revoked_hook_is_in_the_last_commit() -> None:
    app, kept = make_app(ack="manual", commit_interval="100s", revoke_grace="30s"), list[Message[bytes]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)

    @app.on_revoked("orders")
    async def flush(partitions: Partitions) -> None:
        for message in kept:
            await message.ack()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(kept) == 2)
        began = now()
        test.broker.rebalance("billing")
        await until(lambda: test.broker.commits("billing"))
        assert now() - began < 1
        assert test.broker.committed("billing")[tp()].offset == 2


@in_virtual_time
async def test_a_hook_of_a_rebalance_that_raises_or_hangs_is_told_and_the_rebalance_goes_on() -> None:
    recorder = Recorder()
    app, seen = make_app(recorder), list[bytes]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)

    @app.on_assigned("orders")
    async def raises(partitions: Partitions) -> None:
        raise ValueError("no")

    @app.on_assigned("orders")
    async def hangs(partitions: Partitions) -> None:
        await asyncio.Event().wait()

    broker = make_broker()
    broker.produce("orders", b"one")
    test = TestApp(app, broker=broker, start_timeout_s=60)
    async with test:
        await test.settled()
    first, second = recorder.of(HookFailed)
    assert (first.hook, first.reason) == ("on_assigned", "ValueError: no")
    assert second.reason == "no end within 30 s"


async def test_a_start_hook_that_raises_stops_the_start() -> None:
    app, calls = make_app(), list[Any]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(value)

    @app.on_start
    async def hook() -> None:
        raise LookupError("no database")

    broker = make_broker()
    broker.produce("orders", b"")
    with pytest.raises(LookupError, match="no database"):
        async with TestApp(app, broker=broker):
            pass
    assert calls == []


@in_virtual_time
async def test_a_channel_that_is_asked_for_before_it_is_made_is_not_called_unknown() -> None:
    app = make_app()

    @app.on_start
    async def hook() -> None:
        app.channel("orders")

    with pytest.raises(ChannelClosedError, match="'orders' is made when all on_start hooks have returned"):
        async with TestApp(app, broker=make_broker()):
            pass


def test_a_hook_of_an_unknown_channel_is_found_at_start_up() -> None:
    app = make_app()
    app.on_revoked("oders")(lambda partitions: None)
    with pytest.raises(ConfigError, match="'oders'"):
        app.configure()
