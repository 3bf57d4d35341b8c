"""Notices topics that were deleted and made anew, and begins their partitions anew."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.partitions.committer import Committer
from reactive_kafka.partitions.owned import OwnedPartitions
from reactive_kafka.partitions.partition import Choice, Partition, PartitionState
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.starting import PartitionStarter, look_at_logs


class RecreatedTopics:
    """Of the topics that one client reads."""

    def __init__(
        self, parts: ClientParts, owned: OwnedPartitions, committer: Committer, starter: PartitionStarter
    ) -> None:
        self._topics = parts.settings.subscription.topics  # also those of which other members have all
        self._incarnations = parts.history.incarnations
        self._owned = owned
        self._committer = committer
        self._starter = starter

    async def ask(self, consumer: Consumer) -> None:
        """Ask for the ids of the topics. BrokerError: no answer."""
        ours = {one.id.topic for one in self._owned.table if one.is_ours}
        self._incarnations.told(await consumer.topic_ids(ours.union(self._topics)))

    async def begin_anew(self, consumer: Consumer) -> None:
        """Void what is known of partitions whose topic has another id by now, and begin those that are read.

        BrokerError: no answer. Called by one at a time, with :class:`StartPositions`' lock.
        """
        anew = {}
        for one in [one for one in self._owned.table if one.is_ours]:
            why = self._starter.why_void(one)
            if why is None:
                continue
            if not one.is_pending:
                anew[one] = why
            else:  # it begins with the others that wait
                one.sought = Choice("beginning", void=why)
                if one.state is PartitionState.RETAINED:
                    self._owned.drop(one, is_ours=True)
        if anew:
            await self._begin(consumer, anew)

    async def _begin(self, consumer: Consumer, anew: Mapping[Partition, str]) -> None:
        """Begin those that are read; each by itself, for a partition that is not there any more answers for none."""
        at = {one: one.assignment for one in anew}
        has_begun = False
        for one, why in anew.items():
            try:
                logs = await look_at_logs(consumer, [one.id], {})
            except TransientBrokerError:
                continue  # the next look begins it, if it is ours then
            if one.assignment != at[one] or one.live is None or self._starter.why_void(one) is None:
                continue
            start = self._starter.start_anew(one, why, logs[one.id])
            if start is not None:
                consumer.start_at({one.id: start.position})
                has_begun = True
        if has_begun:
            consumer.wake()
            await self._committer.commit()
