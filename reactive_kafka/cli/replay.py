"""Replays dead letters: counts them first, and then writes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from reactive_kafka.broker.client import Chunk, Connector, Inspector, Producer, Written
from reactive_kafka.cli.cluster import Cluster, inspecting, known_topics
from reactive_kafka.cli.errors import Failure
from reactive_kafka.cli.letters import ReplayTarget, without_ours
from reactive_kafka.cli.positions import logs_of
from reactive_kafka.cli.reading import reading
from reactive_kafka.cli.replay_plan import ReplayPlan, memory_of, rest
from reactive_kafka.records import Committed, RawRecord, TopicPartition

CONFIRM_S = 10.0
"""How long an interrupted replay waits for the broker's answer to what it has sent."""


@asynccontextmanager
async def _clients(cluster: Cluster) -> AsyncIterator[tuple[Connector, Inspector, dict[str, Any]]]:
    """A connector, a started inspector, and their properties: nothing of open and aborted transactions is seen."""
    properties = {**cluster.properties, "isolation_level": "read_committed"}
    async with cluster.connector() as connector, inspecting(connector, properties) as inspector:
        yield connector, inspector, properties


@asynccontextmanager
async def all_of(cluster: Cluster, topic: str) -> AsyncIterator[tuple[int, AsyncIterator[Chunk]]]:
    """A whole topic as it is now: how many offsets it has, and its records.

    Raises:
        Failure: There is no such topic.
    """
    async with _clients(cluster) as (connector, inspector, properties):
        logs = await logs_of(inspector, (await known_topics(inspector, topic))[topic])
        async with reading(connector, properties, logs) as chunks:
            yield sum(end - start for start, end in logs.values()), chunks


async def plan(cluster: Cluster, letters: str, to: str | None, limit: int | None) -> ReplayPlan:
    """What a replay would write, and where; at most *limit* records.

    Raises:
        Failure: A topic does not exist, or the position of the last replay does not fit its log.
    """
    async with _clients(cluster) as (connector, inspector, properties):
        wanted = await _begun(inspector, letters, to)
        async with reading(connector, properties, wanted.ranges) as chunks:
            async for chunk in chunks:
                if await _is_enough(inspector, wanted, chunk, limit):
                    break
    return wanted


async def _begun(inspector: Inspector, letters: str, to: str | None) -> ReplayPlan:
    known = await known_topics(inspector, letters, *([] if to is None else [to]))
    memory = memory_of(letters, to)
    reached = await _reached(inspector, memory)
    try:
        ranges = rest(await logs_of(inspector, known[letters]), reached)
    except ValueError as error:
        raise Failure(
            f"{error}: was the topic recreated? If so: "
            f"reactive-kafka offsets reset {memory} --topic {letters} --to earliest"
        ) from error
    others = {} if to is None else {to: await _reached(inspector, memory_of(letters, None))}
    return ReplayPlan(letters, to, {topic: len(its) for topic, its in known.items()}, ranges, reached, others)


async def _reached(inspector: Inspector, memory: str) -> dict[TopicPartition, int]:
    return {partition: stored.offset for partition, stored in (await inspector.committed(memory)).items()}


async def _is_enough(inspector: Inspector, wanted: ReplayPlan, chunk: Chunk, limit: int | None) -> bool:
    """Count the records of a chunk; True once there are *limit*."""
    for record in chunk.records:
        target, _ = wanted.wanted(record)
        if isinstance(target, ReplayTarget) and target.topic not in wanted.others:
            wanted.others[target.topic] = await _reached(inspector, memory_of(wanted.letters, target.topic))
        wanted.count(chunk.partition, record)
        if limit is not None and wanted.total >= limit:
            wanted.cut(chunk.partition, record.offset + 1)
            return True
    return False


