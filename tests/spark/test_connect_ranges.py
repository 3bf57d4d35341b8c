"""A channel whose executors read Kafka, with the driver and the executors on a Spark Connect
server.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from reactive_kafka import App, SparkBatch
from reactive_kafka.spark.session.kafka_source import connector_jars, fetch_connector
from tests.harness.spark_cluster import ConnectServer
from tests.spark.beats import soon
from tests.spark.test_cluster import committed, produce

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    # Spark's, whenever a server does not answer.
    pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED"),
]


async def test_executors_of_a_connect_server_read_the_ranges_and_a_rejected_record_is_a_dead_letter(
    kafka: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetch_connector()
    topic, count = f"clicks-{uuid4().hex[:8]}", 300
    await produce(kafka, topic, partitions=2, count=count)
    channel = {
        "topics": [topic],
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "spark": {"mode": "ranges"},
        "failure_strategy": "dead-letter-queue",
        "dead_letter_queue": {"topic": f"{topic}-dead"},
    }
    jars = ",".join(map(str, connector_jars()))
    async with ConnectServer(tmp_path, conf={"spark.jars": jars}) as server:
        app = App(
            {
                "kafka": {"bootstrap_servers": kafka},
                "incoming": {"clicks": channel},
                "spark": {"remote": server.remote, "conf": {"spark.driver.memory": "1g"}},
                "http": {"enabled": False},
            }
        )
        rows, batches = Counter[tuple[int, int]](), list[SparkBatch]()

        @app.spark("clicks")
        def keep(df: Any, batch: SparkBatch) -> None:
            batches.append(batch)
            batch.reject(df.where("value = '7'"), "not this one")
            rows.update(
                (row.partition, row.offset) for row in df.select("partition", "offset").collect()
            )

        async with app:
            await soon(lambda: committed(app) == count, 120)
            (spark,) = app.facts().spark
            assert spark.ready
    assert {(one.partition, one.start) for one in batches[0].ranges} <= {(0, 0), (1, 0)}
    assert rows == Counter(
        (partition, offset) for partition in (0, 1) for offset in range(count // 2)
    )
    assert spark.jobs["failed"] == spark.jobs["lost"] == 0
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert any(
        "'spark.driver.memory': only the start of a Spark Connect server" in one for one in warnings
    )
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
    assert await values_of(kafka, f"{topic}-dead") == [b"7"]


async def values_of(servers: str, topic: str) -> list[bytes | None]:
    """The values of the records of a topic's first partition."""
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        return [(await consumer.getone()).value for _ in range(end)]
