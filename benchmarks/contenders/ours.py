"""reactive_kafka as a user runs it: throttled commits, poison watch, metrics and health over HTTP, all on."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.contenders.meter import Job, Meter, Result
from reactive_kafka import App, Message


def make_app(job: Job, **channel: Any) -> App:
    """An application with the one channel ``bench``; what is not said here is at its default."""
    return App(
        {
            "kafka": {"bootstrap_servers": job.bootstrap},
            "http": {"enabled": True, "port": 0},
            "incoming": {
                "bench": {
                    "topic": job.topic,
                    "group_id": job.group,
                    "auto_offset_reset": "earliest",
                    "commit_interval": "1s",
                    **channel,
                }
            },
        }
    )


async def on_message(job: Job) -> Result:
    """A handler that takes the message with its metadata and does nothing."""
    meter = Meter(job.records)
    app = make_app(job)
    seen, mark = 0, 1

    @app.incoming("bench")
    async def handle(message: Message[bytes]) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    return await _run(app, meter)


async def on_bytes(job: Job) -> Result:
    """A handler that takes the payload alone and does nothing."""
    meter = Meter(job.records)
    app = make_app(job)
    seen, mark = 0, 1

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    return await _run(app, meter)


async def concurrent(job: Job) -> Result:
    """A handler that waits, 256 of them at once, in any order."""
    meter = Meter(job.records)
    app = make_app(job, concurrency=256, ordering="unordered")
    started = seen = 0

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        nonlocal started, seen
        if not started:
            started = 1
            meter.begin()
        await asyncio.sleep(job.wait_s)
        seen += 1
        if seen == job.records:
            meter.end()

    return await _run(app, meter)


async def _run(app: App, meter: Meter) -> Result:
    async with app:
        await meter.wait()
    return meter.result()
