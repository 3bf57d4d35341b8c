"""Our way in alone, without channel, tracker or dispatch: what is left of the budget for those.

Not a row of the table: ``python -m benchmarks.profile_ours seam:poll``.
"""

from __future__ import annotations

import time

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.contenders.raw import COMMIT_EVERY_S, make_handler
from reactive_kafka.broker.client import Consumer
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Topics


class _FromTheBeginning:
    """Reads every partition from its beginning, as soon as it is assigned."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.generation = 0

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions = frozenset()

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self.partitions = partitions
        self.generation = generation
        self._consumer.start_at(dict.fromkeys(partitions, 0))


async def poll(job: Job) -> Result:
    """``poll`` with 500 records a partition; the handler is awaited for each, a commit follows each
    second.
    """
    meter = Meter(job.records)
    handle = make_handler(meter, job.wait_s)
    connector = KafkaConnector(job.bootstrap)
    consumer = connector.consumer(
        name="seam", subscription=Topics((job.topic,)), group_id=job.group, properties={}
    )
    listener = _FromTheBeginning(consumer)
    await consumer.start(listener)
    try:
        due = time.monotonic() + COMMIT_EVERY_S
        while not meter.finished:
            taken = await consumer.poll(dict.fromkeys(listener.partitions, 500), 1.0)
            for chunk in taken.chunks:
                for record in chunk.records:
                    await handle(record)
            if time.monotonic() >= due:
                await _commit(consumer, listener)
                due = time.monotonic() + COMMIT_EVERY_S
        await _commit(consumer, listener)
    finally:
        await consumer.stop()
        await connector.close()
    return meter.result()


async def _commit(consumer: Consumer, listener: _FromTheBeginning) -> None:
    positions = {
        partition: Committed(position) for partition, position in consumer.positions().items()
    }
    await consumer.commit(positions, listener.generation)
