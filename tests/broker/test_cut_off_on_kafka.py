"""A member of the consumer protocol whose connections are cut: it stops in time, and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from reactive_kafka import Message, TopicPartition
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.events import SessionOver, SessionUp
from reactive_kafka.records import RecordBytes
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import until
from tests.faults.observer import read_commits
from tests.faults.tap import CommitTap
from tests.harness.kafka import KafkaCluster
from tests.harness.proxy import Proxy

pytestmark = pytest.mark.kafka

TOPIC, GROUP = "orders", "billing"
CHANNEL = {"group_protocol": "consumer", "concurrency": 1}
TAKES_S = 0.02
# More than is handled in this test: a member that went on would have enough to do.
RECORDS = 4000
SOME = 50


@pytest.fixture
async def network() -> AsyncIterator[tuple[KafkaCluster, Proxy]]:
    """A Kafka that clients reach through a proxy, and on its second listener past that."""
    cluster = KafkaCluster()
    proxy = Proxy(cluster.address(1))
    async with proxy:
        cluster.advertised[1] = proxy.address
        await asyncio.to_thread(cluster.__enter__)
        try:
            yield cluster, proxy
        finally:
            await asyncio.to_thread(cluster.stop)


class Service:
    """A handler that takes its time, and notes what it has handled."""

    def __init__(self) -> None:
        self.handled: list[TopicPartition] = []
        self.offsets: dict[TopicPartition, set[int]] = {}

    async def handle(self, message: Message[bytes]) -> None:
        await asyncio.sleep(TAKES_S)
        partition = TopicPartition(message.topic, message.partition)
        self.handled.append(partition)
        self.offsets.setdefault(partition, set()).add(message.offset)


async def fill(bootstrap_servers: str, partitions: list[TopicPartition]) -> None:
    producer = KafkaConnector(bootstrap_servers).producer(name="load", properties={})
    await producer.start()
    try:
        for partition in partitions:
            left = [RecordBytes(b"%d" % number) for number in range(RECORDS)]
            while left:
                written = await producer.write(partition, left)
                left = left[written.count :]
    finally:
        await producer.stop()


async def test_a_member_that_is_cut_off_stops_with_its_session_and_joins_again_by_itself(
    network: tuple[KafkaCluster, Proxy],
) -> None:
    """Row B1 of the faults."""
    cluster, proxy = network
    tap = CommitTap()
    proxy.tap = tap.connection
    direct = cluster.internal[1]
    partitions = [TopicPartition(TOPIC, number) for number in range(2)]
    await asyncio.to_thread(cluster.create_topic, TOPIC, len(partitions))
    await fill(direct, partitions)
    one, other = Service(), Service()
    async with (
        running(cluster.bootstrap_servers, TOPIC, GROUP, CHANNEL, one.handle) as cut,
        running(direct, TOPIC, GROUP, CHANNEL, other.handle) as stays,
    ):
        await cut.until_assigned(1)
        await stays.until_assigned(1)
        assert cut.facts.protocol == stays.facts.protocol == "consumer"
        (lost,) = cut.app.channel(TOPIC).assignment
        await until(lambda: len(one.handled) > SOME and tap.asked, "it handles records")
        epoch = tap.asked[-1].generation

        proxy.requests.hold()
        proxy.answers.hold()
        await until(lambda: cut.of(SessionOver), "its session is over by its own clock")
        assert lost not in stays.app.channel(TOPIC).assignment, "it has stopped too late"
        # The handler that ran may end.
        await asyncio.sleep(2 * TAKES_S)
        handled = len(one.handled)
        await stays.until_assigned(2)
        await until(lambda: other.handled.count(lost) > SOME, "the other one takes over")
        assert len(one.handled) == handled
        healed_at = time.time()
        proxy.requests.release()
        proxy.answers.release()

        await until(lambda: cut.of(SessionUp), "it has a session again")
        await cut.until_assigned(1)
        await stays.until_assigned(1)
        await until(lambda: len(one.handled) > handled + SOME, "it handles records again")
    # What it has sent during the cut comes by after it. A commit may have been on its way, and may
    # have been sent once more before the session was over.
    late = [
        asked
        for asked in tap.asked
        if asked.t > healed_at and asked.tp == lost and asked.generation <= epoch
    ]
    assert len(late) <= 2
    assert any(asked.generation > epoch for asked in tap.asked), "it has not committed since"
    for partition in partitions:
        done = one.offsets.get(partition, set()) | other.offsets.get(partition, set())
        assert done == set(range(len(done)))
        stored = [
            entry.offset for entry in await read_commits(direct, GROUP) if entry.tp == partition
        ]
        assert stored == sorted(stored)
        assert stored[-1] <= len(done)
