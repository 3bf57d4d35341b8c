"""What a stranger to the group can see: its committed offsets while it runs, every commit, the log
itself.

Reads past the package, but for how it asks for positions and for the ids of topics; joins no group
and writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from reactive_kafka.broker.aiokafka.group_positions import error_of
from reactive_kafka.broker.aiokafka.offset_requests import fetch_request, positions_in
from reactive_kafka.records import TopicPartition as OurPartition
from tests.faults.checker import Commit
from tests.faults.group_records import GroupRecords
from tests.faults.history import Partition
from tests.faults.letters import Log, Stored
from tests.faults.owners import GroupEntry
from tests.harness.kafka import inspector_of

POLL_EVERY_S = 0.1
CALL_TIMEOUT_S = 3.0
# Without a record.
READ_TIMEOUT_S = 30.0
OFFSETS_TOPIC = "__consumer_offsets"
ID_HEADER = "id"


class Observer:
    """Asks the broker for the group's committed offsets again and again, and goes on when the
    broker is away.

    Attributes:
        commits: One entry a partition for each change seen. ``t`` is when the answer had arrived,
            so what it shows was committed at ``t`` or before.
        polls: Answers received.
        failures: Requests that were not answered.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        partitions: Sequence[Partition],
        every_s: float = POLL_EVERY_S,
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._every_s = every_s
        self._partitions = [OurPartition(*tp) for tp in partitions]
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
                    await asyncio.sleep(self._every_s)
            except (KafkaError, OSError, TimeoutError):
                self.failures += 1
                await asyncio.sleep(self._every_s)
            finally:
                await admin.close()

    async def _poll(self, admin: AIOKafkaAdminClient) -> None:
        # Not the admin's own question: a new coordinator answers that one with positions from
        # before its time (H17).
        coordinator = await admin.find_coordinator(self._group)
        request = fetch_request(self._group, self._partitions)
        answer = (await admin._send_request(request, coordinator)).values
        t = time.time()
        error = error_of(answer)
        if error is not None:
            raise error()
        found = positions_in(answer)
        for tp in self._partitions:
            self._see(Commit(t, tuple(tp), found[tp].offset if tp in found else -1))
        self.polls += 1

    def _see(self, commit: Commit) -> None:
        if self.committed(commit.tp) != commit.offset:
            self.latest[commit.tp] = commit.offset
            self.commits.append(commit)


async def read_records(
    bootstrap: str, partitions: Sequence[Partition]
) -> dict[Partition, dict[int, Stored]]:
    """partition -> offset -> every record, from the beginning to the present end."""
    log: dict[Partition, dict[int, Stored]] = {tp: {} for tp in partitions}
    async for record in _everything(bootstrap, [TopicPartition(*tp) for tp in partitions]):
        headers = tuple(record.headers)
        stored = Stored(record.timestamp / 1000, _id_of(record), record.key, record.value, headers)
        log[record.topic, record.partition][record.offset] = stored
    return log


def _id_of(record: ConsumerRecord) -> str:
    """Who the record is, by its header, else by its payload; empty where neither tells."""
    named = dict(record.headers).get(ID_HEADER)
    if named is not None:
        return str(named.decode())
    try:
        return str(json.loads(record.value)["id"])
    except ValueError:
        return ""


async def read_log(
    bootstrap: str, partitions: Sequence[Partition]
) -> dict[Partition, dict[int, str]]:
    """partition -> offset -> id of every record, from the beginning to the present end."""
    return id_log(await read_records(bootstrap, partitions))


def id_log(log: Log) -> dict[Partition, dict[int, str]]:
    """The ids alone."""
    return {
        tp: {offset: stored.id for offset, stored in records.items()} for tp, records in log.items()
    }


async def read_log_ends(bootstrap: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """partition -> end of its log."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        ends = await consumer.end_offsets([TopicPartition(*tp) for tp in partitions])
    return {tuple(tp): end for tp, end in ends.items()}


async def read_commits(bootstrap: str, group: str) -> list[Commit]:
    """Every commit of *group* that the broker ever stored."""
    return (await read_all_commits(bootstrap)).get(group, [])


async def read_all_commits(bootstrap: str) -> dict[str, list[Commit]]:
    """group -> every commit that the broker ever stored, in its order."""
    return {
        group: [entry for entry in log if isinstance(entry, Commit)]
        for group, log in (await read_group_logs(bootstrap)).items()
    }


async def read_group_logs(bootstrap: str) -> dict[str, list[GroupEntry]]:
    """group -> every commit and assignment that the broker ever stored, in its order, from the
    groups' own topic.

    ``t`` is the broker's time of storing it; of a commit it is rounded up from its milliseconds.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (topic,) = await admin.describe_topics([OFFSETS_TOPIC])
    finally:
        await admin.close()
    partitions = [TopicPartition(OFFSETS_TOPIC, one["partition"]) for one in topic["partitions"]]
    logs: dict[str, list[GroupEntry]] = {}
    records = GroupRecords(await _topic_names(bootstrap))
    async for record in _everything(bootstrap, partitions):
        group, entry = records.take(record.timestamp / 1000, record.key, record.value)
        if entry is not None:
            logs.setdefault(group, []).append(entry)
    return logs


async def _topic_names(bootstrap: str) -> dict[bytes, str]:
    """id of a topic -> its name."""
    async with inspector_of(bootstrap) as inspector:
        topics = await inspector.topics()
        # Brokers before 2.8 have none.
        answers = await inspector.topic_ids(topics)
    return {urlsafe_b64decode(f"{id}=="): topic for one in answers for topic, id in one.ids.items()}


async def _everything(
    bootstrap: str, partitions: list[TopicPartition]
) -> AsyncIterator[ConsumerRecord]:
    """All records from beginning to end of *partitions*, as they are now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        exclude_internal_topics=False,
    )
    try:
        async with asyncio.timeout(READ_TIMEOUT_S) as limit:
            await consumer.start()
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
                for chunk in (await consumer.getmany(timeout_ms=500)).values():
                    limit.reschedule(asyncio.get_running_loop().time() + READ_TIMEOUT_S)
                    for record in chunk:
                        yield record
    finally:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await consumer.stop()
