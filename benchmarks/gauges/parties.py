"""Who takes part in a gauge: our application with channels, the raw client, and a process that
sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

from benchmarks.gauges.job import Job
from reactive_kafka import App

COMMIT_EVERY_S = 1.0


def make_app(job: Job, **channel: Any) -> App:
    """An application with a channel for each topic, as a user runs it; what is not said is at its
    default.
    """
    common = {
        "group_id": job.group,
        "auto_offset_reset": "earliest",
        "commit_interval": "1s",
        **channel,
    }
    return App(
        {
            "kafka": {"bootstrap_servers": job.bootstrap},
            "http": {"enabled": True, "port": 0},
            "incoming": {
                f"bench-{number}": {"topic": topic, **common}
                for number, topic in enumerate(job.topics)
            },
        }
    )


async def read_raw(
    job: Job,
    handle: Callable[[bytes], None],
    until: asyncio.Event,
    *,
    reset: str = "earliest",
    listener: ConsumerRebalanceListener | None = None,
) -> None:
    """The raw client, committed each second, until *until* is set."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset=reset,
        enable_auto_commit=False,
    )
    consumer.subscribe(job.topics, listener=listener)
    await consumer.start()
    try:
        due = time.monotonic() + COMMIT_EVERY_S
        while not until.is_set():
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                for record in records:
                    handle(record.value)
            if time.monotonic() >= due:
                await consumer.commit()
                due = time.monotonic() + COMMIT_EVERY_S
    finally:
        await consumer.stop()


@contextlib.asynccontextmanager
async def process(module: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process of ours, which is ended with the context."""
    running = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.send_signal(signal.SIGTERM)
        await running.wait()


def sender(
    job: Job, rate: int
) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Sends so many records a second to the first topic."""
    return process(
        "benchmarks.gauges.pacer",
        "--bootstrap",
        job.bootstrap,
        "--topic",
        job.topics[0],
        "--rate",
        str(rate),
    )
