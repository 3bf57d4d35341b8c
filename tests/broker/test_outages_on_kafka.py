"""Outages of a real Kafka: readiness says so in time, and channels work again within ten seconds of
the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reactive_kafka import App
from tests.broker.hazards.faults import until
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

SESSION_MS = 6_000
NOTICED_S = 5.5
HEALED_S = 10.0


@pytest.fixture(scope="module")
def node() -> Iterator[KafkaCluster]:
    """A Kafka of one node, whose groups wait for nobody."""
    with KafkaCluster(properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        yield cluster


def app_on(cluster: KafkaCluster, **tables: Any) -> App:
    return App(
        {
            "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
            "http": {"enabled": False},
            **tables,
        }
    )


@pytest.mark.parametrize("transactional", [False, True])
async def test_an_outgoing_broker_that_is_away_is_named_with_nothing_sent(
    node: KafkaCluster, transactional: bool
) -> None:
    """A frozen one, and one that is killed."""
    topic = f"invoices-{transactional}".lower()
    node.create_topic(topic, 1)
    outgoing: dict[str, Any] = {"topic": topic}
    if transactional:
        outgoing["transactional_id"] = "billing"
    app = app_on(node, outgoing={"invoices": outgoing})
    emitter = app.emitter("invoices")
    async with app:
        await until(lambda: app.health().status == "UP", "it is connected")
        for leave, come in ((node.freeze, node.thaw), (node.kill, node.start_node)):
            leave(1)
            began = time.monotonic()
            await until(lambda: app.health().ready.status == "DOWN", "it is noticed", NOTICED_S)
            assert "no broker answers" in str(app.health().ready.to_json())
            assert app.health().live.status == "UP"
            await asyncio.sleep(max(0.0, began + 6 - time.monotonic()))
            assert app.health().ready.status == "DOWN", "for as long as it is away"
            await asyncio.to_thread(come, 1)
            await until(lambda: app.health().status == "UP", "it heals", HEALED_S)
        await emitter.send(b"1")


@pytest.mark.parametrize("away_s", [15.0, pytest.param(75.0, marks=pytest.mark.long_faults)])
async def test_a_channel_works_again_ten_seconds_after_an_outage_that_was_longer_than_its_session(
    node: KafkaCluster, away_s: float
) -> None:
    """Row A6 of the faults."""
    topic = f"orders-{away_s:g}"
    node.create_topic(topic, 1)
    handled: list[bytes] = []
    incoming = {
        "topic": topic,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "commit_interval": "1s",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 1_000,
    }
    app = app_on(node, incoming={"orders": incoming}, outgoing={"out": {"topic": topic}})
    emitter = app.emitter("out")

    @app.incoming("orders")
    async def handle(value: bytes) -> None:
        handled.append(value)

    async with app:
        await emitter.send(b"1")
        await until(lambda: handled == [b"1"], "it is handled")
        node.kill(1)
        sending = asyncio.ensure_future(emitter.send(b"2"))
        await until(lambda: app.health().ready.status == "DOWN", "it is noticed", NOTICED_S)
        await asyncio.sleep(away_s)
        assert app.health().live.status == "UP"
        await asyncio.to_thread(node.start_node, 1)
        back_at = time.monotonic()
        # It was given up after send_timeout.
        if sending.done():
            sending.exception()
            sending = asyncio.ensure_future(emitter.send(b"2"))
        await until(lambda: b"2" in handled, "it is handled", HEALED_S)
        await until(
            lambda: app.health().status == "UP", "it is well", back_at + HEALED_S - time.monotonic()
        )
        await sending


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
async def test_a_channel_that_restarts_in_an_outage_does_not_wait_for_its_own_old_session(
    node: KafkaCluster, group_protocol: str
) -> None:
    """Its session has Kafka's default length, 45 s, and begins anew when the broker is back."""
    topic = f"restarts-{group_protocol}"
    node.create_topic(topic, 1)
    handled: list[bytes] = []
    is_away = asyncio.Event()
    incoming = {
        "topic": topic,
        "group_id": topic,
        "group_protocol": group_protocol,
        "auto_offset_reset": "earliest",
        "restart": {"max_attempts": 100, "max_backoff": "1s"},
    }
    app = app_on(node, incoming={"orders": incoming}, outgoing={"out": {"topic": topic}})
    emitter = app.emitter("out")

    @app.incoming("orders")
    async def handle(value: bytes) -> None:
        handled.append(value)
        if len(handled) == 1:
            await is_away.wait()
            raise ValueError("the first attempt fails")

    async with app:
        await emitter.send(b"1")
        await until(lambda: handled == [b"1"], "its handler runs")
        node.kill(1)
        is_away.set()
        await until(lambda: not app.channel("orders").assignment, "it is given up")
        await asyncio.sleep(5)
        await asyncio.to_thread(node.start_node, 1)
        await until(lambda: handled == [b"1", b"1"], "it is handled again", HEALED_S)
        await until(lambda: app.health().status == "UP", "it is well", HEALED_S)
