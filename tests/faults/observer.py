"""What a stranger to the group can see: its committed offsets while it runs, every commit, the log
itself.

Reads past the package, but for how it asks for positions; joins no group and writes nothing.
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

from reactive_kafka.broker.aiokafka.group_positions import error_of
from reactive_kafka.broker.aiokafka.offset_requests import fetch_request, positions_in
from reactive_kafka.records import TopicPartition as OurPartition
from tests.faults.checker import Commit
from tests.faults.history import Partition
from tests.faults.letters import Log, Stored
from tests.faults.owners import Generation
from tests.faults.tap import Words

POLL_EVERY_S = 0.1
CALL_TIMEOUT_S = 3.0
# Without a record.
READ_TIMEOUT_S = 30.0
OFFSETS_TOPIC = "__consumer_offsets"
ID_HEADER = "id"
COMMIT_KEYS = (0, 1)
GROUP_KEY = 2
GROUP_VERSION = 3


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


async def read_group_logs(bootstrap: str) -> dict[str, list[Generation | Commit]]:
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
    logs: dict[str, list[Generation | Commit]] = {}
    async for record in _everything(bootstrap, partitions):
        if record.value is None:
            continue
        key = Words(record.key)
        version, group = key.number(">h"), key.text()
        log = logs.setdefault(group, [])
        if version in COMMIT_KEYS:
            place = key.text(), key.number(">i")
            # After the version: so in all of them, 0 to 4.
            (offset,) = struct.unpack_from(">q", record.value, 2)
            log.append(Commit((record.timestamp + 1) / 1000, place, offset, "log"))
        elif version == GROUP_KEY and Words(record.value).number(">h") == GROUP_VERSION:
            log.append(_generation(record.timestamp / 1000, record.value))
    return logs


def _generation(t: float, value: bytes) -> Generation:
    """Source: GroupMetadataValue.json of Kafka, version 3."""
    words = Words(value)
    words.number(">h"), words.text()
    number = words.number(">i")
    words.text(), words.text(), words.number(">q")
    owners: dict[Partition, str] = {}
    for _ in range(words.number(">i")):
        words.text(), words.text()
        client = words.text()
        words.text(), words.number(">i"), words.number(">i"), words.raw()
        owners |= dict.fromkeys(_assigned(words.raw()), client)
    return Generation(t, number, owners)


def _assigned(assignment: bytes) -> list[Partition]:
    """Source: ConsumerProtocolAssignment.json of Kafka."""
    if not assignment:
        return []
    words = Words(assignment, 2)
    found = []
    for _ in range(words.number(">i")):
        topic = words.text()
        found += [(topic, words.number(">i")) for _ in range(words.number(">i"))]
    return found


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
