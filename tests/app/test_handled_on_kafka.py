"""Readiness after catching up, and reading one's own write, on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, Message
from tests.app.helpers import until
from tests.app.test_ends_on_kafka import compacted_topic

pytestmark = pytest.mark.kafka


async def test_a_table_is_ready_when_it_was_read_and_then_has_what_the_service_writes(
    kafka: str,
) -> None:
    topic = await compacted_topic(kafka)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(topic, b"last", key=b"other", partition=1)
    table: dict[Any, Any] = {}
    may_go_on = asyncio.Event()
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "table": {
                    "topic": topic,
                    "group_id": f"table-{uuid.uuid4().hex}",
                    "auto_offset_reset": "earliest",
                    "isolation_level": "read_committed",
                    "ready": "caught-up",
                }
            },
            "outgoing": {"changes": {"topic": topic}},
        }
    )

    @app.incoming("table")
    async def take(message: Message[bytes]) -> None:
        await may_go_on.wait()
        table[message.key] = message.payload

    emitter = app.emitter("changes")
    async with app:
        await until(lambda: "left to handle" in str(app.health().ready.to_json()), 30)
        assert not app.health().ready.is_up
        may_go_on.set()
        # One partition ends with the marker of an aborted transaction.
        await until(lambda: app.health().ready.is_up, 30)
        assert table == {b"k": b"3", b"other": b"last"}
        for number in range(20):
            confirmation = await emitter.send(b"%d" % number, key=b"own")
            await app.channel("table").handled(confirmation, timeout=10)
            assert table[b"own"] == b"%d" % number
