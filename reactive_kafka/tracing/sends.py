"""Outgoing channels whose sends have spans, with the span's context in the record's headers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from reactive_kafka.config.settings import MemorySettings, OutgoingSettings
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.memory import MemoryTarget
from reactive_kafka.outgoing.queue.receipt import Receipt
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.outgoing.queue.writer import Writer
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracing.names import (
    NOTHING,
    PARTITION,
    TOPIC,
    Attributes,
    of_channel,
    of_content,
    of_place,
)
from reactive_kafka.tracing.tracer import Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class SendSpans:
    """Makes the spans of one outgoing channel."""

    def __init__(self, tracing: Tracing, settings: OutgoingSettings) -> None:
        self.tracing = tracing
        self._own = of_channel(
            settings.name, "send", is_kafka=True, client_id=settings.client.get("client_id")
        )

    def begin(
        self, topic: str, key: bytes | None, partition: int | None, *, is_tombstone: bool
    ) -> Span:
        """A span that has begun, of a send within what is current."""
        attributes = {**self._own, TOPIC: topic, **of_content(key, is_tombstone=is_tombstone)}
        if partition is not None:
            attributes[PARTITION] = str(partition)
        return self.tracing.begin(f"send {topic}", self.tracing.producer, attributes)


class Sent(QueuedRecord):
    """A record on its way with its span, which ends when it is told what became of it."""

    __slots__ = ("_inner", "_span", "_tracing")

    def __init__(self, inner: QueuedRecord, span: Span, tracing: Tracing) -> None:
        self.value = inner.value
        self.key = inner.key
        self.timestamp_ms = inner.timestamp_ms
        self.headers = tracing.with_context(inner.headers, span)
        self._inner = inner
        self._tracing = tracing
        # None: it has ended.
        self._span: Span | None = span

    @property
    def is_over(self) -> bool:
        if not self._inner.is_over:
            return False
        # Nobody waits for it any more, so nobody is told.
        self._end()
        return True

    def written(self, at: TopicPartition, offset: int) -> None:
        self._end(of_place(at, offset) if offset >= 0 else {})
        self._inner.written(at, offset)

    def fail(self, error: BaseException) -> None:
        self._end(error=error)
        self._inner.fail(error)

    def _end(self, said: Attributes = NOTHING, error: BaseException | None = None) -> None:
        span = self._span
        self._span = None
        if span is not None:
            self._tracing.end(span, error, said)


class TracedWriter(Writer):
    """A writer that makes a span of each record that it accepts, until the broker has it."""

    def __init__(self, spans: SendSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._spans = spans
        # The short way has no room for a span.
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
                Sent(record, span, self._spans.tracing), topic, partition, has_waited=has_waited
            )
        except BaseException as error:
            self._spans.tracing.end(span, error)
            raise


class TracedChannel(OutgoingChannel):
    """One that is not transactional."""

    def __init__(self, spans: SendSpans, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named, make_writer=partial(TracedWriter, spans))
        # Or values would be encoded for the short way, and then once more.
        self.is_quick = False


class TracedTransactions(OutgoingChannel):
    """A transactional one: a span tells that a record is taken into a transaction, and not how that
    ends.
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


class TracedMemory(MemoryTarget):
    """A memory channel: no send, but the call that handles a value belongs to the trace of whoever
    has sent it.
    """

    def __init__(self, tracing: Tracing, settings: MemorySettings, *arguments: Any) -> None:
        super().__init__(settings, *arguments)
        self._tracing = tracing

    def put_now(self, value: Any, receipt: Receipt | QueuedRecord) -> None:
        value.headers = self._tracing.with_context(value.headers)
        super().put_now(value, receipt)
