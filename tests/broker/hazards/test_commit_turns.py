"""A commit takes its turn: while the coordinator owes its connection an answer, none is sent."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import ConnectionGroup
from aiokafka.conn import create_conn
from aiokafka.protocol.group import HeartbeatRequest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.aiokafka.offset_requests import codes_in, commit_request
from reactive_kafka.broker.consumer.membership.group_parts import NOBODY
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from tests.broker.hazards.faults import Rig, ends_within, until
from tests.broker.members import PATIENCE_S, Member, joined
from tests.broker.test_kafka import KafkaTestCluster
from tests.broker.test_reach_on_kafka import admin as administers
from tests.faults.observer import read_group_logs
from tests.harness.kafka import KafkaCluster

STALLS_S = 0.5
"""A heartbeat that is not answered for so long waits for the followers. One that does not takes
some milliseconds.
"""


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """Three nodes that these tests may freeze."""
    with KafkaCluster(3) as cluster:
        yield cluster


def connection(member: Member) -> Any:
    """The one to the group's coordinator; None: there is none."""
    client: Any = member.consumer.client  # type: ignore[attr-defined]
    coordinator = member.consumer.owned.coordinator  # type: ignore[attr-defined]
    return client.connection(coordinator.node, ConnectionGroup.COORDINATION)


class Owed:
    """Sees a heartbeat that the coordinator does not answer."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._first: Any = None
        self._since = 0.0
        self.used: Any = None

    def waits(self) -> bool:
        """Whether the same one has been on its way for long."""
        self.used = used = connection(self._member)
        first = used.unanswered[0] if used is not None and used.unanswered else None
        if first is not self._first:
            self._first, self._since = first, time.monotonic()
        is_heartbeat = first is not None and first.request.API_KEY == HeartbeatRequest.API_KEY
        return is_heartbeat and time.monotonic() - self._since >= STALLS_S


@asynccontextmanager
async def without_followers(
    cluster: KafkaCluster, like: str, tp: TopicPartition
) -> AsyncIterator[None]:
    """The followers are frozen, and a commit of another group, in the same partition of the
    offsets, waits for them.

    Until it is stored the coordinator answers no heartbeat of the groups in that partition either.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    async with asyncio.timeout(PATIENCE_S):
        # A cluster that has just begun may move its leaders.
        while True:
            (offsets,) = await admin.describe_topics(["__consumer_offsets"])
            partitions = {one["partition"]: one for one in offsets["partitions"]}
            number = java_hash(like) % len(partitions)
            names = (f"other-{uuid.uuid4().hex[:8]}" for _ in range(1000))
            other = next(name for name in names if java_hash(name) % len(partitions) == number)
            leader = partitions[number]["leader"]
            host, _, port = cluster.nodes[leader].address.rpartition(":")
            raw = await create_conn(host, int(port))
            mine = commit_request(other, NOBODY, {tp: Committed(1)})
            if len(partitions[number]["isr"]) == len(cluster.nodes) and stored(
                await raw.send(mine)
            ):
                break
            raw.close()
    await admin.close()
    followers = [node for node in cluster.nodes if node != leader]
    # A follower may have asked for it just before it was frozen.
    for _ in range(10):
        for node in followers:
            cluster.freeze(node)
        waits = asyncio.ensure_future(raw.send(mine))
        if not await ends_within(waits, STALLS_S):
            break
        for node in followers:
            cluster.thaw(node)
    try:
        assert not waits.done(), f"it does not wait for the followers: {waits}"
        yield
        assert not waits.done()
    finally:
        for node in followers:
            cluster.thaw(node)
    assert stored(await waits)
    raw.close()


def stored(answer: Any) -> bool:
    """Whether an answer to a commit says so."""
    return not any(codes_in(answer.values).values())


def java_hash(text: str) -> int:
    """What Kafka finds the partition of a group by: Java's hash of a string, without its sign."""
    number = 0
    for letter in text:
        number = (31 * number + ord(letter)) % 2**32
    return number if number < 2**31 else 2**32 - number


@pytest.mark.kafka
async def test_a_commit_behind_a_heartbeat_that_waits_is_not_sent_and_cannot_land_late(
    three: KafkaCluster, group: str
) -> None:
    """Row A2 of the faults.

    A coordinator handles the requests of a connection one after the other, also those that it got
    before the client closed it. So what waited there was stored over what a new connection had
    brought.
    """
    async with administers(three.bootstrap_servers) as client:
        cluster = KafkaTestCluster(three.bootstrap_servers, client)
        tp = TopicPartition(await cluster.create_topic(1), 0)
    # No connection is given up meanwhile.
    properties = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 100}
    async with joined(cluster, tp.topic, group, properties=properties) as member:
        await member.until_assigned(1)
        await member.consumer.commit({tp: Committed(42)}, member.generation)
        async with without_followers(three, group, tp):
            owed = Owed(member)
            await until(owed.waits, "a heartbeat waits for the followers", 4)
            used = owed.used
            given_up = asyncio.ensure_future(
                member.consumer.commit({tp: Committed(43)}, member.generation)
            )
            assert not await ends_within(given_up, STALLS_S)
            keys = [sent.request.API_KEY for sent in used.unanswered]
            given_up.cancel()
            used.close()
            last = asyncio.ensure_future(
                member.consumer.commit({tp: Committed(44)}, member.generation)
            )
            assert not await ends_within(last, STALLS_S)
        await last
        await member.consumer.commit({tp: Committed(45)}, member.generation)
    logged = [
        one.offset
        for one in (await read_group_logs(three.bootstrap_servers))[group]
        if hasattr(one, "offset")
    ]
    assert logged == [42, 44, 45]
    assert keys == [HeartbeatRequest.API_KEY]


async def test_a_commit_that_has_no_turn_is_told_as_not_sent(rig: Rig, group: str) -> None:
    """Row A2 of the faults."""
    tp = TopicPartition(await rig.create_topic(1), 0)
    # No connection is given up meanwhile.
    properties = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 100}
    async with joined(rig, tp.topic, group, properties=properties) as member:
        await member.until_assigned(1)
        used = connection(member)
        await until(lambda: not used.unanswered, "no heartbeat is on its way")
        rig.proxy.hold()
        await until(lambda: used.unanswered, "a heartbeat is on its way")
        with pytest.raises(
            TransientBrokerError, match=r"commit: not sent, .* no answer within 5 s"
        ) as refused:
            await member.consumer.commit({tp: Committed(1)}, member.generation)
        assert not isinstance(refused.value, OutcomeUnknownError)
        rig.proxy.release()
        assert await member.consumer.committed([tp]) == {tp: None}
        await member.consumer.commit({tp: Committed(1)}, member.generation)
        assert await member.consumer.committed([tp]) == {tp: Committed(1)}
