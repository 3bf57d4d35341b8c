"""reactive_kafka where records are not handled one after the other: by key, and behind one that is
not settled.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.contenders.ours import make_app, run
from reactive_kafka import Message


async def _by_key(channel: dict[str, Any], job: Job) -> Result:
    """``ordering = "key"``: a handler that takes the message and does nothing."""
    meter = Meter(job.records)
    app = make_app(job, ordering="key", concurrency=64, **channel)
    seen = 0
    mark = 1

    @app.incoming("bench")
    async def handle(message: Message[bytes]) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    return await run(app, meter)


by_key_10 = by_key_10000 = by_key_1000000 = partial(_by_key, {})
keyless = partial(_by_key, {"keyless": "unordered"})


async def _behind(size: int, job: Job) -> Result:
    """One record is not settled until so many behind it are, then the next one; the handler does
    nothing else.
    """
    meter = Meter(job.records)
    app = make_app(job, ordering="unordered", concurrency=2)
    seen = 0
    mark = 1
    next_one = 2
    release = asyncio.Event()

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        nonlocal seen, mark, next_one, release
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)
        elif seen == next_one:
            next_one += size
            release.set()
            release = asyncio.Event()
            await release.wait()

    async with app:
        await meter.wait()
        release.set()
    return meter.result()


behind_1000, behind_100000, behind_1000000 = (
    partial(_behind, size) for size in (1_000, 100_000, 1_000_000)
)
