"""reactive_kafka with each way to be a member of a group."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection
from typing import Any

from aiokafka import TopicPartition

from benchmarks.contenders.ours import make_app
from benchmarks.peers.contenders.work import Task
from benchmarks.rebalances.diary import Diary
from benchmarks.rebalances.plan import PARTITIONS


async def classic(task: Task) -> None:
    """Members assign; a rebalance takes all partitions from everybody."""
    await _run(task, group_protocol="classic")


async def cooperative(task: Task) -> None:
    """Members assign; only what moves is revoked."""
    await _run(task, assignors="cooperative-sticky")


async def consumer(task: Task) -> None:
    """The broker assigns; only what moves is revoked."""
    await _run(task, group_protocol="consumer")


async def _run(task: Task, **channel: Any) -> None:
    diary = Diary(task.journal)
    app = make_app(task, concurrency=PARTITIONS, **channel)

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        await asyncio.sleep(task.wait_s)
        diary.handled(payload)

    @app.on_assigned("bench")
    def on_assigned(partitions: Collection[TopicPartition]) -> None:
        diary.changed("assigned", (one.partition for one in partitions))

    @app.on_revoked("bench")
    def on_revoked(partitions: Collection[TopicPartition], lost: bool) -> None:
        diary.changed("lost" if lost else "revoked", (one.partition for one in partitions))

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app:
        await stop.wait()
