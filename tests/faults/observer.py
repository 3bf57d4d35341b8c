"""What a stranger to the group can see: its committed offsets while it runs, every commit, the log itself.

Reads with aiokafka alone, joins no group and writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from tests.faults.checker import Commit
from tests.faults.history import Partition

POLL_EVERY_S = 0.1
CALL_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 30.0
OFFSETS_TOPIC = "__consumer_offsets"


class Observer:
    """Asks the broker for the group's committed offsets every 0.1 s, and goes on when the broker is away.

    Attributes:
        commits: One entry a partition for each change seen. ``t`` is when the answer had arrived, so what it
            shows was committed at ``t`` or before.
        polls: Answers received.
        failures: Requests that were not answered.
    """

    def __init__(self, bootstrap: str, group: str, partitions: Sequence[Partition]) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._partitions = [TopicPartition(*tp) for tp in partitions]
        self.commits: list[Commit] = []
        self.latest: dict[Partition, int] = {}
        self.polls = 0
        self.failures = 0
        self._stopping = asyncio.Event()

    def committed(self, tp: Partition) -> int:
        """The committed offset as it was last seen; -1 where nothing is committed."""
        return self.latest.get(tp, -1)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Observer]:
        """Observe while the block runs."""
        task = asyncio.create_task(self._watch(), name=f"observe-{self._group}")
        try:
            yield self
        finally:
            self._stopping.set()
            await task

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=2000)
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await admin.start()
                while not self._stopping.is_set():
                    async with asyncio.timeout(CALL_TIMEOUT_S):
                        await self._poll(admin)
                    await asyncio.sleep(POLL_EVERY_S)
            except (KafkaError, OSError, TimeoutError):
                self.failures += 1
                await asyncio.sleep(POLL_EVERY_S)
            finally:
                await admin.close()

    async def _poll(self, admin: AIOKafkaAdminClient) -> None:
        found = await admin.list_consumer_group_offsets(self._group, partitions=self._partitions)
        t = time.time()
        for tp in self._partitions:
            if tp in found:  # missing: the coordinator was not ready to tell; -1: nothing is committed
                self._see(Commit(t, tuple(tp), found[tp].offset))
        self.polls += 1

    def _see(self, commit: Commit) -> None:
        if self.committed(commit.tp) != commit.offset:
            self.latest[commit.tp] = commit.offset
            self.commits.append(commit)


async def read_log(bootstrap: str, partitions: Sequence[Partition]) -> dict[Partition, dict[int, str]]:
    """partition -> offset -> id of every record, from the beginning to the present end."""
    log: dict[Partition, dict[int, str]] = {tp: {} for tp in partitions}
    async for record in _everything(bootstrap, [TopicPartition(*tp) for tp in partitions]):
        log[record.topic, record.partition][record.offset] = json.loads(record.value)["id"]
    return log


async def read_log_ends(bootstrap: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """partition -> end of its log."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        ends = await consumer.end_offsets([TopicPartition(*tp) for tp in partitions])
    return {tuple(tp): end for tp, end in ends.items()}


async def read_commits(bootstrap: str, group: str) -> list[Commit]:
    """Every commit of *group* that the broker ever stored, in its order, from the group's own topic.

    ``t`` is the broker's time of storing it, rounded up from its milliseconds.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (topic,) = await admin.describe_topics([OFFSETS_TOPIC])
    finally:
        await admin.close()
    partitions = [TopicPartition(OFFSETS_TOPIC, one["partition"]) for one in topic["partitions"]]
    commits = []
    async for record in _everything(bootstrap, partitions):
        place = _committed_place(record.key, group)
        if place is not None and record.value is not None:
            (offset,) = struct.unpack_from(">q", record.value, 2)  # after the version: so in all of them, 0 to 4
            commits.append(Commit((record.timestamp + 1) / 1000, place, offset, "log"))
    return commits


def _committed_place(key: bytes, group: str) -> Partition | None:
    """Which partition a key of ``__consumer_offsets`` is about, None if it is no commit of *group*.

    Source: OffsetCommitKey.json of Kafka: version (0 or 1), group, topic, partition.
    """
    (version,) = struct.unpack_from(">h", key, 0)
    if version > 1:
        return None
    stored_group, at = _string(key, 2)
    topic, at = _string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    return (topic, partition) if stored_group == group else None


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


async def _everything(bootstrap: str, partitions: list[TopicPartition]) -> AsyncIterator[ConsumerRecord]:
    """All records from beginning to end of *partitions*, as they are now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        exclude_internal_topics=False,
    )
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            await consumer.start()
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
                for chunk in (await consumer.getmany(timeout_ms=500)).values():
                    for record in chunk:
                        yield record
    finally:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await consumer.stop()
