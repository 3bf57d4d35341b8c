"""Kafka clients whose commits have spans, and that tell the id of their cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reactive_kafka.broker.client import Connector, Consumer, TransactionId
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.records import Committed, TopicIds, TopicPartition
from reactive_kafka.subscription import Subscription
from reactive_kafka.tracing.attributes import (
    PARTITION,
    PARTITIONS,
    TOPIC,
    OperationAttributes,
    span_name,
)
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.tracer import CurrentSpan, Tracing


class CommitSpans:
    """Makes a span of each commit request of one incoming channel.

    A commit is for records of many calls, so its span has no parent.
    """

    def __init__(
        self, tracing: Tracing, settings: IncomingSettings, cluster: ClusterAttributes
    ) -> None:
        self._tracing = tracing
        self._attributes = OperationAttributes(
            settings.name,
            "commit",
            cluster,
            group_id=settings.group_id,
            client_id=settings.client.get("client_id"),
        )

    def around(self, partitions: Collection[TopicPartition]) -> CurrentSpan:
        """Return the block that is the commit of these partitions."""
        attributes = {**self._attributes.all(), PARTITIONS: len(partitions)}
        topics = {partition.topic for partition in partitions}
        topic = None
        if len(topics) == 1:
            (topic,) = topics
            attributes[TOPIC] = topic
        if len(partitions) == 1:
            (partition,) = partitions
            attributes[PARTITION] = str(partition.partition)
        tracing = self._tracing
        name = span_name("commit", topic)
        span = tracing.begin(name, tracing.client, attributes, tracing.no_parent)
        return tracing.current(span, tracing.no_parent)


class WatchedConsumer(ClientWrapper[Consumer]):
    """A consumer whose commits have spans."""

    def __init__(self, inner: Consumer, commits: CommitSpans, cluster: ClusterAttributes) -> None:
        super().__init__(inner)
        self._commits = commits
        self._cluster = cluster

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """As :meth:`Consumer.commit`, in a span."""
        with self._commits.around(offsets):
            await self._inner.commit(offsets, generation)

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        """As :meth:`Consumer.commit_in`, in a span."""
        with self._commits.around(offsets):
            await self._inner.commit_in(transaction, offsets, generation)

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        """As :meth:`Consumer.topic_ids`. The answer has the id of the cluster, too."""
        answers = await self._inner.topic_ids(topics, of_all=of_all)
        for answer in answers:
            if answer.cluster_id is not None:
                self._cluster.learn_id(answer.cluster_id)
        return answers


class WatchedConnector(ClientWrapper[Connector]):
    """Makes the consumers of one channel, which are watched."""

    def __init__(self, inner: Connector, commits: CommitSpans, cluster: ClusterAttributes) -> None:
        super().__init__(inner)
        self._commits = commits
        self._cluster = cluster

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        """As :meth:`Connector.consumer`."""
        inner = self._inner.consumer(
            name=name, subscription=subscription, group_id=group_id, properties=properties
        )
        return WatchedConsumer(inner, self._commits, self._cluster)
