"""Spark jobs on a standalone cluster, and what happens when its parts die.

Needs a process without another Spark session: pytest's alphabet runs these tests before those on a
local Spark.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from reactive_kafka import App, SparkBatch
from reactive_kafka.errors import ClusterError
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.spark.session.supervisor import SessionLimits
from tests.config.values import secret_of, spark_settings
from tests.harness.spark_cluster import SMALL_JVM, SparkCluster
from tests.spark.beats import Beats, soon

pytestmark = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="module"),
    # Pyspark leaves those of collect() open.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

DESCRIPTION = "channel 'clicks': test"
CANARY = "canary8d1f"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SparkCluster]:
    async with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def settings_for(cluster: SparkCluster) -> Any:
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": 2,
    }
    starts_sooner = {f"spark.{one}.extraJavaOptions": SMALL_JVM for one in ("driver", "executor")}
    secret = {"spark.hadoop.my.password": secret_of(CANARY)}
    return spark_settings(master=cluster.url, conf={**conf, **starts_sooner, **secret})


@asynccontextmanager
async def engine_on(cluster: SparkCluster, **limits: float) -> AsyncIterator[SparkEngine]:
    """An engine that is ready, with all executors."""
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is None, "another test has left a Spark session"
    engine = SparkEngine(settings_for(cluster), limits=SessionLimits(cancel_s=8.0, **limits))
    await engine.start()
    try:
        await soon(lambda: engine.ready, 120)
        await soon(lambda: len(cluster.executors()) == 2, 60)
        yield engine
    finally:
        await engine.stop()


@pytest_asyncio.fixture(scope="class", loop_scope="module")
async def engine(cluster: SparkCluster) -> AsyncIterator[SparkEngine]:
    # never: it is to get well by itself.
    async with engine_on(cluster, trouble_s=120.0) as engine:
        yield engine


def in_proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(errors="replace")


async def count(engine: SparkEngine) -> int:
    async with asyncio.timeout(60):
        return await engine.run(
            lambda spark: spark.range(10).count(), timeout_s=30, description=DESCRIPTION
        )


class TestOneSession:
    """What the same session, and the same driver, lives through."""

    async def test_a_job_runs_on_all_executors(
        self, engine: SparkEngine, cluster: SparkCluster, tmp_path: Path
    ) -> None:
        beats, seen = Beats(tmp_path), list[JobProgress]()

        def note(progress: JobProgress) -> None:
            seen.append(progress)
            if progress.tasks_active >= 2:
                beats.let_end()

        rows = await engine.run(
            beats.job(tasks=3), timeout_s=30, description=DESCRIPTION, on_progress=note
        )
        assert rows == 3
        # Each executor has one core.
        assert any(progress.tasks_active >= 2 for progress in seen)
        assert len(cluster.executors()) == 2

    async def test_a_secret_is_on_no_command_line_and_in_no_environment_of_driver_and_executors(
        self, engine: SparkEngine, cluster: SparkCluster
    ) -> None:
        """Row S3 of the faults."""
        conf = await engine.run(
            lambda spark: spark.sparkContext.getConf(), timeout_s=30, description=DESCRIPTION
        )
        assert conf.get("spark.hadoop.my.password") == CANARY
        assert engine.driver_pid is not None
        looked_at = (engine.driver_pid, *cluster.executors())
        seen = {
            (pid, kind): in_proc(pid, kind) for pid in looked_at for kind in ("cmdline", "environ")
        }
        assert len(seen) == 6
        assert all(seen.values())
        assert [place for place, text in seen.items() if CANARY in text] == []

    async def test_an_executor_that_is_killed_costs_its_tasks_and_not_the_job(
        self, engine: SparkEngine, cluster: SparkCluster, tmp_path: Path
    ) -> None:
        beats, seen = Beats(tmp_path), list[JobProgress]()
        running = engine.run(
            beats.job(tasks=4), timeout_s=60, description=DESCRIPTION, on_progress=seen.append
        )
        job = asyncio.create_task(running)
        await soon(lambda: seen and seen[-1].tasks_active == 2)
        killed = cluster.executors()[0]
        os.kill(killed, signal.SIGKILL)
        await soon(lambda: seen[-1].tasks_failed > 0, 30)
        assert killed not in cluster.executors()
        beats.let_end()
        assert await job == 4
        assert engine.ready

    async def test_without_workers_it_is_not_ready_until_they_are_back_and_no_batch_is_to_blame(
        self, engine: SparkEngine, cluster: SparkCluster, tmp_path: Path
    ) -> None:
        beats, driver = Beats(tmp_path), engine.driver_pid
        job = asyncio.create_task(engine.run(beats.job(), timeout_s=8, description=DESCRIPTION))
        await beats.begun()
        cluster.kill_workers()
        await soon(lambda: not engine.ready)
        assert (
            engine.reason
            == f"no executors: start workers at {cluster.url}, with cores and memory to spare"
        )
        with pytest.raises(
            ClusterError, match="cancelled, not done after 8 s, and Spark was in trouble meanwhile"
        ):
            await job
        assert await beats.are_over()

        await cluster.start_workers()
        await soon(lambda: engine.ready, 120)
        assert await count(engine) == 10
        assert engine.driver_pid == driver


class TestApplication:
    """Whole applications on a real Kafka, one channel each."""

    pytestmark = pytest.mark.kafka

    @pytest.mark.parametrize("mode", ["records", "ranges"])
    async def test_every_record_is_a_row_though_an_executor_is_killed_mid_batch(
        self, cluster: SparkCluster, kafka: str, tmp_path: Path, mode: str
    ) -> None:
        topic, count = f"clicks-{mode}-{uuid4().hex[:8]}", 3_000
        await produce(kafka, topic, partitions=2, count=count)
        app, beats = application(cluster, kafka, topic, mode, tmp_path)
        async with app:
            # Each executor has one core.
            await soon(lambda: running_tasks(app) >= 2, 240)
            os.kill(cluster.executors()[0], signal.SIGKILL)
            await soon(lambda: failed_tasks(app) > 0, 60)
            beats.let_end()
            await soon(lambda: committed(app) == count, 120)
            (spark,) = app.facts().spark
        assert set(spark.jobs.items()) >= {("failed", 0), ("lost", 0)}
        rows = rows_in(tmp_path / "rows")
        assert sorted(rows) == [
            (partition, offset) for partition in (0, 1) for offset in range(count // 2)
        ]


async def produce(servers: str, topic: str, *, partitions: int, count: int) -> None:
    """*count* records, spread evenly."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def application(
    cluster: SparkCluster, servers: str, topic: str, mode: str, folder: Path
) -> tuple[App, Beats]:
    """One channel that writes a folder of rows for each batch, when its beats may end."""
    settings, beats = settings_for(cluster), Beats(folder)
    channel = {
        "topics": [topic],
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "spark": {"mode": mode},
    }
    app = App(
        {
            "kafka": {"bootstrap_servers": servers},
            "incoming": {"clicks": channel},
            "spark": {"master": settings.master, "conf": dict(settings.conf)},
            "http": {"enabled": False},
        }
    )
    hold, out = beats.held(), str(folder / "rows")

    @app.spark("clicks")
    def keep(df: Any, batch: SparkBatch) -> None:
        held = df.select("partition", "offset").mapInArrow(hold, "partition int, offset long")
        held.write.mode("overwrite").parquet(f"{out}/{batch.id}")

    return app, beats


