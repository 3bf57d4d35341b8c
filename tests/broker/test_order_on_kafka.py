"""A request that comes late, behind the client that sent it, does not change the order of a
partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import start_without_group
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import RecordBytes
from reactive_kafka.subscription import Partitions
from tests.harness.kafka import KafkaCluster
from tests.harness.proxy import Direction, Proxy

pytestmark = pytest.mark.kafka

LATE = b"this one is late"
SEND_TIMEOUT_S = 1.0


class LateOnce(Direction):
    """Passes the first request with a certain record on only when it is told to, and all others at
    once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_come = asyncio.Event()
        self.may_pass = asyncio.Event()

    async def treat(self, piece: bytes) -> bytes:
        if LATE in piece and not self.has_come.is_set():
            self.has_come.set()
            await self.may_pass.wait()
        return await super().treat(piece)


@pytest.fixture
async def proxied() -> AsyncIterator[tuple[KafkaCluster, LateOnce]]:
    """A Kafka, and what delays one request to it."""
    cluster, late = KafkaCluster(), LateOnce()
    proxy = Proxy(cluster.address(1))
    proxy.requests = late
    async with proxy:
        cluster.advertised[1] = proxy.address
        await asyncio.to_thread(cluster.__enter__)
        try:
            yield cluster, late
        finally:
            await asyncio.to_thread(cluster.stop)


async def read(cluster: KafkaCluster, partition: TopicPartition) -> list[bytes | None]:
    consumer = KafkaConnector(cluster.bootstrap_servers).consumer(
        name="reader", subscription=Partitions((partition,)), group_id=None, properties={}
    )
    await start_without_group(consumer)
    try:
        (end,) = (await consumer.end_offsets([partition])).values()
        consumer.start_at({partition: 0})
        values: list[bytes | None] = []
        while len(values) < end:
            for chunk in (await consumer.poll({partition: 1_000}, 1.0)).chunks:
                values += [record.value for record in chunk.records]
        return values
    finally:
        await consumer.stop()


async def write_past_a_late_one(
    cluster: KafkaCluster, late: LateOnce, to: TopicPartition, properties: Mapping[str, Any]
) -> None:
    """Write a record whose request is held up, write it again with another client, and more; then
    it passes.
    """
    producer = KafkaConnector(cluster.bootstrap_servers).producer(
        name="writer", properties={"send_timeout_s": SEND_TIMEOUT_S, **properties}
    )
    await producer.start()
    try:
        await producer.write(to, [RecordBytes(b"before")])
        with pytest.raises(TransientBrokerError, match="not confirmed within"):
            await producer.write(to, [RecordBytes(LATE)])
        assert late.has_come.is_set()
        for value in (LATE, b"after", b"last"):
            await producer.write(to, [RecordBytes(value)])
        late.may_pass.set()
        # For the broker to take it, which it tells nobody.
        await asyncio.sleep(1)
    finally:
        await producer.stop()


async def test_a_late_request_of_an_idempotent_client_is_refused(
    proxied: tuple[KafkaCluster, LateOnce],
) -> None:
    cluster, late = proxied
    to = TopicPartition("orders", 0)
    cluster.create_topic("orders", 1)
    await write_past_a_late_one(cluster, late, to, {})
    assert await read(cluster, to) == [b"before", LATE, b"after", b"last"]
