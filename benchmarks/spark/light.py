"""A light job on each batch of a backlog: through a channel in both modes, and in both ways that
one writes by hand.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import aiokafka

from benchmarks.spark.figures import Light
from benchmarks.spark.plan import PARTITIONS
from benchmarks.spark.throughput import RUN_TIMEOUT_S, read_by_hand, settings
from benchmarks.spark.work import Given, session
from reactive_kafka import App, SparkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def light_job(df: DataFrame) -> int:
    """The records by the length of their values, brought here; how many there were."""
    lengths = df.selectExpr("length(value) AS bytes").groupBy("bytes").count().collect()
    return sum(row["count"] for row in lengths)


class Starts:
    """Reads the clock at the beginning and the end of each batch's job; from any thread."""

    def __init__(self, given: Given, done: Callable[[], Any] = lambda: None) -> None:
        self._warm = given.warm
        self._last = given.warm + given.batches
        self._done = done
        self._lock = threading.Lock()
        self._began: list[float] = []
        self._ended: list[float] = []

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Around the job of one batch."""
        with self._lock:
            self._began.append(time.perf_counter())
        yield
        with self._lock:
            self._ended.append(time.perf_counter())
        # Its beginning is the end of the last period.
        if len(self._began) == self._last + 1:
            self._done()

    def light(self, records: int) -> Light:
        """What was read, without the warm batches."""
        began = self._began[self._warm : self._last + 1]
        ended = self._ended[self._warm : self._last]
        return Light(
            records=records,
            period_s=[later - earlier for earlier, later in pairwise(began)],
            job_s=[after - before for before, after in zip(began, ended, strict=False)],
        )


def records(given: Given) -> Light:
    """This process ships the records."""
    return asyncio.run(_ours(given, "records"))


def ranges(given: Given) -> Light:
    """Executors read Kafka."""
    return asyncio.run(_ours(given, "ranges"))


async def _ours(given: Given, mode: str) -> Light:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    starts = Starts(given, lambda: loop.call_soon_threadsafe(done.set))
    app = App(settings(given, mode))

    @app.spark("bench")
    def job(df: DataFrame, batch: SparkBatch) -> None:
        with starts.batch():
            light_job(df)

    async with app, asyncio.timeout(RUN_TIMEOUT_S):
        await done.wait()
    return starts.light(given.batch_records)


def kafka_by_hand(given: Given) -> Light:
    """``spark.read.format("kafka")`` of one range after the other."""
    starts = Starts(given)
    share = given.batch_records // PARTITIONS
    with session() as spark:
        for number in range(given.warm + given.batches + 1):
            with starts.batch():
                light_job(read_by_hand(spark, given, number * share, (number + 1) * share))
    return starts.light(share * PARTITIONS)


def getmany_by_hand(given: Given) -> Light:
    """``getmany`` until there are enough records, their columns, ``createDataFrame``, the job, and
    a commit.
    """
    with session() as spark:
        return asyncio.run(_getmany_by_hand(given, spark))


async def _getmany_by_hand(given: Given, spark: Any) -> Light:
    import pyarrow as pa

    starts = Starts(given)
    found = list[Any]()
    consumer = aiokafka.AIOKafkaConsumer(
        given.topic,
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        for _ in range(given.warm + given.batches + 1):
            while len(found) < given.batch_records:
                polled = await consumer.getmany(
                    timeout_ms=500, max_records=given.batch_records - len(found)
                )
                for several in polled.values():
                    found += several
            columns = {
                "key": pa.array([one.key for one in found], pa.binary()),
                "value": pa.array([one.value for one in found], pa.binary()),
                "topic": pa.array([one.topic for one in found], pa.string()),
                "partition": pa.array([one.partition for one in found], pa.int32()),
                "offset": pa.array([one.offset for one in found], pa.int64()),
                "timestamp": pa.array([one.timestamp for one in found], pa.timestamp("ms", "UTC")),
            }
            found.clear()
            with starts.batch():
                await asyncio.to_thread(
                    lambda table: light_job(spark.createDataFrame(table)), pa.table(columns)
                )
            await consumer.commit()
    return starts.light(given.batch_records)
