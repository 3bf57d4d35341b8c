"""Brokers that still give the old id of a topic that was deleted and created again: nothing is read
twice for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from reactive_kafka import App, Message
from reactive_kafka.events import OffsetReset, PositionsUnknown
from reactive_kafka.records import TopicIds
from tests.app.brokers import BrokerWithWrappedConsumers, WrappedConsumer
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    until,
)

OLD, NEW = "id-1", "id-2"
VALUES = [b"%d" % number for number in range(5)]


class LaggingBroker(BrokerWithWrappedConsumers):
    """Three brokers answer for the ids of topics, each of them with the one that it knows; one is
    asked at a time.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # Broker -> the id that it gives; one that is not in here is silent.
        self.ids: dict[int, str] = {}
        self.asked_next = 0

    def wrapped(self, consumer: Any) -> LaggingConsumer:
        return LaggingConsumer(consumer, self)

    def answers(self) -> list[TopicIds]:
        """What each broker says."""
        return [
            TopicIds(broker, {"orders": id}, frozenset({1, 2, 3}))
            for broker, id in sorted(self.ids.items())
        ]


class LaggingConsumer(WrappedConsumer):
    def __init__(self, inner: Any, broker: LaggingBroker) -> None:
        super().__init__(inner)
        self._broker = broker

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        await self._inner.topic_ids(topics, of_all=of_all)
        answers = self._broker.answers()
        if of_all:
            return answers
        self._broker.asked_next += 1
        return [answers[self._broker.asked_next % len(answers)]]


def noting_app(recorder: Recorder, seen: list[bytes], **orders: Any) -> App:
    app = make_app(recorder, commit_interval="100ms", **orders)

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        seen.append(message.payload)

    return app


async def recreated() -> LaggingBroker:
    """A broker whose topic was deleted and created again, with five records in it."""
    broker = LaggingBroker(partitions=1)
    broker.create_topic("orders", 1)
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    for value in VALUES:
        broker.produce("orders", value, partition=0)
    return broker


@pytest.mark.parametrize("policy", ["beginning", "fail"])
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize(
    "at_first", [{1: NEW, 2: OLD, 3: NEW}, {1: NEW, 3: NEW}, {1: OLD, 2: OLD, 3: NEW}]
)
@in_virtual_time
async def test_a_process_that_starts_after_the_recreation_reads_each_record_once(
    at_first: dict[int, str], first: int, policy: str
) -> None:
    """A broker that was frozen gives the old id when it answers again, before it learns of the new
    one.
    """
    recorder, seen, broker = Recorder(), list[bytes](), await recreated()
    broker.ids, broker.asked_next = dict(at_first), first
    loop, began = asyncio.get_running_loop(), now()
    loop.call_later(3, broker.ids.setdefault, 2, OLD)
    loop.call_later(6, broker.ids.update, dict.fromkeys((1, 2, 3), NEW))
    async with running(
        noting_app(recorder, seen, on_recreated_topic=policy), broker=broker
    ) as test:
        await until(lambda: now() > began + 30, 60)
        assert seen == VALUES
        assert committed(test) == len(VALUES)
        assert facts(test).state == "running"
        assert not [reset for reset in recorder.of(OffsetReset) if reset.reason is not None]
    # The next process finds what this one has stored, and the topic is the same.
    async with running(
        noting_app(recorder, seen, on_recreated_topic=policy), broker=broker
    ) as test:
        broker.produce("orders", b"more", partition=0)
        await until(lambda: seen == [*VALUES, b"more"])
    await broker.close()


@in_virtual_time
async def test_reading_does_not_start_while_brokers_disagree_and_readiness_says_why() -> None:
    recorder, seen, broker = Recorder(), list[bytes](), await recreated()
    broker.ids = {1: OLD, 2: NEW, 3: NEW}
    app, began = noting_app(recorder, seen), now()
    asyncio.get_running_loop().call_later(5, broker.ids.update, {1: NEW})
    async with running(app, broker=broker):
        await until(lambda: seen == VALUES)
        assert now() > began + 5
    [unknown] = recorder.of(PositionsUnknown)
    assert (
        "topic 'orders' was just created again: the brokers give id-1 and id-2 as its id"
        in unknown.text()
    )
    await broker.close()
