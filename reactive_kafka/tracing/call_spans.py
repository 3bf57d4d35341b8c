"""The spans of handler calls, with a message or a batch, and of calls of Spark functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic, time
from typing import Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.tracing.attributes import (
    ATTEMPT,
    COUNT,
    MOST_LINKS,
    TOPIC,
    UNLINKED,
    LinkedRecord,
    OperationAttributes,
    content_attributes,
    position_attributes,
    span_name,
)
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.tracer import CurrentSpan, Tracing
from reactive_kafka.verdicts.ageing import HOLDER
from reactive_kafka.verdicts.batch import Batch, keep_batch_trace
from reactive_kafka.verdicts.delivery import keep_trace
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message


class CallSpans:
    """Makes the spans of the calls of one channel.

    Args:
        tracing: Makes spans.
        settings: The settings of the channel.
        cluster: The Kafka cluster of the channel; None: it is a memory channel.
        now: Returns the monotonic time, in seconds.
        wall: Returns the seconds since the epoch.
    """

    def __init__(
        self,
        tracing: Tracing,
        settings: IncomingSettings,
        cluster: ClusterAttributes | None,
        now: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self._tracing = tracing
        self._now = now
        self._wall = wall
        self._is_kafka = cluster is not None
        self._attributes = OperationAttributes(
            settings.name,
            "process",
            cluster,
            group_id=settings.group_id,
            client_id=settings.client.get("client_id"),
        )

    def around(self, call: Call, durations: DurationHistogram, times: RecordTimes) -> Call:
        """Return a call that does the same in a span. Its argument is a message or a batch.

        Args:
            durations: Counts the calls, and keeps some of the spans as exemplars.
            times: Counts delays and ages of the records, and keeps spans as well: of a batch with
                the times of its first record.
        """

        async def call_in_span(argument: Message[Any] | Batch[Any]) -> Any:
            # What is kept is the parent of the spans of acks and nacks.
            if isinstance(argument, Batch):
                span = self._of_batch(argument)
                keep_batch_trace(argument, span.context)
            else:
                span = self._of_message(argument)
                keep_trace(argument, span.context)
            written_at = _written_at(argument)
            measured: list[tuple[DurationHistogram, float]] = []
            if written_at is not None:
                measured.append((times.delays, max(0.0, self._wall() - written_at)))
            began = self._now()
            waited_before_s = _waited_s()
            with span:
                try:
                    result = await call(argument)
                    # A call that has raised settles nothing yet.
                    if written_at is not None:
                        measured.append((times.ages, max(0.0, self._wall() - written_at)))
                    return result
                finally:
                    waited_s = _waited_s() - waited_before_s
                    span.exemplify((durations, self._now() - began - waited_s), *measured)

        return call_in_span

    def _of_message(self, message: Message[Any]) -> CurrentSpan:
        record = message.record
        partition = message.topic_partition
        attributes: dict[str, str | int | bool] = {
            **self._attributes.all(),
            **content_attributes(record.key, record.value, record.headers),
            TOPIC: partition.topic,
            ATTEMPT: message.attempt,
        }
        if self._is_kafka:
            attributes |= position_attributes(partition, record.offset)
        tracing = self._tracing
        parent = tracing.context_in(record.headers)
        span = tracing.begin(
            span_name("process", partition.topic), tracing.consumer, attributes, parent
        )
        return tracing.current(span, parent)

    def _of_batch(self, batch: Batch[Any]) -> CurrentSpan:
        records = (
            LinkedRecord(message.topic_partition, message.offset, message.record.headers)
            for message in batch
        )
        topics = {message.topic for message in batch}
        return self.of_many(topics, len(batch), records, batch[0].attempt)

    def of_many(
        self, topics: Iterable[str], count: int, records: Iterable[LinkedRecord], attempt: int
    ) -> CurrentSpan:
        """Return the span of one call for several records.

        Args:
            topics: The topics of the records.
            count: The number of all records.
            records: The records that the span may link to. They may be fewer than *count*.
            attempt: The number of the call, from 1.
        """
        tracing = self._tracing
        topics = sorted(topics)
        links = tracing.links(records, MOST_LINKS)
        attributes: dict[str, str | int | bool] = {
            **self._attributes.all(),
            COUNT: count,
            ATTEMPT: attempt,
        }
        topic = None
        if len(topics) == 1:
            topic = topics[0]
            attributes[TOPIC] = topic
        if len(links) < count:
            attributes[UNLINKED] = count - len(links)
        span = tracing.begin(
            span_name("process", topic), tracing.consumer, attributes, tracing.no_parent, links
        )
        return tracing.current(span, tracing.no_parent)


def _waited_s() -> float:
    """Return how long the calls of this worker have waited for us, which is no time of theirs."""
    holder = HOLDER.get()
    return 0.0 if holder is None else holder.waited_s()


def _written_at(argument: Message[Any] | Batch[Any]) -> float | None:
    """Return the timestamp of a record, or of the first one of a batch, in seconds.

    None: the record has none.
    """
    first = argument[0] if isinstance(argument, Batch) else argument
    timestamp_ms = first.record.timestamp
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    return timestamp_ms / 1000
