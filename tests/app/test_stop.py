"""The end of an application: what is waited for, for how long, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest

from reactive_kafka import App, ChannelClosedError, ConfigError, Depends, Message
from reactive_kafka.events import HandlerAbandoned, HookFailed, StopWaits
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import keep_messages, note_values, take_all
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
    tasks_left,
    tp,
    until,
)

CLOSING_S = 15.0
"""How long after the drain a process is ended, by runtime/signals.py."""

# -- draining


@in_virtual_time
async def test_a_stop_waits_for_running_handlers_and_commits_what_they_did() -> None:
    app, seen = make_app(drain_timeout="30s", commit_interval="100s"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await asyncio.sleep(10)

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: seen)
        began = now()
        await app.stop()
        assert 9 <= now() - began < 11
        assert seen == [0]
        assert positions(test.broker) == [1]
        assert test.broker.members("billing") == {}


@in_virtual_time
async def test_what_arrives_while_draining_is_handled_by_nobody() -> None:
    app, seen = make_app(drain_timeout="30s", concurrency=4), list[tuple[int, int]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))
        await asyncio.sleep(10)

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await until(lambda: seen)
        stopping = asyncio.ensure_future(app.stop())
        for _ in range(10):
            await asyncio.sleep(0.1)
            await send(test, b"", partition=0)
            await send(test, b"", partition=1)
        await stopping
        assert seen == [(0, 0)]
        assert positions(test.broker) == [1]
        assert positions(test.broker, 1) == []


@in_virtual_time
async def test_a_handler_that_never_ends_holds_up_nothing_beyond_the_deadline() -> None:
    """Row D4 of the faults."""
    recorder = Recorder()
    app, cancelled = make_app(recorder, drain_timeout="5s"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.offset)
            raise

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: facts(test).partitions[0].in_flight)
        began = now()
        await app.stop()
        assert 5 <= now() - began < 5.2
        assert cancelled == [0]
        assert test.broker.commits("billing") == ()
    (event,) = recorder.of(HandlerAbandoned)
    assert (event.during, event.records, round(event.waited_s)) == ("stop", 1, 5)


@pytest.mark.parametrize("first", ["revocation", "stop"])
@in_virtual_time
async def test_a_stop_and_a_revocation_at_once_each_tell_how_long_they_have_waited_themselves(
    first: str,
) -> None:
    recorder = Recorder()
    app = make_app(recorder, revoke_grace="4s", drain_timeout="10s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).partitions[0].in_flight)
        if first == "revocation":
            test.broker.rebalance("billing")
            await asyncio.sleep(3)
            await app.stop()
        else:
            stop = asyncio.create_task(app.stop())
            await asyncio.sleep(3)
            test.broker.rebalance("billing")
            await stop
    assert waits_of(recorder) == [("revocation", 4), ("stop", 10)]


def waits_of(recorder: Recorder) -> list[tuple[str, int]]:
    return [(event.during, round(event.waited_s)) for event in recorder.of(HandlerAbandoned)]


async def test_a_handler_that_ignores_its_cancellation_is_left_behind() -> None:
    app, go_on, called = make_app(drain_timeout="50ms"), asyncio.Event(), list[bytes]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        called.append(value)
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: called)
        async with asyncio.timeout(5):
            await app.stop()
        go_on.set()
        await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})


async def test_a_blocking_handler_that_never_ends_is_left_to_itself() -> None:
    app, began, go_on = make_app(drain_timeout="100ms"), threading.Event(), threading.Event()

    @app.incoming("orders")
    def handler(value: bytes) -> None:
        began.set()
        go_on.wait(30)

    try:
        async with running(app) as test:
            await send(test, b"")
            await until(began.is_set)
            async with asyncio.timeout(3):
                await app.stop()
            assert test.broker.commits("billing") == ()
    finally:
        go_on.set()


@in_virtual_time
async def test_a_manual_message_left_unsettled_is_waited_for_and_may_still_be_acked() -> None:
    app, kept = make_app(ack="manual", drain_timeout="30s"), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        began = now()
        asyncio.get_running_loop().call_later(7, kept[0].ack)
        await app.stop()
        assert 7 <= now() - began < 7.2
        assert positions(test.broker) == [1]


@pytest.mark.parametrize("ack", ["manual", "post"])
@in_virtual_time
async def test_a_stop_that_waits_for_records_says_once_for_which_and_for_how_long(ack: str) -> None:
    recorder, goes_on = Recorder(), asyncio.Event()
    app, kept = (
        make_app(recorder, ack=ack, concurrency=2, drain_timeout="30s"),
        list[Message[bytes]](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset == 0:
            await message.ack()
            return
        kept.append(message)
        if ack == "post":
            await goes_on.wait()

    async with running(app, partitions=2) as test:
        for partition in (0, 1):
            await send(test, b"", b"", partition=partition)
        await until(lambda: len(kept) == 2)
        loop = asyncio.get_running_loop()
        loop.call_later(7, lambda: [goes_on.set(), *(message.ack() for message in kept)])
        await app.stop()
    (told,) = recorder.of(StopWaits)
    assert told.text() == (
        "stop: waits for 2 records without a verdict (orders-0 from offset 1 on, orders-1 from offset 1 on), "
        "for at most 29.0 s more"
    )
    assert recorder.of(HandlerAbandoned) == []


@in_virtual_time
async def test_a_stop_that_is_soon_over_says_nothing_of_waiting() -> None:
    recorder = Recorder()
    app, kept = make_app(recorder, ack="manual"), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        asyncio.get_running_loop().call_later(0.5, kept[0].ack)
        await app.stop()
    assert recorder.of(StopWaits) == []


@in_virtual_time
async def test_a_nack_while_stopping_is_an_end_to_the_waiting_too() -> None:
    app, kept = make_app(ack="manual", drain_timeout="30s"), list[Message[bytes]]()
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        began = now()
        asyncio.get_running_loop().call_later(7, kept[0].nack, ValueError("no"))
        await app.stop()
        assert 7 <= now() - began < 7.2
        assert test.broker.commits("billing") == ()


@in_virtual_time
async def test_without_draining_a_stop_waits_for_nothing() -> None:
    app = make_app(drain_timeout="30s")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(100)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).partitions[0].in_flight)
        began = now()
        await app.stop(drain=False)
        assert now() - began < 0.1


@in_virtual_time
async def test_without_draining_a_channel_that_has_failed_is_not_waited_for_either() -> None:
    app = make_app(drain_timeout="30s", concurrency=2)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 1:
            raise ValueError("no")
        await asyncio.sleep(100)

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: facts(test).state == "failed")
        began = now()
        await app.stop(drain=False)
        assert now() - began < 0.1


@in_virtual_time
async def test_a_stop_of_a_failed_channel_keeps_to_the_deadline_of_its_failure() -> None:
    app = make_app(drain_timeout="30s", concurrency=2)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 1:
            raise ValueError("no")
        await asyncio.sleep(100)

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: facts(test).state == "failed")
        began = now()
        await app.stop()
        assert now() - began < 31


@in_virtual_time
async def test_a_commit_that_is_not_answered_holds_up_the_end_for_its_deadline_only() -> None:
    app = make_app(commit_interval="100s")
    take_all(app)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).partitions[0].position == 1)
        test.broker.hold("commit")
        began = now()
        await app.stop()
        assert now() - began < 12


# -- hooks


@pytest.mark.parametrize("failure_strategy", ["fail", "delayed-retry-topic"])
@in_virtual_time
async def test_a_stop_in_an_outage_leaves_a_process_time_to_close_its_dependencies(
    failure_strategy: str,
) -> None:
    """Outputs, copies and positions wait for the broker, each for its own time."""
    retries = {"delayed_retry": {"topics": ["orders_retry_1000"]}}
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": failure_strategy,
                    **(retries if failure_strategy != "fail" else {}),
                    "drain_timeout": "20s",
                }
            },
            "outgoing": {"invoices": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        await asyncio.sleep(0.1)
        if message.offset == 1 and failure_strategy != "fail":
            raise ValueError("no order")
        return b""

    async with running(app, partitions=2) as test:
        for partition in (0, 1):
            await send(test, *[b""] * 20, partition=partition)
        await asyncio.sleep(0.5)
        test.broker.down = True
        await asyncio.sleep(75)
        began = now()
        await app.stop()
        assert 30 <= now() - began <= 20 + CLOSING_S - 2
        test.broker.down = False


@in_virtual_time
async def test_before_stop_runs_when_handlers_have_ended_and_acks_in_it_count() -> None:
    story, kept = [], list[Message[bytes]]()
    app = make_app(ack="manual", drain_timeout="30s", commit_interval="100s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        await asyncio.sleep(3)
        story.append("handler has ended")

    @app.before_stop
    async def flush() -> None:
        story.append("before stop")
        assert app.channel("orders").assignment == {tp()}
        assert await kept[0].ack()

    @app.on_revoked("orders")
    async def revoked(partitions: Any) -> None:
        story.append("revoked")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        began = now()
        await app.stop()
        assert now() - began < 4
        assert positions(test.broker) == [1]
    assert story == ["handler has ended", "before stop", "revoked"]


@in_virtual_time
async def test_a_hook_that_raises_or_never_ends_holds_up_no_stop() -> None:
    recorder = Recorder()
    app = make_app(recorder, drain_timeout="5s")
    take_all(app)

    @app.before_stop
    async def raises() -> None:
        raise ValueError("no")

    @app.before_stop
    async def hangs() -> None:
        await asyncio.Event().wait()

    async with running(app):
        began = now()
        await app.stop()
        assert now() - began < 6
    assert [event.hook for event in recorder.of(HookFailed)] == ["before_stop", "before_stop"]


# -- starting and stopping, again


async def test_a_stop_before_a_start_and_a_second_stop_do_nothing() -> None:
    """Row D13 of the faults."""
    app = make_app()
    await app.stop()
    async with running(app):
        await asyncio.gather(app.stop(), app.stop())
        await app.stop()


async def test_an_application_can_be_run_again() -> None:
    app, seen, broker = make_app(), list[bytes](), make_broker()
    note_values(app, seen)

    for value in (b"first", b"second"):
        async with running(app, broker=broker) as test:
            await send(test, value)
            await test.settled()
    assert seen == [b"first", b"second"]


async def test_a_running_application_cannot_be_started_again() -> None:
    app = make_app()
    async with running(app):
        with pytest.raises(RuntimeError, match="is running"):
            await app.start()


async def test_channels_are_only_there_while_the_application_runs() -> None:
    app = make_app()
    with pytest.raises(ChannelClosedError, match="is not running"):
        app.channel("orders")
    async with running(app):
        with pytest.raises(
            ConfigError, match=r"no \[incoming.oders\] is configured .*; did you mean 'orders'\?"
        ):
            app.channel("oders")


@in_virtual_time
async def test_no_task_is_left_after_a_stop() -> None:
    app = make_app(concurrency=3)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        await asyncio.sleep(1)
        return value

    async with running(app, partitions=3) as test:
        for partition in range(3):
            await send(test, b"", b"", partition=partition)
        await test.settled()
    assert await tasks_left() == set()


async def test_no_handler_runs_after_a_stop() -> None:
    app, calls = make_app(concurrency=4, drain_timeout="20ms"), list[float]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(now())
        await asyncio.sleep(0.01)

    async with running(app, partitions=4) as test:
        for partition in range(4):
            await send(test, *[b""] * 20, partition=partition)
        await until(lambda: calls)
        await app.stop()
        before = len(calls)
        await asyncio.sleep(0.05)
        assert len(calls) == before


@pytest.mark.parametrize(
    ("where", "error"),
    [("configuration", ConfigError), ("hook", LookupError), ("client", ZeroDivisionError)],
)
async def test_a_start_that_fails_raises_why_and_leaves_nothing_behind(
    where: str, error: type[Exception]
) -> None:
    """Row D13 of the faults."""
    app, broker = (
        make_app(max_in_flight="many" if where == "configuration" else 1000),
        make_broker(),
    )
    app._connector = BrokenConnector(broker) if where == "client" else broker.connector()
    app._overrides = {"http": {"port": 0}}

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> None: ...

    @app.on_start
    async def hook() -> None:
        if where == "hook":
            raise LookupError("no database")

    with pytest.raises(error):
        await app.start()
    assert await tasks_left() == set()
    assert app.http is None
    await app.stop()


class BrokenConnector:
    """Makes no producer, and cannot be closed."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._connector = broker.connector()
        self.is_broken = True

    def consumer(self, **named: Any) -> Any:
        return self._connector.consumer(**named)

    def producer(self, **named: Any) -> Any:
        if self.is_broken:
            raise ZeroDivisionError("a bug")
        return self._connector.producer(**named)

    async def close(self) -> None:
        if self.is_broken:
            raise ZeroDivisionError("a bug")


