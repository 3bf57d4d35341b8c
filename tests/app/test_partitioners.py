"""``partitioner``: keys go where the producers of other clients would put them."""

from __future__ import annotations

import asyncio
import uuid
import zlib
from typing import Any

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.partitioner import murmur2

from reactive_kafka import App, ConfigError, Record
from tests.app.helpers import in_virtual_time, running, tp

PARTITIONS = 7
KEYS = [b"key-%d" % number for number in range(200)]


def places(test: Any) -> dict[bytes | None, int]:
    """Key -> partition, of the records in invoices."""
    return {
        record.key: number
        for number in range(PARTITIONS)
        for record in test.broker.log(tp(number, "invoices"))
    }


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [
        ("murmur2", lambda key: (murmur2(key) & 0x7FFFFFFF) % PARTITIONS),
        ("crc32", lambda key: zlib.crc32(key) % PARTITIONS),
    ],
)
@pytest.mark.parametrize("transactional_id", [None, "t"])
@in_virtual_time
async def test_a_key_goes_to_the_partition_of_its_hash(
    partitioner: str, expected: Any, transactional_id: str | None
) -> None:
    settings = {"partitioner": partitioner, "transactional_id": transactional_id}
    app = App({"outgoing": {"invoices": settings}})
    emitter = app.emitter("invoices")
    async with running(app, partitions=PARTITIONS) as test:
        for key in KEYS[:50]:
            await emitter.send(b"", key=key)
            # The second one of a key takes a shorter way.
            await emitter.send(b"", key=key)
        assert places(test) == {key: expected(key) for key in KEYS[:50]}


@pytest.mark.parametrize(("partitioner", "is_hashed"), [("murmur2", True), ("crc32", False)])
@in_virtual_time
async def test_an_empty_key_is_a_key_for_murmur2_and_none_for_crc32(
    partitioner: str, is_hashed: bool
) -> None:
    app = App({"outgoing": {"invoices": {"partitioner": partitioner}}})
    emitter = app.emitter("invoices")
    async with running(app, partitions=PARTITIONS) as test:
        for _ in range(2 * PARTITIONS):
            await emitter.send(b"", key=b"")
        used = {number for number in range(PARTITIONS) if test.broker.log(tp(number, "invoices"))}
    assert used == ({0x106E08D9 % PARTITIONS} if is_hashed else set(range(PARTITIONS)))


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32", None])
@in_virtual_time
async def test_records_without_a_key_and_those_with_a_partition_go_where_they_went(
    partitioner: str | None,
) -> None:
    app = App({"outgoing": {"invoices": {"partitioner": partitioner}}})
    emitter = app.emitter("invoices")
    async with running(app, partitions=PARTITIONS) as test:
        for _ in range(PARTITIONS):
            await emitter.send(b"")
        used = [len(test.broker.log(tp(number, "invoices"))) for number in range(PARTITIONS)]
        assert used == [1] * PARTITIONS
        await emitter.send(Record(b"", key=b"key-1", partition=3))
        assert places(test)[b"key-1"] == 3


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("murmur3", 'expected one of "murmur2", "crc32" or "module:function"; did you mean'),
        ("murmur2_random", "did you mean 'murmur2'?"),
        ("consistent_random", "did you mean 'crc32'?"),
        ("nothing.at.all:here", "no module"),
    ],
)
def test_another_name_is_refused_and_that_of_librdkafka_is_translated(
    written: str, said: str
) -> None:
    app = App({"outgoing": {"invoices": {"partitioner": written}}})
    app.emitter("invoices")
    with pytest.raises(ConfigError) as caught:
        app.configure()
    assert "partitioner" in str(caught.value)
    assert said in str(caught.value)


def placed_by_librdkafka(servers: str, topic: str, **settings: str) -> dict[bytes, int]:
    """Key -> partition, where confluent-kafka's producer puts it."""
    placed: dict[bytes, int] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        placed[message.key()] = message.partition()

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})
    for key in KEYS:
        producer.produce(topic, b"", key, on_delivery=delivered)
    assert producer.flush(30) == 0
    return placed


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("partitioner", "theirs"), [("crc32", {}), ("murmur2", {"partitioner": "murmur2_random"})]
)
async def test_on_a_real_kafka_keys_land_where_librdkafka_puts_them(
    kafka: str, partitioner: str, theirs: dict[str, str]
) -> None:
    topic = f"invoices-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()
    expected = await asyncio.to_thread(placed_by_librdkafka, kafka, topic, **theirs)
    tables = {
        "kafka": {"bootstrap_servers": kafka},
        "http": {"enabled": False},
        "outgoing": {"invoices": {"topic": topic, "partitioner": partitioner}},
    }
    app = App(tables)
    emitter = app.emitter("invoices")
    async with app:
        for key in KEYS:
            await emitter.send(key, key=key)
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "enable.auto.commit": False}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
    ours: dict[bytes, int] = {}
    try:
        while len(ours) < len(KEYS):
            message = await asyncio.to_thread(reader.poll, 10)
            assert message is not None
            assert message.error() is None
            # Theirs have no value.
            if message.value():
                ours[message.key()] = message.partition()
    finally:
        reader.close()
    assert ours == expected
