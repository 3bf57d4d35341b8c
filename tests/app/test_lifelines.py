"""What must hold when something ends at the wrong moment: starts, stops, rebuilds, failures, and
handlers that hang.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, TopicPartition
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.events import LoopBlocked, RecordLeft
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import BrokerWithWrappedConsumers, CommitEntry, WrappedConsumer
from tests.app.handlers import take_all
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
    tp,
    until,
)

Partitions = frozenset[TopicPartition]


def noting_app(seen: list[tuple[int, int]], *, hangs: bool = False, **orders: Any) -> App:
    """An application that notes the partition and the offset of what it gets, and never ends with
    it if it *hangs*.
    """
    app = make_app(**orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))
        if hangs:
            await asyncio.Event().wait()

    return app


def story_app(story: list[str], **orders: Any) -> App:
    """An application whose hooks note when they run; that of a revocation takes two seconds."""
    app = make_app(**orders)
    take_all(app)

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        story.append("assigned")

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions) -> None:
        story.append("revoked")
        await asyncio.sleep(2)
        story.append("let go")

    return app


async def thrown_out(test: TestApp) -> None:
    """Let the session of the only member end, and wait until it has its partitions anew, from what
    is committed.
    """
    (member,) = test.broker.members("billing")
    before = test.broker.generation("billing")
    test.broker.expire("billing", member)
    await until(
        lambda: (
            test.broker.generation("billing") >= before + 2 and test.app.channel("orders").is_ready
        )
    )


async def broker_with_one_handled(partitions: int) -> MemoryBroker:
    """A broker on which the group has handled one record of every partition."""
    broker = make_broker(partitions)
    async with running(noting_app([]), broker=broker) as test:
        for partition in range(partitions):
            await send(test, b"", partition=partition)
        await test.settled()
    return broker


def in_flight(test: TestApp) -> int:
    """How many records of orders are with a handler, or with the application."""
    return sum(known.in_flight for known in facts(test).partitions)


def states(app: App) -> list[str]:
    """The states of all channels."""
    return [one.state for one in app.facts().channels]


# -- a start that was chosen


@in_virtual_time
async def test_a_start_at_the_end_is_committed_before_anything_flows_and_survives_a_kill() -> None:
    broker, first, second = make_broker(1), list[tuple[int, int]](), list[tuple[int, int]]()
    for _ in range(5):
        broker.produce("orders", b"old", partition=0)
    app, were_flowing = (
        noting_app(first, hangs=True, auto_offset_reset="latest", commit_interval="1h"),
        list[bool](),
    )

    def note(entry: CommitEntry) -> None:
        if not were_flowing:
            were_flowing.append(app.channel("orders").is_ready)

    broker.watch_commits("billing", note)
    async with running(app, broker=broker) as test:
        assert positions(broker) == [5]
        assert were_flowing == [False]
        await send(test, b"in between")
        await until(lambda: first)
        (member,) = broker.members("billing")
        # Nothing that it does from here on counts.
        broker.expire("billing", member, notice_after_s=3600)
        await app.stop(drain=False)
    assert positions(broker) == [5]
    async with running(noting_app(second, auto_offset_reset="latest"), broker=broker) as test:
        await test.settled()
    assert first == second == [(0, 5)]


@in_virtual_time
async def test_the_start_of_a_partition_that_appears_later_is_committed_and_not_skipped_by_who_joins() -> (
    None
):
    broker, mine, theirs = make_broker(1), list[tuple[int, int]](), list[tuple[int, int]]()
    broker.create_topic("orders", 1)
    slow: dict[str, Any] = {
        "auto_offset_reset": "latest",
        "commit_interval": "1h",
        "revoke_grace": "0s",
    }
    app = noting_app(mine, hangs=True, concurrency=4, drain_timeout="0s", **slow)
    async with running(app, broker=broker) as test:
        broker.create_topic("orders", 2)
        await send(test, b"", partition=1)
        await until(lambda: mine)
        assert mine == [(1, 0)]
        assert committed(test, 1) == 0
        async with running(noting_app(theirs, **slow), broker=broker):
            await until(lambda: theirs, 30)
    assert theirs[0] == (1, 0)


# -- failures stay in their channel


@in_virtual_time
async def test_without_a_position_a_channel_fails_and_a_rebalance_in_its_drain_brings_nobody_down() -> (
    None
):
    broker, others, kept = await broker_with_one_handled(2), list[bytes](), list[Message[bytes]]()
    app = App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "none", "concurrency": 2},
                "others": {"group_id": "others", "auto_offset_reset": "earliest"},
            }
        }
    )

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        await asyncio.sleep(20)

    @app.incoming("others")
    async def other(value: bytes) -> None:
        others.append(value)

    async with running(app, broker=broker) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: len(kept) == 2)
        broker.truncate(tp(0), 1)
        await until(lambda: facts(test).state == "failed")
        assert "auto_offset_reset = 'none'" in (facts(test).reason or "")
        before = broker.generation("billing")
        broker.rebalance("billing")
        await until(lambda: broker.generation("billing") > before, 60)
        await asyncio.sleep(1)
        async with asyncio.timeout(1):
            assert [await message.ack() for message in kept] == [True, True]
        await test.send("others", b"goes on")
        await until(lambda: others)


@pytest.mark.parametrize("call", ["poll", "commit", "check"])
@in_virtual_time
async def test_an_unexpected_error_out_of_the_client_fails_its_channel_only(call: str) -> None:
    seen: list[bytes] = []
    names = ("orders", "others")
    app = App(
        {"incoming": {name: {"group_id": name, "auto_offset_reset": "earliest"} for name in names}}
    )

    @app.incoming("orders")
    @app.incoming("others")
    async def handler(value: bytes) -> None:
        seen.append(value)

    async with running(app) as test:
        test.broker.fail_next(call, RuntimeError("a bug"))  # type: ignore[arg-type]
        for name in names:
            await test.send(name, b"")
        await until(lambda: "failed" in states(app))
        await asyncio.sleep(5)
        assert sorted(states(app)) == ["failed", "running"]
        (name,) = (one.channel for one in app.facts().channels if one.state == "running")
        await test.send(name, b"goes on")
        await until(lambda: b"goes on" in seen)


@in_virtual_time
async def test_a_channel_that_has_failed_still_shows_its_partitions_and_their_lag() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset == 1:
            raise ValueError("no")

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: facts(test).state == "failed")
        await until(lambda: not test.broker.members("billing"))
        await asyncio.sleep(1)
        (known,) = facts(test).partitions
        assert (known.partition, known.committed, known.lag) == (tp(), 1, 2)


# -- ends


@in_virtual_time
async def test_a_loop_over_a_channel_ends_when_a_stop_begins_and_acks_after_it_count() -> None:
    app, answers = (
        make_app(value_deserializer="bytes", drain_timeout="30s", commit_interval="1h"),
        list[bool](),
    )

    async def iterate() -> None:
        kept = [message async for message in app.channel("orders")]
        answers.extend([await message.ack() for message in kept])

    async with running(app) as test:
        iterating = asyncio.ensure_future(iterate())
        await until(lambda: facts(test).state == "running")
        await send(test, b"", b"")
        await until(lambda: in_flight(test) == 2)
        began = now()
        await app.stop()
        assert now() - began < 1
        await iterating
        assert answers == [True, True]
        assert positions(test.broker) == [2]


@in_virtual_time
async def test_a_failure_while_stopping_is_told() -> None:
    recorder = Recorder()
    app = make_app(recorder)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(3)
        raise ValueError("too late")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: in_flight(test))
        await app.stop()
        assert test.broker.commits("billing") == ()
    (event,) = recorder.of(RecordLeft)
    assert (event.partition, event.offset, event.reason) == (tp(), 0, "ValueError: too late")


class SlowlyClosed(BrokerWithWrappedConsumers):
    """A broker whose clients take two seconds to leave their group."""

    def __init__(self) -> None:
        super().__init__()
        self.story: list[str] = []

    def wrapped(self, consumer: Any) -> WrappedConsumer:
        story = self.story

        class Slow(WrappedConsumer):
            async def stop(self) -> None:
                story.append("leaving")
                await asyncio.sleep(2)
                await self._inner.stop()
                story.append("left")

        return Slow(consumer)


@in_virtual_time
async def test_a_stop_waits_until_a_client_that_broke_has_left_the_group() -> None:
    broker, app = SlowlyClosed(), make_app()
    broker.create_topic("orders", 1)
    take_all(app)
    async with running(app, broker=broker) as test:
        test.broker.fail_next("poll", TransientBrokerError("broken"))
        await until(lambda: broker.story)
        await app.stop()
        assert broker.story == ["leaving", "left"]
        assert not broker.members("billing")


# -- hooks come in pairs


@in_virtual_time
async def test_a_client_that_is_made_anew_runs_the_hooks_of_a_revocation_once() -> None:
    story: list[str] = []
    async with running(story_app(story)) as test:
        test.broker.fail_next("poll", TransientBrokerError("broken"))
        await until(lambda: story.count("assigned") == 2, 30)
        assert story == ["assigned", "revoked", "let go", "assigned"]


@in_virtual_time
async def test_a_stop_and_a_revocation_at_once_run_the_hooks_once() -> None:
    story: list[str] = []
    app = story_app(story)
    async with running(app) as test:
        test.broker.rebalance("billing")
        await until(lambda: "revoked" in story)
        await app.stop()
    assert story.count("revoked") == story.count("assigned")
    assert story[:3] == ["assigned", "revoked", "let go"]


@in_virtual_time
async def test_a_revocation_before_positions_were_found_runs_its_hooks_too() -> None:
    story: list[str] = []
    async with running(story_app(story)) as test:
        test.broker.fail_next("committed", TransientBrokerError("later"), times=1000)
        test.broker.rebalance("billing")
        await until(lambda: story.count("assigned") == 2)
        assert not test.app.channel("orders").is_ready
        test.broker.rebalance("billing")
        await until(lambda: story.count("assigned") == 3)
        assert story == [*["assigned", "revoked", "let go"] * 2, "assigned"]


# -- what is settled is committed where that can be done


@in_virtual_time
async def test_a_client_that_is_made_anew_commits_before_it_gives_up() -> None:
    seen: list[tuple[int, int]] = []
    async with running(noting_app(seen, commit_interval="1h")) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(seen) == 3)
        test.broker.fail_next("poll", TransientBrokerError("broken"))
        await until(lambda: facts(test).rebalances["assigned"] == 2, 30)
        assert positions(test.broker) == [3]
        assert (facts(test).rebalances["lost"], facts(test).rebalances["revoked"]) == (1, 0)
        await send(test, b"")
        await test.settled()
    assert seen == [(0, 0), (0, 1), (0, 2), (0, 3)]


# -- workers


@in_virtual_time
async def test_a_handler_that_never_ends_loses_its_place_when_its_partition_is_read_anew() -> None:
    app, seen = make_app(concurrency=1, revoke_grace="100ms", drain_timeout="1s"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) == 1:
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: seen)
        await thrown_out(test)
        await test.settled()
        assert seen == [0, 0, 1]
        assert committed(test) == 2


@in_virtual_time
async def test_a_handler_that_never_ends_loses_its_place_when_its_partition_goes_to_another_member() -> (
    None
):
    app, seen, broker = (
        make_app(concurrency=1, revoke_grace="100ms", drain_timeout="1s"),
        [],
        make_broker(2),
    )
    theirs: list[tuple[int, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))
        if len(seen) == 1:
            await asyncio.Event().wait()

    async with running(app, broker=broker) as test:
        await send(test, b"", partition=1)
        await until(lambda: seen)
        async with running(noting_app(theirs), broker=broker):
            await until(lambda: theirs)
            assert theirs == [(1, 0)]
        await until(lambda: len(app.channel("orders").assignment) == 2)
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await test.settled()
        assert sorted(seen[1:]) == [(0, 0), (1, 1)]


@in_virtual_time
async def test_a_batch_that_never_ends_loses_its_place_too() -> None:
    app, seen = (
        make_app(concurrency=1, revoke_grace="100ms", drain_timeout="1s", batch_max_wait="10ms"),
        [],
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        seen.append([message.offset for message in batch])
        if len(seen) == 1:
            await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: seen)
        await thrown_out(test)
        await test.settled()
        assert sorted({offset for batch in seen[1:] for offset in batch}) == [0, 1]


async def test_a_thread_that_never_ends_loses_its_place_too() -> None:
    app, seen, go_on = (
        make_app(concurrency=1, revoke_grace="20ms", drain_timeout="50ms"),
        [],
        threading.Event(),
    )

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) == 1:
            go_on.wait(30)

    try:
        async with running(app) as test:
            await send(test, b"", b"")
            await until(lambda: seen)
            await thrown_out(test)
            await test.settled()
            assert seen == [0, 0, 1]
    finally:
        go_on.set()


# -- what is told


async def test_a_loop_that_stood_still_is_told_and_in_what_it_stood() -> None:
    """Row D3 of the faults."""
    recorder = Recorder()
    app = make_app(recorder)

    def ask_the_price() -> None:
        time.sleep(1.2)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        # This is what is to be found out.
        ask_the_price()

    async with running(app) as test:
        before = threading.active_count()
        await send(test, b"")
        await until(lambda: recorder.of(LoopBlocked))
        blocked = recorder.of(LoopBlocked)[0]
        assert threading.active_count() == before
    assert blocked.lag_s >= 1
    here = Path(__file__).name
    assert re.fullmatch(rf"{here}:\d+ handler > {here}:\d+ ask_the_price", blocked.where), (
        blocked.where
    )
    assert blocked.text().endswith(f" s, in {blocked.where}")
    assert threading.active_count() == before - 1, "who looked has ended with the application"


def raises_deep_down() -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    "orders",
    [
        {"failure_strategy": "fail"},
        {"failure_strategy": "ignore"},
        {
            "failure_strategy": "ignore",
            "retry": {"max_attempts": 2, "backoff": "1h", "max_backoff": "1h"},
        },
    ],
    ids=["fail", "ignore", "retry"],
)
async def test_the_log_shows_where_a_handler_raised(
    orders: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(**orders)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raises_deep_down()

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: "ValueError: no" in caplog.text)
        assert "in raises_deep_down" in caplog.text


@pytest.mark.parametrize("strategy", ["fail", "ignore"])
async def test_the_log_shows_no_traceback_of_a_record_that_cannot_be_decoded(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(failure_strategy=strategy)

    @app.incoming("orders")
    async def handler(order: int) -> None: ...

    async with running(app) as test:
        await send(test, b"not a number")
        await until(lambda: "DecodeError" in caplog.text)
        assert "Traceback" not in caplog.text
