"""reactive_kafka in the modes that are not measured elsewhere, and as a member that is killed."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from benchmarks.contenders.meter import Result
from benchmarks.contenders.ours import make_app
from benchmarks.peers.contenders.work import AT_ONCE, SESSION_S, Task, Work
from reactive_kafka import App, Batch


async def each(task: Task) -> Result:
    """A record at a time."""
    work = Work(task)
    app = _app(task)

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        work.did(payload)

    return await _run(task, app, work)


async def batch(task: Task) -> Result:
    """Up to 500 records at a time."""
    work = Work(task)
    app = _app(task)
    seen = 0
    mark = 1

    @app.incoming("bench")
    async def handle(batch: Batch[bytes]) -> None:
        nonlocal seen, mark
        for payload in batch.payloads:
            if task.is_service:
                work.did(payload)
                continue
            seen += 1
            if seen == mark:
                mark = work.meter.reached(seen)

    return await _run(task, app, work)


async def many(task: Task) -> Result:
    """A thousand at once, in any order."""
    work = Work(task)
    app = _app(task, concurrency=AT_ONCE, ordering="unordered")

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        work.started()
        await asyncio.sleep(work.wait_s(payload))
        work.did(payload)

    return await _run(task, app, work)


def _app(task: Task, **channel: Any) -> App:
    return make_app(
        task, session_timeout_ms=int(SESSION_S * 1e3), heartbeat_interval_ms=2_000, **channel
    )


async def _run(task: Task, app: App, work: Work) -> Result:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app:
        await (stop.wait() if task.is_service else work.meter.wait())
    return work.result()
