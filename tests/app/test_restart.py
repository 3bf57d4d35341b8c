"""A channel that has failed comes back without the process: by a call, or by itself, a few times in
a row.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from reactive_kafka import App, ChannelClosedError, Later, Message, TopicPartition
from reactive_kafka.events import ChannelFailed, ChannelStateChanged, EndFailed
from reactive_kafka.testing import TestApp
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    running,
    send,
    settle_down,
    until,
)
from tests.app.sabotage import Odd, Sabotage


class Handling:
    """An application whose handler raises for the offsets in ``bad``; what it was called with."""

    def __init__(self, *bad: int, recorder: Recorder | None = None, **orders: Any) -> None:
        self.bad = set(bad)
        self.seen: list[int] = []
        self.failed_at: list[float] = []
        self.raises_after_s = 0.0
        self.app = make_app(recorder, **{"commit_interval": "100ms", **orders})

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.seen.append(message.offset)
            if message.offset in self.bad:
                await asyncio.sleep(self.raises_after_s)
                self.failed_at.append(now())
                raise ValueError("no")


def state(test: TestApp) -> str:
    return facts(test).state


def waits(times: list[float]) -> list[int]:
    return [round(later - earlier) for earlier, later in pairwise(times)]


# -- by a call


@in_virtual_time
async def test_a_record_that_an_unsafe_commit_has_passed_is_handled_again_and_moves_nothing_back() -> (
    None
):
    seen: list[int] = []
    go_on = asyncio.Event()
    app = make_app(
        assign=["orders:0:0"],
        commit_strategy="latest",
        commit_latest_unsafe=True,
        ordering="unordered",
        concurrency=8,
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if seen == [0]:
            raise Later(60)
        if seen == [0, 1, 2]:
            raise ValueError("no")
        if message.offset and seen.count(message.offset) == 2:
            await go_on.wait()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: committed(test) == 2)
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        await test.app.channel("orders").restart()
        await until(lambda: seen == [0, 1, 2, 0, 1, 2])
        # The first one is settled, and its commit is due.
        await asyncio.sleep(10)
        assert positions(test.broker) == [2]
        go_on.set()
        await test.settled()
        assert positions(test.broker) == sorted(positions(test.broker))
        assert committed(test) == 3


@in_virtual_time
async def test_restart_takes_up_where_the_failed_channel_had_committed() -> None:
    handling = Handling(2)
    async with running(handling.app) as test:
        await send(test, b"", b"", b"", b"")
        await until(lambda: state(test) == "failed")
        handling.bad.clear()
        await test.app.channel("orders").restart()
        assert state(test) == "connecting"
        await test.settled()
        assert handling.seen == [0, 1, 2, 2, 3]
        assert (state(test), facts(test).reason, test.app.health().status) == (
            "running",
            None,
            "UP",
        )
        assert positions(test.broker) == sorted(positions(test.broker))
        assert len(test.broker.members("billing")) == 1


@in_virtual_time
async def test_counts_go_on_over_a_restart() -> None:
    handling = Handling(1, retry={"max_attempts": 3, "backoff": "10ms"})
    async with running(handling.app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: state(test) == "failed" and not test.broker.members("billing"))
        before = facts(test)
        calls = sum(before.handler_durations.counts)
        handling.bad.clear()
        await test.app.channel("orders").restart()
        await test.settled()
        after = facts(test)
        (totals,) = after.totals.values()
        assert (totals.received, totals.acked, totals.nacked) == (5, 3, {"fail": 1})
        assert (before.retries, after.retries) == (2, 2)
        assert sum(after.handler_durations.counts) == calls + 2
        assert after.commits["ok"] > before.commits["ok"] > 0
        assert after.rebalances["assigned"] == before.rebalances["assigned"] + 1
        assert after.has_joined


@pytest.mark.parametrize("when", ["running", "stopped"])
@in_virtual_time
async def test_only_a_channel_that_has_failed_can_be_restarted(when: str) -> None:
    async with running(Handling().app) as test:
        channel = test.app.channel("orders")
        if when == "stopped":
            await test.app.stop()
        with pytest.raises(
            ChannelClosedError, match=r"'orders' is (running|stopping): restart\(\) is for one that"
        ):
            await channel.restart()


@in_virtual_time
async def test_restart_waits_until_the_failed_channel_has_let_go() -> None:
    go_on, seen = asyncio.Event(), list[int]()
    app = make_app(concurrency=2, drain_timeout="20s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.partition)
        if message.partition == 0 and seen.count(0) == 1:
            await asyncio.sleep(3)
        elif not go_on.is_set():
            raise ValueError("no")

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: state(test) == "failed")
        began = now()
        go_on.set()
        await asyncio.gather(*(test.app.channel("orders").restart() for _ in range(3)))
        assert 2.9 < now() - began < 3.1
        await test.settled()
        assert Counter(seen) == {0: 1, 1: 2}
        assert len(test.broker.members("billing")) == 1


@pytest.mark.parametrize("who", ["handler", "hook"])
@in_virtual_time
async def test_a_handler_or_hook_of_the_failed_channel_restarts_it_without_a_wait(who: str) -> None:
    app = make_app(concurrency=2, drain_timeout="20s")
    handled: list[tuple[int, bytes]] = []
    has_failed = asyncio.Event()

    async def restart() -> None:
        began = now()
        await app.channel("orders").restart()
        assert now() == began

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if has_failed.is_set():
            handled.append((message.partition, message.payload))
        elif message.partition == 0:
            await has_failed.wait()
            if who == "handler":
                await restart()
        else:
            raise ValueError("no")

    @app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        if who == "hook" and facts(test).state == "failed":
            await restart()

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: state(test) == "failed")
        began = now()
        has_failed.set()
        await until(lambda: state(test) == "running")
        assert now() - began < 1
        await test.settled()
        assert handled == [(1, b"")]


@in_virtual_time
async def test_a_message_from_before_a_restart_settles_nothing() -> None:
    """Row E3 of the faults."""
    kept: list[Message[bytes]] = []
    app = make_app(commit_interval="100ms", revoke_grace="100ms")
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(kept) == 2)
        kept[1].nack(ValueError("no"))
        await until(lambda: state(test) == "failed")
        await test.app.channel("orders").restart()
        await until(lambda: len(kept) == 4)
        assert await kept[0].ack() is False
        await asyncio.sleep(1)
        assert committed(test) in (None, 0)
        assert await kept[2].ack() is True
        assert await kept[3].ack() is True
        await test.settled()


@in_virtual_time
async def test_handlers_that_hang_from_before_take_no_place_after_a_restart() -> None:
    seen: list[int] = []
    app = make_app(concurrency=2, drain_timeout="1s", revoke_grace="1s", ordering="unordered")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if seen.count(message.offset) == 1:
            if message.offset == 0:
                await asyncio.Event().wait()
            raise ValueError("no")

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: state(test) == "failed")
        await test.app.channel("orders").restart()
        await until(lambda: seen.count(0) == 2 and seen.count(1) == 2)
        await test.settled()
        assert facts(test).abandoned_handlers == 1
        await test.app.stop(drain=False)


@pytest.mark.parametrize(
    "orders",
    [
        {},
        {"failure_routes": {"KeyError": "dead-letter-queue"}},
        {"consumers": 3},
        {"ordering": "key"},
    ],
)
@in_virtual_time
async def test_restarts_leave_no_tasks_behind(orders: dict[str, Any]) -> None:
    handling = Handling(0, concurrency=5, **orders)
    async with running(handling.app, partitions=5) as test:
        for partition in range(5):
            await send(test, b"", partition=partition)
        numbers = []
        for _ in range(4):
            await until(lambda: state(test) == "failed")
            await test.app.channel("orders").restart()
            await until(lambda: state(test) == "failed" and not test.broker.members("billing"))
            await asyncio.sleep(30)
            numbers.append(len(asyncio.all_tasks()))
        assert len(set(numbers)) == 1


@in_virtual_time
async def test_handlers_that_were_given_up_before_a_restart_are_counted_after_it() -> None:
    never, calls = asyncio.Event(), list[bytes]()
    app = make_app(
        on_poison="dead-letter-queue",
        unprocessed_record_max_age="2s",
        drain_timeout="1s",
        revoke_grace="1s",
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(value)
        while value == b"stubborn" and not never.is_set():
            try:
                await never.wait()
            except asyncio.CancelledError:
                continue
        if value == b"bad" and calls.count(b"bad") == 1:
            raise ValueError("no")

    async with running(app) as test:
        try:
            await send(test, b"stubborn", b"bad")
            await until(lambda: state(test) == "failed")
            before = facts(test).abandoned_handlers
            assert before >= 1
            await app.channel("orders").restart()
            await test.settled()
            assert facts(test).abandoned_handlers == before
        finally:
            # Else the stop would be in its hands.
            never.set()


@in_virtual_time
async def test_an_application_that_iterates_ends_with_the_failure_and_may_iterate_again() -> None:
    app, seen = make_app(value_deserializer="bytes"), list[int]()

    async def consume() -> None:
        async for message in app.channel("orders"):
            seen.append(message.offset)
            if len(seen) == 1:
                message.nack(ValueError("no"))
            else:
                message.ack()

    async with running(app) as test:
        first = asyncio.ensure_future(consume())
        await send(test, b"")
        with pytest.raises(ChannelClosedError, match="has failed"):
            await first
        await test.app.channel("orders").restart()
        second = asyncio.ensure_future(consume())
        await test.settled()
        assert seen == [0, 0]
        await test.app.stop()
        await second


# -- by itself


@in_virtual_time
async def test_it_comes_back_by_itself_after_longer_and_longer_waits_until_the_attempts_are_used_up() -> (
    None
):
    handling = Handling(0, restart={"backoff": "2s", "max_backoff": "5s", "max_attempts": 3})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: len(handling.failed_at) == 4, 60)
        assert waits(handling.failed_at) == [2, 4, 5]
        await asyncio.sleep(300)
        assert len(handling.failed_at) == 4
        assert state(test) == "failed"
        assert (facts(test).reason or "").endswith(
            "; the channel stays down: its 3 restarts are used up"
        )


@in_virtual_time
async def test_without_attempts_it_stays_down() -> None:
    handling = Handling(0)
    async with running(handling.app) as test:
        await send(test, b"")
        await asyncio.sleep(300)
        assert handling.seen == [0]
        assert test.app.health().live.status == "DOWN"
        assert "restart" not in (facts(test).reason or "")


@in_virtual_time
async def test_one_event_tells_of_a_failure_and_of_the_restart_after_it() -> None:
    recorder = Recorder()
    handling = Handling(0, recorder=recorder, restart={"backoff": "400ms", "max_attempts": 1})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: len(recorder.of(ChannelFailed)) == 2)
        first, second = (event.reason for event in recorder.of(ChannelFailed))
        assert first.endswith(
            "ValueError: no; the channel is started again in 0.4 s (attempt 1 of 1)"
        )
        assert second.endswith("ValueError: no; the channel stays down: its 1 restart is used up")


@in_virtual_time
async def test_a_restart_without_a_wait_comes_at_once() -> None:
    recorder = Recorder()
    handling = Handling(0, recorder=recorder, restart={"backoff": 0, "max_attempts": 1})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: len(recorder.of(ChannelFailed)) == 2)
        assert (
            "the channel is started again at once (attempt 1 of 1)"
            in recorder.of(ChannelFailed)[0].reason
        )


@in_virtual_time
async def test_a_channel_that_is_stopped_while_it_waits_has_not_used_its_attempts_up() -> None:
    handling = Handling(0, restart={"backoff": "30s", "max_attempts": 1})
    reasons: list[str | None] = []
    async with running(handling.app) as test:
        # A plain function would run in a thread, which virtual time does not wait for.
        async def note() -> None:
            reasons.append(facts(test).reason)

        handling.app.before_stop(note)
        await send(test, b"")
        await until(lambda: state(test) == "failed")
    assert reasons == ["channel 'orders': orders-0 offset 0: ValueError: no"]


@pytest.mark.parametrize(
    "error", [ValueError("sabotage"), asyncio.CancelledError(), Odd("sabotage")]
)
@in_virtual_time
async def test_it_comes_back_whatever_goes_wrong_while_it_lets_go(error: BaseException) -> None:
    recorder, loop = Recorder(), asyncio.get_running_loop()
    handling = Handling(0, recorder=recorder, restart={"max_attempts": 1})
    loop.set_task_factory(Sabotage("end of orders", error))
    try:
        async with running(handling.app) as test:
            await send(test, b"")
            await until(lambda: handling.seen == [0, 0], 60)
    finally:
        loop.set_task_factory(None)
    assert [event.error for event in recorder.of(EndFailed)] == [error]


@in_virtual_time
async def test_health_says_when_it_is_tried_again() -> None:
    handling = Handling(0, restart={"backoff": "30s", "max_attempts": 2})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        await asyncio.sleep(10)
        (check,) = test.app.health().live.checks
        assert check.status == "DOWN"
        assert "offset 0: ValueError: no" in check.data["reason"]
        assert "the channel is started again in 20 s (attempt 1 of 2)" in check.data["reason"]
        handling.bad.clear()
        await until(lambda: state(test) == "running", 30)
        await test.settled()
        assert test.app.health().status == "UP"


@in_virtual_time
async def test_a_channel_that_has_run_for_long_enough_has_all_of_its_attempts_again() -> None:
    handling = Handling(0, 1, restart={"backoff": "1s", "max_backoff": "10s", "max_attempts": 1})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        handling.bad.discard(0)
        await until(lambda: state(test) == "running")
        # max_backoff, and the limit of poison.
        await asyncio.sleep(71)
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        assert "attempt 1 of 1" in (facts(test).reason or "")
        await until(lambda: state(test) == "failed" and len(handling.failed_at) == 3)
        await asyncio.sleep(100)
        assert len(handling.failed_at) == 3


@in_virtual_time
async def test_a_channel_that_meets_the_same_poison_each_time_runs_out_of_attempts() -> None:
    app = make_app(
        unprocessed_record_max_age="20s",
        restart={"backoff": "1s", "max_backoff": "10s", "max_attempts": 2},
        drain_timeout="1s",
    )
    starts: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        starts.append(now())
        await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(300)
        assert state(test) == "failed"
    assert len(starts) == 3


@in_virtual_time
async def test_a_stop_during_the_wait_ends_at_once_and_starts_nothing() -> None:
    recorder = Recorder()
    handling = Handling(0, recorder=recorder, restart={"backoff": "1m", "max_attempts": 5})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed" and not test.broker.members("billing"))
        began = now()
        await test.app.stop()
        assert now() - began < 0.1
        await asyncio.sleep(120)
    assert handling.seen == [0]
    states = [event.new for event in recorder.of(ChannelStateChanged)]
    assert states == ["connecting", "running", "failed", "stopping", "stopped"]


@in_virtual_time
async def test_it_does_not_come_back_while_the_stop_waits_for_another_channel() -> None:
    recorder, began = Recorder(), asyncio.Event()
    incoming = {
        "orders": {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "restart": {"backoff": "5s", "max_attempts": 3},
        },
        "others": {"group_id": "others", "auto_offset_reset": "earliest", "drain_timeout": "30s"},
    }
    app = App({"incoming": incoming}, observer=recorder)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError("no")

    @app.incoming("others")
    async def other(value: bytes) -> None:
        began.set()
        await asyncio.sleep(20)

    async with running(app) as test:
        await test.send("others", b"")
        await began.wait()
        await send(test, b"")
        await until(lambda: state(test) == "failed" and not test.broker.members("billing"))
        await app.stop()
    states = [event.new for event in recorder.of(ChannelStateChanged) if event.channel == "orders"]
    assert states == ["connecting", "running", "failed", "stopping", "stopped"]
    assert len(recorder.of(ChannelFailed)) == 1


@in_virtual_time
async def test_a_wait_that_a_restart_by_hand_made_void_shortens_no_later_one() -> None:
    handling = Handling(0, 1, restart={"backoff": "10s", "max_attempts": 3})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        await asyncio.sleep(1)
        handling.bad.discard(0)
        await test.app.channel("orders").restart()
        await asyncio.sleep(4)
        await send(test, b"")
        await until(lambda: len(handling.failed_at) == 3, 60)
        assert waits(handling.failed_at) == [5, 10]


@in_virtual_time
async def test_a_stop_while_it_comes_back_ends_and_leaves_nobody_in_the_group() -> None:
    handling, broker = Handling(0, restart={"backoff": "1s", "max_attempts": 5}), make_broker()
    async with running(handling.app, broker=broker) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed" and not broker.members("billing"))
        broker.down = True
        await until(lambda: state(test) == "connecting")
        began = now()
        await test.app.stop()
        assert now() - began < 1
        broker.down = False
        await asyncio.sleep(30)
        assert not broker.members("billing")
    await broker.close()


@in_virtual_time
async def test_a_restart_by_hand_during_the_wait_is_the_only_one() -> None:
    recorder = Recorder()
    handling = Handling(0, recorder=recorder, restart={"backoff": "10s", "max_attempts": 5})
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        handling.bad.clear()
        await test.app.channel("orders").restart()
        await test.settled()
        await asyncio.sleep(60)
        states = [event.new for event in recorder.of(ChannelStateChanged)]
        assert states == ["connecting", "running", "failed", "connecting", "running"]
        assert handling.seen == [0, 0]


@in_virtual_time
async def test_an_application_that_iterates_goes_on_when_the_channel_comes_back_by_itself() -> None:
    app, seen = (
        make_app(value_deserializer="bytes", restart={"backoff": "1s", "max_attempts": 2}),
        list[int](),
    )

    async def consume() -> None:
        async for message in app.channel("orders"):
            seen.append(message.offset)
            if len(seen) == 1:
                message.nack(ValueError("no"))
            else:
                message.ack()

    async with running(app) as test:
        consumer = asyncio.ensure_future(consume())
        await send(test, b"", b"")
        await until(lambda: seen[-2:] == [0, 1], 20)
        await test.settled()
        await test.app.stop()
        await consumer


@pytest.mark.parametrize(("attempts", "ends_after"), [(0, 1), (2, 3)])
@in_virtual_time
async def test_exit_on_failure_ends_the_application_only_when_the_attempts_are_used_up(
    attempts: int, ends_after: int
) -> None:
    handling, broker = (
        Handling(0, restart={"backoff": "1s", "max_attempts": attempts}),
        make_broker(),
    )
    app: App = handling.app
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    run = app._new_run(exit_on_failure=True)
    await app._start(run)
    broker.produce("orders", b"")
    await run.wait_asked()
    await settle_down()
    assert (len(handling.failed_at), run.exit_code()) == (ends_after, 1)
    await app.stop()
    await broker.close()


# -- in an outage

HEALED_S = 10.0


async def restarts(test: TestApp) -> None:
    await test.app.channel("orders").restart()


async def fail_in_an_outage(handling: Handling, test: TestApp) -> None:
    """Let the handler raise when its client can leave its group no more."""
    handling.raises_after_s = 2.0
    await send(test, b"")
    await until(lambda: handling.seen)
    test.broker.down = True
    await until(lambda: handling.failed_at)
    handling.bad.clear()


async def stops_and_starts(test: TestApp) -> None:
    await test.app.channel("orders").stop()
    await test.app.channel("orders").start()


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
@pytest.mark.parametrize("comes_back", [restarts, stops_and_starts])
@in_virtual_time
async def test_a_channel_that_comes_back_in_an_outage_does_not_wait_for_its_own_old_session(
    comes_back: Callable[[TestApp], Awaitable[None]], group_protocol: str
) -> None:
    handling = Handling(0, group_protocol=group_protocol)
    async with running(handling.app) as test:
        await fail_in_an_outage(handling, test)
        await until(lambda: state(test) == "failed")
        await comes_back(test)
        await asyncio.sleep(100)
        test.broker.down = False
        await until(lambda: handling.seen == [0, 0], HEALED_S)
        assert test.app.health().status == "UP"
        assert len(test.broker.members("billing")) == 1


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
@in_virtual_time
async def test_a_channel_that_restarts_by_itself_in_an_outage_reads_soon_after_it(
    group_protocol: str,
) -> None:
    handling = Handling(0, group_protocol=group_protocol, restart={"max_attempts": 5})
    async with running(handling.app) as test:
        await fail_in_an_outage(handling, test)
        await asyncio.sleep(100)
        test.broker.down = False
        await until(lambda: handling.seen == [0, 0], HEALED_S)


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
@in_virtual_time
async def test_members_of_other_processes_are_left_alone(group_protocol: str) -> None:
    """Another one that crashed keeps its partitions until its session is over."""
    broker = make_broker()
    handling = Handling(0, group_protocol=group_protocol)
    other = Handling(group_protocol=group_protocol)
    async with running(other.app, broker=broker) as crashing:
        [member_id] = crashing.broker.members("billing")
        async with running(handling.app, broker=broker) as test:
            broker.crash("billing", member_id)
            broker.down = True
            await stops_and_starts(test)
            broker.down = False
            await asyncio.sleep(HEALED_S)
            assert member_id in broker.members("billing")
    await broker.close()


# -- without health


@in_virtual_time
async def test_a_failed_channel_without_health_turns_no_probe_down() -> None:
    handling = Handling(0, health_enabled=False)
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: state(test) == "failed")
        found = test.app.health()
        assert [(probe.status, probe.checks) for probe in (found, found.live, found.ready)] == [
            ("UP", ())
        ] * 3


async def test_an_outgoing_channel_without_health_has_no_check() -> None:
    app = App({"outgoing": {"invoices": {"health_enabled": False}, "others": {}}})
    app.emitter("invoices")
    app.emitter("others")
    async with TestApp(app):
        assert [check.name for check in app.health().checks] == ["others"]
