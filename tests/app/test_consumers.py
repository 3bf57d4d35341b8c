"""Several connections of one channel in one process: what they share, and what concerns one of them
only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from reactive_kafka import App, Message, TopicPartition, TransientBrokerError
from reactive_kafka.events import ChannelStateChanged, ConsumersIdle
from reactive_kafka.testing import TestApp
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)

Partitions = frozenset[TopicPartition]


class Counting:
    """An application with two connections whose handler notes what it got, and takes *took_s*."""

    def __init__(
        self, took_s: float = 0.0, recorder: Recorder | None = None, **orders: Any
    ) -> None:
        self.seen: list[tuple[int, int]] = []
        self.running = self.most = 0
        self.app: App = make_app(
            recorder,
            **{
                "consumers": 2,
                "concurrency": 4,
                "commit_interval": "100ms",
                "revoke_grace": "1s",
                **orders,
            },
        )

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            self.seen.append((message.partition, message.offset))
            await asyncio.sleep(took_s)
            self.running -= 1


def stored(test: TestApp) -> dict[int, int]:
    return {partition.partition: offset for partition, offset in test.committed("orders").items()}


def assignments(test: TestApp) -> list[Partitions]:
    """The partitions of each member of the group."""
    return sorted(test.broker.members("billing").values(), key=sorted)


async def spread(test: TestApp, partitions: int = 4) -> None:
    """Wait until every member has its part."""
    await until(
        lambda: (
            test.app.channel("orders").is_ready
            and len(test.app.channel("orders").assignment) == partitions
        )
    )


@in_virtual_time
async def test_the_partitions_are_divided_among_the_connections() -> None:
    counting = Counting()
    async with running(counting.app, partitions=4) as test:
        await spread(test)
        assert [len(own) for own in assignments(test)] == [2, 2]
        assert test.app.channel("orders").assignment == {tp(number) for number in range(4)}
        for partition in range(4):
            await send(test, b"", b"", partition=partition)
        await test.settled()
        assert Counter(counting.seen) == {
            (partition, offset): 1 for partition in range(4) for offset in range(2)
        }
        assert stored(test) == {0: 2, 1: 2, 2: 2, 3: 2}
        assert {known.partition for known in facts(test).partitions} == {
            tp(number) for number in range(4)
        }
    assert not test.broker.members("billing")


@in_virtual_time
async def test_concurrency_is_that_of_the_channel_whatever_the_number_of_connections() -> None:
    counting = Counting(took_s=1, concurrency=3, consumers=4)
    async with running(counting.app, partitions=8) as test:
        await spread(test, 8)
        for partition in range(8):
            await send(test, b"", partition=partition)
        await test.settled(timeout=60)
        assert counting.most == 3


@in_virtual_time
async def test_connections_without_a_partition_are_told_once_and_shown_until_they_have_one() -> (
    None
):
    recorder = Recorder()
    counting = Counting(recorder=recorder, consumers=3)
    async with running(counting.app, partitions=1) as test:
        await spread(test, 1)
        text = "2 of 3 consumers have no partition: the group has more members than there are partitions"
        assert facts(test).warnings == (text,)
        assert counting.app.health().checks[0].data["warnings"] == [text]
        assert counting.app.health().status == "UP"
        await rebalanced(test)
        await spread(test, 1)
        assert [event.text() for event in recorder.of(ConsumersIdle)] == [text]
        test.broker.create_topic("orders", 3)
        await until(lambda: facts(test).warnings == (), 60)
        await spread(test, 3)
        assert len(recorder.of(ConsumersIdle)) == 1
        # The same number again, after a time without: that is news.
        test.broker.delete_topic("orders")
        test.broker.create_topic("orders", 1)
        await until(lambda: facts(test).warnings == (text,), 60)
    assert [event.text() for event in recorder.of(ConsumersIdle)] == [text] * 2


@in_virtual_time
async def test_connections_that_all_have_partitions_or_wait_for_them_are_no_news() -> None:
    recorder = Recorder()
    counting = Counting(recorder=recorder, consumers=4)
    async with running(counting.app, partitions=4) as test:
        await spread(test)
        await rebalanced(test)
        await spread(test)
        assert facts(test).warnings == ()
    assert recorder.of(ConsumersIdle) == []


@in_virtual_time
async def test_max_in_flight_is_divided_among_them() -> None:
    kept: list[Message[bytes]] = []
    app = make_app(consumers=2, max_in_flight=10, revoke_grace="100ms")
    keep_messages(app, kept, ack="manual")

    async with running(app, partitions=2) as test:
        await spread(test, 2)
        for partition in range(2):
            await send(test, *[b""] * 20, partition=partition)
        await asyncio.sleep(10)
        assert Counter(message.partition for message in kept) == {0: 5, 1: 5}
        await app.stop(drain=False)


@in_virtual_time
async def test_it_is_running_once_all_of_them_have_joined() -> None:
    recorder, broker = Recorder(), make_broker(2)
    # One of them once more than the other.
    broker.fail_next("start", TransientBrokerError("not yet"), times=5)
    counting = Counting(recorder=recorder)
    counting.app.configure(overrides={"http": {"enabled": False}})
    counting.app._connector, counting.app._clock = broker.connector(), broker._state.clock
    async with counting.app:
        await until(lambda: len(broker.members("billing")) == 1, 20)
        await asyncio.sleep(0.1)
        health = counting.app.health()
        assert (health.started.status, health.ready.status) == ("DOWN", "DOWN")
        await until(lambda: counting.app.health().status == "UP", 20)
        assert counting.app.health().started.status == "UP"
        assert len(broker.members("billing")) == 2
    await broker.close()


@in_virtual_time
async def test_a_connection_that_breaks_is_told_while_the_other_one_goes_on() -> None:
    counting = Counting()
    async with running(counting.app, partitions=4) as test:
        await spread(test)
        test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
        test.broker.fail_next("start", TransientBrokerError("no broker takes it"), times=6)
        await until(lambda: len(test.broker.members("billing")) == 1, 30)
        await until(lambda: len(test.app.channel("orders").assignment) == 4, 30)
        health = test.app.health()
        assert (health.live.status, health.ready.status, facts(test).state) == (
            "UP",
            "DOWN",
            "connecting",
        )
        await until(
            lambda: "no broker takes it" in test.app.health().ready.checks[0].data["reason"]
        )
        for partition in range(4):
            await send(test, b"", partition=partition)
        await until(lambda: len(counting.seen) == 4)
        await until(lambda: test.app.health().status == "UP", 60)
        assert [len(own) for own in assignments(test)] == [2, 2]


@in_virtual_time
async def test_losing_one_connection_s_partitions_leaves_the_other_s_handlers_and_queue_alone() -> (
    None
):
    """The static assignment of two connections: no rebalance of one takes anything from the
    other.
    """
    counting = Counting(took_s=5, concurrency=2, consumers=2)
    async with running(counting.app, partitions=2) as test:
        await spread(test, 2)
        for partition in range(2):
            await send(test, b"", b"", partition=partition)
        await until(lambda: len(counting.seen) == 2)
        first, second = inside(test.app).session.clients
        await first.handlers.drain(now())
        (going,), (staying,) = first.table, second.table
        assert (going.state.name, staying.state.name) == ("DRAINING", "READING")
        other = staying.id.partition
        await until(lambda: (other, 1) in counting.seen, 20)
        assert (1 - other, 1) not in counting.seen
        await test.app.stop(drain=False)


@in_virtual_time
async def test_a_rebalance_with_a_handler_at_work_repeats_nothing() -> None:
    counting = Counting(took_s=3, consumers=3, revoke_grace="1s")
    async with running(counting.app, partitions=3) as test:
        await spread(test, 3)
        for partition in range(3):
            await send(test, b"", b"", partition=partition)
        await until(lambda: counting.running == 3)
        generation = test.broker.generation("billing")
        test.broker.rebalance("billing")
        await until(lambda: test.broker.generation("billing") > generation, 60)
        await test.settled(timeout=60)
        assert Counter(counting.seen) == {
            (partition, offset): 1 for partition in range(3) for offset in range(2)
        }


@in_virtual_time
async def test_a_stop_drains_and_commits_them_all_at_the_same_time() -> None:
    counting = Counting(took_s=4, consumers=4)
    async with running(counting.app, partitions=4) as test:
        await spread(test)
        for partition in range(4):
            await send(test, b"", partition=partition)
        await until(lambda: counting.running == 4)
        began = now()
        await test.app.stop()
        assert 3.5 < now() - began < 4.5
        assert stored(test) == {0: 1, 1: 1, 2: 1, 3: 1}
        assert not test.broker.members("billing")


@in_virtual_time
async def test_a_failure_stops_all_of_them_and_a_restart_brings_all_back() -> None:
    bad, were_started = {1}, list[str]()
    app = make_app(consumers=2, commit_interval="100ms")

    @app.on_assigned("orders")
    async def hook(partitions: Partitions) -> None:
        were_started.append(app.health().started.status)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition in bad:
            raise ValueError("no")

    async with running(app, partitions=2) as test:
        await spread(test, 2)
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: facts(test).state == "failed" and not test.broker.members("billing"))
        bad.clear()
        were_started.clear()
        await app.channel("orders").restart()
        await spread(test, 2)
        await test.settled()
        assert [len(own) for own in assignments(test)] == [1, 1]
        # It has started once, whatever comes after.
        assert set(were_started) == {"UP"}


@in_virtual_time
async def test_poison_is_found_in_the_partitions_of_every_connection() -> None:
    hang = {0, 1}
    app = make_app(
        consumers=2,
        concurrency=4,
        unprocessed_record_max_age="5s",
        on_poison="pause-partition",
        revoke_grace="1s",
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition in hang:
            await asyncio.sleep(20)

    async with running(app, partitions=2) as test:
        await spread(test, 2)
        for partition in range(2):
            await send(test, b"", partition=partition)
        await asyncio.sleep(6.5)
        assert {poison.partition for poison in facts(test).poison} == {tp(0), tp(1)}
        assert test.app.health().ready.status == "DOWN"
        await asyncio.sleep(20)
        assert test.app.health().status == "UP"


@in_virtual_time
async def test_seeks_find_the_connection_that_has_the_partition() -> None:
    counting = Counting()
    async with running(counting.app, partitions=4) as test:
        await spread(test)
        for partition in range(4):
            await send(test, b"", partition=partition)
        await test.settled()
        for partition in range(4):
            await test.app.channel("orders").seek(tp(partition), "beginning")
        await until(lambda: set(Counter(counting.seen).values()) == {2})


@in_virtual_time
async def test_hooks_run_for_each_connection_with_its_own_partitions() -> None:
    assigned, revoked = list[Partitions](), list[Partitions]()
    counting = Counting()

    @counting.app.on_assigned("orders")
    async def on_assigned(partitions: Partitions) -> None:
        assigned.append(partitions)

    @counting.app.on_revoked("orders")
    async def on_revoked(partitions: Partitions) -> None:
        revoked.append(partitions)

    async with running(counting.app, partitions=4) as test:
        await spread(test)
        own = assignments(test)
    assert sorted(assigned[-2:], key=sorted) == own
    assert sorted(revoked[-2:], key=sorted) == own


@in_virtual_time
async def test_the_application_that_iterates_gets_the_records_of_them_all() -> None:
    app, seen = make_app(consumers=2, value_deserializer="bytes"), list[int]()

    async def consume() -> None:
        async for message in app.channel("orders"):
            seen.append(message.partition)
            message.ack()

    async with running(app, partitions=4) as test:
        consumer = asyncio.ensure_future(consume())
        await until(
            lambda: facts(test).state == "running" if app.channel("orders").is_started else False,
            20,
        )
        await spread(test)
        for partition in range(4):
            await send(test, b"", partition=partition)
        await test.settled()
        assert sorted(seen) == [0, 1, 2, 3]
        await app.stop()
        await consumer


@in_virtual_time
async def test_states_go_through_connecting_only_once_at_the_start() -> None:
    recorder = Recorder()
    async with running(Counting(recorder=recorder, consumers=3).app, partitions=3) as test:
        await spread(test, 3)
        assert [event.new for event in recorder.of(ChannelStateChanged)] == [
            "connecting",
            "running",
        ]


@pytest.mark.parametrize("consumers", [1, 2, 5])
@in_virtual_time
async def test_more_connections_than_partitions_are_members_without_any(consumers: int) -> None:
    counting = Counting(consumers=consumers)
    async with running(counting.app, partitions=2) as test:
        await spread(test, 2)
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await test.settled()
        assert len(test.broker.members("billing")) == consumers
        assert test.app.health().status == "UP"


# -- the connection of delayed retries


@in_virtual_time
async def test_what_stands_in_a_retry_topic_before_the_first_start_is_handled() -> None:
    seen, broker = list[str](), make_broker(1)
    broker.produce("orders_retry_1000", b"", partition=0)
    app = make_app(
        auto_offset_reset="latest",
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": ["orders_retry_1000"]},
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.topic)

    async with running(app, broker=broker):
        await until(lambda: seen == ["orders_retry_1000"])
        assert set(broker.members("kafka-delayed-retry-topic-billing").values()) == {
            frozenset({tp(0, "orders_retry_1000")})
        }
    assert not broker.members("kafka-delayed-retry-topic-billing")
    await broker.close()


@in_virtual_time
async def test_hooks_are_not_told_of_retry_topics_and_a_channel_with_retries_restarts_whole() -> (
    None
):
    told, seen = set[TopicPartition](), list[str]()
    app = make_app(
        failure_strategy="delayed-retry-topic",
        failure_routes={"KeyError": "fail"},
        delayed_retry={"topics": ["orders_retry_1000"]},
        commit_interval="100ms",
    )

    @app.on_assigned("orders")
    @app.on_revoked("orders")
    async def hook(partitions: Partitions) -> None:
        told.update(partitions)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.topic)
        if len(seen) == 1:
            raise KeyError("stop")
        if len(seen) == 2:
            raise ValueError("later")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).state == "failed" and not test.broker.members("billing"))
        assert not test.broker.members("kafka-delayed-retry-topic-billing")
        await app.channel("orders").restart()
        await until(lambda: seen == ["orders", "orders", "orders_retry_1000"])
        await until(lambda: test.app.health().status == "UP")
        assert facts(test).totals[tp()].delayed == 1
        assert told == {tp()}