async def test_an_application_that_has_crashed_says_why_when_it_is_stopped_and_can_be_started_again() -> (
    None
):
    app, broker, seen = make_app(), make_broker(), list[bytes]()
    note_values(app, seen)

    connector = BrokenConnector(broker)
    app._connector = connector
    app.configure(overrides={"http": {"enabled": False}})
    await app.start()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await app.stop()
    assert await tasks_left() == set()
    connector.is_broken = False
    broker.produce("orders", b"one")
    async with app:
        await until(lambda: seen)
    await broker.close()


async def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    """Row D13 of the faults."""
    app = make_app()

    @app.on_start
    async def hook() -> None:
        await asyncio.Event().wait()

    app.configure(overrides={"http": {"enabled": False}})
    starting = asyncio.ensure_future(app.start())
    await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await tasks_left() == set()


@in_virtual_time
@pytest.mark.parametrize(("drain", "took_s"), [(True, 12.0), (False, 0.0)])
async def test_a_stop_cuts_off_a_start_hook_that_never_ends(drain: bool, took_s: float) -> None:
    app = make_app(drain_timeout="12s")
    cleaned_up = list[float]()

    @app.on_start
    async def hook() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(0.5)
            cleaned_up.append(now())

    app.configure(overrides={"http": {"enabled": False}})
    starting = asyncio.ensure_future(app.start())
    await asyncio.sleep(1)
    began = now()
    # The second call does not put the end off.
    await asyncio.gather(app.stop(drain=drain), stop_later(app))
    await starting
    assert cleaned_up == [pytest.approx(began + took_s + 0.5, abs=0.01)]
    assert await tasks_left() == set()
    assert not app.facts().started


