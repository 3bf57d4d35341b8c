"""One channel is stopped and started by hand, while the application and its other channels go
on.
"""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import App, ChannelClosedError, Message, TopicPartition
from reactive_kafka.events import ChannelStateChanged
from tests.app.handlers import keep_messages, note_offsets
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    rebalanced,
    running,
    send,
    settle_down,
    until,
)
from tests.app.test_restart import Handling, state


@in_virtual_time
async def test_a_stop_drains_commits_and_leaves_and_a_start_goes_on_there() -> None:
    handling = Handling(commit_interval="60s")
    async with running(handling.app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: handling.seen == [0, 1, 2])
        channel = test.app.channel("orders")
        await channel.stop()
        assert (state(test), channel.is_stopped, channel.is_ready) == ("stopped", True, False)
        assert (committed(test), test.broker.members("billing"), channel.assignment) == (
            3,
            {},
            frozenset(),
        )
        await send(test, b"")
        await asyncio.sleep(60)
        assert handling.seen == [0, 1, 2]
        await channel.start()
        assert (state(test), channel.is_stopped) == ("connecting", False)
        await test.settled()
        assert handling.seen == [0, 1, 2, 3]
        assert positions(test.broker) == sorted(positions(test.broker))
        (totals,) = facts(test).totals.values()
        assert (totals.received, totals.acked) == (4, 4)


@in_virtual_time
async def test_a_stopped_channel_is_ready_and_says_so_everywhere() -> None:
    async with running(Handling().app) as test:
        await test.app.channel("orders").stop()
        health = test.app.health()
        assert [probe.status for probe in (health.live, health.ready, health.started, health)] == [
            "UP"
        ] * 4
        data = health.ready.checks[0].data
        assert (data["state"], data["reason"]) == ("stopped", "stopped by the application")
        assert facts(test).stopped_by == "stopped by the application"
        # What is stopped is not waited for.
        await test.settled()


@in_virtual_time
async def test_both_calls_may_be_made_twice_and_at_once() -> None:
    recorder = Recorder()
    handling = Handling(recorder=recorder)
    async with running(handling.app) as test:
        channel = test.app.channel("orders")
        await channel.start()
        await asyncio.gather(channel.stop(), channel.stop())
        await channel.stop()
        await asyncio.gather(channel.start(), channel.start())
        await send(test, b"")
        await test.settled()
        changes = [(event.old, event.new) for event in recorder.of(ChannelStateChanged)]
        assert changes == [
            ("starting", "connecting"),
            ("connecting", "running"),
            ("running", "stopping"),
            ("stopping", "stopped"),
            ("stopped", "connecting"),
            ("connecting", "running"),
        ]


@in_virtual_time
async def test_a_start_while_it_stops_comes_after_the_stop() -> None:
    seen = list[int]()
    app = make_app(drain_timeout="20s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await asyncio.sleep(3)

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: seen)
        began, channel = now(), test.app.channel("orders")
        stop = asyncio.ensure_future(channel.stop())
        await settle_down()
        await channel.start()
        assert (stop.done(), seen) == (True, [0])
        assert 2.9 < now() - began < 3.1
        await test.settled(20)
        assert seen == [0, 1]


FAILING = ("failed", "about to restart", "letting go")


@pytest.mark.parametrize("moment", ["connecting", "rebalancing", *FAILING])
@in_virtual_time
async def test_a_channel_can_be_stopped_at_any_time_and_started_again(moment: str) -> None:
    restart = (
        {"max_attempts": 5, "backoff": "20s", "max_backoff": "60s"}
        if moment == "about to restart"
        else {}
    )
    handling, broker = Handling(restart=restart), make_broker()
    async with running(handling.app, broker=broker) as test:
        channel = test.app.channel("orders")
        await send(test, b"", b"")
        await test.settled()
        if moment == "connecting":
            broker.down = True
            await channel.stop()
            await channel.start()
            await asyncio.sleep(5)
        elif moment == "rebalancing":
            broker.rebalance("billing")
        else:
            handling.bad = {2}
            await send(test, b"")
            gone = moment == "letting go"
            await until(lambda: state(test) == "failed" and (gone or not broker.members("billing")))
        await channel.stop()
        assert (state(test), facts(test).partitions) == ("stopped", ())
        assert test.app.health().status == "UP"
        await asyncio.sleep(120)
        assert state(test) == "stopped"
        broker.down = False
        handling.bad = set()
        await channel.start()
        await send(test, b"last")
        await test.settled(60)
        assert handling.seen == [0, 1, *([2, 2, 3] if moment in FAILING else [2])]
        assert len(broker.members("billing")) == 1
    await broker.close()


