"""What only a real broker says: topics made, records too large for their topic, and records that
are nearly nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextvars import Context

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.failure import WriteLetter
from reactive_kafka.failure.strategies import strategies_of
from reactive_kafka.nacks.letter_writer import LetterWriter
from tests.app.helpers import Recorder
from tests.config.values import dead_letter_settings
from tests.failure.samples import failed
from tests.harness.kafka import clients_of

pytestmark = pytest.mark.kafka


async def test_letters_reach_a_real_broker_as_they_were_read(kafka: str) -> None:
    """Row F11 of the faults. Row H-2 of the faults."""
    source, small = f"orders-{uuid.uuid4().hex[:8]}", {"max.message.bytes": "3000"}
    dead, tight = f"dead-{source}", f"tight-{source}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(source, 3, 1), NewTopic(tight, 1, 1, topic_configs=small)])
    await admin.close()
    client = {"bootstrap_servers": kafka}
    settings = IncomingSettings(
        name="orders",
        topics=(source,),
        group_id="g",
        failure_strategy="dead-letter-queue",
        dead_letter_queue=dead_letter_settings(topic=dead, client=client),
        client=client,
    )
    tasks: list[asyncio.Task[None]] = []

    def spawn(
        task: Callable[[], Awaitable[None]], name: str, context: Context | None = None
    ) -> None:
        async def run() -> None:
            await task()

        tasks.append(asyncio.create_task(run(), name=name))

    began_ms = SYSTEM_CLOCK.wall() * 1000
    letters = LetterWriter(settings, clients_of(kafka), SYSTEM_CLOCK, Recorder(), spawn)
    letters.start()
    async with asyncio.timeout(60):
        nothing = strategies_of(settings)["dead-letter-queue"].decide(
            failed(partition=TopicPartition(source, 0), key=None, value=None)
        )
        assert isinstance(nothing, WriteLetter)
        await letters.write(nothing)
        headers = (("dead-letter-reason", b"r" * 1024), ("dead-letter-topic", b"orders"))
        await letters.write(
            WriteLetter(topic=tight, value=b"v" * 2500, key=b"k", headers=headers, timestamp_ms=5)
        )
        assert letters.not_ready == ()
        await letters.stop()
        await asyncio.gather(*tasks)

    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.subscribe([dead, tight])
        async with asyncio.timeout(20):
            read = {
                record.topic: record
                for record in [await consumer.getone(), await consumer.getone()]
            }
        assert len(consumer.partitions_for_topic(dead) or ()) == 3
    finally:
        await consumer.stop()
    letter, trimmed = read[dead], read[tight]
    assert (letter.key, letter.value) == (None, None)
    assert letter.timestamp >= int(began_ms), "the time of writing"
    assert tuple(letter.headers) == nothing.headers
    assert (trimmed.headers, trimmed.value, trimmed.timestamp) == (headers[1:], b"v" * 2500, 5)
