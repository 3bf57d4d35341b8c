"""What a run costs that has nothing to read."""

from __future__ import annotations

import asyncio
import gc
import time

from benchmarks.figures import Figures
from benchmarks.gauges.job import Job
from benchmarks.gauges.parties import make_app
from benchmarks.gauges.plan import CORE, RESIDENT
from benchmarks.memory import resident_mb

SETTLE_S = 4.0
MEASURED_S = 10.0


async def ours(job: Job) -> Figures:
    """An application with a channel for each topic, after it has read what these hold."""
    app = make_app(job)
    assigned = 0
    seen = 0
    ready = asyncio.Event()

    def look() -> None:
        if assigned >= len(job.topics) and seen >= job.filled * len(job.topics):
            ready.set()

    async def handle(payload: bytes) -> None:
        nonlocal seen
        seen += 1
        look()

    async def on_assigned(partitions: frozenset[object]) -> None:
        nonlocal assigned
        assigned += 1
        look()

    for number in range(len(job.topics)):
        app.incoming(f"bench-{number}")(handle)
        app.on_assigned(f"bench-{number}")(on_assigned)
    async with app:
        await ready.wait()
        await asyncio.sleep(SETTLE_S)
        gc.collect()
        began = time.perf_counter()
        cpu_began = time.process_time()
        await asyncio.sleep(MEASURED_S)
        share = (time.process_time() - cpu_began) / (time.perf_counter() - began)
        return {CORE: share * 100, RESIDENT: resident_mb()}
