"""Reads dead letters without joining a group, and replays them: counts first, then writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from reactive_kafka.broker.client import (
    Chunk,
    Connector,
    Consumer,
    Inspector,
    Producer,
    Written,
    start_without_group,
)
from reactive_kafka.broker.topic_lookup import known_topics, logs_of
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.dead_letters.letters import (
    ReplayError,
    ReplayPlan,
    ReplayTarget,
    original_timestamp,
    own_headers,
    progress_group,
    rest,
)
from reactive_kafka.dead_letters.timestamps import CONFIGS, limits_of
from reactive_kafka.errors import ReactiveKafkaError
from reactive_kafka.observe.wording import count_of
from reactive_kafka.records import Committed, LogRange, TopicPartition
from reactive_kafka.subscription import Partitions

MAX_RECORDS = 100
POLL_S = 0.5
PATIENCE_S = 30.0
# How long an interrupted replay waits for the broker's confirmation of what it has sent.
CONFIRM_S = 10.0
# Records of open and aborted transactions are not read.
COMMITTED = {"isolation_level": "read_committed"}


class LetterCluster(Protocol):
    """How dead letters are read and written."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """Connection and credentials of every client, under aiokafka's names."""

    @property
    def channels(self) -> Sequence[IncomingSettings]:
        """The incoming channels whose letters these are."""

    def clients(
        self, **more_properties: object
    ) -> AbstractAsyncContextManager[tuple[Connector, Inspector]]:
        """Open a connector and a started inspector."""


def letter_client(channel: IncomingSettings, topic: str) -> Mapping[str, Any] | None:
    """Return the properties of a channel's producer of dead letters; None for another topic."""
    letters = channel.dead_letter_queue
    if letters is None or letters.topic != topic:
        return None
    return letters.client


def producing_of(channels: Iterable[IncomingSettings], topic: str) -> dict[str, Any]:
    """Return the properties of the producer that wrote the dead letters, without its connection."""
    for channel in channels:
        client = letter_client(channel, topic)
        if client is not None:
            return {
                name: value
                for name, value in client.items()
                if name not in ("bootstrap_servers", "transactional_id")
            }
    return {}


def _ignore(count: int) -> None:
    """Report no progress."""


@asynccontextmanager
async def reading_topic(
    cluster: LetterCluster, topic: str
) -> AsyncIterator[tuple[int, AsyncIterator[Chunk]]]:
    """Open a whole topic as it is now: the number of its offsets, and an iterator of its records.

    Raises:
        UnknownTopicError: There is no such topic.
    """
    async with cluster.clients(**COMMITTED) as (connector, inspector):
        logs = await logs_of(inspector, (await known_topics(inspector, topic))[topic])
        async with reading_ranges(cluster, connector, logs) as chunks:
            yield sum(end - start for start, end in logs.values()), chunks


async def plan_replay(
    cluster: LetterCluster,
    letters: str,
    to: str | None,
    limit: int | None,
    reports: Callable[[int], object] = _ignore,
    *,
    only: tuple[int, int] | None = None,
) -> ReplayPlan:
    """Count what a replay would write, and where; at most *limit* records.

    *reports* is called with the number of records of each chunk. *only* is the partition and the
    offset of a single letter, which is written whatever was replayed before.

    Raises:
        UnknownTopicError: A topic does not exist.
        ReplayError: The position of the last replay is past its end.
    """
    async with cluster.clients(**COMMITTED) as (connector, inspector):
        known = await known_topics(inspector, letters, *([] if to is None else [to]))
        reached = await _reached(inspector, progress_group(letters, to))
        logs = await logs_of(inspector, known[letters])
        if only is None:
            ranges = rest(letters, to, logs, reached)
        else:
            reached = {}
            ranges = _single(letters, logs, *only)
        sizes = {topic: len(partitions) for topic, partitions in known.items()}
        wanted = ReplayPlan(
            letters,
            to,
            sizes,
            ranges,
            partial(_is_source, cluster),
            keeps_progress=only is None,
        )
        wanted.known[progress_group(letters, to)] = reached
        async with reading_ranges(cluster, connector, ranges) as chunks:
            async for chunk in chunks:
                reports(len(chunk.records))
                if await _is_enough(inspector, wanted, chunk, limit):
                    break
    return wanted


def _single(
    letters: str, logs: Mapping[TopicPartition, LogRange], partition: int, offset: int
) -> dict[TopicPartition, LogRange]:
    """Return the range of one record.

    Raises:
        ReplayError: The log does not have it.
    """
    place = TopicPartition(letters, partition)
    log = logs.get(place)
    if log is None or not log.start <= offset < log.end:
        why = "there is no such partition"
        if log is not None:
            why = f"its log begins at {log.start} and ends before {log.end}"
        raise ReplayError(f"{place} offset {offset} cannot be replayed: {why}")
    return {place: LogRange(offset, offset + 1)}


