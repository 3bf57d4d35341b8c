"""Notices topics that were deleted and made anew, and begins their partitions anew; and partitions
that appear.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.assignment.log_ends import ask_log_ends
from reactive_kafka.assignment.partition_starter import PartitionStarter
from reactive_kafka.broker.client import Consumer
from reactive_kafka.commit.committer import Committer
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.start_choice import StartChoice


class RecreatedTopics:
    """Of the topics that one client reads."""

    def __init__(
        self,
        parts: ClientParts,
        owned: ClientPartitions,
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

        BrokerError: no answer. Called by one at a time, with :class:`PositionLookup`' lock.
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
                one.sought = StartChoice("beginning", void=why)
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
                logs = await ask_log_ends(consumer, [one.id], {})
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
