"""The broker goes away while executors read a range: the batch is run again, and no record is to
blame.

Needs a process without another Spark session: pytest's alphabet runs this before the tests on a
local Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import aiokafka
import anyio.to_thread
import pytest

from reactive_kafka import App, SparkBatch
from reactive_kafka.spark.session.kafka_source import fetch_connector
from tests.harness.kafka import KafkaCluster
from tests.spark.beats import Beats, soon
from tests.spark.test_cluster import committed, rows_in

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    # Pyspark leaves those of collect() open.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# Far more than a consumer and a worker's socket hold ahead.
RECORDS, VALUE = 8_000, b"x" * 2_000


async def test_a_broker_that_is_killed_under_the_executors_read_costs_another_run_and_blames_nothing(
    tmp_path: Path,
) -> None:
    """Row I3 of the faults."""
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is None, "another test has left a Spark session"
    fetch_connector()
    topic, beats, batches = f"clicks-{uuid4().hex[:8]}", Beats(tmp_path), list[SparkBatch]()
    hold, out = beats.held(), str(tmp_path / "rows")
    with KafkaCluster() as cluster:
        cluster.create_topic(topic, 1)
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers
        ) as producer:
            for _ in range(RECORDS):
                await producer.send(topic, VALUE, partition=0)
        conf = {
            "spark.driver.memory": "1g",
            # Or all are read before Python has the first.
            "spark.sql.execution.arrow.maxRecordsPerBatch": 50,
            # How long a read of the executors waits for its broker: 120 s by default.
            "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "10s",
            "spark.executor.heartbeatInterval": "5s",
        }
        channel = {
            "topics": [topic],
            "group_id": topic,
            "auto_offset_reset": "earliest",
            "max_partition_fetch_bytes": 65536,
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": 1_000,
            "spark": {"mode": "ranges", "on_failure": "bisect", "batch_max_records": RECORDS},
        }
        app = App(
            {
                "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
                "incoming": {"clicks": channel},
                "spark": {"master": "local[2]", "conf": conf},
                "http": {"enabled": False},
            }
        )

        @app.spark("clicks")
        def keep(df: Any, batch: SparkBatch) -> None:
            batches.append(batch)
            held = df.select("partition", "offset", "value").mapInArrow(
                hold, "partition int, offset long, value binary"
            )
            held.drop("value").write.mode("overwrite").parquet(f"{out}/{batch.id}")

        def jobs() -> Any:
            return app.facts().spark[0].jobs

        async with app:
            await beats.begun(180)
            node = cluster.nodes[1].process
            assert node is not None
            await anyio.to_thread.run_sync(cluster.kill)
            assert node.poll() is not None, "the broker lives"
            assert len(batches) == 1, "the job was over before the broker was killed"
            beats.let_end()
            # The read waits for the broker until the executors give up, and the job is lost. Should
            # the member have to give its partition up before that, it is cancelled.
            await soon(lambda: jobs()["lost"] + jobs()["cancelled"], 120)
            await anyio.to_thread.run_sync(cluster.start_node, 1)
            await soon(lambda: committed(app) == RECORDS, 240)
            assert jobs()["failed"] == 0
    assert len(batches) > 1
    assert len({batch.id for batch in batches}) == 1
    assert sorted(rows_in(tmp_path / "rows")) == [(0, offset) for offset in range(RECORDS)]
