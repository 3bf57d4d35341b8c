"""A revocation on a real Kafka ends before the group goes on without the member, whatever its hook
does.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, TopicPartition
from reactive_kafka.events import Event, RevocationCut
from tests.broker.hazards.applications import KeepingConnector
from tests.broker.hazards.faults import until
from tests.faults.driver import create_topic

pytestmark = pytest.mark.kafka

WAITS_S = 8.0
HOOK_S = 60.0


class Told:
    """What an application has reported."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on(self, event: Event) -> None:
        self.events.append(event)


def application(servers: str, topic: str, told: Told) -> App:
    orders = {
        "topic": topic,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "commit_interval": "1h",
        "revoke_grace": "1s",
        "rebalance.timeout.ms": int(WAITS_S * 1000),
        # Members of the classic protocol join again after a revocation, and must be in time.
        "group.protocol": "classic",
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 20_000,
    }
    config: dict[str, Any] = {"kafka": {"bootstrap_servers": servers}, "http": {"enabled": False}}
    return App({**config, "incoming": {"orders": orders}}, observer=told)


async def test_a_hook_of_a_minute_costs_neither_the_membership_nor_the_commit(kafka: str) -> None:
    topic, told, seen = f"orders-{uuid.uuid4().hex[:8]}", Told(), list[bytes]()
    await create_topic(kafka, topic, 2)
    app, other, connector = (
        application(kafka, topic, told),
        application(kafka, topic, Told()),
        KeepingConnector(kafka),
    )
    app._connector = connector
    called: list[float] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)

    @app.on_revoked("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        called.append(time.monotonic())
        if len(called) == 1:
            await asyncio.sleep(HOOK_S)

    other.incoming("orders")(handler)
    async with app:
        await until(lambda: len(app.channel("orders").assignment) == 2, "it has both", 30)
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for partition in (0, 1):
                await producer.send_and_wait(topic, b"", partition=partition)
        await until(lambda: len(seen) == 2, "both are handled", 10)
        # Heartbeats tell that nothing has begun: the tightest case.
        await asyncio.sleep(2)
        group = connector.made[0].owned.group.member
        member, generation = group.member_id, group.generation
        began = time.monotonic()
        async with other:
            await until(
                lambda: other.channel("orders").assignment, "the other one has a partition", 30
            )
            waited_s = time.monotonic() - began
            assert called, "the hook was not called"
            assert waited_s < WAITS_S
            await until(lambda: len(app.channel("orders").assignment) == 1, "each has one", 10)
            assert (group.member_id, group.generation) == (member, generation + 1)
            committed = (
                await app.channel("orders").committed() | await other.channel("orders").committed()
            )
            assert sorted(committed.items()) == [
                (TopicPartition(topic, 0), 1),
                (TopicPartition(topic, 1), 1),
            ]
            (cut,) = (event for event in told.events if isinstance(event, RevocationCut))
            assert (cut.hooks, cut.records, cut.unstored) == (1, 0, 0)
            assert len(seen) == 2, "something was handled again"
        print(f"the other member has waited {waited_s:.1f} s")
