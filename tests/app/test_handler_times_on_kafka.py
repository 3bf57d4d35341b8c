"""``attempt_timeout``, ``Later`` and ``stale_results`` on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from reactive_kafka import App, Later, Message
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka


async def topic_with(servers: str, *values: bytes) -> str:
    """A new topic with these values in partition 0."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
    return topic


def app_on(servers: str, topic: str, **orders: Any) -> App:
    return App(
        {
            "kafka": {"bootstrap_servers": servers},
            "http": {"enabled": False},
            "incoming": {
                "orders": {
                    "topic": topic,
                    "group_id": topic,
                    "auto_offset_reset": "earliest",
                    **orders,
                }
            },
        }
    )


async def committed(servers: str, topic: str) -> int | None:
    """What the group of that name has committed for partition 0."""
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=topic, enable_auto_commit=False
    ) as consumer:
        position: int | None = await consumer.committed(aiokafka.TopicPartition(topic, 0))
        return position


async def values_of(servers: str, topic: str) -> list[bytes]:
    """The values that partition 0 of a topic has now."""
    partition = aiokafka.TopicPartition(topic, 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        found = await consumer.getmany(timeout_ms=10_000)
        return [record.value for records in found.values() for record in records]


async def test_an_attempt_that_takes_too_long_is_retried_and_becomes_a_dead_letter(
    kafka: str,
) -> None:
    topic = await topic_with(kafka, b"quick", b"slow", b"last")
    letters = f"letters-{topic}"
    app = app_on(
        kafka,
        topic,
        attempt_timeout="300ms",
        retry={"max_attempts": 2, "backoff": "10ms"},
        failure_routes={
            "TimeoutError": {"strategy": "dead-letter-queue", "after_retries": True},
        },
        dead_letter_queue={"topic": letters},
    )
    calls: list[bytes] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(value)
        if value == b"slow":
            await asyncio.Event().wait()

    async with app:
        await until(lambda: calls[-1:] == [b"last"], "the last record is handled")
    assert calls == [b"quick", b"slow", b"slow", b"last"]
    assert await committed(kafka, topic) == 3
    assert await values_of(kafka, letters) == [b"slow"]


async def test_a_record_waits_with_its_partition_and_is_committed_in_its_place(kafka: str) -> None:
    topic = await topic_with(kafka, b"first", b"later", b"behind")
    app = app_on(kafka, topic, commit_interval="100ms", unprocessed_record_max_age="500ms")
    calls: list[tuple[bytes, int]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append((message.payload, message.attempt))
        if calls.count((b"later", 1)) == 1 and message.payload == b"later":
            raise Later("2s", scope="partition")

    async with app:
        await until(lambda: calls[-1:] == [(b"later", 1)], "it has asked for a delay")
        await asyncio.sleep(1)
        assert len(calls) == 2
        assert await committed(kafka, topic) == 1
        assert app.health().ready.status == "UP"
        await until(lambda: calls[-1:] == [(b"behind", 1)], "the last record is handled")
    assert calls == [(b"first", 1), (b"later", 1), (b"later", 1), (b"behind", 1)]
    assert await committed(kafka, topic) == 3


async def test_a_result_that_comes_after_the_partition_is_gone_is_dropped(kafka: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1), NewTopic(f"{topic}-out", 1, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for number in range(2):
            await producer.send_and_wait(topic, b"%d" % number, partition=number)
    go_on = asyncio.Event()

    def member(name: str, calls: list[bytes]) -> App:
        app = App(
            {
                "kafka": {"bootstrap_servers": kafka},
                "http": {"enabled": False},
                "incoming": {
                    "orders": {
                        "topic": topic,
                        "group_id": topic,
                        "auto_offset_reset": "earliest",
                        "concurrency": 2,
                        "revoke_grace": "300ms",
                        "stale_results": "drop",
                    }
                },
                "outgoing": {"invoices": {"topic": f"{topic}-out"}},
            }
        )

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(value: bytes) -> bytes:
            calls.append(value)
            if name == "old":
                await go_on.wait()
            return name.encode() + value

        return app

    of_old = list[bytes]()
    of_new = list[bytes]()
    old = member("old", of_old)
    async with old:
        await until(lambda: len(of_old) == 2, "both records are with the first member")
        async with member("new", of_new):
            await until(lambda: len(of_new) == 1, "one of them is with the second member")
            go_on.set()
            await until(lambda: old.channel("orders").facts().stale_results == 1, "one is dropped")
    (lost,) = of_new
    (kept,) = {b"0", b"1"} - {lost}
    assert sorted(await values_of(kafka, f"{topic}-out")) == sorted([b"new" + lost, b"old" + kept])