async def carry_out(
    cluster: Cluster, wanted: ReplayPlan, producing: Mapping[str, Any], tell: Callable[[int], None]
) -> None:
    """Write the records of a plan, and commit after each chunk how far the replay got.

    Cancellation: Waits up to ``CONFIRM_S`` for records that were sent, and commits the position of those confirmed.

    Args:
        producing: The producer's own properties.
        tell: Called with the number of records that were written from a chunk.

    Raises:
        Failure: A record could not be written, or another replay has written since the plan was made.
    """
    async with _clients(cluster) as (connector, inspector, properties):
        producer = connector.producer(name="command-line", properties={**producing, **cluster.properties})
        memory = _Memory(inspector, wanted)
        await producer.start()
        try:
            await memory.begin()
            async with reading(connector, properties, wanted.ranges) as chunks:
                async for chunk in chunks:
                    tell(await _write(producer, memory, wanted, chunk))
        finally:
            await producer.stop()


class _Memory:
    """The position of a replay in its group, and those of the other ways that its plan has looked at."""

    def __init__(self, inspector: Inspector, wanted: ReplayPlan) -> None:
        self._inspector = inspector
        self._name = wanted.memory
        self._partitions = list(wanted.ranges)
        self._known = {group: dict(reached) for group, reached in wanted.memories.items()}

    async def begin(self) -> None:
        """Check that no position has moved since the plan was made: the user may have taken long to confirm it.

        Raises:
            Failure: One has moved.
        """
        for group in self._known:
            await self._check(group, self._partitions, "nothing was written")

    async def advance(self, partition: TopicPartition, position: int) -> None:
        """Commit a position.

        Raises:
            Failure: Another replay has moved it, or the position of another way.
        """
        await self._check(self._name, [partition], "some records may be there twice")
        await self._inspector.commit(self._name, {partition: Committed(position)})
        self._known[self._name][partition] = position
        for group in self._known.keys() - {self._name}:
            await self._check(group, [partition], "some records may be there twice")

    async def _check(self, group: str, partitions: Iterable[TopicPartition], otherwise: str) -> None:
        stored = await _reached(self._inspector, group)
        for partition in partitions:
            at = stored.get(partition)
            if at != self._known[group].get(partition):
                raise Failure(f"another replay has meanwhile reached {at} in {partition}: {otherwise}")


async def _write(producer: Producer, memory: _Memory, wanted: ReplayPlan, chunk: Chunk) -> int:
    """Write a chunk, wait for the broker, and commit the position of the first record that it has not confirmed.

    Returns:
        How many records were written.
    """
    sent: dict[int, asyncio.Future[Written]] = {}
    left = [record.offset for record in chunk.records]
    try:
        for record in chunk.records:
            target = wanted.target(chunk.partition, record)
            if isinstance(target, ReplayTarget):
                sent[record.offset] = await _send(producer, wanted, target, record)
            left.remove(record.offset)
        if sent:
            await asyncio.wait(sent.values())
    finally:
        if sent:  # interrupted or not: the producer writes what it was given
            await asyncio.wait(sent.values(), timeout=CONFIRM_S)
        left += [offset for offset, confirmation in sent.items() if not _is_written(confirmation)]
        await memory.advance(chunk.partition, min(left, default=chunk.next_offset))
    for offset, confirmation in sent.items():
        error = confirmation.exception()
        if error is not None:
            raise Failure(f"{chunk.partition} offset {offset} could not be written: {error}") from error
    return len(sent)


def _is_written(confirmation: asyncio.Future[Written]) -> bool:
    return confirmation.done() and not confirmation.cancelled() and confirmation.exception() is None


async def _send(
    producer: Producer, wanted: ReplayPlan, target: ReplayTarget, record: RawRecord
) -> asyncio.Future[Written]:
    if target.topic not in wanted.counts:
        raise Failure(f"{wanted.letters} has changed meanwhile: {target.topic} was not among the topics shown")
    return await producer.send(
        target.topic,
        record.value,
        key=record.key,
        headers=without_ours(record.headers),
        partition=target.partition,
        timestamp_ms=record.timestamp,
    )
