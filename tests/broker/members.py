"""What the contract suite needs: a broker to run on, and a member that decides where it begins and
keeps a diary.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import (
    Connector,
    Consumer,
    GroupHasMembersError,
    Inspector,
    Poll,
    Producer,
    Written,
)
from reactive_kafka.records import RawRecord
from reactive_kafka.subscription import Partitions, Pattern, Subscription, Topics

# How long a test waits for what must come. A wait ends when the condition holds, so this is only
# for a failure: it has to be longer than a busy machine takes.
PATIENCE_S = 60.0


def refusal_for_members() -> GroupHasMembersError:
    """Why a client that is no member may not commit."""
    return GroupHasMembersError("the group has members")


class Cluster(Protocol):
    """A broker that the suite runs on."""

    properties: Mapping[str, object]

    @property
    def connector(self) -> Connector: ...

    async def create_topic(self, partitions: int, prefix: str = "topic") -> str:
        """A new topic; returns its name: the prefix, a hyphen and eight letters and digits."""

    async def recreate_topic(self, topic: str, partitions: int) -> None:
        """Delete a topic, and make it anew."""

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        """Move the log's start."""

    async def produce_and_leave_a_marker(
        self, partition: TopicPartition, values: Collection[bytes]
    ) -> None:
        """Append records and one offset behind them that holds none."""


class GrowingCluster(Cluster, Protocol):
    """A broker whose topics can grow."""

    async def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions."""


Event = tuple[str, frozenset[TopicPartition]]


class Member:
    """A consumer with a listener that begins at the committed position, else at the log's start."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.events: list[Event] = []
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()
        self.starts_by_itself = True
        self.has_group = True
        self.while_revoked: Callable[[], Awaitable[None]] | None = None
        self._changed = asyncio.Event()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("revoking", partitions)
        if self.while_revoked is not None and partitions:
            await self.while_revoked()
        self.owned -= partitions
        self._note("revoked", partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self.generation = generation
        if self.starts_by_itself and partitions:
            begin = await self.consumer.beginning_offsets(partitions)
            stored = (
                await self.consumer.committed(partitions)
                if self.has_group
                else dict.fromkeys(partitions)
            )
            self.consumer.start_at(
                {
                    tp: kept.offset if (kept := stored[tp]) is not None else begin[tp]
                    for tp in partitions
                }
            )
        self.owned |= partitions
        self._note("assigned", partitions)

    async def until(self, fact: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait until something about the assignment is true; it is looked at after each event."""
        async with asyncio.timeout(within_s):
            while not fact():
                self._changed.clear()
                await self._changed.wait()

    async def until_assigned(
        self, count: int, within_s: float = PATIENCE_S
    ) -> frozenset[TopicPartition]:
        """Wait until exactly *count* partitions are assigned; returns them."""
        await self.until(
            lambda: len(self.owned) == count and self.events[-1][0] == "assigned", within_s
        )
        return self.owned

    async def take(
        self, count: int, budgets: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, list[RawRecord]]:
        """Poll until *count* records are there: partition -> its records. Never more than one poll
        brings at once.
        """
        taken: dict[TopicPartition, list[RawRecord]] = {}
        async with asyncio.timeout(PATIENCE_S):
            while sum(map(len, taken.values())) < count:
                poll = await self.consumer.poll(budgets or dict.fromkeys(self.owned, 1000), 0.2)
                if poll.errors:
                    raise AssertionError(f"unexpected errors: {poll.errors}")
                for chunk in poll.chunks:
                    taken.setdefault(chunk.partition, []).extend(chunk.records)
        return taken

    async def polls_nothing(
        self, budgets: Mapping[TopicPartition, int], for_s: float = 0.3
    ) -> bool:
        """Whether a poll that waits a while brings neither records nor errors."""
        poll = await self.consumer.poll(budgets, for_s)
        return not any(chunk.records for chunk in poll.chunks) and not poll.errors

    async def poll_until(
        self, wanted: Callable[[Poll], bool], budgets: Mapping[TopicPartition, int]
    ) -> Poll:
        """Poll until a poll is as wanted; returns it."""
        async with asyncio.timeout(PATIENCE_S):
            while not wanted(poll := await self.consumer.poll(budgets, 0.2)):
                pass
        return poll

    def _note(self, kind: str, partitions: frozenset[TopicPartition]) -> None:
        self.events.append((kind, partitions))
        self._changed.set()


@asynccontextmanager
async def joined(
    cluster: Cluster,
    topic: str | None,
    group: str | None,
    name: str = "one",
    *,
    starts_by_itself: bool = True,
    pattern: str | None = None,
    partitions: Collection[TopicPartition] = (),
    whole: tuple[str, ...] = (),
    properties: Mapping[str, object] | None = None,
) -> AsyncIterator[Member]:
    """A member that has started; its assignment may still be on the way. It has stopped when this
    ends.
    """
    consumer = cluster.connector.consumer(
        name=name,
        subscription=Partitions(tuple(partitions), whole)
        if whole
        else _subscription(topic, pattern, partitions),
        group_id=group,
        properties={**cluster.properties, **(properties or {})},
    )
    member = Member(consumer)
    member.starts_by_itself = starts_by_itself
    member.has_group = group is not None
    try:
        await consumer.start(member)
        yield member
    finally:
        await consumer.stop()


def _subscription(
    topic: str | None, pattern: str | None, partitions: Collection[TopicPartition]
) -> Subscription:
    if pattern is not None:
        return Pattern(pattern)
    return Partitions(tuple(partitions)) if topic is None else Topics((topic,))


@asynccontextmanager
async def inspecting(cluster: Cluster) -> AsyncIterator[Inspector]:
    """A started inspector; it has stopped when this ends."""
    inspector = cluster.connector.inspector(properties={})
    await inspector.start()
    try:
        yield inspector
    finally:
        await inspector.stop()


async def until_committed(
    cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int]
) -> None:
    """Wait until a group has stored exactly these positions."""
    async with inspecting(cluster) as inspector, asyncio.timeout(PATIENCE_S):
        while {  # noqa: ASYNC110
            tp: kept.offset for tp, kept in (await inspector.committed(group)).items()
        } != wanted:  # noqa: ASYNC110, RUF100
            await asyncio.sleep(0.02)


@asynccontextmanager
async def producing(
    cluster: Cluster, properties: Mapping[str, object] | None = None
) -> AsyncIterator[Producer]:
    """A started producer; it has stopped when this ends."""
    producer = cluster.connector.producer(name="test", properties=properties or {})
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def fill(
    cluster: Cluster, topic: str, values: Mapping[int, Collection[str]]
) -> list[Written]:
    """Produce values (partition -> its values), and wait until the broker has them."""
    async with producing(cluster) as producer:
        confirmed = [
            await producer.send(topic, value.encode(), partition=partition)
            for partition, several in values.items()
            for value in several
        ]
        return [await one for one in confirmed]


def texts(records: Collection[RawRecord]) -> list[str]:
    """The values of records as text."""
    return [(record.value or b"").decode() for record in records]
