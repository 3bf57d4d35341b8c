"""Kafka clients that are watched: spans and measurements of commits, and measurements of sends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack

from reactive_kafka.broker.client import (
    Connector,
    Consumer,
    Producer,
    TransactionalProducer,
    TransactionId,
    WrittenBatch,
)
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.records import Committed, RecordFields, TopicIds, TopicPartition
from reactive_kafka.subscription import Subscription
from reactive_kafka.tracing.clusters import ClusterAttributes, Clusters
from reactive_kafka.tracing.commit_spans import CommitSpans
from reactive_kafka.tracing.measurements import CommitMetrics, Now, SendMetrics
from reactive_kafka.tracing.meter import MessagingMeter


class WatchedConsumer(ClientWrapper[Consumer]):
    """A consumer whose commits are watched, and that learns the id of its cluster."""

    def __init__(
        self,
        inner: Consumer,
        cluster: ClusterAttributes,
        spans: CommitSpans | None,
        metrics: CommitMetrics | None,
    ) -> None:
        super().__init__(inner)
        self._cluster = cluster
        self._spans = spans
        self._metrics = metrics

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """As :meth:`Consumer.commit`."""
        with self._around(offsets):
            await self._inner.commit(offsets, generation)

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        """As :meth:`Consumer.commit_in`."""
        with self._around(offsets):
            await self._inner.commit_in(transaction, offsets, generation)

    def _around(self, partitions: Collection[TopicPartition]) -> ExitStack:
        blocks = ExitStack()
        if self._spans is not None:
            blocks.enter_context(self._spans.around(partitions))
        if self._metrics is not None:
            blocks.enter_context(self._metrics.around(partitions))
        return blocks

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        """As :meth:`Consumer.topic_ids`. The answer has the id of the cluster, too."""
        answers = await self._inner.topic_ids(topics, of_all=of_all)
        for answer in answers:
            if answer.cluster_id is not None:
                self._cluster.learn_id(answer.cluster_id)
        return answers


class WatchedProducer(ClientWrapper[Producer]):
    """A producer whose writes are measured."""

    def __init__(self, inner: Producer, metrics: SendMetrics) -> None:
        super().__init__(inner)
        self._metrics = metrics

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        """As :meth:`Producer.write`."""
        return await self._metrics.write(self._inner, to, records)


class WatchedTransactionalProducer(ClientWrapper[TransactionalProducer]):
    """A transactional producer whose writes are measured."""

    def __init__(self, inner: TransactionalProducer, metrics: SendMetrics) -> None:
        super().__init__(inner)
        self._metrics = metrics

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        """As :meth:`TransactionalProducer.write`."""
        return await self._metrics.write(self._inner, to, records)


class WatchedProducers(ClientWrapper[Connector]):
    """Makes producers whose writes are measured."""

    def __init__(
        self, inner: Connector, meter: MessagingMeter, clusters: Clusters, now: Now
    ) -> None:
        super().__init__(inner)
        self._meter = meter
        self._clusters = clusters
        self._now = now

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """As :meth:`Connector.producer`."""
        inner = self._inner.producer(name=name, properties=properties)
        return WatchedProducer(inner, self._metrics_of(properties))

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        """As :meth:`Connector.transactional_producer`."""
        inner = self._inner.transactional_producer(
            name=name, transactional_id=transactional_id, properties=properties
        )
        return WatchedTransactionalProducer(inner, self._metrics_of(properties))

    def _metrics_of(self, properties: Mapping[str, object]) -> SendMetrics:
        # Dead letters may go to another cluster than the channel's.
        cluster = self._clusters.of(properties.get("bootstrap_servers"))
        return SendMetrics(self._meter, cluster, self._now)


class WatchedConsumers(ClientWrapper[Connector]):
    """Makes the consumers of one incoming channel, which are watched."""

    def __init__(
        self,
        inner: Connector,
        cluster: ClusterAttributes,
        spans: CommitSpans | None,
        metrics: CommitMetrics | None,
    ) -> None:
        super().__init__(inner)
        self._cluster = cluster
        self._spans = spans
        self._metrics = metrics

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
        return WatchedConsumer(inner, self._cluster, self._spans, self._metrics)