def _is_source(cluster: LetterCluster, topic: str) -> bool:
    """Return whether a channel of the configuration reads the topic, also as a retry topic."""
    for channel in cluster.channels:
        if channel.subscription.reads(topic):
            return True
        if channel.delayed_retry is not None and topic in channel.delayed_retry.topics:
            return True
    return False


async def _reached(inspector: Inspector, group: str) -> dict[TopicPartition, int]:
    return {
        partition: stored.offset for partition, stored in (await inspector.committed(group)).items()
    }


async def _is_enough(
    inspector: Inspector, wanted: ReplayPlan, chunk: Chunk, limit: int | None
) -> bool:
    """Count the records of a chunk; return whether there are *limit* now."""
    for record in chunk.records:
        target, _ = wanted.wanted(record)
        if isinstance(target, ReplayTarget):
            await _learn(inspector, wanted, target.topic)
        wanted.count(chunk.partition, record, now_ms())
        if limit is not None and wanted.counts.total() >= limit:
            wanted.cut(chunk.partition, record.offset + 1)
            return True
    return False


async def _learn(inspector: Inspector, wanted: ReplayPlan, target: str) -> None:
    """Ask once for each target how far the other replay has come, and which timestamps it keeps."""
    other = wanted.other_progress_group(target)
    if wanted.keeps_progress and other not in wanted.known:
        wanted.known[other] = await _reached(inspector, other)
    if target not in wanted.asked:
        wanted.asked.add(target)
        configs = await inspector.topic_configs([target], CONFIGS)
        if target in configs:
            wanted.limits[target] = limits_of(configs[target])


def now_ms() -> int:
    """Return the time of a replay, in milliseconds since the epoch."""
    return int(SYSTEM_CLOCK.wall() * 1000)


@dataclass(slots=True)
class Replayed:
    """What a replay has written, as far as the broker has confirmed it.

    Attributes:
        records: How many records.
        restamped: How many of them got the time of the replay.
        unpassed: How many of them the stored position does not pass, because an earlier record
            could not be written, or because the position could not be stored.
    """

    records: int = 0
    restamped: int = 0
    unpassed: int = 0

    def add(self, records: int, restamped: int) -> None:
        """Count confirmed records, before the position behind them is stored."""
        self.records += records
        self.restamped += restamped
        self.unpassed += records

    def passed(self, records: int) -> None:
        """Note that the stored position has passed some of them."""
        self.unpassed -= records

    def in_spite_of(self, error: BaseException) -> str:
        """Return the text of an error, and what the replay had written all the same."""
        text = str(error)
        passed = self.records - self.unpassed
        if passed:
            were = "was" if passed == 1 else "were"
            text += (
                f"; {count_of(passed)} {were} replayed before that, and the next replay continues "
                "from there"
            )
        if self.unpassed:
            were, them = ("was", "it") if self.unpassed == 1 else ("were", "them")
            text += (
                f"; {count_of(self.unpassed)} {were} written behind the stored position: the next "
                f"replay may write {them} again"
            )
        return text


async def carry_out_replay(
    cluster: LetterCluster,
    wanted: ReplayPlan,
    producing: Mapping[str, Any],
    written: Replayed | None = None,
) -> Replayed:
    """Write the records of a plan. After each chunk, commit how far the replay got.

    *written* counts while records are written, and so also before an error. It is returned.

    A record keeps its original timestamp, unless its target would delete or refuse it for that.
    Then it gets the time of the replay.

    Raises:
        ReplayError: A record could not be written, or another replay has written since the plan
            was made.

    Cancellation: Waits up to ``CONFIRM_S`` for records that were sent, and commits the position of
    the confirmed ones.
    """
    written = Replayed() if written is None else written
    try:
        async with cluster.clients(**COMMITTED) as (connector, inspector):
            producer = connector.producer(
                name="replay", properties={**producing, **cluster.properties}
            )
            progress = _Progress(inspector, wanted)
            await producer.start()
            try:
                await progress.begin()
                async with reading_ranges(cluster, connector, wanted.ranges) as chunks:
                    async for chunk in chunks:
                        await _write(producer, progress, wanted, chunk, written)
            finally:
                await producer.stop()
    except ReactiveKafkaError as error:
        raise ReplayError(written.in_spite_of(error)) from error
    return written


class _Progress:
    """The stored position of a replay, and those of the other replays that its plan looked at."""

    def __init__(self, inspector: Inspector, wanted: ReplayPlan) -> None:
        self._inspector = inspector
        self._name = progress_group(wanted.letters, wanted.to)
        self._partitions = list(wanted.ranges)
        self._is_kept = wanted.keeps_progress
        self._known = {group: dict(reached) for group, reached in wanted.known.items()}

    async def begin(self) -> None:
        """Raise ReplayError if a position has moved since the plan was made.

        The user may have taken long to confirm the plan.
        """
        if not self._is_kept:
            return
        for group in self._known:
            await self._check(group, self._partitions, "nothing was written")

    async def advance(self, partition: TopicPartition, position: int) -> None:
        """Commit a position. Raises ReplayError if another replay runs at the same time."""
        if not self._is_kept:
            return
        await self._check(self._name, [partition], "some records may be there twice")
        await self._inspector.commit(self._name, {partition: Committed(position)})
        self._known[self._name][partition] = position
        for group in self._known.keys() - {self._name}:
            await self._check(group, [partition], "some records may be there twice")

    async def _check(
        self, group: str, partitions: Iterable[TopicPartition], otherwise: str
    ) -> None:
        stored = await _reached(self._inspector, group)
        for partition in partitions:
            position = stored.get(partition)
            if position != self._known[group].get(partition):
                raise ReplayError(
                    f"another replay has meanwhile reached {position} in {partition}: {otherwise}"
                )


