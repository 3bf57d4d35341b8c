"""aiokafka with a rebalance listener that waits for the handlers and commits."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import defaultdict, deque
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError

from benchmarks.peers.contenders.work import Task
from benchmarks.rebalances.diary import Diary
from benchmarks.rebalances.plan import SESSION_S

_COMMIT_EVERY_S = 1.0


async def round_robin(task: Task) -> None:
    """The default assignor."""
    await _run(task, RoundRobinPartitionAssignor)


async def sticky(task: Task) -> None:
    """Few partitions move, and all are revoked."""
    await _run(task, StickyPartitionAssignor)


async def _run(task: Task, assignor: Any) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(SESSION_S * 1e3),
        partition_assignment_strategy=[assignor],
    )
    reader = _Reader(consumer, task)
    consumer.subscribe([task.topic], listener=reader)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await consumer.start()
    try:
        while not stop.is_set():
            await reader.turn()
        await reader.finish()
    finally:
        await consumer.stop()


class _Reader(ConsumerRebalanceListener):  # type: ignore[misc]
    """A task for each partition that has records, and commits of what was handled."""

    def __init__(self, consumer: AIOKafkaConsumer, task: Task) -> None:
        self._consumer = consumer
        self._task = task
        self._diary = Diary(task.journal)
        self._queues: defaultdict[TopicPartition, deque[Any]] = defaultdict(deque)
        self._handling: dict[TopicPartition, asyncio.Task[None]] = {}
        # The positions behind the last records that were handled.
        self._positions: dict[TopicPartition, int] = {}
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S

    async def turn(self) -> None:
        """Read what is there, commit if a second has passed."""
        batches = await self._consumer.getmany(timeout_ms=200, max_records=500)
        # Nothing is awaited until the records are queued: the listener runs before or after.
        for partition, records in batches.items():
            self._queues[partition].extend(records)
            if partition not in self._handling:
                self._handling[partition] = asyncio.create_task(self._handle(partition))
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + _COMMIT_EVERY_S
            await self._commit()

    async def _handle(self, partition: TopicPartition) -> None:
        queue = self._queues[partition]
        while queue:
            record = queue.popleft()
            await asyncio.sleep(self._task.wait_s)
            self._diary.handled(record.value)
            self._positions[partition] = record.offset + 1
        del self._handling[partition]

    async def _commit(self) -> None:
        if self._positions:
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await self._consumer.commit(dict(self._positions))

    async def finish(self) -> None:
        """Let running handlers end, drop what waits, and commit."""
        for queue in self._queues.values():
            queue.clear()
        await asyncio.gather(*self._handling.values())
        await self._commit()
        self._positions.clear()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self.finish()
        self._diary.changed("revoked", (one.partition for one in revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._diary.changed("assigned", (one.partition for one in assigned))
