"""Limits that channels share, rates by value, and channels that come first, on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, Message
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka


async def produce(servers: str, count: int, *topics: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for topic in topics:
            for _ in range(count):
                await producer.send(topic, b"{}")
        await producer.flush()


async def test_two_channels_share_a_limit(kafka: str) -> None:
    topics = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("upload", "recalc")]
    await produce(kafka, 20, *topics)
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka, "auto_offset_reset": "earliest"},
            "http": {"enabled": False},
            "limits": {"database": {"concurrency": 2}},
            "incoming": {
                topic: {
                    "group_id": topic,
                    "ordering": "unordered",
                    "concurrency": 5,
                    "limit": "database",
                }
                for topic in topics
            },
        }
    )
    now: Counter[str] = Counter()
    done: Counter[str] = Counter()
    most = 0

    async def call(message: Message[bytes]) -> None:
        nonlocal most
        now[message.topic] += 1
        most = max(most, now.total())
        await asyncio.sleep(0.02)
        now[message.topic] -= 1
        done[message.topic] += 1

    for topic in topics:
        app.incoming(topic)(call)
    async with app:
        await until(lambda: done.total() == 40, "all records are handled", 30)
    assert most == 2
    assert done == dict.fromkeys(topics, 20)


async def test_a_rate_by_header_holds_back_no_other_value(kafka: str) -> None:
    topic = f"alarms-{uuid.uuid4().hex[:8]}"
    orgs = [b"big"] * 8 + [b"small", None] * 3
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for org in orgs:
            headers = [] if org is None else [("org", org)]
            await producer.send_and_wait(topic, org or b"none", headers=headers, partition=0)
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka, "auto_offset_reset": "earliest"},
            "http": {"enabled": False},
            "incoming": {
                topic: {
                    "group_id": topic,
                    "ordering": "unordered",
                    "rate_limit": {"rate": "4/s", "by": "header:org"},
                }
            },
        }
    )
    started: list[tuple[bytes, float]] = []

    @app.incoming(topic)
    async def handler(message: Message[bytes]) -> None:
        started.append((message.payload, asyncio.get_running_loop().time()))

    async with app:
        await until(lambda: len(started) == len(orgs), "all records are handled", 30)
    at = {value: [when for what, when in started if what == value] for value, _ in started}
    assert at[b"big"][-1] - at[b"big"][0] >= 0.99
    assert max(at[b"small"][-1], at[b"none"][-1]) < at[b"big"][4]


async def test_the_records_of_one_channel_come_first(kafka: str) -> None:
    upload, recalc = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("upload", "recalc"))
    await produce(kafka, 10, recalc, upload)
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka, "auto_offset_reset": "earliest"},
            "http": {"enabled": False},
            "incoming": {
                recalc: {"group_id": recalc, "after": [upload]},
                upload: {"group_id": upload},
            },
        }
    )
    began: list[str] = []

    async def call(message: Message[bytes]) -> None:
        began.append(message.topic)
        await asyncio.sleep(0.02)

    app.incoming(upload)(call)
    app.incoming(recalc)(call)
    async with app:
        await until(lambda: len(began) == 20, "all records are handled", 30)
        # The topic upload is empty now, and its lag is known to be none.
        await produce(kafka, 3, recalc)
        await until(lambda: len(began) == 23, "the others are handled", 30)
    assert began == [upload] * 10 + [recalc] * 13