async def _write(
    producer: Producer,
    progress: _Progress,
    wanted: ReplayPlan,
    chunk: Chunk,
    written: Replayed,
) -> None:
    """Write a chunk, wait for the broker, and commit up to the first unconfirmed record.

    What the broker has confirmed is counted in *written*, whatever this raises.
    """
    sent: dict[int, asyncio.Future[Written]] = {}
    # Offsets that must not be passed by the commit.
    left = [record.offset for record in chunk.records]
    restamped: set[int] = set()
    try:
        for record in chunk.records:
            target = wanted.target(chunk.partition, record)
            if isinstance(target, ReplayTarget):
                if target.topic not in wanted.counts:
                    # The user has not confirmed this topic.
                    raise ReplayError(
                        f"{wanted.letters} has changed in the meantime: {target.topic} was not "
                        "among the topics shown"
                    )
                is_lost = wanted.loses(target.topic, record, now_ms()) is not None
                if is_lost:
                    restamped.add(record.offset)
                sent[record.offset] = await producer.send(
                    target.topic,
                    record.value,
                    key=record.key,
                    headers=own_headers(record.headers),
                    partition=target.partition,
                    timestamp_ms=None if is_lost else original_timestamp(record),
                )
                # Reads the exception, so that asyncio does not complain about one that comes after
                # an interruption.
                sent[record.offset].add_done_callback(_is_written)
            left.remove(record.offset)
        if sent:
            await asyncio.wait(sent.values())
    finally:
        # Also after an interruption, because the producer still writes what it was given.
        if sent:
            await asyncio.wait(sent.values(), timeout=CONFIRM_S)
        confirmed = {offset for offset, confirmation in sent.items() if _is_written(confirmation)}
        written.add(len(confirmed), len(confirmed & restamped))
        position = min([*left, *(sent.keys() - confirmed)], default=chunk.next_offset)
        await progress.advance(chunk.partition, position)
        written.passed(sum(offset < position for offset in confirmed))
    for offset, confirmation in sent.items():
        error = confirmation.exception()
        if error is not None:
            raise ReplayError(
                f"{chunk.partition} offset {offset} could not be written: {error}"
            ) from error


def _is_written(confirmation: asyncio.Future[Written]) -> bool:
    return confirmation.done() and not confirmation.cancelled() and confirmation.exception() is None


@asynccontextmanager
async def reading_ranges(
    cluster: LetterCluster, connector: Connector, ranges: Mapping[TopicPartition, LogRange]
) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Open an iterator over the records in *ranges*, one partition after the other.

    The iterator raises ReplayError if nothing comes for ``PATIENCE_S``, or the log cannot be
    read.
    """
    subscription = Partitions(tuple(ranges))
    properties = {**cluster.properties, **COMMITTED}
    consumer = connector.consumer(
        name="replay", subscription=subscription, group_id=None, properties=properties
    )
    try:
        await start_without_group(consumer)
        yield _chunks(consumer, ranges)
    finally:
        await consumer.stop()


async def _chunks(
    consumer: Consumer, ranges: Mapping[TopicPartition, LogRange]
) -> AsyncIterator[Chunk]:
    for partition, (start, until) in sorted(ranges.items()):
        reached = start
        if start < until:
            # Only now, so that no records of a partition come before its turn.
            consumer.start_at({partition: start})
        while reached < until:
            for chunk in await _some(consumer, partition, reached, until):
                reached = chunk.next_offset
                yield chunk
        consumer.pause([partition])


async def _some(
    consumer: Consumer, partition: TopicPartition, reached: int, until: int
) -> list[Chunk]:
    """Return at least one chunk that continues from *reached*, cut off at *until*."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while loop.time() < deadline:
        poll = await consumer.poll({partition: MAX_RECORDS}, POLL_S)
        if partition in poll.errors:
            raise ReplayError(
                f"{partition} cannot be read at offset {reached}: {poll.errors[partition]}"
            )
        chunks = [_cut(chunk, until) for chunk in poll.chunks]
        if chunks and chunks[-1].next_offset > reached:
            return chunks
    raise ReplayError(
        f"{partition} cannot be read at offset {reached}: no records came for {PATIENCE_S:g} s"
    )


def _cut(chunk: Chunk, until: int) -> Chunk:
    records = [record for record in chunk.records if record.offset < until]
    return chunk._replace(records=records, next_offset=min(chunk.next_offset, until))