async def stop_later(app: App) -> None:
    await asyncio.sleep(0.1)
    await app.stop()


@in_virtual_time
async def test_a_start_that_ends_in_time_is_stopped_in_order() -> None:
    app = make_app(drain_timeout="12s")
    seen = list[str]()

    @app.on_start
    async def hook() -> None:
        await asyncio.sleep(10)
        seen.append("opened")

    @app.before_stop
    async def close() -> None:
        seen.append("closed")

    app._connector = make_broker().connector()
    app.configure(overrides={"http": {"enabled": False}})
    starting = asyncio.ensure_future(app.start())
    await asyncio.sleep(1)
    await app.stop()
    await starting
    assert seen == ["opened", "closed"]


@in_virtual_time
async def test_a_dependency_that_is_never_made_does_not_hold_up_a_stop() -> None:
    app = make_app(drain_timeout="12s")

    async def pool() -> int:
        await asyncio.sleep(3_600)
        return 1

    @app.incoming("orders")
    async def handle(value: bytes, pool: Annotated[int, Depends(pool, scope="app")]) -> None: ...

    app._connector = make_broker().connector()
    app.configure(overrides={"http": {"enabled": False}})
    starting = asyncio.ensure_future(app.start())
    await asyncio.sleep(1)
    began = now()
    await app.stop()
    await starting
    assert now() - began == pytest.approx(12, abs=0.1)
    assert await tasks_left() == set()


