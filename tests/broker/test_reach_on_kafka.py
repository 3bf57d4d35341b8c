"""What a real Kafka does not give: missing and deleted topics, dead and frozen nodes, partitions
that are lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.protocol.group import LeaveGroupRequest

from reactive_kafka import App, Message, TopicPartition
from tests.broker.hazards.applications import KeepingConnector
from tests.broker.hazards.faults import until
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

NOTICED_S = 10.0


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A Kafka that creates no topics by itself."""
    with KafkaCluster(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaCluster]:
    """Three nodes, which these tests may kill."""
    with KafkaCluster(3) as kafka:
        yield kafka


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


@asynccontextmanager
async def reading(
    servers: str,
    seen: list[tuple[int, int]],
    told: list[tuple[int, bool]] | None = None,
    assigned: list[int] | None = None,
    connector: KeepingConnector | None = None,
    **orders: Any,
) -> AsyncIterator[App]:
    """An application on this Kafka; *assigned* gets how many partitions came at each assignment.

    *told* gets how many were revoked, and whether they were lost.
    """
    settings = {
        "auto_offset_reset": "earliest",
        "group_id": f"group-{uuid.uuid4().hex[:8]}",
        "revoke_grace": "1s",
    }
    channels = {"incoming": {"orders": {**settings, **orders}}}
    app = App({"kafka": {"bootstrap_servers": servers}, "http": {"enabled": False}, **channels})

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))

    @app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition], lost: bool) -> None:
        if told is not None:
            told.append((len(partitions), lost))

    @app.on_assigned("orders")
    async def came(partitions: frozenset[TopicPartition]) -> None:
        if assigned is not None:
            assigned.append(len(partitions))

    if connector is not None:
        app._connector = connector
    async with app:
        yield app


@asynccontextmanager
async def admin(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=servers)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def reasons(app: App) -> tuple[str, ...]:
    return app.channel("orders").facts().not_ready


def ready(app: App) -> Callable[[], bool]:
    return lambda: app.health().ready.status == "UP"


async def send(servers: str, topic: str, partition: int) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, b"x", partition=partition)


async def test_a_missing_topic_is_named_until_it_is_there_and_again_when_it_is_deleted(
    bare: str, topic: str
) -> None:
    missing = f"the topic {topic!r} does not exist and the broker creates none: create it"
    seen: list[tuple[int, int]] = []
    async with reading(bare, seen, topics=[topic]) as app, admin(bare) as client:
        await until(lambda: reasons(app) == (missing,), "it is named", NOTICED_S)
        for _ in range(2):
            assert app.health().live.status == "UP"
            assert not ready(app)()
            await client.create_topics([NewTopic(topic, 2, 1)])
            await until(lambda: len(app.channel("orders").assignment) == 2, "it is assigned", 20)
            await until(ready(app), "it is ready", NOTICED_S)
            seen.clear()
            await send(bare, topic, 1)
            await until(lambda: seen == [(1, 0)], "it is read")
            await client.delete_topics([topic])
            began = time.monotonic()
            await until(lambda: missing in reasons(app), "it is named", NOTICED_S)
            print(f"deleted: not ready after {time.monotonic() - began:.1f} s")
            # A commit that is tried again before that would land on the topic of the same name that
            # is made next.
            await until(lambda: not app.channel("orders").assignment, "it is let go", 20)


async def test_a_pattern_that_fits_nothing_is_ready(bare: str, topic: str) -> None:
    seen: list[tuple[int, int]] = []
    async with reading(bare, seen, pattern=f"{topic}-.*", **{"metadata.max.age.ms": 1000}) as app:
        await until(ready(app), "it is ready")
        async with admin(bare) as client:
            await client.create_topics([NewTopic(f"{topic}-a", 1, 1)])
            await until(lambda: len(app.channel("orders").assignment) == 1, "it is assigned", 20)


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_node_that_is_away_with_an_only_replica_is_named_with_its_partition(
    nodes: KafkaCluster, topic: str, how: str
) -> None:
    servers, seen = nodes.bootstrap_servers, list[tuple[int, int]]()
    async with admin(servers) as client:
        await client.create_topics(
            [NewTopic(topic, -1, -1, replica_assignments={0: [1], 1: [2], 2: [3]})]
        )
    async with reading(servers, seen, topics=[topic]) as app:
        await until(lambda: len(app.channel("orders").assignment) == 3, "all are assigned", 30)
        await until(ready(app), "it is ready", 30)
        began = time.monotonic()
        getattr(nodes, how)(3)
        try:
            await until(
                lambda: any(why.startswith(f"{topic}-2 cannot be read") for why in reasons(app)),
                "named",
                40,
            )
            print(f"{how}: not ready after {time.monotonic() - began:.1f} s: {reasons(app)}")
            assert app.health().live.status == "UP"
            await send(",".join(nodes.address(node) for node in (1, 2)), topic, 0)
            await until(lambda: (0, 0) in seen, "the others are read", 60)
        finally:
            nodes.start_node(3) if how == "kill" else nodes.thaw(3)
        await until(ready(app), "it is ready again", 60)
        await send(servers, topic, 2)
        await until(lambda: (2, 0) in seen, "it is read again")


async def test_a_member_that_the_group_has_put_out_hears_that_its_partitions_are_lost(
    bare: str, topic: str
) -> None:
    told, assigned, seen = list[tuple[int, bool]](), list[int](), list[tuple[int, int]]()
    async with admin(bare) as client:
        await client.create_topics([NewTopic(topic, 2, 1)])
    connector = KeepingConnector(bare)
    quickly = {
        "group.protocol": "classic",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6000,
    }
    async with reading(
        bare, seen, topics=[topic], told=told, assigned=assigned, connector=connector, **quickly
    ):
        await until(lambda: assigned == [2], "it is assigned", 20)
        consumer = connector.made[-1]
        coordinator, member = consumer.owned.coordinator, consumer.owned.group.member
        # Somebody else says so.
        leave = LeaveGroupRequest(coordinator.group_id, member.member_id)
        await consumer.client.send(coordinator.node, leave)
        await until(lambda: told, "the hook has run")
        # Not by what is assigned: that is ours until the hook's release has ended, and would end
        # the wait at once.
        await until(lambda: assigned == [2, 2], "it is assigned again", 20)
    assert told == [(2, True), (2, False)]
