"""batch.send: rows of a DataFrame go to the topic of an outgoing channel before the batch is acked."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from reactive_kafka import App, SparkBatch
from reactive_kafka.errors import ClusterError, OffloadError
from reactive_kafka.spark.batches.blame import UnfitExecutorsError
from reactive_kafka.spark.batches.spark_batch import can_send
from reactive_kafka.spark.session.kafka_sink import KafkaSink
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import tp, until
from tests.spark.records import on_spark, outgoing
from tests.spark.test_cluster import committed, produce

HEADER = "array(named_struct('key', 'range', 'value', CAST(range_id AS BINARY))) AS headers"
ROWS = ("CAST(CAST(value AS STRING) AS INT) % 2 AS parity", "range_id")


def totals_of(batch: SparkBatch, df: Any) -> Any:
    """How many even and odd numbers a batch has."""
    rows = batch.with_range_id(df).selectExpr(*ROWS).groupBy("range_id", "parity").count()
    return rows.selectExpr(
        "CAST(parity AS STRING) AS key", "CAST(count AS STRING) AS value", HEADER, "0 AS partition"
    )


def numbers_app(name: str = "totals", **more: Any) -> App:
    channel = {
        "group_id": "numbers",
        "auto_offset_reset": "earliest",
        "spark": {"batch_max_wait": "100ms", **more.pop("spark", {})},
        **more.pop("incoming", {}),
    }
    app = App(
        {
            "incoming": {"orders": channel},
            "outgoing": {
                "totals": {},
                "exact": {"transactional_id": "t"},
                **more.pop("outgoing", {}),
            },
            "memory": {"inside": {}},
            "http": {"enabled": False},
            **more,
        }
    )

    app.emitter("inside")

    @app.incoming("inside")
    async def inside(value: bytes) -> None: ...

    @app.spark("orders")
    def count(df: Any, batch: SparkBatch) -> None:
        batch.send(totals_of(batch, df), name)

    return app


@on_spark
async def test_in_a_test_app_the_rows_are_in_the_topic_before_the_batch_is_committed(
    engine: SparkEngine,
) -> None:
    broker = MemoryBroker(partitions=1)
    async with TestApp(numbers_app(), broker=broker) as test:
        for number in range(5):
            await test.send("orders", str(number).encode())
        await until(lambda: test.committed("orders").get(tp()) == 5, 90)
        records = list(broker.log(tp(topic="totals")))
    counts = {b"0": 0, b"1": 0}
    for record in records:
        assert record.key is not None and record.value is not None
        counts[record.key] += int(record.value)
    assert counts == {b"0": 3, b"1": 2}
    assert [name for name, _ in records[0].headers] == ["range"]
    await broker.close()


@on_spark
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("total", "batch.send(df, 'total'): no [outgoing.total] is configured in code"),
        ("exact", "batch.send(df, 'exact'): [outgoing.exact] has transactional_id"),
        ("inside", "batch.send(df, 'inside'): [memory.inside] is a memory channel"),
    ],
)
async def test_a_channel_that_takes_no_rows_is_named_and_the_batch_is_nacked_whole(
    engine: SparkEngine, name: str, text: str
) -> None:
    broker = MemoryBroker(partitions=1)
    # Parts of the batch would fail in the same way, so it is not bisected.
    app = numbers_app(
        name,
        incoming={"failure_strategy": "dead-letter-queue"},
        spark={"on_failure": "bisect"},
    )
    async with TestApp(app, broker=broker) as test:
        await test.send("orders", b"1")
        await until(lambda: test.committed("orders").get(tp()) == 1, 90)
        (letter,) = broker.log(tp(topic="dead-letter-topic-orders"))
    assert text in dict(letter.headers)["dead-letter-reason"].decode()
    await broker.close()


@on_spark
@pytest.mark.kafka
async def test_on_kafka_the_rows_are_written_by_a_spark_job_before_the_batch_is_committed(
    engine: SparkEngine, kafka: str
) -> None:
    topic = f"orders-{uuid4().hex[:8]}"
    totals = f"{topic}-totals"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(totals, 1, 1)])
    await admin.close()
    await produce(kafka, topic, partitions=2, count=40)
    app = numbers_app(
        kafka={"bootstrap_servers": kafka},
        incoming={"topics": [topic], "group_id": topic},
        outgoing={"totals": {"topic": totals}},
    )
    async with app:
        await until(lambda: committed(app) == 40, 120)
    counts = {b"0": 0, b"1": 0}
    async with aiokafka.AIOKafkaConsumer(
        totals, bootstrap_servers=kafka, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        async with asyncio.timeout(30):
            while sum(counts.values()) < 40:
                record = await consumer.getone()
                counts[record.key] += int(record.value)
                assert [name for name, _ in record.headers] == ["range"]
    assert counts == {b"0": 20, b"1": 20}


@on_spark
@pytest.mark.kafka
async def test_a_row_for_a_partition_that_the_topic_does_not_have_fails_on_data(
    engine: SparkEngine, kafka: str
) -> None:
    topic = f"totals-{uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    sink = KafkaSink(lambda channel: kafka)
    settings = outgoing("totals", topic, send_timeout_s=2.0)

    def write(spark: Any) -> None:
        sink(spark.sql("SELECT 'x' AS value, 7 AS partition"), settings, "batch.send(df, 'totals')")

    with pytest.raises(OffloadError, match="Partition 7 of topic") as failed:
        await engine.run(write, timeout_s=60, description="write")
    assert not isinstance(failed.value, ClusterError)


class RefusingWriter:
    """The writer of a DataFrame whose save fails as Spark's does."""

    def __init__(self, text: str) -> None:
        self.write = self
        self._text = text

    def format(self, name: str) -> RefusingWriter:
        return self

    def options(self, **options: str) -> RefusingWriter:
        return self

    def mode(self, name: str) -> RefusingWriter:
        return self

    def save(self) -> None:
        raise ValueError(self._text)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            "Failed to find data source: kafka. Please deploy the application as per",
            UnfitExecutorsError,
            'Spark has no Kafka connector: run "reactive-kafka spark jars --to DIR" and set jars',
        ),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [totals]",
            ClusterError,
            "not allowed to write to topic totals: it needs the right WRITE",
        ),
    ],
)
def test_what_an_operator_has_to_change_is_no_fault_of_the_records(
    text: str, kind: type[Exception], told: str
) -> None:
    sink = KafkaSink(lambda channel: "kafka:9092")
    settings = outgoing("totals", "totals")
    with pytest.raises(kind, match=r"batch.send\(df, 'totals'\): ") as refused:
        sink(RefusingWriter(text), settings, "batch.send(df, 'totals')")
    assert told in str(refused.value)


def test_a_batch_takes_no_rows_after_its_function_or_without_an_application() -> None:
    by_hand = SparkBatch("id", (), None, 1)
    with pytest.raises(RuntimeError, match="needs a batch that an application has made"):
        by_hand.send(None, "totals")
    sent: list[tuple[Any, str]] = []
    batch = can_send(SparkBatch("id", (), None, 1), lambda df, name: sent.append((df, name)))
    batch.send("rows", "totals")
    batch.rejects.close()
    with pytest.raises(RuntimeError, match="too late"):
        batch.send("more", "totals")
    assert sent == [("rows", "totals")]
