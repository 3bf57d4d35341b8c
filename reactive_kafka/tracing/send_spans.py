"""Outgoing channels that make a span of each send and put its context into the record's headers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.outgoing.queue.writer import Writer
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracing.attributes import (
    NOTHING,
    PARTITION,
    TOPIC,
    Attributes,
    channel_attributes,
    content_attributes,
    position_attributes,
)
from reactive_kafka.tracing.tracer import Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class SendSpans:
    """Makes the spans of one outgoing channel."""

    def __init__(self, tracing: Tracing, settings: OutgoingSettings) -> None:
        self.tracing = tracing
        self._channel_attributes = channel_attributes(
            settings.name, "send", is_kafka=True, client_id=settings.client.get("client_id")
        )

    def begin(
        self, topic: str, key: bytes | None, partition: int | None, *, is_tombstone: bool
    ) -> Span:
        """Start the span of a send. Its parent is the current span."""
        attributes = {
            **self._channel_attributes,
            TOPIC: topic,
            **content_attributes(key, is_tombstone=is_tombstone),
        }
        if partition is not None:
            attributes[PARTITION] = str(partition)
        return self.tracing.begin(f"send {topic}", self.tracing.producer, attributes)


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

    def _end(self, attributes: Attributes = NOTHING, error: BaseException | None = None) -> None:
        span = self._span
        self._span = None
        if span is not None:
            self._tracing.end(span, error, attributes)


class TracedWriter(Writer):
    """A writer that makes a span of each record, from accepting it until the broker has it."""

    def __init__(self, spans: SendSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._spans = spans
        # The shortcut for single records makes no span, so it refuses every record here.
        self.take = lambda record, topic_name: False

    def put_now(
        self,
        record: QueuedRecord,
        topic: str,
        partition: int | None = None,
        *,
        has_waited: bool = False,
    ) -> None:
        span = self._spans.begin(topic, record.key, partition, is_tombstone=record.value is None)
        try:
            super().put_now(
                TracedSend(record, span, self._spans.tracing),
                topic,
                partition,
                has_waited=has_waited,
            )
        except BaseException as error:
            self._spans.tracing.end(span, error)
            raise


class TracedChannel(OutgoingChannel):
    """An outgoing channel without transactions whose sends have spans."""

    def __init__(self, spans: SendSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named, make_writer=partial(TracedWriter, spans))
        # The shortcut would refuse each record after encoding it, so it would be encoded twice.
        self.is_quick = False


class TracedTransactions(OutgoingChannel):
    """A transactional outgoing channel whose sends have spans.

    A span says that a record was accepted into a transaction. It does not say how that ends.
    """

    def __init__(self, spans: SendSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._spans = spans

    def prepare(self, value: Any, source: RawRecord | None = None) -> OutgoingRecord:
        outgoing = super().prepare(value, source)
        record = outgoing.record
        tracing = self._spans.tracing
        span = self._spans.begin(
            outgoing.topic, record.key, outgoing.partition, is_tombstone=record.value is None
        )
        headers = tracing.with_context(record.headers, span)
        tracing.end(span)
        return outgoing._replace(record=record._replace(headers=headers))
