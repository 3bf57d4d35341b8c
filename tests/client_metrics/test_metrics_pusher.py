"""A client asks what is wanted and pushes it, whatever the broker does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.client_metrics.consumer_points import ConsumedPartition
from reactive_kafka.client_metrics.metrics_pusher import LAST_PUSH_S, MetricsPusher
from reactive_kafka.client_metrics.push_schedule import UNANSWERED
from reactive_kafka.clock import Clock
from tests.app.helpers import in_virtual_time, now
from tests.broker.metrics_receivers import (
    INSTANCE,
    NEW_INSTANCE,
    ScriptedReceiver,
    push_answer,
    subscription,
)
from tests.client_metrics.otlp_messages import ReadData, read
from tests.observe.samples import channel

KAFKAS = "org.apache.kafka.consumer"
READ = [
    ConsumedPartition(TopicPartition("orders", 0), 10, 25),
    ConsumedPartition(TopicPartition("orders", 1), 3, 3),
    ConsumedPartition(TopicPartition("orders", 2), 3, None),
]


def make_pusher(**changes: Any) -> MetricsPusher:
    """What pushes the metrics of a client with three partitions, by the time of the loop."""
    plain: dict[str, Any] = {"partitions": lambda: READ, "assigned": lambda: 3, "facts": channel}
    labels = {"group_id": "billing"}
    return MetricsPusher("orders", labels, Clock(now, now), **{**plain, **changes})


@asynccontextmanager
async def running(pusher: MetricsPusher, receiver: ScriptedReceiver) -> AsyncIterator[None]:
    """The pusher's task within the block."""
    task = asyncio.create_task(pusher.run(receiver))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def payloads(receiver: ScriptedReceiver) -> list[ReadData]:
    return [read(payload) for payload, _ in receiver.pushed]


@in_virtual_time
async def test_a_broker_that_wants_nothing_is_asked_once_an_interval_and_gets_nothing() -> None:
    receiver = ScriptedReceiver(subscription(prefixes=(), push_interval_s=50.0))
    async with running(make_pusher(), receiver):
        await asyncio.sleep(500 + 1)
    assert receiver.asked == [NEW_INSTANCE] + [INSTANCE] * 10
    assert receiver.pushed == []


@in_virtual_time
async def test_a_push_has_kafkas_metrics_and_ours_with_their_labels() -> None:
    receiver = ScriptedReceiver(subscription())
    receiver.counts.connections = 2
    receiver.counts.commits.note(0.010)
    receiver.counts.commits.note(0.030)
    async with running(make_pusher(), receiver):
        await asyncio.sleep(10)

    (data,) = payloads(receiver)
    assert data.labels == {"group_id": "billing", "group_member_id": "m-1"}
    values = {(point.name, *point.attributes.values()): point.value for point in data.points}
    assert values[f"{KAFKAS}.connection.creation.total",] == 2
    assert values[f"{KAFKAS}.coordinator.assigned.partitions",] == 3
    assert values[f"{KAFKAS}.coordinator.commit.latency.avg",] == pytest.approx(20)
    assert values[f"{KAFKAS}.coordinator.commit.latency.max",] == pytest.approx(30)
    assert values[f"{KAFKAS}.fetch.manager.records.lag", "orders", "0"] == 15
    assert values[f"{KAFKAS}.fetch.manager.records.lag.max",] == 15
    assert (f"{KAFKAS}.fetch.manager.records.lag", "orders", "2") not in values
    assert values["reactive_kafka.lag_records", "orders", "orders", "0"] == 5
    assert values["reactive_kafka.records_in_flight", "orders", "orders", "0"] == 2
    assert values["reactive_kafka.oldest_unacked_age_seconds", "orders", "orders", "0"] == 1.5


@in_virtual_time
async def test_only_what_is_wanted_is_pushed_and_facts_are_read_for_nothing_else() -> None:
    read_facts = []

    def facts() -> Any:
        read_facts.append(1)
        return channel()

    wanted = f"{KAFKAS}.coordinator.assigned"
    receiver = ScriptedReceiver(subscription(prefixes=(wanted,)))
    async with running(make_pusher(facts=facts), receiver):
        await asyncio.sleep(10)
    assert payloads(receiver)[0].values() == {f"{wanted}.partitions": 3.0}
    assert read_facts == []


