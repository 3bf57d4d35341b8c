"""What a channel in mode ``records`` adds to the memory of its process while it works through a
backlog.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.spark.figures import Growth
from benchmarks.spark.gauges import resident_mb
from benchmarks.spark.light import light_job
from benchmarks.spark.throughput import RUN_TIMEOUT_S, settings
from benchmarks.spark.work import Given
from reactive_kafka import App, SparkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOK_EVERY_S = 0.005


def growth(given: Given) -> Growth:
    """Run all batches of the topic; the first one, which loads Spark's and Arrow's libraries, is
    not counted.
    """
    return asyncio.run(_growth(given))


async def _growth(given: Given) -> Growth:
    loop = asyncio.get_running_loop()
    first = asyncio.Event()
    done = asyncio.Event()
    taken = 0
    conf = settings(given, "records")
    warm_of = {"topic": f"{given.topic}-warm", "group_id": f"{given.group}-warm"}
    conf["incoming"]["warm"] = conf["incoming"]["bench"] | warm_of
    conf["incoming"]["warm"]["spark"] = {"mode": "records", "batch_max_wait": "100ms"}
    conf["incoming"]["bench"]["enabled"] = False
    app = App(conf)

    @app.spark("warm")
    def warm(df: DataFrame, batch: SparkBatch) -> None:
        light_job(df)
        loop.call_soon_threadsafe(first.set)

    @app.spark("bench")
    def job(df: DataFrame, batch: SparkBatch) -> None:
        nonlocal taken
        taken += light_job(df)
        if taken == given.batches * given.batch_records:
            loop.call_soon_threadsafe(done.set)

    async with app, asyncio.timeout(RUN_TIMEOUT_S):
        await first.wait()
        before_mb = peak_mb = resident_mb()
        await app.channel("bench").start()
        while not done.is_set():
            peak_mb = max(peak_mb, resident_mb())
            await asyncio.sleep(LOOK_EVERY_S)
    return Growth(records=taken, before_mb=before_mb, peak_mb=peak_mb)
