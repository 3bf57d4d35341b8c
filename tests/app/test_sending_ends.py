"""How sending ends: flushes, and stops while others go on sending."""

from __future__ import annotations

import asyncio
import gc

import pytest

from reactive_kafka import App, ChannelClosedError, Emitter, TransientBrokerError
from reactive_kafka.events import Unwritten
from reactive_kafka.testing import TestApp
from tests.app.helpers import Recorder, in_virtual_time, now, running, settle_down


def emitting_app(recorder: Recorder | None = None, **invoices: object) -> App:
    return App({"outgoing": {"invoices": invoices}}, observer=recorder)


async def slow_broker(test: TestApp, emitter: Emitter) -> None:
    """Have each of the next writes take a while."""
    await emitter.send(b"first")
    test.broker.delay_next("send", 0.01, times=10_000)


async def go_on_sending(emitter: Emitter) -> None:
    """Send faster than the broker answers, so that there is always something on its way."""
    while True:
        emitter.send_nowait(b"more")
        await asyncio.sleep(0.003)


@in_virtual_time
async def test_a_flush_waits_for_what_was_accepted_before_it_and_not_for_what_comes_later() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        await slow_broker(test, emitter)
        others = asyncio.create_task(go_on_sending(emitter))
        await asyncio.sleep(1)
        mine, began = emitter.send_nowait(b"mine"), now()
        await emitter.flush()
        assert mine.done()
        assert now() - began < 0.1
        others.cancel()


@in_virtual_time
async def test_who_goes_on_sending_does_not_hold_a_stop_up_and_is_refused() -> None:
    recorder = Recorder()
    app = emitting_app(recorder)
    emitter = app.emitter("invoices")
    async with running(app) as test:
        await slow_broker(test, emitter)
        others = asyncio.create_task(go_on_sending(emitter))
        await asyncio.sleep(1)
        began = now()
        await app.stop()
        assert now() - began < 0.1
        with pytest.raises(ChannelClosedError):
            await others
    assert recorder.of(Unwritten) == []


@in_virtual_time
async def test_what_waits_for_room_when_the_application_stops_is_still_written() -> None:
    app = emitting_app(max_in_flight=1)
    emitter = app.emitter("invoices")
    async with running(app) as test:
        await slow_broker(test, emitter)
        sent = [asyncio.create_task(emitter.send(number)) for number in range(3)]
        await settle_down()
        await app.stop()
        assert [(await one).offset for one in sent] == [1, 2, 3]


@in_virtual_time
async def test_a_flush_of_what_is_never_written_ends_with_the_application() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=1000)
        emitter.send_nowait(b"")
        flush = asyncio.create_task(emitter.flush())
        await settle_down()
        await app.stop()
        with pytest.raises(ChannelClosedError):
            await flush


@in_virtual_time
async def test_neither_a_flush_nor_a_stop_lingers() -> None:
    recorder = Recorder()
    app = emitting_app(recorder, linger="1m")
    emitter = app.emitter("invoices")
    async with running(app) as test:
        began = now()
        emitter.send_nowait(b"a")
        await settle_down()
        await emitter.flush()
        emitter.send_nowait(b"b")
        await app.stop()
        assert now() - began < 1
        assert [record.value for record in test.records("invoices")] == [b"a", b"b"]
    assert recorder.of(Unwritten) == []


@in_virtual_time
async def test_a_channel_that_nothing_has_fed_does_not_start_while_the_others_are_closed() -> None:
    app = App({"outgoing": {"invoices": {}, "audit": {}}})
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=1000, of="invoices")
        emitter.send_nowait(b"")
        stop = asyncio.create_task(app.stop())
        await asyncio.sleep(5)
        with pytest.raises(ChannelClosedError, match="'audit' has stopped"):
            app.emitter("audit").send_nowait(b"")
        await stop


@in_virtual_time
async def test_who_has_given_up_waiting_for_room_leaves_nothing_behind() -> None:
    app = emitting_app(max_in_flight=1, send_timeout="1ms")
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.topic_away("invoices")
        emitter.send_nowait(b"")
        gc.collect()
        before = sum(isinstance(one, asyncio.Future) for one in gc.get_objects())
        for _ in range(100):
            with pytest.raises(TransientBrokerError):
                await emitter.send(b"")
        gc.collect()
        assert sum(isinstance(one, asyncio.Future) for one in gc.get_objects()) < before + 10
        test.broker.topic_back("invoices")
