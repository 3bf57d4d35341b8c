"""``filter_headers`` on a real Kafka: what is skipped is counted, and the position passes it."""

from __future__ import annotations

import uuid

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, TopicPartition
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka


async def test_records_of_other_services_are_skipped_before_they_are_decoded(kafka: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for number in range(20):
            service, value = (b"ours", b"%d" % number) if number % 5 == 0 else (b"theirs", b"<a/>")
            await producer.send(topic, value, partition=0, headers=[("service", service)])
    orders = {
        "topic": topic,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "commit_interval": "200ms",
        "filter_headers": {"service": "ours"},
    }
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {"orders": orders},
        }
    )
    seen: list[int] = []

    @app.incoming("orders")
    async def handler(number: int) -> None:
        seen.append(number)

    here = TopicPartition(topic, 0)
    async with app:
        channel = app.channel("orders")
        await until(lambda: seen == [0, 5, 10, 15], "ours are handled", 30)
        await until(
            lambda: (
                [one.committed for one in channel.facts().partitions if one.partition == here]
                == [20]
            ),
            "the position has passed all",
            10,
        )
        assert channel.facts().totals[here].skipped == {"filter": 16}
