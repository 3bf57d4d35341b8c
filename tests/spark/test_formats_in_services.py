"""Services whose Spark channels have schemas in a registry: it goes away and comes back, and
nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer

from reactive_kafka import App, SparkBatch
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import tp, until
from tests.schemas.helpers import reasons, serialized
from tests.schemas.server import RegistryServer, registry_server
from tests.spark.records import on_spark
from tests.spark.test_cluster import committed
from tests.spark.test_formats import ONE, TWO, Click

LETTERS = "dead-letter-topic-orders"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


async def values_of(registry: RegistryServer) -> list[bytes]:
    """Records of two writers, and one that cannot be decoded."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        first = await serialized(AvroSerializer(client, ONE), {"user": 1})
        second = await serialized(AvroSerializer(client, TWO), {"user": 2, "page": "/"})
    return [first, b"broken", second, first[:5], second]


def orders_app(registry: RegistryServer, rows: list[Any], **more: Any) -> App:
    spark = {"batch_max_wait": "100ms"}
    channel = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "value_deserializer": "avro",
        "failure_strategy": "dead-letter-queue",
        "spark": spark,
        **more,
    }
    app = App({"schema_registry": {"url": registry.url}, "incoming": {"orders": channel}})

    @app.spark("orders", payload=Click)
    def keep(df: Any, batch: SparkBatch) -> None:
        rows.extend((row.offset, row.user, row.page) for row in df.orderBy("offset").collect())

    return app


@on_spark
async def test_while_the_registry_is_away_the_channel_is_not_ready_and_a_stop_leaves_the_records(
    engine: SparkEngine, registry: RegistryServer
) -> None:
    values = await values_of(registry)
    registry.fault, rows, broker = 500, list[Any](), MemoryBroker(partitions=1)
    overrides = {"schema_registry": {"url": registry.url}}
    app = orders_app(registry, rows, drain_timeout="40s")
    async with TestApp(app, broker=broker, overrides=overrides) as test:
        for value in values:
            await test.send("orders", value)
        await until(lambda: "told to answer 500" in reasons(app, "orders"), 90)
        told = reasons(app, "orders")
        assert app.health().live.status == "UP"
        began = time.monotonic()
    # It does not wait for the registry until the end of its drain.
    assert time.monotonic() - began < 20
    assert told.startswith(f"schema registry {registry.url}: schema ")
    assert (rows, list(broker.log(tp(topic=LETTERS)))) == ([], [])
    assert (
        broker.committed("billing").get(tp()) is None
        or broker.committed("billing")[tp()].offset == 0
    )
    registry.fault = None
    async with TestApp(orders_app(registry, rows), broker=broker, overrides=overrides) as test:
        await until(lambda: test.committed("orders").get(tp()) == len(values), 90)
        letters = [record.value for record in broker.log(tp(topic=LETTERS))]
    await broker.close()
    assert rows == [(0, 1, None), (2, 2, "/"), (4, 2, "/")]
    assert letters == [values[1], values[3]]


@on_spark
@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["records", "ranges"])
async def test_on_kafka_both_modes_have_the_columns_and_the_bytes_of_what_cannot_be_decoded(
    engine: SparkEngine, registry: RegistryServer, kafka: str, mode: str
) -> None:
    values, rows = await values_of(registry), list[Any]()
    topic = f"orders-{uuid4().hex[:8]}"
    letters = f"{topic}-letters"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1) for name in (topic, letters)])
    await admin.close()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
    registry.fault, registry.times = 503, 2
    app = orders_app(
        registry,
        rows,
        topics=[topic],
        bootstrap_servers=kafka,
        group_id=topic,
        dead_letter_queue={"topic": letters},
        spark={"mode": mode, "batch_max_wait": "100ms"},
    )
    async with app:
        await until(lambda: committed(app) == len(values), 120)
    async with aiokafka.AIOKafkaConsumer(
        letters, bootstrap_servers=kafka, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        found = [await consumer.getone() for _ in range(2)]
    assert rows == [(0, 1, None), (2, 2, "/"), (4, 2, "/")]
    assert [letter.value for letter in found] == [values[1], values[3]]
    told = [dict(letter.headers)["dead-letter-reason"].decode() for letter in found]
    assert (
        told[0]
        == "does not fit Click: it names no schema: a zero and four bytes of an id are to come first"
    )
    assert told[1].startswith("does not fit Click: not data of schema ")
