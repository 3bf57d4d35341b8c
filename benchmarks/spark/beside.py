"""A plain channel at a thousand records a second, in one application with a Spark channel that is
busy, then idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark.figures import Beside, Phase, Spread
from benchmarks.spark.gauges import Gauges
from benchmarks.spark.plan import ALONE_S, LONG_JOB_S, MAX_POLL_INTERVAL_S
from benchmarks.spark.throughput import RUN_TIMEOUT_S, settings
from benchmarks.spark.work import Given, count_pages
from reactive_kafka import App, SparkBatch
from reactive_kafka.observe.events import Event, Rebalanced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT = Path(__file__).resolve().parents[2]

BATCHES = "batches of 50,000, one after the other"
LONG = "one job of 12 s"
ALONE = "nothing"
PHASES = (ALONE, BATCHES, LONG)


class Rebalances:
    """Counts those after the first assignment of each channel."""

    def __init__(self) -> None:
        self.count = 0
        self._assigned: set[str] = set()

    def on(self, event: Event) -> None:
        """Told of every event."""
        if isinstance(event, Rebalanced) and event.partitions:
            self.count += event.channel in self._assigned
            self._assigned.add(event.channel)


def sleep_long(number: int) -> int:
    """A task that keeps an executor, in a Python worker."""
    time.sleep(LONG_JOB_S)
    return number


def beside(given: Given) -> Beside:
    """Run the Spark channel through its topic, the last batch with a long job; then leave the other
    one alone.
    """
    return asyncio.run(_beside(given))


async def _beside(given: Given) -> Beside:
    loop = asyncio.get_running_loop()
    gauges = Gauges()
    done = asyncio.Event()
    rebalances = Rebalances()
    latencies: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
    began: dict[str, float] = {}
    taken = batches = 0
    longest_s = 0.0
    app = App(_settings(given))
    app.observe(rebalances)

    @app.incoming("ticks")
    async def tick(sent: bytes) -> None:
        latencies[gauges.phase].append((time.time_ns() - int(sent)) / 1e6)

    def enter(phase: str) -> None:
        gauges.phase = phase
        began[phase] = time.perf_counter()

    @app.spark("bench")
    def job(df: DataFrame, batch: SparkBatch) -> None:
        nonlocal taken, batches, longest_s
        taken += sum(one.until - one.start for one in batch.ranges)
        if taken < given.all_batches * given.batch_records:
            count_pages(df)
            batches += 1
            if batches == given.warm:
                enter(BATCHES)
            return
        enter(LONG)
        batch.spark.sparkContext.parallelize([0], 1).map(sleep_long).count()
        longest_s = time.perf_counter() - began[LONG]
        enter(ALONE)
        loop.call_soon_threadsafe(done.set)

    async with (
        app,
        gauges,
        asyncio.timeout(RUN_TIMEOUT_S),
        pacing(given.bootstrap, ticks_topic(given.topic)),
    ):
        await done.wait()
        # The last phase: it is measured for so long.
        await asyncio.sleep(ALONE_S)
        over = time.perf_counter()
        gauges.phase = ""
        count = rebalances.count
    ticks = sum(len(latencies[phase]) for phase in PHASES)
    return Beside(
        phases=[
            Phase(name=phase, latency_ms=Spread.of(latencies[phase]), lag_ms=gauges.lag_ms(phase))
            for phase in PHASES
        ],
        batches=batches - given.warm,
        ticks_per_s=ticks / (over - began[BATCHES]),
        longest_job_s=longest_s,
        rebalances=count,
    )


def _settings(given: Given) -> dict[str, Any]:
    """The Spark channel and the plain one, both put out of their groups if they do not poll for 8
    s.
    """
    found = settings(given, "records")
    found["kafka"]["max.poll.interval.ms"] = int(MAX_POLL_INTERVAL_S * 1e3)
    found["incoming"]["ticks"] = {
        "topic": ticks_topic(given.topic),
        "group_id": f"{given.group}-ticks",
        "auto_offset_reset": "latest",
    }
    return found


def ticks_topic(topic: str) -> str:
    """The plain channel's topic, beside that of the Spark channel."""
    return f"{topic}-ticks"


@contextlib.asynccontextmanager
async def pacing(bootstrap: str, topic: str) -> AsyncIterator[None]:
    """The records are sent by a process of its own: what keeps this one busy must not slow them
    down.
    """
    command = [sys.executable, "-m", "benchmarks.spark.pacer"]
    command += ["--bootstrap", bootstrap, "--topic", topic]
    pacer = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        yield
        if pacer.returncode is not None:
            raise RuntimeError(f"the pacer ended by itself, with {pacer.returncode}")
    finally:
        if pacer.returncode is None:
            pacer.kill()
        await pacer.wait()
