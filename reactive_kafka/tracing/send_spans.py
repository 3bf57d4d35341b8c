"""Makes a span of each record that an outgoing channel sends, and puts its context into headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.records import RecordFields, TopicPartition
from reactive_kafka.tracing.attributes import (
    NOTHING,
    PARTITION,
    TOPIC,
    Attributes,
    OperationAttributes,
    content_attributes,
    position_attributes,
    span_name,
)
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.tracer import Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class SendSpans:
    """Makes the spans of one outgoing channel: the watch of its records."""

    def __init__(
        self, tracing: Tracing, settings: OutgoingSettings, cluster: ClusterAttributes
    ) -> None:
        self._tracing = tracing
        self._attributes = OperationAttributes(
            settings.name, "send", cluster, client_id=settings.client.get("client_id")
        )

    def queued(self, record: QueuedRecord, topic: str, partition: int | None) -> QueuedRecord:
        """Return the record with a span, which begins now and ends with its outcome."""
        span = self._begin(topic, partition, record)
        return TracedSend(record, span, self._tracing)

    def written(self, record: QueuedRecord, durations: DurationHistogram, took_s: float) -> None:
        """Keep the span of a record that is written as an exemplar."""
        if isinstance(record, TracedSend):
            record.exemplify(durations, took_s)

    def in_transaction(self, outgoing: OutgoingRecord) -> OutgoingRecord:
        """Return the record with the context of a span in its headers.

        The span says that the record was accepted into a transaction. It does not say how that
        ends.
        """
        record = outgoing.record
        span = self._begin(outgoing.topic, outgoing.partition, record)
        headers = self._tracing.with_context(record.headers, span)
        self._tracing.end(span)
        return outgoing._replace(record=record._replace(headers=headers))

    def _begin(self, topic: str, partition: int | None, record: RecordFields) -> Span:
        """Start the span of a send. Its parent is the current span."""
        attributes: dict[str, str | int | bool] = {
            **self._attributes.all(),
            TOPIC: topic,
            **content_attributes(record.key, record.value, record.headers),
        }
        if partition is not None:
            attributes[PARTITION] = str(partition)
        return self._tracing.begin(span_name("send", topic), self._tracing.producer, attributes)


class TracedSend(QueuedRecord):
    """A record that is being sent, with its span. The outcome of the send ends the span."""

    __slots__ = ("_inner", "_span", "_tracing")

    def __init__(self, inner: QueuedRecord, span: Span, tracing: Tracing) -> None:
        self.value = inner.value
        self.key = inner.key
        self.timestamp_ms = inner.timestamp_ms
        self.headers = tracing.with_context(inner.headers, span)
        self._inner = inner
        self._tracing = tracing
        # None: the span has ended.
        self._span: Span | None = span

    @property
    def is_over(self) -> bool:
        if not self._inner.is_over:
            return False
        # The sender has given up, so neither `written` nor `fail` will be called.
        self._end()
        return True

    def written(self, at: TopicPartition, offset: int) -> None:
        self._end(position_attributes(at, offset) if offset >= 0 else {})
        self._inner.written(at, offset)

    def fail(self, error: BaseException) -> None:
        self._end(error=error)
        self._inner.fail(error)

    def exemplify(self, durations: DurationHistogram, took_s: float) -> None:
        """Keep the span with a duration that *durations* counts, if the span is recorded."""
        exemplar = None
        if self._span is not None:
            exemplar = self._tracing.exemplar(self._span, took_s)
        if exemplar is not None:
            durations.exemplify(exemplar)

    def _end(self, attributes: Attributes = NOTHING, error: BaseException | None = None) -> None:
        span = self._span
        self._span = None
        if span is not None:
            self._tracing.end(span, error, attributes)
