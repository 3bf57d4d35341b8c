"""What is asked of the broker before a partition is read: where its log begins and ends, and whether it is new."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reactive_kafka.broker.client import Consumer
from reactive_kafka.observe.events import NothingMatches
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.start import Where, milliseconds
from reactive_kafka.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Log:
    """Where the log of a partition begins and ends, and the offset of a time that was asked for."""

    start: int
    end: int
    at_time: int | None = None


async def look_at_logs(
    consumer: Consumer, partitions: list[TopicPartition], chosen: Mapping[TopicPartition, Where]
) -> dict[TopicPartition, Log]:
    """partition -> its log; of those whose start is a time (in *chosen*) also the offset of it.

    Raises:
        BrokerError: One of the questions was not answered.
    """
    times = {partition: milliseconds(where) for partition, where in chosen.items() if isinstance(where, datetime)}
    starts, ends = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
    found = await consumer.offsets_for_times(times) if times else {}
    return {one: Log(starts[one], ends[one], found.get(one)) for one in partitions}


class FirstLook:
    """Which partitions appeared after a client had first looked at its topics: those are read from their beginning.

    Whatever the policy is: ``latest`` would skip what was written before anybody noticed them.

    Args:
        tells_topics: Of several clients that read the same topics one tells of them.
    """

    def __init__(self, parts: ClientParts, *, tells_topics: bool) -> None:
        self._parts = parts
        self._tells_topics = tells_topics
        self._known: set[TopicPartition] | None = None  # None: it has not looked

    @property
    def is_done(self) -> bool:
        """Whether the client has looked."""
        return self._known is not None

    async def new_ones(self, consumer: Consumer, partitions: list[TopicPartition]) -> set[TopicPartition]:
        """Those among these partitions, which are about to be read, that appeared after the first look."""
        if self._known is None:
            self._known = await self._partitions_there(consumer)
            self._known.update(partitions)
        new = set(partitions) - self._known
        self._known |= new
        return new

    async def look(self, consumer: Consumer) -> None:
        """Note what there is at a first assignment without partitions; what is empty by then is new when it comes.

        A topic that our own question has created exists by now, and nobody owns it yet.
        """
        there, settings = await self._partitions_there(consumer), self._parts.settings
        if settings.pattern is not None and not there and self._tells_topics:
            self._parts.observer.on(NothingMatches(channel=settings.name, pattern=settings.pattern))
        ends = await consumer.end_offsets(there) if there else {}
        self._known = {partition for partition, end in ends.items() if end > 0}

    async def _partitions_there(self, consumer: Consumer) -> set[TopicPartition]:
        reads, topics = self._parts.settings.subscription.reads, await consumer.topics()
        return {partition for topic, there in topics.items() if reads(topic) for partition in there}