def open_now() -> tuple[set[str], int]:
    """The names of the threads outside of the loop's own pool, and how many descriptors there
    are.
    """
    threads = {one.name for one in threading.enumerate() if not one.name.startswith("asyncio_")}
    return threads, len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("end", ["cancel", "stop"])
async def test_a_hundred_starts_that_end_half_way_leave_no_task_thread_or_descriptor(
    end: str,
) -> None:
    """Row D13 of the faults: they end at each of the steps that a start takes."""
    broker, half_way, reached = make_broker(), 0, 0
    before: tuple[set[str], int] | None = None
    for number in range(100):
        # A start takes a dozen: some are over by then.
        steps = number % 16
        app = make_app()
        app._connector = broker.connector()
        app._overrides = {"http": {"port": 0}}

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(value: bytes) -> bytes:
            return value

        starting = asyncio.ensure_future(app.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        if number % 10 == 9:
            await starting
        half_way += not starting.done()
        reached += app.http is not None
        if end == "cancel":
            starting.cancel()
        else:
            await app.stop()
        await asyncio.wait([starting], timeout=5)
        assert starting.done()
        assert starting.cancelled() or starting.exception() is None or end == "stop"
        await app.stop()
        assert await tasks_left() == set(), steps
        # What the loop itself opens is there by then.
        if number == 20:
            before = open_now()
    assert before is not None
    assert open_now() == before
    assert half_way > 30
    assert reached, "the HTTP server was never listening"
    await broker.close()


def test_an_application_can_be_run_on_one_loop_after_another() -> None:
    app, seen = make_app(), list[bytes]()
    note_values(app, seen)

    async def once() -> None:
        async with running(app) as test:
            await send(test, b"")
            await test.settled()

    asyncio.run(once())
    asyncio.run(once())
    assert len(seen) == 2


def test_an_application_whose_event_loop_has_ended_without_a_stop_can_be_stopped_and_run_again() -> (
    None
):
    app, seen = make_app(), list[bytes]()
    note_values(app, seen)
    app.configure(overrides={"http": {"enabled": False}})

    async def start() -> None:
        app._connector = make_broker().connector()
        await app.start()
        with pytest.raises(RuntimeError, match="the application is running"):
            await app.start()

    async def stop() -> None:
        await app.stop()
        assert not app.facts().started

    async def run() -> None:
        async with running(app) as test:
            await send(test, b"")
            await test.settled()

    # asyncio.run() cancels what still runs at its end.
    asyncio.run(start())
    asyncio.run(start())
    asyncio.run(stop())
    asyncio.run(start())
    asyncio.run(run())
    assert len(seen) == 1


async def test_an_application_whose_event_loop_was_closed_can_be_stopped_and_started() -> None:
    app = App({"http": {"enabled": False}})
    closed = asyncio.new_event_loop()
    await asyncio.to_thread(closed.run_until_complete, app.start())
    with pytest.raises(RuntimeError, match="the application is running"):
        await app.start()
    closed.close()
    await app.stop()
    async with app:
        assert app.facts().started


@in_virtual_time
async def test_a_stop_waits_for_the_dead_letter_of_a_nack_that_no_handler_waits_for() -> None:
    app = make_app(failure_strategy="dead-letter-queue", drain_timeout="20s")

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        message.nack(ValueError("no"))

    async with running(app) as test:
        hold = test.broker.hold("send", answer=True)
        await send(test, b"")
        await until(lambda: test.records("dead-letter-topic-orders"))
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.sleep(2)
        assert not stopping.done()
        hold.release()
        began = now()
        await stopping
        assert now() - began < 0.5
        assert committed(test) == 1
        assert len(test.records("dead-letter-topic-orders")) == 1


@in_virtual_time
async def test_no_handler_is_called_during_a_stop_in_which_the_partition_comes_straight_back() -> (
    None
):
    app, seen, go_on = (
        make_app(revoke_grace="1s", drain_timeout="30s"),
        list[int](),
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await go_on.wait()

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: seen)
        stopping = asyncio.ensure_future(test.app.stop())
        await settle_down()
        test.broker.rebalance("billing")
        await until(lambda: facts(test).rebalances["assigned"] == 2)
        await asyncio.sleep(1)
        go_on.set()
        await stopping
        assert committed(test) == 1
    assert seen == [0]
