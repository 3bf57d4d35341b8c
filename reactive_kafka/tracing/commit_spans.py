"""Makes a span of each commit request of a channel."""

from __future__ import annotations

from collections.abc import Collection

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.records import TopicPartition
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
