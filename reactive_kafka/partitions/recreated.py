"""Notices topics that were deleted and made anew, and begins their partitions anew; and partitions
that appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.observe.events import NothingMatches
from reactive_kafka.partitions.committer import Committer
from reactive_kafka.partitions.owned import OwnedPartitions
from reactive_kafka.partitions.partition import Choice, Partition, PartitionState
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.starting import PartitionStarter, look_at_logs
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Pattern


class RecreatedTopics:
    """Of the topics that one client reads."""

    def __init__(
        self,
        parts: ClientParts,
        owned: OwnedPartitions,
        committer: Committer,
        starter: PartitionStarter,
    ) -> None:
        # Also those of which other members have all.
        self._topics = parts.settings.subscription.topics
        self._incarnations = parts.history.incarnations
        self._owned = owned
        self._committer = committer
        self._starter = starter

    async def ask(self, consumer: Consumer) -> None:
        """Ask a broker for the ids of the topics, and all brokers if it says something new.
        BrokerError: no answer.
        """
        topics = self._read_topics()
        known = self._incarnations
        question = known.asks()
        known.told(question, await consumer.topic_ids(topics))
        if known.are_in_doubt(topics):
            question = known.asks()
            known.told_by_all(question, await consumer.topic_ids(topics, of_all=True))

    async def ask_before_reading(self, consumer: Consumer) -> None:
        """As :meth:`ask`; what was read must belong to one id, so BrokerError as well where brokers
        disagree.
        """
        await self.ask(consumer)
        if (why := self._incarnations.why_undecided(self._read_topics())) is not None:
            raise TransientBrokerError(why)

    def _read_topics(self) -> set[str]:
        return {one.id.topic for one in self._owned.table if one.is_ours}.union(self._topics)

    async def begin_anew(self, consumer: Consumer) -> None:
        """Void what is known of partitions whose topic has another id by now, and begin those that
        are read.

        BrokerError: no answer. Called by one at a time, with :class:`StartPositions`' lock.
        """
        anew = {}
        for one in [one for one in self._owned.table if one.is_ours]:
            why = self._starter.why_void(one)
            if why is None:
                continue
            if not one.is_pending:
                anew[one] = why
            else:
                # It begins with the others that wait.
                one.sought = Choice("beginning", void=why)
                if one.state is PartitionState.RETAINED:
                    self._owned.drop(one, is_ours=True)
        if anew:
            await self._begin(consumer, anew)

    async def _begin(self, consumer: Consumer, anew: Mapping[Partition, str]) -> None:
        """Begin those that are read; each by itself, for a partition that is not there any more
        answers for none.
        """
        at = {one: one.assignment for one in anew}
        has_begun = False
        for one, why in anew.items():
            try:
                logs = await look_at_logs(consumer, [one.id], {})
            except TransientBrokerError:
                # The next look begins it, if it is ours then.
                continue
            if one.assignment != at[one] or one.live is None or self._starter.why_void(one) is None:
                continue
            start = self._starter.start_anew(one, why, logs[one.id])
            if start is not None:
                consumer.start_at({one.id: start.position})
                has_begun = True
        if has_begun:
            consumer.wake()
            await self._committer.commit()


class FirstLook:
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
