"""Notices topics that were deleted and made anew, and begins their partitions anew; and partitions
that appear.
"""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.broker.client import Consumer
from reactive_kafka.observe.events import NothingMatches
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Pattern


class NewPartitions:
    """Which partitions appeared after a client had first looked at its topics: those are read from
    their beginning.

    Whatever the policy is: ``latest`` would skip what was written before anybody noticed them. So
    it is with those of a topic that was made anew since.
    """

    def __init__(self, parts: ClientParts, *, tells_topics: bool) -> None:
        self._parts = parts
        # Of several clients that read the same topics one does.
        self._tells_topics = tells_topics
        self._incarnations = parts.history.incarnations
        # partition -> the id of its topic then, None where it is not known; None: it has not looked
        self._known: dict[TopicPartition, str | None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the client has looked."""
        return self._known is not None

    async def new_ones(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> set[TopicPartition]:
        """Those among these partitions, which are about to be read, that appeared after the first
        look.
        """
        if self._known is None:
            self._known = self._with_ids(await self._partitions_there(consumer) | set(partitions))
        known = self._known
        now = self._with_ids(partitions)
        new = {one for one in now if one not in known or _differ(known[one], now[one])}
        known.update({one: id for one, id in now.items() if id is not None or one not in known})
        return new

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str | None]:
        return {one: self._incarnations.of(one.topic) for one in partitions}

    async def look(self, consumer: Consumer) -> None:
        """Note what there is at a first assignment without partitions; what is empty by then is new
        when it comes.

        A topic that our own question has created exists by now, and nobody owns it yet.
        """
        there = await self._partitions_there(consumer)
        settings = self._parts.settings
        if settings.pattern is not None and not there and self._tells_topics:
            self._parts.observer.on(NothingMatches(channel=settings.name, pattern=settings.pattern))
        ends = await consumer.end_offsets(there) if there else {}
        self._known = self._with_ids(partition for partition, end in ends.items() if end > 0)

    async def _partitions_there(self, consumer: Consumer) -> set[TopicPartition]:
        subscription = self._parts.settings.subscription
        named = None if isinstance(subscription, Pattern) else subscription.topics
        topics = await consumer.topics(named)
        return {
            partition
            for topic, there in topics.items()
            if subscription.reads(topic)
            for partition in there
        }


def _differ(then: str | None, now: str | None) -> bool:
    return then is not None and now is not None and then != now
