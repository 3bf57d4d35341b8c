"""The metrics of a channel's clients, pushed to a broker that wants them: they hold nothing up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka.testing import TestApp
from tests.app.brokers import BrokerWithWrappedConsumers, WrappedConsumer
from tests.app.helpers import in_virtual_time, inside, make_app, now, running, send, until
from tests.broker.metrics_receivers import ScriptedReceiver, subscription
from tests.client_metrics.otlp_messages import ReadData, read

INTERVAL_S = 10.0
ASSIGNED = "org.apache.kafka.consumer.coordinator.assigned.partitions"
LAG = "reactive_kafka.lag_records"


class ReceivingBroker(BrokerWithWrappedConsumers):
    """A broker in memory that wants metrics of each consumer.

    Attributes:
        receivers: What takes the metrics of each consumer, in the order in which they were made.
    """

    def __init__(self, partitions: int = 4) -> None:
        super().__init__(partitions=partitions)
        self.receivers: list[ScriptedReceiver] = []

    def wrapped(self, consumer: Any) -> WrappedConsumer:
        receiver = ScriptedReceiver(subscription(push_interval_s=INTERVAL_S))
        self.receivers.append(receiver)
        return _ReceivingConsumer(consumer, receiver)

    def pushed(self, number: int = 0) -> list[ReadData]:
        """What one consumer has pushed."""
        return [read(payload) for payload, _ in self.receivers[number].pushed]


class _ReceivingConsumer(WrappedConsumer):
    def __init__(self, inner: Any, receiver: ScriptedReceiver) -> None:
        super().__init__(inner)
        self._receiver = receiver

    def metrics_receiver(self) -> ScriptedReceiver:
        return self._receiver


async def is_settled(test: TestApp, count: int) -> None:
    """Wait until so many records are committed."""
    await until(
        lambda: sum(position or 0 for position in test.committed("orders").values()) == count
    )


@in_virtual_time
async def test_a_channel_pushes_while_it_runs_and_once_more_at_its_end() -> None:
    broker = ReceivingBroker()
    app = make_app()

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    async with running(app, broker=broker) as test:
        await send(test, b"1", b"2")
        await asyncio.sleep(3 * INTERVAL_S)
        assert len(broker.pushed()) == 3
        newest = broker.pushed()[-1]
    lasts = [is_last for _, is_last in broker.receivers[0].pushed]
    assert lasts[-1]
    assert not any(lasts[:-1])
    assert newest.labels["group_id"] == "billing"
    points = {
        (point.name, point.attributes.get("partition")): point.value for point in newest.points
    }
    assert points[ASSIGNED, None] == 4
    assert points[LAG, "0"] == 0
    assert points["reactive_kafka.records_acked_total", "0"] == 2
    await broker.close()


@in_virtual_time
async def test_of_several_clients_one_pushes_what_is_counted_for_the_channel() -> None:
    broker = ReceivingBroker()
    app = make_app(consumers=2)

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    async with running(app, broker=broker):
        await asyncio.sleep(2 * INTERVAL_S)
        newest = [broker.pushed(number)[-1] for number in range(2)]
    assigned = [point.value for data in newest for point in data.points if point.name == ASSIGNED]
    assert sum(assigned) == 4
    lags = [[point for point in data.points if point.name == LAG] for data in newest]
    assert sorted(map(len, lags)) == [0, 4]
    await broker.close()


@in_virtual_time
async def test_a_channel_that_does_not_want_to_push_asks_for_nothing() -> None:
    broker = ReceivingBroker()
    app = make_app(**{"enable.metrics.push": False})

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    async with running(app, broker=broker):
        await asyncio.sleep(10 * INTERVAL_S)
    assert [(receiver.asked, receiver.pushed) for receiver in broker.receivers] == [([], [])]
    await broker.close()


@pytest.mark.parametrize("trouble", ["hangs", "is_away"])
@in_virtual_time
async def test_a_broker_that_does_not_take_them_holds_up_neither_records_nor_the_end(
    trouble: str,
) -> None:
    broker = ReceivingBroker()
    app = make_app(commit_interval="100ms")
    handled: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        handled.append(value)

    async with running(app, broker=broker) as test:
        await asyncio.sleep(INTERVAL_S)
        setattr(broker.receivers[0], trouble, True)
        await asyncio.sleep(2 * INTERVAL_S)
        began = now()
        await send(test, b"1", b"2")
        await is_settled(test, 2)
        assert now() - began < 1.0
        assert handled == [b"1", b"2"]
        assert inside(app).facts().state == "running"
        began = now()
    assert now() - began < 2.0
    await broker.close()
