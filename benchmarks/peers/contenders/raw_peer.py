"""aiokafka as it is, in the ways that people write it: what its handlers may lose, and what a
barrier costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError

from benchmarks.contenders.meter import Result
from benchmarks.contenders.raw import COMMIT_EVERY_S
from benchmarks.peers.contenders.work import AT_ONCE, SESSION_S, Task, Work


def _consumer(task: Task, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        session_timeout_ms=int(SESSION_S * 1e3),
        heartbeat_interval_ms=2_000,
        **options,
    )


class _Run:
    """Until SIGTERM, or until the last record of a measured run."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)

    @property
    def is_over(self) -> bool:
        return self._stop.is_set() or self._work.meter.finished


class _Commits:
    """Commits by hand, each second and at the end: whatever the client has handed out."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._due = time.monotonic() + COMMIT_EVERY_S

    async def if_due(self) -> None:
        if time.monotonic() >= self._due:
            await self.now()
            self._due = time.monotonic() + COMMIT_EVERY_S

    async def now(self) -> None:
        # In a rebalance the partitions may be somebody else's by now, whose business they are from
        # then on.
        with contextlib.suppress(CommitFailedError, IllegalStateError):
            await self._consumer.commit()


@contextlib.asynccontextmanager
async def _reading(task: Task) -> AsyncIterator[tuple[AIOKafkaConsumer, _Commits]]:
    consumer = _consumer(task, enable_auto_commit=False)
    commits = _Commits(consumer)
    await consumer.start()
    try:
        yield consumer, commits
        await commits.now()
    finally:
        await consumer.stop()


async def getmany(task: Task) -> Result:
    """``getmany(max_records=500)``, record by record, a commit between two batches."""
    return await _in_turn(task, 500)


async def getone(task: Task) -> Result:
    """A record, its handler, perhaps a commit, the next record."""
    return await _in_turn(task, 1)


async def _in_turn(task: Task, at_most: int) -> Result:
    work = Work(task)
    run = _Run(work)
    async with _reading(task) as (consumer, commits):
        while not run.is_over:
            for records in (await consumer.getmany(timeout_ms=200, max_records=at_most)).values():
                for record in records:
                    work.did(record.value)
            await commits.if_due()
    return work.result()


async def gather(task: Task) -> Result:
    """A thousand records, ``asyncio.gather`` over their handlers, and the next thousand when all
    have ended.
    """
    work = Work(task)
    run = _Run(work)

    async def handle(record: Any) -> None:
        work.started()
        await asyncio.sleep(work.wait_s(record.value))
        work.did(record.value)

    async with _reading(task) as (consumer, commits):
        while not run.is_over:
            batches = (await consumer.getmany(timeout_ms=200, max_records=AT_ONCE)).values()
            await asyncio.gather(*(handle(record) for records in batches for record in records))
            await commits.if_due()
    return work.result()


async def tasks(task: Task) -> Result:
    """A task for each record, a thousand at once, and the client's auto commit, which knows nothing
    of them.
    """
    work = Work(task)
    run = _Run(work)
    free = asyncio.Semaphore(AT_ONCE)
    under_way: set[asyncio.Task[None]] = set()

    async def handle(value: bytes) -> None:
        work.started()
        await asyncio.sleep(work.wait_s(value))
        work.did(value)
        free.release()

    consumer = _consumer(task, auto_commit_interval_ms=1_000)
    await consumer.start()
    try:
        while not run.is_over:
            for records in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
                for record in records:
                    await free.acquire()
                    handling = asyncio.create_task(handle(record.value))
                    under_way.add(handling)
                    handling.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
    finally:
        await consumer.stop()
    return work.result()
