"""Dead letters and their replay, on topics whose retention a real broker carries out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from click.testing import CliRunner

from reactive_kafka import App
from reactive_kafka.cli.commands import commands
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 60 * 60 * 1000
WEEK = {"retention.ms": str(7 * DAY_MS)}
FOR_EVER = {"retention.ms": "-1"}
OFTEN = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300"}
"""So that the broker looks for what is too old several times a second, and not every five
minutes.
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with KafkaCluster(properties=OFTEN) as cluster:
        yield cluster.bootstrap_servers


async def create(servers: str, **topics: dict[str, str]) -> None:
    """Topics of one partition, with these configs."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(name, 1, 1, topic_configs=config) for name, config in topics.items()]
        )
    finally:
        await admin.close()


@asynccontextmanager
async def reading(servers: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def write_old(servers: str, topic: str, *values: bytes, at_ms: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value, timestamp_ms=at_ms)
    finally:
        await producer.stop()


async def after_the_broker_looked(servers: str, consumer: AIOKafkaConsumer, *, at_ms: int) -> None:
    """Return when the broker has deleted a record of that time, written now, from a topic that
    keeps a week.
    """
    canary = f"canary-{time.time_ns()}"
    await create(servers, **{canary: WEEK})
    await write_old(servers, canary, b"x", at_ms=at_ms)

    async def is_gone() -> bool:
        return await kept(consumer, canary) == 0

    await until(is_gone)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is true, for a minute at most."""
    async with asyncio.timeout(60):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.1)


async def kept(consumer: AIOKafkaConsumer, topic: str) -> int:
    """How many records of a topic the broker has not deleted."""
    partition = TopicPartition(topic, 0)
    first = (await consumer.beginning_offsets([partition]))[partition]
    return (await consumer.end_offsets([partition]))[partition] - first


async def test_letters_of_records_30_days_old_outlive_a_retention_of_a_week(servers: str) -> None:
    old_ms = int(time.time() * 1000) - 30 * DAY_MS
    await create(servers, backfill=FOR_EVER, letters=WEEK)
    await write_old(servers, "backfill", b"1", b"2", b"3", at_ms=old_ms)
    settings = {
        "kafka": {"bootstrap_servers": servers},
        "http": {"enabled": False},
        "incoming": {
            "backfill": {
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "commit_interval": "100ms",
                "failure_strategy": "dead-letter-queue",
                "dead_letter_queue": {"topic": "letters"},
            }
        },
    }
    app = App(settings)

    @app.incoming("backfill")
    async def refuse(value: bytes) -> None:
        raise ValueError("no")

    async def is_committed() -> bool:
        return set((await app.channel("backfill").committed()).values()) == {3}

    async with app:
        await until(is_committed)
    async with reading(servers) as consumer:
        assert await kept(consumer, "letters") == 3
        await after_the_broker_looked(servers, consumer, at_ms=old_ms)
        assert await kept(consumer, "letters") == 3
        consumer.assign([TopicPartition("letters", 0)])
        await consumer.seek_to_beginning()
        record = await consumer.getone()
        assert dict(record.headers)["dead-letter-timestamp"] == b"%d" % old_ms


async def test_a_letter_that_is_replayed_into_a_topic_that_keeps_a_week_stays_there(
    servers: str,
) -> None:
    now_ms = int(time.time() * 1000)
    letters = [
        ("keeps-a-week", now_ms - 30 * DAY_MS),
        ("keeps-all", now_ms - 30 * DAY_MS),
        ("refuses", now_ms - 60_000),
    ]
    letters.append(("stamps", now_ms - 30 * DAY_MS))
    configs = {
        "keeps-a-week": WEEK,
        "keeps-all": FOR_EVER,
        "refuses": {**FOR_EVER, "message.timestamp.before.max.ms": "30000"},
        "stamps": {**WEEK, "message.timestamp.type": "LogAppendTime"},
    }
    await create(servers, old_letters=FOR_EVER, **configs)
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    for topic, at_ms in letters:
        origin = {"topic": topic, "partition": "0", "offset": "5", "timestamp": str(at_ms)}
        headers = [(f"dead-letter-{name}", value.encode()) for name, value in origin.items()]
        await producer.send_and_wait("old_letters", topic.encode(), headers=headers)
    await producer.stop()
    said = await asyncio.to_thread(replayed, servers, "old_letters", *configs)
    assert (
        "1 of them with the time of the replay as timestamp, because keeps-a-week has retention.ms"
        in said
    )
    assert (
        "1 of them with the time of the replay as timestamp, because refuses has message.timestamp.before"
        in said
    )
    assert "replayed 4 records, 2 with the time of the replay as timestamp\n" in said
    async with reading(servers) as consumer:
        await after_the_broker_looked(servers, consumer, at_ms=now_ms - 30 * DAY_MS)
        assert {topic: await kept(consumer, topic) for topic in configs} == dict.fromkeys(
            configs, 1
        )
        consumer.assign([TopicPartition("keeps-all", 0)])
        await consumer.seek_to_beginning()
        record = await consumer.getone()
        assert record.timestamp == now_ms - 30 * DAY_MS


def replayed(servers: str, letters: str, *sources: str) -> str:
    """What the command says, with a configuration whose channels read these topics."""
    channels = {f"channel-{number}": {"topic": topic} for number, topic in enumerate(sources)}
    settings = {"kafka": {"bootstrap_servers": servers, "group_id": "g"}, "incoming": channels}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(settings))
        done = CliRunner().invoke(
            commands, ["dlq", "replay", letters, "--yes", "--config", str(file)]
        )
    assert done.exit_code == 0, done.output
    return done.output
