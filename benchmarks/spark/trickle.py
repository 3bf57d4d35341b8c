"""Records that come one by one into a Spark function: how long each waits until its batch's
call.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from typing import TYPE_CHECKING

from benchmarks.spark.beside import pacing
from benchmarks.spark.figures import Spread, Trickle
from benchmarks.spark.plan import TRICKLE_WAIT
from benchmarks.spark.throughput import RUN_TIMEOUT_S, settings
from benchmarks.spark.work import Given
from reactive_kafka import App, SparkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def trickle(given: Given) -> Trickle:
    """Measure so many batches."""
    return asyncio.run(_trickle(given))


async def _trickle(given: Given) -> Trickle:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    latencies = array("d")
    calls = 0
    conf = settings(given, "records")
    conf["incoming"]["bench"]["spark"]["batch_max_wait"] = TRICKLE_WAIT
    app = App(conf)

    @app.spark("bench")
    def job(df: DataFrame, batch: SparkBatch) -> None:
        nonlocal calls
        called = time.time_ns()
        sent = [int(row.sent) for row in df.selectExpr("CAST(value AS STRING) AS sent").collect()]
        calls += 1
        if given.warm < calls <= given.warm + given.batches:
            latencies.extend((called - one) / 1e6 for one in sent)
        elif calls > given.warm:
            loop.call_soon_threadsafe(done.set)

    async with app, asyncio.timeout(RUN_TIMEOUT_S), pacing(given.bootstrap, given.topic):
        await done.wait()
    return Trickle(latency_ms=Spread.of(latencies), batches=given.batches)
