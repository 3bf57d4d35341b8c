"""Tasks of workers, and what wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any

from reactive_kafka import IncomingSettings
from reactive_kafka.delivery.assembly import record_workers
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.testing import FakeClock
from tests.app.helpers import settle_down
from tests.delivery.worker_setups import worker_setup


async def test_a_cancelled_worker_is_passed_over_when_work_comes() -> None:
    async def call(value: Any) -> None: ...

    tasks: list[asyncio.Task[None]] = []

    def spawn(
        work: Callable[[], Awaitable[None]], name: str, context: Context | None = None
    ) -> None:
        tasks.append(asyncio.ensure_future(work()))

    settings = IncomingSettings(
        name="orders", topics=("orders",), group_id="g", client={}, concurrency=2
    )
    invocation = Invocation(call=call, decode=None, wants_message=False, ack="post")
    setup = worker_setup(settings, LaneQueue(shared=False), FakeClock(), spawn)
    workers = record_workers(setup, copy_context(), invocation)
    workers.work_is_there()
    await settle_down()
    tasks[0].cancel()
    # Before the cancelled one has had its turn.
    workers.work_is_there()
    assert len(tasks) == 2
    await settle_down()
    # Nobody has closed the workers, so another task takes its place.
    assert tasks[0].done()
    assert [task.done() for task in tasks[1:]] == [False, False]
    workers.close()
    await asyncio.wait(tasks)
