"""Makes a span of each commit request of a channel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.facts import DurationHistogram
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

    Args:
        durations: Counts the commits, and keeps some of the spans as exemplars.
        now: Returns the monotonic time, in seconds.
    """

    def __init__(
        self,
        tracing: Tracing,
        settings: IncomingSettings,
        cluster: ClusterAttributes,
        durations: DurationHistogram,
        now: Callable[[], float],
    ) -> None:
        self._tracing = tracing
        self._durations = durations
        self._now = now
        self._attributes = OperationAttributes(
            settings.name,
            "commit",
            cluster,
            group_id=settings.group_id,
            client_id=settings.client.get("client_id"),
        )

    @contextmanager
    def around(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Make the span of the commit of these partitions, which is within this block."""
        span = self._begun(partitions)
        began = self._now()
        with span:
            yield
            span.exemplify((self._durations, self._now() - began))

    def _begun(self, partitions: Collection[TopicPartition]) -> CurrentSpan:
        attributes: dict[str, str | int | bool] = {
            **self._attributes.all(),
            PARTITIONS: len(partitions),
        }
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
