"""Consuming without a handler: ``async for message in app.channel(name)``."""

from __future__ import annotations

import asyncio
import logging

import pytest

from reactive_kafka import ChannelClosedError, Message
from reactive_kafka.events import RecordIgnored
from reactive_kafka.testing import TestApp
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)


async def take(test: TestApp, count: int, *, ack: bool = True) -> list[Message[bytes]]:
    """The next messages of the channel orders."""
    taken: list[Message[bytes]] = []
    async with asyncio.timeout(20):
        async for message in test.app.channel("orders"):
            taken.append(message)
            if ack:
                message.ack()
            if len(taken) == count:
                break
    return taken


async def test_messages_come_in_order_and_are_settled_by_hand() -> None:
    app = make_app(value_deserializer="bytes")
    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        messages = await take(test, 3, ack=False)
        assert [message.payload for message in messages] == [b"a", b"b", b"c"]
        assert facts(test).partitions[0].in_flight == 3
        assert await messages[1].ack()
        assert await messages[0].ack()
        await app.channel("orders").commit()
        assert committed(test) == 2
        assert await messages[2].ack()
        await test.settled()


async def test_a_channel_without_a_handler_connects_only_when_it_is_iterated_over() -> None:
    app = make_app()
    async with running(app) as test:
        await asyncio.sleep(0.02)
        assert test.broker.members("billing") == {}
        assert app.health().status == "UP"
        await send(test, {"id": 1})
        (message,) = await take(test, 1)
        assert message.payload == {"id": 1}
        assert len(test.broker.members("billing")) == 1


async def test_iterating_can_be_broken_off_and_gone_on_with() -> None:
    app = make_app(value_deserializer="bytes")
    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        assert [message.payload for message in await take(test, 1)] == [b"a"]
        assert [message.payload for message in await take(test, 2)] == [b"b", b"c"]
        await test.settled()


async def test_several_iterators_share_the_messages() -> None:
    app = make_app(value_deserializer="bytes")
    async with running(app, partitions=2) as test:
        both = asyncio.gather(take(test, 3), take(test, 3))
        await send(test, b"", b"", b"", partition=0)
        await send(test, b"", b"", b"", partition=1)
        messages = [message for part in await both for message in part]
        assert {(message.partition, message.offset) for message in messages} == {
            (p, o) for p in (0, 1) for o in (0, 1, 2)
        }
        await test.settled()


async def test_a_record_that_cannot_be_decoded_never_comes() -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="ignore")
    async with running(app) as test:
        await send(test, b"{", b"2")
        assert [message.payload for message in await take(test, 1)] == [2]
        await test.settled()
    assert recorder.of(RecordIgnored)[0].offset == 0


@in_virtual_time
async def test_back_pressure_holds_for_iterators_too() -> None:
    app = make_app(value_deserializer="bytes", max_in_flight=3)
    async with running(app) as test:
        await send(test, *[b""] * 10)
        kept = await take(test, 3, ack=False)
        waiting = asyncio.ensure_future(take(test, 1))
        await asyncio.sleep(5)
        assert not waiting.done()
        assert facts(test).partitions[0].position == 3
        kept[0].ack()
        assert [message.offset for message in await waiting] == [3]
        for message in kept:
            message.ack()


@in_virtual_time
async def test_the_iteration_ends_with_the_application() -> None:
    app, seen = make_app(value_deserializer="bytes"), list[bytes]()
    async with running(app) as test:

        async def consume() -> None:
            async for message in app.channel("orders"):
                seen.append(message.payload)
                message.ack()

        consuming = asyncio.ensure_future(consume())
        await send(test, b"a", b"b")
        await until(lambda: len(seen) == 2)
        began = now()
        await app.stop()
        await consuming
        assert now() - began < 1


@in_virtual_time
async def test_a_stop_waits_for_the_message_that_the_loop_body_works_on() -> None:
    app, done = make_app(value_deserializer="bytes", drain_timeout="30s"), list[int]()
    async with running(app) as test:

        async def consume() -> None:
            async for message in app.channel("orders"):
                await asyncio.sleep(5)
                done.append(message.offset)
                message.ack()

        consuming = asyncio.ensure_future(consume())
        await send(test, b"a", b"b")
        await until(lambda: app.channel("orders").is_started and facts(test).partitions)
        await until(lambda: facts(test).partitions[0].in_flight)
        await app.stop()
        await consuming
    assert done == [0]
    assert test.broker.committed("billing")[tp()].offset == 1


async def test_a_channel_that_fails_ends_the_iteration_with_its_reason() -> None:
    app = make_app(value_deserializer="bytes")
    async with running(app) as test:
        await send(test, b"a", b"b")
        with pytest.raises(
            ChannelClosedError, match=r"'orders' has failed.*ValueError: no"
        ) as caught:
            async for message in app.channel("orders"):
                message.nack(ValueError("no"))
        assert caught.value.__cause__ is not None
        assert isinstance(caught.value.__cause__.__cause__, ValueError)
        await until(lambda: facts(test).state == "failed")
        assert committed(test) is None


async def test_a_channel_with_a_handler_cannot_be_iterated_over() -> None:
    app = make_app()
    take_all(app)

    async with running(app):
        with pytest.raises(ChannelClosedError, match="has a handler"):
            async for _ in app.channel("orders"):
                pass


@in_virtual_time
async def test_what_is_taken_away_and_comes_straight_back_goes_on_in_the_iteration() -> None:
    app, broker = make_app(value_deserializer="bytes", revoke_grace="100ms"), make_broker()
    async with running(app, broker=broker) as test:
        await send(test, *[b""] * 6)
        kept = await take(test, 2, ack=False)
        broker.rebalance("billing")
        await asyncio.sleep(1)
        rest = await take(test, 4)
        assert [message.offset for message in (*kept, *rest)] == list(range(6))
        for message in kept:
            assert await message.ack()
        await test.settled()


async def test_a_channel_that_waits_for_its_iteration_is_told_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "reactive_kafka")
    async with running(make_app()):
        assert (
            "channel 'orders' has no handler; it starts when app.channel('orders') is iterated"
            in caplog.messages
        )


@in_virtual_time
async def test_an_iteration_that_begins_while_the_application_stops_brings_nothing_and_leaves_nothing_behind() -> (
    None
):
    app, seen, broker = make_app(), list[Message[bytes]](), make_broker()

    @app.before_stop
    async def consume() -> None:
        async for message in app.channel("orders"):
            seen.append(message)

    async with running(app, broker=broker) as test:
        await send(test, b"")
        channel = app.channel("orders")
    assert not broker.members("billing")
    assert channel.facts().state == "stopped"
    assert seen == []
    await broker.close()
