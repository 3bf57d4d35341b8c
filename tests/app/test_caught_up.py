"""``on_caught_up``: once an assignment, when all that was there at its beginning is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka import App, Message, TopicPartition, TransientBrokerError
from reactive_kafka.events import HookFailed
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import keep_messages, note_offsets, take_all
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.app.test_incremental import cooperative, joining
from tests.app.test_stable_offsets import open_transaction

PARTITIONS = frozenset({tp(0), tp(1), tp(2)})


class Catching:
    """An application that notes the records that it has handled, and when it has caught up."""

    def __init__(
        self, takes_s: float = 0.0, recorder: Recorder | None = None, **orders: Any
    ) -> None:
        self.takes_s = takes_s
        self.story: list[object] = []
        self.app = make_app(recorder, value_deserializer="bytes", **orders)

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await asyncio.sleep(self.takes_s)
            self.story.append(message.offset)

        @self.app.on_caught_up("orders")
        async def caught_up(partitions: frozenset[TopicPartition]) -> None:
            self.story.append(partitions)

    @property
    def calls(self) -> list[frozenset[TopicPartition]]:
        return [entry for entry in self.story if isinstance(entry, frozenset)]

    async def called(self, times: int = 1, within_s: float = 60) -> None:
        await until(lambda: len(self.calls) == times, within_s)


def filled(*records: int, broker: MemoryBroker | None = None) -> MemoryBroker:
    """A broker with so many records in the partitions of orders."""
    broker = broker or make_broker(len(records))
    for partition, count in enumerate(records):
        for _ in range(count):
            broker.produce("orders", b"", partition=partition)
    return broker


# -- an application


@in_virtual_time
async def test_the_hook_is_called_once_when_what_was_there_is_settled() -> None:
    catching, broker = Catching(takes_s=0.1), filled(5)
    async with running(catching.app, broker=broker) as test:
        await until(lambda: len(catching.story) >= 2)
        await send(test, *[b""] * 50)
        await catching.called()
        assert 5 <= catching.story.index(frozenset({tp()})) <= 6
        await test.settled(60)
        assert len(catching.calls) == 1
    await broker.close()


@in_virtual_time
async def test_partitions_that_are_empty_are_caught_up_at_once() -> None:
    catching = Catching()
    async with running(catching.app, partitions=3):
        await catching.called(within_s=1)
        assert catching.calls == [PARTITIONS]


@in_virtual_time
async def test_it_waits_for_the_slowest_partition_and_for_verdicts() -> None:
    kept, calls, broker = list[Message[bytes]](), list[object](), filled(3, 0, 1)
    app = make_app(value_deserializer="bytes")
    keep_messages(app, kept, ack="manual")

    app.on_caught_up("orders")(calls.append)
    async with running(app, broker=broker):
        await until(lambda: len(kept) == 4)
        for message in kept[1:]:
            message.ack()
        await asyncio.sleep(20)
        assert calls == []
        kept[0].nack(ValueError("no"))
        await asyncio.sleep(20)
        # The channel has failed.
        assert calls == []
        await app.channel("orders").restart()
        await until(lambda: len(kept) > 4)
        await asyncio.sleep(1)
        for message in kept[4:]:
            message.ack()
        await until(lambda: calls == [PARTITIONS])
    await broker.close()


@in_virtual_time
async def test_an_ignored_record_counts_as_handled() -> None:
    app, calls, broker = make_app(failure_strategy="ignore"), list[object](), filled(3)

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        raise ValueError("no")

    app.on_caught_up("orders")(calls.append)
    async with running(app, broker=broker):
        await until(lambda: len(calls) == 1)
    await broker.close()


@in_virtual_time
async def test_a_rebalance_before_it_begins_anew_and_one_after_it_calls_once_more() -> None:
    catching, broker = Catching(takes_s=1.0, revoke_grace="100ms"), filled(5)
    async with running(catching.app, broker=broker) as test:
        await until(lambda: len(catching.story) == 2)
        await send(test, b"", b"")
        await rebalanced(test)
        await catching.called()
        assert catching.story.index(frozenset({tp()})) == 7
        await rebalanced(test)
        await catching.called(2)
        await asyncio.sleep(10)
        assert len(catching.calls) == 2
    await broker.close()


@pytest.mark.parametrize("kind", [make_broker, cooperative])
@in_virtual_time
async def test_each_member_is_told_of_all_that_it_has(kind: Callable[[int], MemoryBroker]) -> None:
    broker, first, second = (
        filled(4, 4, 4, 4, broker=kind(4)),
        Catching(takes_s=0.2),
        Catching(takes_s=0.2),
    )
    async with running(first.app, broker=broker):
        await until(lambda: len(first.story) >= 2)
        async with joining(second.app, broker):
            for catching in (first, second):
                await catching.called()
                assert catching.calls == [catching.app.channel("orders").assignment]
            assert first.calls[0] | second.calls[0] == {tp(0), tp(1), tp(2), tp(3)}
            assert len(first.calls[0]) == 2
        await first.called(2)
        assert len(first.calls[1]) == 4
    await broker.close()


@in_virtual_time
async def test_several_consumers_each_tell_of_theirs() -> None:
    catching, broker = Catching(consumers=3), filled(1, 1, 1)
    async with running(catching.app, broker=broker):
        await until(lambda: frozenset().union(*catching.calls[-3:]) == PARTITIONS, 60)
    await broker.close()


@in_virtual_time
async def test_ends_that_no_broker_tells_are_asked_for_again() -> None:
    catching, broker = Catching(takes_s=1.0), filled(3)
    broker.fail_next("end_offsets", TransientBrokerError("away"), 3)
    async with running(catching.app, broker=broker):
        await catching.called()
        assert catching.story[-1] == frozenset({tp()})
        assert catching.story[:3] == [0, 1, 2]
    await broker.close()


@in_virtual_time
async def test_what_a_hook_raises_is_told_and_the_others_are_called() -> None:
    recorder = Recorder()
    catching = Catching(recorder=recorder)

    @catching.app.on_caught_up("orders")
    def fails(partitions: frozenset[TopicPartition]) -> None:
        raise ValueError("no")

    last = list[object]()
    catching.app.on_caught_up("orders")(last.append)
    async with running(catching.app) as test:
        await until(lambda: last)
        (failed,) = recorder.of(HookFailed)
        assert (failed.channel, failed.hook, failed.reason) == (
            "orders",
            "on_caught_up",
            "ValueError: no",
        )
        await rebalanced(test)
        await until(lambda: len(last) == 2)


@in_virtual_time
async def test_a_hook_may_stop_its_channel() -> None:
    catching, broker = Catching(), filled(3)
    catching.app.on_caught_up("orders")(stops(catching.app))
    async with running(catching.app, broker=broker) as test:
        await until(lambda: test.app.channel("orders").is_stopped and not broker.members("billing"))
        assert test.committed("orders") == {tp(): 3}
    await broker.close()


@in_virtual_time
async def test_a_hook_may_end_the_application() -> None:
    catching = Catching()

    @catching.app.on_caught_up("orders")
    def exits(_: frozenset[TopicPartition]) -> None:
        raise SystemExit(0)

    async with running(catching.app) as test:
        await until(lambda: test.app.facts().stopping or test.app.facts().ended is not None)


def stops(app: App) -> Callable[[frozenset[TopicPartition]], Any]:
    async def hook(_: frozenset[TopicPartition]) -> None:
        await app.channel("orders").stop()

    return hook


@in_virtual_time
async def test_a_hook_that_runs_when_the_channel_stops_is_cancelled() -> None:
    catching, ends = Catching(), list[str]()

    @catching.app.on_caught_up("orders")
    async def waits(_: frozenset[TopicPartition]) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with running(catching.app):
        await catching.called()
    assert ends == ["cancelled"]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@in_virtual_time
async def test_what_an_open_transaction_holds_up_is_not_waited_for_by_readers_of_what_is_committed(
    level: str,
) -> None:
    catching, broker = Catching(isolation_level=level), filled(3)
    producer = await open_transaction(broker)
    broker.produce("orders", b"behind", partition=0)
    async with running(catching.app, broker=broker):
        await catching.called()
        assert catching.story[:-1] == ([0, 1, 2] if level == "read_committed" else [0, 1, 2, 3, 4])
        await producer.abort()
    await broker.close()


@in_virtual_time
async def test_without_a_group_there_is_one_assignment_a_start() -> None:
    catching, broker = Catching(), filled(3)
    app = App({"incoming": {"orders": {"assign": ["orders:0:0"], "commit_strategy": "ignore"}}})
    calls = list[object]()
    take_all(app)

    app.on_caught_up("orders")(calls.append)
    async with TestApp(app, broker=broker):
        await until(lambda: calls == [frozenset({tp()})])
        await app.channel("orders").stop()
        await app.channel("orders").start()
        await until(lambda: len(calls) == 2)
    assert catching.calls == []
    await broker.close()


@pytest.mark.parametrize(
    ("ranges", "handled"),
    [
        (["orders:0:2..6"], [2, 3, 4, 5]),
        (["orders:0:2..4", "orders:0:8..9"], [2, 3, 8]),
        (["orders:0:18..40"], [18, 19]),
    ],
)
@in_virtual_time
async def test_ranges_are_caught_up_at_their_end_or_where_the_log_ends(
    ranges: list[str], handled: list[int]
) -> None:
    broker = filled(20)
    app, told = App({"incoming": {"orders": {"assign": ranges}}}), list[object]()
    note_offsets(app, told)

    @app.on_caught_up("orders")
    async def caught_up(partitions: frozenset[TopicPartition]) -> None:
        told.append(partitions)

    async with TestApp(app, broker=broker):
        await until(lambda: frozenset({tp(0)}) in told)
    assert told == [*handled, frozenset({tp(0)})]


@in_virtual_time
async def test_of_ranges_it_is_their_end_or_that_of_a_log_that_does_not_reach_so_far() -> None:
    for assign in (
        ["orders:0:1..3"],
        ["orders:0:1..2", "orders:0:4..6"],
        ["orders:0:8..40"],
        ["orders:0:20..40"],
    ):
        catching, broker = Catching(assign=assign), filled(10)
        async with running(catching.app, broker=broker) as test:
            await catching.called()
            await test.settled(60)
        assert catching.calls == [frozenset({tp()})]
        await broker.close()


@in_virtual_time
async def test_a_job_on_the_channel_leaves_the_hook_as_it_is() -> None:
    catching, calls, broker = Catching(), list[int](), filled(5)
    catching.app.every("1s", on="orders:0")(lambda: calls.append(1))
    async with running(catching.app, broker=broker):
        await catching.called()
        await until(lambda: bool(calls))
    await broker.close()
