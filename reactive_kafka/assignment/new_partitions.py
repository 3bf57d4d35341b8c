"""Which partitions have appeared since a client first looked at its topics."""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka.assignment.incarnations import Incarnations
from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.observe.events import NothingMatches
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Pattern


class NewPartitions:
    """Remembers the partitions of the first look; those that appear later are new.

    New partitions are read from their beginning, whatever the policy is: ``latest`` would skip what
    was written before anybody noticed them. The same holds for partitions of a topic that was
    recreated since.

    Args:
        reports_topics: Report a pattern that matches no topic. Of several clients that read the
            same topics one does.
    """

    def __init__(
        self, context: ClientContext, incarnations: Incarnations, *, reports_topics: bool
    ) -> None:
        self._context = context
        self._reports_topics = reports_topics
        self._incarnations = incarnations
        # partition -> the id of its topic then, None where it was not known. None before the first
        # look.
        self._known: dict[TopicPartition, str | None] | None = None

    @property
    def has_looked(self) -> bool:
        """Whether the client has looked at its topics."""
        return self._known is not None

    async def among(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> set[TopicPartition]:
        """Which of these partitions, which are about to be read, have appeared since."""
        if self._known is None:
            self._known = self._with_ids(await self._existing(consumer) | set(partitions))
        known = self._known
        now = self._with_ids(partitions)
        new = {
            partition
            for partition, topic_id in now.items()
            if partition not in known or _differ(known[partition], topic_id)
        }
        for partition, topic_id in now.items():
            if topic_id is not None or partition not in known:
                known[partition] = topic_id
        return new

    async def look(self, consumer: Consumer) -> None:
        """Take the first look, where the first assignment has no partitions.

        Partitions that are empty by now count as new when they come: a topic that our own question
        has created exists by now, and no member owns it yet. One whose leader is away does not.
        """
        there = await self._existing(consumer)
        pattern = self._context.settings.pattern
        if pattern is not None and not there and self._reports_topics:
            self._context.observer.on(
                NothingMatches(channel=self._context.channel, pattern=pattern)
            )
        empty = await self._empty(consumer, there)
        self._known = self._with_ids(there - empty)

    async def _empty(
        self, consumer: Consumer, partitions: set[TopicPartition]
    ) -> set[TopicPartition]:
        """Return which of these are empty, without those whose leaders do not answer.

        Raises:
            BrokerError: No answer, although the leaders answer.
        """
        try:
            ends = await consumer.end_offsets(partitions)
        except TransientBrokerError:
            silent = (await consumer.look(partitions)).silent
            if not silent:
                raise
            ends = await consumer.end_offsets(partitions - silent.keys())
        return {partition for partition, end in ends.items() if end == 0}

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str | None]:
        return {partition: self._incarnations.id_of(partition.topic) for partition in partitions}

    async def _existing(self, consumer: Consumer) -> set[TopicPartition]:
        subscription = self._context.settings.subscription
        named = None if isinstance(subscription, Pattern) else subscription.topics
        topics = await consumer.topics(named)
        return {
            partition
            for topic, partitions in topics.items()
            if subscription.reads(topic)
            for partition in partitions
        }


def _differ(then: str | None, now: str | None) -> bool:
    return then is not None and now is not None and then != now
