"""Skipping one record by hand, wherever it is: waiting, at a handler, or not there yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import App, Batch, Message, SkipRefusedError
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.events import ChannelFailed
from tests.app.checkpoints import Rows, app_on, row
from tests.app.handlers import note_values
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    positions,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.app.test_exactly_once import app_with as exactly_once_app
from tests.app.test_exactly_once import values as outputs


class Handling:
    """An application whose handler notes each value, and never ends for those that are stuck."""

    def __init__(self, *stuck: bytes, **orders: Any) -> None:
        self.began: list[bytes] = []
        self.done: list[bytes] = []
        self.go_on = asyncio.Event()
        self.app: App = make_app(None, commit_interval="100ms", **orders)

        @self.app.incoming("orders")
        async def handler(value: bytes) -> None:
            self.began.append(value)
            if value in stuck:
                await self.go_on.wait()
            self.done.append(value)

    @property
    def channel(self) -> Any:
        return self.app.channel("orders")


@in_virtual_time
async def test_the_handler_of_a_skipped_record_is_cancelled_and_the_next_one_runs() -> None:
    handling = Handling(b"1")
    async with running(handling.app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: b"1" in handling.began)
        assert handling.channel.skip(tp(), 1) == "skipped"
        await until(lambda: committed(test) == 3)
        assert handling.done == [b"0", b"2"]
        assert handling.channel.skip(tp(), 1) == "settled"
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped) == (2, {"operator": 1})


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_a_record_that_waits_is_never_handled(ordering: str) -> None:
    handling = Handling(b"0", ordering=ordering)
    async with running(handling.app) as test:
        await send(test, b"0", b"1", b"2", b"3")
        await until(lambda: facts(test).partitions[0].queued == 3)
        assert handling.channel.skip(tp(), 2) == "skipped"
        assert facts(test).partitions[0].queued == 2
        await asyncio.sleep(1)
        assert committed(test) in (None, 0), "the position must not pass the first record"
        handling.go_on.set()
        await until(lambda: committed(test) == 4)
        assert handling.done == [b"0", b"1", b"3"]


@in_virtual_time
async def test_a_record_that_waits_for_its_key_is_never_handled() -> None:
    handling = Handling(b"0", ordering="key", concurrency=4)
    async with running(handling.app) as test:
        for value in (b"0", b"1", b"2"):
            await test.send("orders", value, key="same", partition=0)
        await test.send("orders", b"3", key="other", partition=0)
        await until(lambda: handling.done == [b"3"])
        assert handling.channel.skip(tp(), 1) == "skipped"
        handling.go_on.set()
        await until(lambda: committed(test) == 4)
        assert handling.done == [b"3", b"0", b"2"]


@in_virtual_time
async def test_the_only_record_that_waits_for_its_key_may_be_skipped() -> None:
    handling = Handling(b"0", ordering="key", concurrency=4)
    async with running(handling.app) as test:
        for value in (b"0", b"1"):
            await test.send("orders", value, key="same", partition=0)
        await test.send("orders", b"2", key="other", partition=0)
        await until(lambda: handling.done == [b"2"])
        assert handling.channel.skip(tp(), 1) == "skipped"
        handling.go_on.set()
        await until(lambda: committed(test) == 3)
        await test.send("orders", b"3", key="same", partition=0)
        await until(lambda: committed(test) == 4)
        assert handling.done == [b"2", b"0", b"3"]


@in_virtual_time
async def test_a_channel_that_has_failed_for_a_record_continues_behind_it() -> None:
    app = make_app(None, commit_interval="100ms")
    seen: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"bad":
            raise ValueError
        seen.append(value)

    async with running(app) as test:
        await send(test, b"0", b"bad", b"2")
        await until(lambda: facts(test).state == "failed")
        channel = app.channel("orders")
        await until(lambda: not channel.assignment)
        assert channel.skip(tp(), 1) == "waiting"
        assert channel.skip(tp(), 1) == "waiting", "again"
        await channel.restart()
        await until(lambda: committed(test) == 3)
        assert seen == [b"0", b"2"]
        assert facts(test).totals[tp()].skipped == {"operator": 1}


@in_virtual_time
async def test_a_record_stays_skipped_if_the_channel_fails_before_its_position_is_committed() -> (
    None
):
    recorder = Recorder()
    app = make_app(recorder, commit_interval="100ms", ordering="unordered", concurrency=4)
    seen: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)
        if value.startswith(b"bad"):
            raise ValueError

    async with running(app) as test:
        await send(test, b"bad 0", b"1", b"bad 2", b"3")
        channel = app.channel("orders")
        for failures, offset in ((1, 2), (2, 0)):
            await until(lambda: len(recorder.of(ChannelFailed)) == failures)  # noqa: B023
            await until(lambda: not channel.assignment)
            assert channel.skip(tp(), offset) == "waiting"
            seen.clear()
            await channel.restart()
        await until(lambda: committed(test) == 4)
        assert sorted(seen) == [b"1", b"3"]


@in_virtual_time
async def test_a_record_that_was_skipped_while_it_was_handled_is_skipped_if_it_comes_again() -> (
    None
):
    handling = Handling(b"0", b"1", ordering="unordered", concurrency=3)
    async with running(handling.app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: handling.done == [b"2"])
        assert handling.channel.skip(tp(), 1) == "skipped"
        await handling.channel.stop()
        assert committed(test) in (None, 0)
        handling.go_on.set()
        handling.began.clear()
        await handling.channel.start()
        await until(lambda: committed(test) == 3)
        assert sorted(handling.began) == [b"0", b"2"]


@in_virtual_time
async def test_a_record_of_a_recreated_topic_is_not_skipped_for_one_of_the_old_topic() -> None:
    app = make_app(None, commit_interval="100ms")
    seen: list[bytes] = []
    note_values(app, seen)
    broker = make_broker()
    async with running(app, broker=broker) as test:
        await send(test, b"old", b"old")
        await until(lambda: committed(test) == 2)
        assert app.channel("orders").skip(tp(), 2) == "waiting"
        broker.delete_topic("orders")
        broker.create_topic("orders", 1)
        await send(test, b"0")
        await until(lambda: committed(test) == 1)
        await send(test, b"1", b"2")
        await until(lambda: committed(test) == 3)
        assert seen == [b"old", b"old", b"0", b"1", b"2"]
    await broker.close()


@in_virtual_time
async def test_a_record_written_after_the_log_was_cut_off_is_not_skipped_for_the_one_before() -> (
    None
):
    handling = Handling(b"0", b"1", ordering="unordered", concurrency=3)
    async with running(handling.app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: handling.done == [b"2"])
        assert handling.channel.skip(tp(), 1) == "skipped"
        test.broker.truncate(tp(), 1)
        handling.go_on.set()
        await until(lambda: handling.began.count(b"0") == 2)
        await send(test, b"new")
        await until(lambda: committed(test) == 2)
        assert handling.done[-1] == b"new"


@in_virtual_time
async def test_poison_that_is_skipped_is_poison_no_more() -> None:
    handling = Handling(
        b"0", on_poison="pause-partition", unprocessed_record_max_age="2s", ordering="partition"
    )
    async with running(handling.app) as test:
        await send(test, b"0", b"1")
        await until(lambda: facts(test).poison)
        assert not handling.app.health().ready.is_up
        handling.channel.skip(tp(), 0)
        await until(lambda: not facts(test).poison)
        await until(lambda: handling.app.health().ready.is_up)
        await until(lambda: committed(test) == 2)
        assert handling.done == [b"1"]


@in_virtual_time
async def test_a_record_between_two_attempts_is_skipped() -> None:
    app = make_app(
        None,
        commit_interval="100ms",
        retry={"max_attempts": 9, "backoff": "1h", "max_backoff": "1h"},
    )
    calls: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(value)
        if value == b"bad":
            raise ValueError

    async with running(app) as test:
        await send(test, b"bad", b"1")
        await until(lambda: calls == [b"bad"])
        await settle_down()
        app.channel("orders").skip(tp(), 0)
        await until(lambda: committed(test) == 2)
        assert calls == [b"bad", b"1"]


@in_virtual_time
async def test_a_batch_goes_on_and_the_others_are_acked_with_it() -> None:
    app = make_app(None, commit_interval="100ms", batch_max_records=3, batch_max_wait="1s")
    go_on = asyncio.Event()
    batches: list[list[bytes]] = []

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batches.append(list(batch.payloads))
        await go_on.wait()

    async with running(app) as test:
        await send(test, b"0", b"1", b"2", b"3", b"4")
        await until(lambda: batches)
        assert app.channel("orders").skip(tp(), 1) == "skipped"
        assert app.channel("orders").skip(tp(), 4) == "skipped"
        go_on.set()
        await until(lambda: committed(test) == 5)
        assert batches == [[b"0", b"1", b"2"], [b"3"]]
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped) == (3, {"operator": 2})


@in_virtual_time
async def test_an_application_that_iterates_does_not_get_a_skipped_record() -> None:
    app = make_app(None, commit_interval="100ms")
    got: list[bytes] = []
    first: asyncio.Future[Message[Any]] = asyncio.get_running_loop().create_future()
    go_on = asyncio.Event()

    async with running(app) as test:

        async def iterate() -> None:
            async for message in app.channel("orders"):
                got.append(message.record.value or b"")
                if not first.done():
                    first.set_result(message)
                    await go_on.wait()
                else:
                    message.ack()

        task = asyncio.create_task(iterate())
        await until(lambda: app.channel("orders").is_ready)
        await send(test, b"0", b"1", b"2")
        held = await first
        channel = app.channel("orders")
        await until(lambda: facts(test).partitions[0].queued == 2)
        assert channel.skip(tp(), 1) == "skipped"
        assert channel.skip(tp(), 0) == "skipped", "the application has it"
        assert await held.ack() is False
        go_on.set()
        await until(lambda: committed(test) == 3)
        assert got == [b"0", b"2"]
        task.cancel()


@in_virtual_time
async def test_with_the_latest_strategy_a_skip_is_committed_at_once() -> None:
    handling = Handling(b"0", commit_strategy="latest")
    async with running(handling.app) as test:
        await send(test, b"0")
        await until(lambda: handling.began)
        handling.channel.skip(tp(), 0)
        await until(lambda: committed(test) == 1)
        assert handling.done == []


@in_virtual_time
async def test_a_seek_forgets_what_waits_to_be_skipped() -> None:
    handling = Handling()
    async with running(handling.app) as test:
        assert handling.channel.skip(tp(), 1) == "waiting"
        await handling.channel.seek(tp(), 0)
        await send(test, b"0", b"1")
        await until(lambda: committed(test) == 2)
        assert handling.done == [b"0", b"1"]


@in_virtual_time
async def test_what_cannot_be_skipped_is_refused() -> None:
    app = make_app(
        None, failure_strategy="dead-letter-queue", dead_letter_queue={"topic": "letters"}
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError

    broker = make_broker(1)
    async with running(app, broker=broker) as test:
        channel = app.channel("orders")
        with pytest.raises(NotOwnerError, match="orders-9 is not ours"):
            channel.skip(tp(9), 0)
        with pytest.raises(SkipRefusedError, match="does not read the topic others"):
            channel.skip(("others", 0), 0)
        with pytest.raises(ValueError, match="they begin at 0"):
            channel.skip(tp(), -1)
        with pytest.raises(TypeError, match="a whole number"):
            channel.skip(tp(), True)
        for offset in range(1000):
            assert channel.skip(tp(), 100 + offset) == "waiting"
        with pytest.raises(SkipRefusedError, match="1000 records of channel 'orders' wait"):
            channel.skip(tp(), 5000)
        assert channel.skip(tp(), 100) == "waiting", "that one waits already"
        await send(test, b"0")
        await until(lambda: committed(test) == 1)
        assert channel.skip(tp(), 0) == "settled"
    await broker.close()


@settings(max_examples=30, deadline=None)
@given(
    skips=st.lists(st.integers(0, 19), min_size=1, max_size=8),
    ordering=st.sampled_from(["partition", "key", "unordered"]),
    concurrency=st.sampled_from([1, 4]),
    paused=st.booleans(),
)
def test_whatever_is_skipped_all_others_are_handled_once(
    skips: list[int], ordering: str, concurrency: int, paused: bool
) -> None:
    """Skips come while records run, wait, and have not come."""

    @in_virtual_time
    async def play() -> None:
        app = make_app(None, commit_interval="100ms", ordering=ordering, concurrency=concurrency)
        handled: list[int] = []

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await asyncio.sleep(0.05)
            handled.append(message.offset)

        broker = make_broker(1)
        async with running(app, broker=broker) as test:
            channel = app.channel("orders")
            if paused:
                channel.pause()
            skipped: set[int] = set()
            for number in range(20):
                await test.send("orders", b"%d" % number, key=str(number % 3), partition=0)
                if number % 3 == 0 and skips:
                    offset = skips.pop()
                    if channel.skip(tp(), offset) != "settled":
                        skipped.add(offset)
                    await asyncio.sleep(0.02)
            channel.resume()
            await until(lambda: committed(test) == 20)
            assert sorted(handled) == [one for one in range(20) if one not in skipped]
            found = positions(broker)
            assert found == sorted(found)
        await broker.close()

    play()


@in_virtual_time
async def test_with_a_store_the_position_behind_a_skipped_record_is_stored() -> None:
    rows = Rows()
    app = app_on(rows)
    handled: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"1":
            await asyncio.Event().wait()
        handled.append(value)

    async with running(app) as test:
        await send(test, b"0", b"1", b"2", b"3")
        await until(lambda: handled == [b"0"])
        channel = app.channel("orders")
        assert channel.skip(tp(), 2) == "skipped"
        assert channel.skip(tp(), 1) == "skipped"
        await until(lambda: handled == [b"0", b"3"])
        await asyncio.sleep(2)
        assert row(rows).position == 4


@in_virtual_time
async def test_the_open_transaction_of_a_skipped_record_stores_nothing() -> None:
    rows = Rows()
    app = app_on(rows)
    began = asyncio.Event()
    ended: list[str] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        async with message.transaction():
            began.set()
            await asyncio.Event().wait()
        ended.append("stored")

    async with running(app) as test:
        await send(test, b"0")
        await began.wait()
        assert app.channel("orders").skip(tp(), 0) == "skipped"
        await asyncio.sleep(2)
        assert row(rows).position == 1, "the position is behind it, by the skip"
        assert ended == []
        assert facts(test).totals[tp()].skipped == {"operator": 1}


@in_virtual_time
async def test_exactly_once_a_skipped_record_leaves_no_output() -> None:
    app = exactly_once_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        if value == b"1":
            await asyncio.Event().wait()
        return value

    async with running(app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: outputs(test.broker) == [b"0"])
        assert app.channel("orders").skip(tp(), 1) == "skipped"
        await until(lambda: outputs(test.broker) == [b"0", b"2"])
        await until(lambda: committed(test) == 3)


@in_virtual_time
async def test_a_broadcast_is_skipped_for_all_of_its_handlers() -> None:
    app = make_app(None, commit_interval="100ms", broadcast=True)
    handled: list[tuple[str, bytes]] = []

    @app.incoming("orders")
    async def first(value: bytes) -> None:
        if value == b"1":
            await asyncio.Event().wait()
        handled.append(("first", value))

    @app.incoming("orders")
    async def second(value: bytes) -> None:
        handled.append(("second", value))

    async with running(app) as test:
        await send(test, b"0", b"1", b"2", b"3")
        await until(lambda: len(handled) >= 2)
        await settle_down()
        channel = app.channel("orders")
        assert channel.skip(tp(), 2) == "skipped"
        assert channel.skip(tp(), 1) == "skipped"
        await until(lambda: committed(test) == 4)
        assert ("first", b"1") not in handled
        assert not [one for one in handled if one[1] == b"2"]
        assert {one for one in handled if one[1] == b"3"} == {("first", b"3"), ("second", b"3")}
