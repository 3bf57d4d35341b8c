"""FastStream with batches that are acked by hand, and a listener that waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.message import StreamMessage

from benchmarks.peers.contenders.work import Task
from benchmarks.rebalances.diary import Diary
from benchmarks.rebalances.plan import SESSION_S


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Lets a batch and its ack end before the partitions go."""

    def __init__(self, diary: Diary, handling: asyncio.Lock) -> None:
        self._diary = diary
        self._handling = handling

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        async with self._handling:
            self._diary.changed("revoked", (one.partition for one in revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._diary.changed("assigned", (one.partition for one in assigned))


async def _as_it_is(message: StreamMessage[Any]) -> Any:
    return message.body


async def sticky(task: Task) -> None:
    """Few partitions move, and all are revoked."""
    diary = Diary(task.journal)
    handling = asyncio.Lock()
    broker = KafkaBroker(task.bootstrap, logger=None, decoder=_as_it_is, graceful_timeout=10)

    async def handle_partition(records: list[Any]) -> None:
        for record in records:
            await asyncio.sleep(task.wait_s)
            diary.handled(record.value)

    @broker.subscriber(
        task.topic,
        group_id=task.group,
        auto_offset_reset="earliest",
        session_timeout_ms=int(SESSION_S * 1e3),
        partition_assignment_strategy=[StickyPartitionAssignor],
        listener=_Listener(diary, handling),
        ack_policy=AckPolicy.MANUAL,
        batch=True,
        max_records=500,
    )
    async def handle(bodies: list[bytes], message: KafkaMessage) -> None:
        by_partition: defaultdict[int, list[Any]] = defaultdict(list)
        for record in message.raw_message:
            by_partition[record.partition].append(record)
        async with handling:
            await asyncio.gather(*map(handle_partition, by_partition.values()))
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await message.ack()

    await FastStream(broker, logger=None).run()
