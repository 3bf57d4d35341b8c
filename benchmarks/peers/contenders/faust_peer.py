"""Faust (faust-streaming): an agent, one at a time or many at once, with its own commits, once a
second here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import faust

from benchmarks.contenders.meter import Result
from benchmarks.peers.contenders.work import AT_ONCE, SESSION_S, Task, Work


def each(task: Task) -> Result:
    """A record at a time."""
    work = Work(task)

    async def handle(values: AsyncIterator[bytes]) -> None:
        async for value in values:
            _end_after(work.did(value))

    return _run(task, work, handle, 1)


def many(task: Task) -> Result:
    """A thousand copies of the agent, among which the records are dealt out."""
    work = Work(task)

    async def handle(values: AsyncIterator[bytes]) -> None:
        async for value in values:
            work.started()
            await asyncio.sleep(work.wait_s(value))
            _end_after(work.did(value))

    return _run(task, work, handle, AT_ONCE)


def _end_after(was_last: bool) -> None:
    if was_last:
        # Its worker knows no other end.
        os.kill(os.getpid(), signal.SIGTERM)


def _run(task: Task, work: Work, handle: Any, concurrency: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="faust-") as folder:
        app = faust.App(
            task.group,
            broker=f"kafka://{task.bootstrap}",
            value_serializer="raw",
            datadir=folder,
            web_enabled=False,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            broker_session_timeout=SESSION_S,
            broker_heartbeat_interval=2.0,
            topic_allow_declare=False,
            broker_commit_interval=1.0,
        )
        app.agent(app.topic(task.topic, value_type=bytes), concurrency=concurrency)(handle)
        worker = faust.Worker(app, loglevel="ERROR", quiet=True, redirect_stdouts=False)
        with contextlib.suppress(SystemExit):
            worker.execute_from_commandline()
    return work.result()