@in_virtual_time
async def test_a_failed_push_loses_nothing_of_a_sum_that_is_pushed_by_differences() -> None:
    wanted = f"{KAFKAS}.connection.creation.total"
    receiver = ScriptedReceiver(
        subscription(prefixes=(wanted,), is_delta=True, push_interval_s=10.0)
    )
    receiver.answers.extend([push_answer(), push_answer("THROTTLING_QUOTA_EXCEEDED")])
    async with running(make_pusher(), receiver):
        for connections in (2, 5, 6, 9):
            receiver.counts.connections = connections
            # A first push may come after 5 s, and others do after 10 s.
            await receiver.pushes_again()
    told = [data.points[0] for data in payloads(receiver)]
    assert [point.value for point in told] == [2, 3, 4, 3]
    # The one that was refused counts from the one before.
    assert [point.began_ns for point in told[1:]] == [
        told[0].at_ns,
        told[0].at_ns,
        told[2].at_ns,
    ]


@in_virtual_time
async def test_a_payload_that_is_too_large_goes_without_partitions_or_not_at_all() -> None:
    everything = ScriptedReceiver(subscription())
    async with running(make_pusher(), everything):
        await asyncio.sleep(10)
    size = len(everything.pushed[0][0])

    fewer = ScriptedReceiver(subscription(most_bytes=size - 1))
    async with running(make_pusher(), fewer):
        await asyncio.sleep(10)
    (data,) = payloads(fewer)
    assert not any("partition" in point.attributes for point in data.points)
    assert f"{KAFKAS}.coordinator.assigned.partitions" in {point.name for point in data.points}

    nothing = ScriptedReceiver(subscription(most_bytes=10))
    async with running(make_pusher(), nothing):
        await asyncio.sleep(100)
    assert nothing.pushed == []


@in_virtual_time
async def test_a_broker_that_takes_no_metrics_is_asked_again_after_the_client_has_reconnected() -> (
    None
):
    receiver = ScriptedReceiver(None, subscription())
    async with running(make_pusher(), receiver):
        await asyncio.sleep(500)
        assert receiver.asked == [NEW_INSTANCE]
        receiver.connects.set()
        await asyncio.sleep(10)
    assert len(receiver.asked) == 2
    assert len(receiver.pushed) == 1


@in_virtual_time
async def test_an_outage_of_the_broker_heals_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "reactive_kafka.client_metrics")
    receiver = ScriptedReceiver(subscription())
    async with running(make_pusher(), receiver):
        await asyncio.sleep(10)
        receiver.is_away = True
        await asyncio.sleep(300)
        receiver.is_away = False
        before = len(receiver.pushed)
        await asyncio.sleep(UNANSWERED.last_s + 10)
        assert len(receiver.pushed) > before
    told = [record for record in caplog.records if "is away" in record.getMessage()]
    assert len(told) == 1
    assert all(record.levelno == logging.DEBUG for record in caplog.records)


@in_virtual_time
async def test_facts_that_cannot_be_read_end_neither_the_task_nor_the_application() -> None:
    def broken() -> Any:
        raise RuntimeError("a bug")

    receiver = ScriptedReceiver(subscription())
    pusher = make_pusher(facts=broken)
    async with running(pusher, receiver):
        await asyncio.sleep(60)
        assert len(receiver.asked) > 1
    await pusher.close(receiver)
    assert receiver.pushed == []


@in_virtual_time
async def test_the_end_of_a_client_pushes_once_more_if_metrics_are_wanted() -> None:
    receiver = ScriptedReceiver(subscription())
    pusher = make_pusher()
    async with running(pusher, receiver):
        await asyncio.sleep(1)
    await pusher.close(receiver)
    assert [is_last for _, is_last in receiver.pushed] == [True]

    unwanted = ScriptedReceiver(subscription(prefixes=()))
    pusher = make_pusher()
    async with running(pusher, unwanted):
        await asyncio.sleep(1)
    await pusher.close(unwanted)
    assert unwanted.pushed == []


@in_virtual_time
async def test_a_broker_that_hangs_holds_up_the_end_of_a_client_for_a_second_at_most() -> None:
    receiver = ScriptedReceiver(subscription())
    pusher = make_pusher()
    async with running(pusher, receiver):
        await asyncio.sleep(1)
    receiver.hangs = True
    began = now()
    await pusher.close(receiver)
    assert now() - began <= LAST_PUSH_S