def running_tasks(app: App) -> int:
    return sum(batch.tasks_active for spark in app.facts().spark for batch in spark.running)


def failed_tasks(app: App) -> int:
    return sum(batch.tasks_failed for spark in app.facts().spark for batch in spark.running)


def committed(app: App) -> int:
    (channel,) = app.facts().channels
    return sum(partition.committed or 0 for partition in channel.partitions)


def rows_in(folder: Path) -> list[tuple[int, int]]:
    """Partition and offset of each row that a batch has written."""
    import pyarrow.parquet as parquet

    tables = [parquet.read_table(batch) for batch in folder.iterdir()]
    return [(row["partition"], row["offset"]) for table in tables for row in table.to_pylist()]


async def test_a_master_that_is_restarted_costs_a_new_session_and_nothing_else(
    cluster: SparkCluster,
) -> None:
    async with engine_on(cluster, trouble_s=1.0) as engine:
        driver = engine.driver_pid
        cluster.master.kill()
        # Without a master, executors go on.
        assert await count(engine) == 10
        await cluster.start_master()
        await cluster.all_registered()
        await soon(lambda: engine.ready and engine.driver_pid != driver, 120)
        assert await count(engine) == 10


async def test_a_master_that_is_away_at_the_start_is_named_by_readiness_until_it_comes(
    cluster: SparkCluster,
) -> None:
    """Row I3 of the faults."""
    cluster.master.kill()
    assert cluster.master.pid is None
    engine = SparkEngine(settings_for(cluster))
    await engine.start()
    try:
        missing = (
            f"Spark did not start: no master can be reached at {cluster.url}: Connection refused"
        )
        await soon(lambda: engine.reason == missing, 10)
        assert not engine.ready
        await cluster.start_master()
        await cluster.all_registered()
        await soon(lambda: engine.ready, 120)
        assert await count(engine) == 10
    finally:
        await engine.stop()
