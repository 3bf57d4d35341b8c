"""From the start of the process to its first record."""

from __future__ import annotations

import asyncio
import time

from benchmarks.figures import Figures
from benchmarks.gauges.job import Job
from benchmarks.gauges.plan import FIRST_S, LAST_S


async def ours(job: Job) -> Figures:
    """An application with a channel for each topic, each of which holds a record."""
    from benchmarks.gauges.parties import make_app

    app = make_app(job)
    came: list[int] = []
    every = asyncio.Event()

    async def handle(payload: bytes) -> None:
        came.append(time.monotonic_ns())
        if len(came) == len(job.topics):
            every.set()

    for number in range(len(job.topics)):
        app.incoming(f"bench-{number}")(handle)
    async with app:
        await every.wait()
    return {FIRST_S: (came[0] - job.began) / 1e9, LAST_S: (came[-1] - job.began) / 1e9}


async def raw(job: Job) -> Figures:
    """One consumer of the raw client."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        *job.topics,
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        await consumer.getone()
        took_s = (time.monotonic_ns() - job.began) / 1e9
    finally:
        await consumer.stop()
    return {FIRST_S: took_s}