@in_virtual_time
async def test_a_start_restarts_a_channel_that_has_failed() -> None:
    handling = Handling(0)
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        handling.bad = set()
        await test.app.channel("orders").start()
        await test.settled()
        assert handling.seen == [0, 0]


@in_virtual_time
async def test_a_handler_that_stops_its_own_channel_is_not_waited_for_by_itself() -> None:
    app, seen, took = make_app(), list[int](), list[float]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == 1:
            began = now()
            await app.channel("orders").stop()
            took.append(now() - began)

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: state(test) == "stopped")
        assert (seen, committed(test), took) == ([0, 1], 2, [0.0])
        assert facts(test).abandoned_handlers == 0
        await app.channel("orders").start()
        await test.settled()
        assert seen == [0, 1, 2]


async def test_a_blocking_handler_that_stops_its_own_channel_is_not_waited_for_by_itself() -> None:
    app = make_app(auto_offset_reset="earliest", drain_timeout="10s")
    seen: list[int] = []

    @app.incoming("orders")
    def stop_at_the_second(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == 1:
            asyncio.run(app.channel("orders").stop())

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: state(test) == "stopped")
        assert seen == [0, 1]
        assert committed(test) == 2
        await app.channel("orders").start()
        await test.settled()
        assert seen == [0, 1, 2]


@in_virtual_time
async def test_a_handler_may_have_its_own_channel_stopped_and_started() -> None:
    app, seen = make_app(), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == 0:
            await app.channel("orders").stop()
            await app.channel("orders").start()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(seen) == 2)
        await test.settled()
        assert (seen, facts(test).rebalances["assigned"]) == ([0, 1], 2)


@pytest.mark.parametrize("hook", ["on_assigned", "on_revoked"])
@in_virtual_time
async def test_a_hook_that_stops_its_own_channel_is_not_waited_for_by_itself(hook: str) -> None:
    handling, took = Handling(), list[float]()

    async def stop(_: frozenset[TopicPartition]) -> None:
        if not took:
            began = now()
            await handling.app.channel("orders").stop()
            took.append(now() - began)

    if hook == "on_revoked":
        handling.app.on_revoked("orders")(stop)
    else:
        handling.app.on_assigned("orders")(stop)
    async with running(handling.app) as test:
        test.broker.rebalance("billing")
        await until(lambda: state(test) == "stopped", 60)
        assert took == [0.0]
        await test.app.channel("orders").start()
        await send(test, b"")
        await test.settled(60)
        assert handling.seen == [0]


@in_virtual_time
async def test_handlers_that_do_not_end_are_left_behind_after_drain_timeout() -> None:
    app, never = make_app(drain_timeout="2s"), asyncio.Event()

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        await never.wait()

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: test.app.channel("orders").in_flight == 1)
        began = now()
        await test.app.channel("orders").stop()
        assert (round(now() - began), state(test), committed(test)) == (2, "stopped", None)
        never.set()
        await settle_down()
        await test.app.channel("orders").start()
        await test.settled()


@in_virtual_time
async def test_cancelling_the_caller_does_not_end_the_stop() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        await asyncio.sleep(5)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: test.app.channel("orders").in_flight == 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(test.app.channel("orders").stop(), 1)
        assert state(test) == "stopping"
        assert test.app.health().ready.status == "UP"
        await until(lambda: state(test) == "stopped")
        assert committed(test) == 1


@in_virtual_time
async def test_the_application_may_stop_while_a_channel_does_and_ends_it() -> None:
    app, ends = make_app(drain_timeout="20s"), list[float]()

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        await asyncio.sleep(5)
        ends.append(now())

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: test.app.channel("orders").in_flight == 1)
        channel = test.app.channel("orders")
        stop = asyncio.ensure_future(channel.stop())
        await settle_down()
        start = asyncio.ensure_future(channel.start())
        await app.stop()
        assert len(ends) == 1
        await stop
        with pytest.raises(
            ChannelClosedError, match="'orders' cannot start: the application is stopping"
        ):
            await start
        assert committed(test) == 1
        assert test.broker.members("billing") == {}
        await channel.stop()
        with pytest.raises(ChannelClosedError, match="cannot start"):
            await channel.start()


@in_virtual_time
async def test_an_application_that_does_not_drain_waits_for_no_stop_of_a_channel() -> None:
    app = make_app(drain_timeout="20s")

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        await asyncio.sleep(15)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: test.app.channel("orders").in_flight == 1)
        stop = asyncio.ensure_future(test.app.channel("orders").stop())
        await settle_down()
        began = now()
        await app.stop(drain=False)
        assert now() - began < 3
        await stop


@in_virtual_time
async def test_a_stopped_channel_ends_with_the_application() -> None:
    async with running(Handling().app) as test:
        await test.app.channel("orders").stop()
    async with running(Handling(enabled=False).app):
        pass


