"""The same batches of a topic, the same job on each: through a channel, by hand, and with
Structured Streaming.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from typing import TYPE_CHECKING, Any

from benchmarks.memory import peak_mb
from benchmarks.spark.figures import Throughput
from benchmarks.spark.gauges import Gauges, driver_mb
from benchmarks.spark.plan import CONF, MASTER, PARTITIONS
from benchmarks.spark.work import Given, Laps, count_pages, session
from reactive_kafka import App, SparkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_TIMEOUT_S = 400.0


def records(given: Given) -> Throughput:
    """This process ships the records."""
    return asyncio.run(_ours(given, "records"))


def ranges(given: Given) -> Throughput:
    """Executors read Kafka."""
    return asyncio.run(_ours(given, "ranges"))


async def _ours(given: Given, mode: str) -> Throughput:
    loop = asyncio.get_running_loop()
    gauges = Gauges()
    done = asyncio.Event()
    driver = 0.0

    def began() -> None:
        gauges.phase = "batches"

    def ended() -> None:
        gauges.phase = ""
        loop.call_soon_threadsafe(done.set)

    laps = Laps(given.warm, given.batches, began, ended)
    app = App(settings(given, mode))

    @app.spark("bench")
    def job(df: DataFrame, batch: SparkBatch) -> None:
        nonlocal driver
        count_pages(df)
        laps.batch_ended(sum(one.until - one.start for one in batch.ranges))
        driver = driver_mb(batch.spark)

    async with app, gauges, asyncio.timeout(RUN_TIMEOUT_S):
        await done.wait()
    return Throughput(
        records=laps.records,
        wall_s=laps.wall_s,
        batch_s=laps.batch_s,
        peak_rss_mb=peak_mb(),
        driver_mb=driver,
        lag_ms=gauges.lag_ms("batches"),
        rss_mb=gauges.rss_mb("batches"),
    )


def settings(given: Given, mode: str) -> dict[str, Any]:
    """An application with the one channel ``bench``; what is not said here is at its default."""
    return {
        "kafka": {
            "bootstrap_servers": given.bootstrap,
            "auto_offset_reset": "earliest",
            "commit_interval": "1s",
        },
        "http": {"enabled": True, "port": 0},
        "spark": {"master": MASTER, "conf": CONF},
        "incoming": {
            "bench": {
                "topic": given.topic,
                "group_id": given.group,
                "spark": {
                    "mode": mode,
                    "batch_max_records": given.batch_records,
                    "batch_max_wait": "2m",
                },
            }
        },
    }


def by_hand(given: Given) -> Throughput:
    """A loop over the same offsets, as one writes it in a notebook: nothing is kept of how far it
    came.
    """
    laps = Laps(given.warm, given.batches)
    share = given.batch_records // PARTITIONS
    with session() as spark:
        for number in range(given.warm + given.batches):
            count_pages(read_by_hand(spark, given, number * share, (number + 1) * share))
            laps.batch_ended(share * PARTITIONS)
        return _theirs(laps, laps.records, spark)


def read_by_hand(spark: SparkSession, given: Given, start: int, until: int) -> DataFrame:
    """The records from one offset up to another one, of each partition."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", given.bootstrap)
    reader = reader.option("assign", json.dumps({given.topic: list(range(PARTITIONS))}))
    reader = reader.option("startingOffsets", _offsets(given.topic, start))
    reader = reader.option("endingOffsets", _offsets(given.topic, until))
    return reader.option("includeHeaders", "true").load()


def _offsets(topic: str, offset: int) -> str:
    return json.dumps({topic: {str(number): offset for number in range(PARTITIONS)}})


def streaming(given: Given) -> Throughput:
    """``foreachBatch`` with the same job, all that is there in triggers of one batch each."""
    laps = Laps(given.warm, given.batches)
    with session() as spark, tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", given.bootstrap)
        reader = reader.option("subscribe", given.topic).option("startingOffsets", "earliest")
        rows = (
            reader.option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", given.batch_records)
            .load()
        )

        def batch(df: DataFrame, number: int) -> None:
            count_pages(df)
            laps.batch_ended(0)

        writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(int(RUN_TIMEOUT_S)):
            raise TimeoutError("the query did not end")
        told = {each["batchId"]: _read(each) for each in map(_as_dict, query.recentProgress)}
        count = sum(told[number] for number in range(given.warm, given.warm + given.batches))
        return _theirs(laps, count, spark)


def _as_dict(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else progress
    return found


def _read(progress: dict[str, Any]) -> int:
    """How many offsets one trigger covered."""
    (source,) = progress["sources"]
    starts = source["startOffset"]
    ends = source["endOffset"]
    return sum(
        end - (starts or {}).get(topic, {}).get(number, 0)
        for topic, partitions in ends.items()
        for number, end in partitions.items()
    )


def _theirs(laps: Laps, count: int, spark: Any) -> Throughput:
    return Throughput(
        records=count,
        wall_s=laps.wall_s,
        batch_s=laps.batch_s,
        peak_rss_mb=peak_mb(),
        driver_mb=driver_mb(spark),
    )
