"""Ends of reading on a real Kafka: runs that end by themselves, ranges, and topics that get more
partitions.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import aiokafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from reactive_kafka import App, Message, TopicPartition
from tests.broker.hazards.faults import until

pytestmark = pytest.mark.kafka

BACKFILL = """
    from reactive_kafka import App, Message

    app = App()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        print(message.partition, message.offset, (message.payload or b"").decode(), flush=True)
"""


async def compacted_topic(servers: str) -> str:
    """A compacted topic: what a transaction has written ends with its marker, and an aborted one is
    behind that.
    """
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        compacts = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
        }
        await admin.create_topics([NewTopic(topic, 2, 1, topic_configs=compacts)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
        for value in (b"1", b"2", b"3"):
            async with producer.transaction():
                await producer.send_and_wait(topic, value, key=b"k", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", key=b"x", partition=0)
        await producer.abort_transaction()
    return topic


def backfill(
    folder: Path, servers: str, orders: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the application to its end, as a user does."""
    (folder / "backfill.py").write_text(dedent(BACKFILL))
    config = f'[kafka]\nbootstrap_servers = "{servers}"\n[http]\nenabled = false\n[incoming.orders]\n{orders}'
    (folder / "reactive-kafka.toml").write_text(config)
    command = [
        sys.executable,
        "-m",
        "reactive_kafka.cli",
        "run",
        "backfill:app",
        "--until-end",
        *options,
    ]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


async def ends_of(
    servers: str, group: str, topic: str, *, committed: bool = True
) -> tuple[dict[int, int], int]:
    """What the group has, by partition; and the end of the log of partition 0."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        names = [aiokafka.TopicPartition(topic, number) for number in range(2)]
        consumer.assign(names)
        found = {one.partition: await consumer.committed(one) for one in names}
        ends = await consumer.end_offsets(names)
        return {number: at for number, at in found.items() if at is not None}, ends[names[0]]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_a_log_that_ends_with_markers_and_aborted_records_is_read_to_its_end(
    kafka: str, tmp_path: Path, isolation: str
) -> None:
    topic = await compacted_topic(kafka)
    orders = f'topic = "{topic}"\ngroup_id = "{topic}"\nauto_offset_reset = "earliest"\nisolation_level = "{isolation}"'
    ran = await asyncio.to_thread(backfill, tmp_path, kafka, orders)
    assert ran.returncode == 0, ran.stderr
    values = [line.split()[2] for line in ran.stdout.splitlines()]
    # Kafka may have compacted the log by now, which removes what was aborted.
    assert values[-1] == "3" or (isolation, values[-1]) == ("read_uncommitted", "aborted")
    committed, end = await ends_of(kafka, topic, topic)
    assert committed == {0: end}
    again = await asyncio.to_thread(backfill, tmp_path, kafka, orders)
    assert (again.returncode, again.stdout) == (0, "")


async def test_ranges_are_replayed_without_a_group(kafka: str, tmp_path: Path) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for number in range(300):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
    ran = await asyncio.to_thread(
        backfill,
        tmp_path,
        kafka,
        f'assign = ["{topic}:0:10..15", "{topic}:0:200..203", "{topic}:0:299..400"]',
    )
    assert ran.returncode == 0, ran.stderr
    assert [int(line.split()[1]) for line in ran.stdout.splitlines()] == [
        *range(10, 15),
        200,
        201,
        202,
        299,
    ]
    assert "goes up to 400, but its log ends at 300" in ran.stderr


async def test_a_range_of_times_is_replayed_in_all_partitions(kafka: str, tmp_path: Path) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        # The third partition stays empty.
        await admin.create_topics([NewTopic(topic, 3, 1)])
    finally:
        await admin.close()
    now = datetime.now(UTC).replace(microsecond=0)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for partition, minutes in ((0, (60, 50, 40, 30)), (1, (55, 31, 10))):
            for minute in minutes:
                stamp = int((now - timedelta(minutes=minute)).timestamp() * 1000)
                value = b"%d" % minute
                await producer.send_and_wait(topic, value, partition=partition, timestamp_ms=stamp)
    first, last = ((now - timedelta(minutes=ago)).isoformat() for ago in (50, 30))
    ran = await asyncio.to_thread(
        backfill, tmp_path, kafka, f'assign = ["{topic}:*@{first}..{last}"]'
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["0 1 50", "0 2 40", "1 1 31"]


async def test_partitions_that_are_added_to_a_whole_topic_are_read_from_their_beginning(
    kafka: str,
) -> None:
    topic, seen = f"orders-{uuid.uuid4().hex[:8]}", set[tuple[int, int]]()
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    tables = {"assign": [f"{topic}:*"], "commit_strategy": "ignore", "auto_offset_reset": "latest"}
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {"orders": tables},
        }
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.add((message.partition, message.offset))

    async with app, AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await until(lambda: app.channel("orders").is_ready, "it reads", 30)
        await producer.send_and_wait(topic, b"", partition=0)
        await until(lambda: (0, 0) in seen, "it is handled", 10)
        await admin.create_partitions({topic: NewPartitions(4)})
        await admin.close()
        known = producer.client.cluster
        while len(known.partitions_for_topic(topic) or ()) < 4:
            await producer.client.force_metadata_update()
        for partition in (0, 3, 3, 1):
            await producer.send_and_wait(topic, b"", partition=partition)
        await until(
            lambda: seen == {(0, 0), (0, 1), (1, 0), (3, 0), (3, 1)},
            "the new partition is read",
            20,
        )
        assert app.channel("orders").assignment == {
            TopicPartition(topic, number) for number in range(4)
        }


async def test_topics_that_an_application_declares_are_created_when_it_starts(kafka: str) -> None:
    name = uuid.uuid4().hex[:8]
    orders, invoices = f"orders-{name}", f"invoices-{name}"
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "orders": {"topic": orders, "group_id": name, "auto_offset_reset": "earliest"}
            },
            "outgoing": {"invoices": {"topic": invoices}},
            "topics": {
                orders: {"partitions": 3, "create": True, "config": {"retention.ms": "1234567"}},
                invoices: {"partitions": 2, "replication_factor": 1, "create": True},
            },
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def invoice(order: bytes) -> bytes:
        return order

    async with app:
        # The coordinator may learn of a new topic after its first answer to a member. Until then
        # the member is ready without partitions.
        await until(lambda: len(app.channel("orders").assignment) == 3, 30)
        await until(lambda: app.health().ready.is_up, 30)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        described = await admin.describe_topics([orders, invoices])
        found = {topic["topic"]: len(topic["partitions"]) for topic in described}
        assert found == {orders: 3, invoices: 2}
        of_orders = ConfigResource(ConfigResourceType.TOPIC, orders, configs={"retention.ms": ""})
        (answer,) = await admin.describe_configs([of_orders])
        assert "1234567" in str(answer)
    finally:
        await admin.close()
