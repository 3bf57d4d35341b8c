"""Pausing a channel: what stops, what goes on, for how long, and whose pause it is."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, TopicPartition
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.events import ChannelPaused
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.app.spark_stage import WAITS, spark_app

LONG_S = 20.0


class Handling:
    """An application whose handler notes each offset, and holds the record *stop_at* until it may
    go on.
    """

    def __init__(
        self, stop_at: int = -1, *, recorder: Recorder | None = None, **orders: Any
    ) -> None:
        self.seen: list[int] = []
        self.go_on = asyncio.Event()
        self.app = make_app(recorder, **{"commit_interval": "100ms", **orders})

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.seen.append(message.offset)
            if message.offset == stop_at:
                await self.go_on.wait()

    @property
    def channel(self) -> Any:
        return self.app.channel("orders")


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_the_running_handler_goes_on_and_nothing_that_waits_is_handled(ordering: str) -> None:
    handling = Handling(1, ordering=ordering)
    async with running(handling.app) as test:
        await send(test, *[b""] * 6)
        await until(lambda: handling.seen == [0, 1] and facts(test).partitions[0].queued == 4)
        handling.channel.pause()
        handling.go_on.set()
        # Commits go on.
        await until(lambda: committed(test) == 2)
        await asyncio.sleep(LONG_S)
        assert handling.seen == [0, 1]

        handling.channel.resume()
        await test.settled()
    assert handling.seen == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_a_handler_that_pauses_its_own_channel_is_the_last_one_called(ordering: str) -> None:
    app, seen = make_app(ordering=ordering), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) == 2:
            app.channel("orders").pause()

    broker = make_broker(1)
    for key in (b"a", b"a", b"a", b"b", b"c"):
        broker.produce("orders", b"", key=key, partition=0)
    async with running(app, broker=broker) as test:
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(LONG_S)
        assert len(seen) == 2
        app.channel("orders").resume()
        await test.settled()
    assert sorted(seen) == [0, 1, 2, 3, 4]


@in_virtual_time
async def test_nothing_is_fetched_and_what_comes_meanwhile_is_handled_after_it() -> None:
    handling = Handling()
    async with running(handling.app) as test:
        await send(test, b"")
        await test.settled()
        handling.channel.pause()
        # A poll that was on its way may still bring something, which would wait.
        await settle_down()
        await send(test, b"", b"")
        await asyncio.sleep(LONG_S)
        [partition] = facts(test).partitions
        assert (partition.position, partition.queued, partition.paused, partition.lag) == (
            1,
            0,
            True,
            2,
        )

        handling.channel.resume()
        await test.settled()
        assert not facts(test).partitions[0].paused
    assert handling.seen == [0, 1, 2]


@in_virtual_time
async def test_a_paused_channel_says_why_and_is_ready() -> None:
    recorder = Recorder()
    handling = Handling(recorder=recorder)
    async with running(handling.app) as test:
        assert (facts(test).state, facts(test).paused_by, handling.channel.paused) == (
            "running",
            (),
            False,
        )
        handling.channel.pause("the bank is closed")
        assert (facts(test).state, facts(test).paused_by) == ("paused", ("the bank is closed",))
        assert handling.channel.paused
        assert handling.channel.is_ready
        health = test.app.health()
        assert (health.status, health.ready.status, health.live.status) == ("UP", "UP", "UP")
        [check] = [check for check in health.checks if check.name == "orders"]
        assert (check.data["state"], check.data["paused_by"]) == ("paused", ["the bank is closed"])
        assert [partition["paused"] for partition in check.data["partitions"]] == [True]
        handling.channel.resume("the bank is closed")
    told = [event.text() for event in recorder.of(ChannelPaused)]
    assert told == ["paused: the bank is closed", "resumed"]


@in_virtual_time
async def test_a_paused_channel_whose_commits_fail_is_not_ready() -> None:
    handling = Handling(0)
    async with running(handling.app) as test:
        await send(test, b"")
        await until(lambda: handling.seen == [0])
        handling.channel.pause()
        test.broker.fail_next("commit", TransientBrokerError("no disk"), times=5)
        handling.go_on.set()
        await until(lambda: test.app.health().ready.status == "DOWN")
        assert "no disk" in str(facts(test).not_ready)
        await until(lambda: committed(test) == 1)
        assert test.app.health().ready.status == "UP"


@in_virtual_time
async def test_it_flows_again_when_each_reason_is_gone_and_a_reason_counts_once() -> None:
    recorder = Recorder()
    handling = Handling(recorder=recorder)
    async with running(handling.app) as test:
        channel = handling.channel
        channel.pause("one")
        channel.pause("two")
        channel.pause("one")
        await send(test, b"")
        channel.resume("never given")
        channel.resume("one")
        await asyncio.sleep(LONG_S)
        assert (channel.paused, facts(test).paused_by, handling.seen) == (True, ("two",), [])

        channel.resume("two")
        channel.resume("two")
        assert not channel.paused
        await test.settled()
    assert handling.seen == [0]
    assert [event.reasons for event in recorder.of(ChannelPaused)] == [
        ("one",),
        ("one", "two"),
        ("two",),
        (),
    ]


@in_virtual_time
async def test_a_pause_outlives_rebalances_straight_back_and_by_way_of_another_member() -> None:
    handling, other = Handling(0), Handling()
    broker = make_broker(1)
    async with running(handling.app, broker=broker) as test:
        await send(test, *[b""] * 3)
        await until(lambda: handling.seen == [0] and facts(test).partitions[0].queued == 2)
        handling.channel.pause()
        handling.go_on.set()
        await rebalanced(test)
        await asyncio.sleep(LONG_S)
        assert handling.seen == [0]

        # The group rebalances again, and there is a partition that was never ours.
        broker.create_topic("orders", 2)
        await until(lambda: len(facts(test).partitions) == 2)
        await send(test, b"", partition=1)
        await asyncio.sleep(LONG_S)
        assert handling.seen == [0]

        async with running(other.app, broker=broker):
            await until(
                lambda: len(facts(test).partitions) == 1 and test.app.channel("orders").is_ready
            )
        await until(
            lambda: len(facts(test).partitions) == 2 and test.app.channel("orders").is_ready
        )
        await asyncio.sleep(LONG_S)
        assert handling.seen == [0]
        assert other.seen, "the other member had no pause"

        handling.channel.resume()
        await test.settled()
    assert Counter([*handling.seen, *other.seen]) == Counter([0, 1, 2, 0])


@in_virtual_time
async def test_a_pause_outlives_a_restart_of_the_channel() -> None:
    handling = Handling()
    async with running(handling.app) as test:
        handling.channel.pause()
        inside(handling.app).fail(ValueError("no"))
        await until(lambda: facts(test).state == "failed")
        await handling.channel.restart()
        await send(test, b"")
        await until(lambda: handling.channel.is_ready)
        await asyncio.sleep(LONG_S)
        assert (facts(test).state, handling.seen) == ("paused", [])
        handling.channel.resume()
        await test.settled()
    assert handling.seen == [0]


@in_virtual_time
async def test_a_channel_may_be_paused_before_it_has_joined() -> None:
    handling = Handling()

    @handling.app.on_assigned("orders")
    async def closed(partitions: frozenset[TopicPartition]) -> None:
        handling.channel.pause("closed")

    broker = make_broker(1)
    broker.produce("orders", b"", partition=0)
    async with running(handling.app, broker=broker) as test:
        await asyncio.sleep(LONG_S)
        assert handling.seen == []
        handling.channel.resume("closed")
        await test.settled()
    assert handling.seen == [0]


@in_virtual_time
async def test_who_iterates_waits() -> None:
    app, taken = make_app(value_deserializer="bytes"), list[int]()

    async def iterate() -> None:
        async for message in app.channel("orders"):
            taken.append(message.offset)
            await message.ack()
            if message.offset == 0:
                app.channel("orders").pause()

    async with running(app) as test:
        # It has not even started.
        app.channel("orders").pause()
        task = asyncio.create_task(iterate())
        await until(lambda: app.channel("orders").is_ready)
        await send(test, b"", b"", b"")
        await asyncio.sleep(LONG_S)
        assert taken == []
        app.channel("orders").resume()
        await until(lambda: taken == [0])
        await asyncio.sleep(LONG_S)
        assert taken == [0]
        app.channel("orders").resume()
        await until(lambda: taken == [0, 1, 2])
    await task


@in_virtual_time
async def test_the_stop_of_a_paused_channel_drains_what_runs_and_commits_it() -> None:
    handling = Handling(1)
    broker = make_broker(1)
    async with running(handling.app, broker=broker) as test:
        await send(test, *[b""] * 4)
        await until(lambda: handling.seen == [0, 1] and facts(test).partitions[0].queued == 2)
        handling.channel.pause()
        asyncio.get_running_loop().call_later(3, handling.go_on.set)
        began = asyncio.get_running_loop().time()
        await test.app.stop()
        assert 3 <= asyncio.get_running_loop().time() - began < 4
    assert handling.seen == [0, 1]
    assert {place: at.offset for place, at in broker.committed("billing").items()} == {tp(): 2}


@in_virtual_time
async def test_only_some_partitions_may_be_paused() -> None:
    recorder = Recorder()
    app, seen = make_app(recorder, commit_interval="100ms"), Counter[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen[message.partition] += 1

    async with running(app, partitions=2) as test:
        channel = app.channel("orders")
        channel.pause("skewed", partitions=[("orders", 1), ("orders", 7)])
        await send(test, b"", b"", partition=0)
        await send(test, b"", b"", partition=1)
        await until(lambda: committed(test, 0) == 2)
        await asyncio.sleep(LONG_S)
        assert seen == {0: 2}
        assert [partition.paused for partition in facts(test).partitions] == [False, True]
        assert (channel.paused, facts(test).state, facts(test).paused_by) == (False, "running", ())

        # Which was not paused.
        channel.resume("skewed", partitions=[tp(0)])
        await asyncio.sleep(LONG_S)
        assert seen == {0: 2}
        channel.resume("skewed", partitions=[tp(1)])
        await test.settled()
        assert seen == {0: 2, 1: 2}
        channel.resume("skewed", partitions=[tp(7)])
    told = [event.text() for event in recorder.of(ChannelPaused)]
    assert told == ["orders-1, orders-7 paused", "orders-7 paused", "resumed"]


@in_virtual_time
async def test_a_reason_taken_away_without_partitions_is_taken_away_from_partitions_too() -> None:
    app, seen = make_app(commit_interval="100ms"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.partition)

    async with running(app, partitions=2) as test:
        channel = app.channel("orders")
        channel.pause("closed", partitions=[("orders", 0), ("orders", 1)])
        channel.pause("skewed", partitions=[("orders", 1)])
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await asyncio.sleep(LONG_S)
        assert seen == []
        channel.resume("closed")
        await until(lambda: committed(test, 0) == 1)
        await asyncio.sleep(LONG_S)
        assert seen == [0], "the other has a reason left"
        channel.resume("skewed")
        await test.settled()
        assert seen == [0, 1]


@in_virtual_time
async def test_a_batch_channel_makes_no_batch_while_it_is_paused() -> None:
    app, sizes, go_on = (
        make_app(batch_max_records=2, batch_max_wait="1s"),
        list[int](),
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))
        await go_on.wait()

    async with running(app) as test:
        await send(test, *[b""] * 5)
        await until(lambda: sizes == [2] and facts(test).partitions[0].queued == 3)
        app.channel("orders").pause()
        go_on.set()
        await asyncio.sleep(LONG_S)
        assert sizes == [2]
        app.channel("orders").resume()
        await test.settled()
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_a_spark_channel_starts_no_job_while_it_is_paused_and_the_running_one_ends(
    mode: str,
) -> None:
    broker = make_broker()
    app, engine = spark_app(
        broker, commit_interval="100ms", spark={"mode": mode, "batch_max_records": 2}
    )
    engine.judge = lambda job: WAITS if job is engine.jobs[0] else None
    async with running(app, broker=broker) as test:
        await send(test, *range(5))
        await until(lambda: len(engine.jobs) == 1 and facts(test).partitions[0].queued == 3)
        app.channel("orders").pause()
        engine.jobs[0].end()
        await until(lambda: committed(test) == 2)
        await asyncio.sleep(LONG_S)
        assert len(engine.jobs) == 1
        app.channel("orders").resume()
        await until(lambda: committed(test) == 5)


@in_virtual_time
async def test_records_of_a_retry_topic_wait_as_well() -> None:
    app, attempts = (
        make_app(failure_strategy="delayed-retry-topic", delayed_retry={"topics": ["again_1000"]}),
        [0],
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            app.channel("orders").pause()
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(test.records("again_1000")) == 1)
        await asyncio.sleep(LONG_S)
        assert attempts == [1]
        app.channel("orders").resume()
        await until(lambda: attempts == [2])


async def test_a_handler_in_a_thread_pauses_its_own_channel() -> None:
    app, seen = make_app(), list[tuple[int, bool]]()
    ours = threading.get_ident()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        assert threading.get_ident() != ours
        app.channel("orders").pause("enough")
        seen.append((message.offset, app.channel("orders").paused))

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(
            lambda: (
                committed(test) is None and facts(test).state == "paused" and facts(test).partitions
            )
        )
        await until(lambda: facts(test).partitions[0].in_flight == 0)
        assert seen == [(0, True)]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"reason": ["orders"]}, TypeError, "a reason is a string"),
        ({"partitions": ["orders-0"]}, TypeError, "TopicPartition"),
        ({"partitions": [("orders", "0")]}, TypeError, "TopicPartition"),
        ({"partitions": [("orders", -1)]}, ValueError, "no such partition"),
    ],
)
@in_virtual_time
async def test_what_is_no_reason_or_partition_is_refused_and_pauses_nothing(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    handling = Handling()
    async with running(handling.app) as test:
        with pytest.raises(error, match=said):
            handling.channel.pause(**arguments)
        assert (facts(test).state, facts(test).partitions[0].paused) == ("running", False)


def test_a_channel_that_is_not_running_cannot_be_paused() -> None:
    with pytest.raises(Exception, match="not running"):
        App({"incoming": {"orders": {"group_id": "billing"}}}).channel("orders").pause()
