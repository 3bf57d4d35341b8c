"""Notices topics that were deleted and created again, and restarts their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reactive_kafka.assignment.incarnations import Incarnations
from reactive_kafka.assignment.log_ends import LogEnds, ask_log_ends
from reactive_kafka.assignment.partition_starter import PartitionStarter
from reactive_kafka.broker.client import Consumer
from reactive_kafka.commit.committer import Committer
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.start_choice import StartChoice
from reactive_kafka.records import TopicPartition


class RecreatedTopics:
    """Watches the ids of the topics that one client reads.

    Args:
        topics: The topics that the channel names; also those of which other members have all
            partitions.
    """

    def __init__(
        self,
        topics: Iterable[str],
        incarnations: Incarnations,
        owned: ClientPartitions,
        committer: Committer,
        starter: PartitionStarter,
    ) -> None:
        self._topics = topics
        self._incarnations = incarnations
        self._owned = owned
        self._committer = committer
        self._starter = starter

    async def ask(self, consumer: Consumer) -> None:
        """Ask a broker for the ids of the topics, and all brokers if it says something new.

        Raises:
            BrokerError: No broker answers.
        """
        topics = self._read_topics()
        known = self._incarnations
        question = known.asks()
        known.some_answered(question, await consumer.topic_ids(topics))
        if known.are_in_doubt(topics):
            question = known.asks()
            known.all_answered(question, await consumer.topic_ids(topics, of_all=True))

    async def ask_before_reading(self, consumer: Consumer) -> None:
        """Ask as :meth:`ask` does, before reading starts: what is read must belong to one id.

        Raises:
            BrokerError: No broker answers, or brokers disagree.
        """
        await self.ask(consumer)
        why = self._incarnations.why_undecided(self._read_topics())
        if why is not None:
            raise TransientBrokerError(why)

    def _read_topics(self) -> set[str]:
        ours = {partition.id.topic for partition in self._owned.table if partition.is_ours}
        return ours.union(self._topics)

    async def restart(self, consumer: Consumer) -> None:
        """Restart the partitions whose topic has another id by now.

        The state of the old topic does not apply to them. Call it with the lock of
        :class:`PositionLookup`.

        Raises:
            BrokerError: No broker answers.
        """
        read: dict[Partition, str] = {}
        for partition in list(self._owned.table):
            if not partition.is_ours:
                continue
            why = self._starter.why_void(partition)
            if why is None:
                continue
            if not partition.is_pending:
                read[partition] = why
                continue
            # It starts with the others that wait for their start.
            partition.start.seek(StartChoice("beginning", void=why))
            if partition.state is PartitionState.RETAINED:
                self._owned.drop(partition, is_ours=True)
        if read:
            await self._restart_read(consumer, read)

    async def _restart_read(self, consumer: Consumer, read: Mapping[Partition, str]) -> None:
        """Restart partitions that are read. A question for each: one may be gone by now."""
        assignments = {partition: partition.assignment for partition in read}
        has_restarted = False
        for partition, why in read.items():
            is_there = True
            try:
                logs = await ask_log_ends(consumer, [partition.id], {})
            except TransientBrokerError:
                if not await self._has_gone(consumer, partition.id):
                    # The next look restarts it, if it is ours then.
                    continue
                # The topic has fewer partitions than before. A position of the old one would be
                # refused, and be wrong once the partition is added.
                is_there = False
                logs = {partition.id: LogEnds(0, 0)}
            # The broker was asked meanwhile: the partition may have gone, or have restarted.
            if partition.assignment != assignments[partition] or partition.live is None:
                continue
            if self._starter.why_void(partition) is None:
                continue
            start = self._starter.start_recreated(
                partition, why, logs[partition.id], is_there=is_there
            )
            if start is not None:
                consumer.start_at({partition.id: start.position})
                has_restarted = True
        if has_restarted:
            consumer.wake()
            await self._committer.commit()

    async def _has_gone(self, consumer: Consumer, partition: TopicPartition) -> bool:
        """Whether the topic exists, and this partition of it does not."""
        try:
            topics = await consumer.topics([partition.topic])
        except TransientBrokerError:
            return False
        return partition not in topics.get(partition.topic, [partition])
