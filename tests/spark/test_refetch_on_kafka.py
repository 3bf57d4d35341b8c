"""Records read again from a real Apache Kafka, past what a log holds beside records."""

from __future__ import annotations

from contextlib import aclosing

import aiokafka
import pytest

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.spark.channel.refetch import records_of
from tests.broker.members import fill
from tests.broker.test_kafka import KafkaTestCluster, cluster

__all__ = ["cluster"]

pytestmark = pytest.mark.kafka


async def read(cluster: KafkaTestCluster, partition: TopicPartition, isolation: str) -> list[int]:
    """Every offset that can be read again of the first twenty."""
    settings = IncomingSettings(
        name="c", topics=(), group_id="g", client={"isolation_level": isolation}
    )
    found = []
    async with aclosing(
        records_of(cluster.connector, settings, partition, range(20), patience_s=10.0)
    ) as pieces:
        async for records in pieces:
            found += [record.offset for record in records]
    return found


async def test_markers_aborted_records_and_deleted_ones_are_passed_by(
    cluster: KafkaTestCluster,
) -> None:
    topic = await cluster.create_topic(1)
    partition = TopicPartition(topic, 0)
    # 0 to 2.
    await fill(cluster, topic, {0: ["a", "b", "c"]})
    # 3, 4, and the marker 5.
    await cluster.produce_and_leave_a_marker(partition, [b"d", b"e"])
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic
    ) as one:
        await one.begin_transaction()
        # 6, aborted by the marker 7.
        await one.send_and_wait(topic, b"f", partition=0)
        await one.abort_transaction()
    await cluster.delete_records(partition, 1)
    assert await read(cluster, partition, "read_committed") == [1, 2, 3, 4]
    assert await read(cluster, partition, "read_uncommitted") == [1, 2, 3, 4, 6]