@in_virtual_time
async def test_a_before_stop_hook_that_stops_a_channel_holds_nothing_up() -> None:
    handling, took = Handling(), list[float]()

    @handling.app.before_stop
    async def stop() -> None:
        began = now()
        await handling.app.channel("orders").stop()
        took.append(now() - began)

    async with running(handling.app) as test:
        await send(test, b"")
        await test.settled()
    assert took == [0.0]


@in_virtual_time
async def test_a_channel_that_is_not_enabled_waits_for_its_start() -> None:
    handling = Handling(enabled=False)
    async with running(handling.app) as test:
        await send(test, b"")
        await asyncio.sleep(30)
        assert (handling.seen, test.broker.members("billing"), state(test)) == ([], {}, "stopped")
        health = test.app.health()
        assert [probe.status for probe in (health.live, health.ready, health.started)] == ["UP"] * 3
        assert health.ready.checks[0].data["reason"] == "not started: enabled = false"
        await test.app.channel("orders").start()
        await test.settled()
        assert (handling.seen, state(test)) == ([0], "running")
        await test.app.channel("orders").stop()
        await test.app.channel("orders").stop()


@in_virtual_time
async def test_a_stop_ends_an_iteration_and_a_new_one_goes_on_after_a_start() -> None:
    app, seen = make_app(value_deserializer="bytes"), list[bytes]()

    async def consume() -> None:
        async for message in app.channel("orders"):
            seen.append(message.payload)
            await message.ack()

    async with running(app) as test:
        channel = app.channel("orders")
        await send(test, b"a")
        consumer = asyncio.create_task(consume())
        await until(lambda: seen == [b"a"])
        await channel.stop()
        async with asyncio.timeout(1):
            await consumer
        # A channel that is stopped has nothing.
        await consume()
        assert committed(test) == 1
        await send(test, b"b")
        await channel.start()
        consumer = asyncio.create_task(consume())
        await test.settled()
        assert seen == [b"a", b"b"]
        await app.stop()
        await consumer


@in_virtual_time
async def test_a_channel_that_was_never_iterated_over_can_be_stopped_and_started() -> None:
    app = make_app(value_deserializer="bytes")
    async with running(app) as test:
        channel = app.channel("orders")
        await channel.start()
        await until(lambda: channel.is_ready)
        await channel.stop()
        async for _ in channel:
            raise AssertionError("it is stopped")
        await channel.start()
        await send(test, b"a")
        async for message in channel:
            await message.ack()
            break
        await test.settled()


@in_virtual_time
async def test_pauses_last_through_a_stop_and_a_late_ack_settles_nothing() -> None:
    kept: list[Message[bytes]] = []
    app = make_app(drain_timeout="100ms")
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        channel = app.channel("orders")
        channel.pause("lunch")
        await channel.stop()
        assert await kept[0].ack() is False
        await channel.start()
        await until(lambda: channel.is_ready)
        await asyncio.sleep(10)
        assert (len(kept), facts(test).paused_by) == (1, ("lunch",))
        channel.resume("lunch")
        await until(lambda: len(kept) == 2)
        assert await kept[1].ack()
        await test.settled()


@in_virtual_time
async def test_partitions_without_a_group_go_on_where_they_were_settled() -> None:
    app, seen = (
        App({"incoming": {"orders": {"assign": ["orders:0:0"], "commit_strategy": "ignore"}}}),
        list[int](),
    )
    note_offsets(app, seen)

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: seen == [0, 1, 2])
        await app.channel("orders").stop()
        await send(test, b"")
        await app.channel("orders").start()
        await until(lambda: len(seen) > 3)
        assert seen == [0, 1, 2, 3]


@in_virtual_time
async def test_other_channels_go_on() -> None:
    seen = list[str]()
    incoming = {
        name: {"group_id": name, "auto_offset_reset": "earliest"} for name in ("orders", "payments")
    }
    app = App({"incoming": incoming})
    for name in incoming:

        @app.incoming(name)
        async def handler(message: Message[bytes]) -> None:
            seen.append(message.topic)

    async with running(app) as test:
        await app.channel("orders").stop()
        await send(test, b"")
        await test.send("payments", b"")
        await test.settled()
        assert seen == ["payments"]


@in_virtual_time
async def test_rebalances_after_a_start_are_those_of_any_channel() -> None:
    handling = Handling()
    async with running(handling.app) as test:
        for _ in range(5):
            await test.app.channel("orders").stop()
            await test.app.channel("orders").start()
            await until(lambda: test.app.channel("orders").is_ready)
            await send(test, b"")
            await rebalanced(test)
        await test.settled()
        assert handling.seen == [0, 1, 2, 3, 4]
        assert len(test.broker.members("billing")) == 1
