"""The spans of handler calls, with a message or a batch, and of calls of Spark functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.tracing.attributes import (
    ATTEMPT,
    COUNT,
    MOST_LINKS,
    TOPIC,
    UNLINKED,
    LinkedRecord,
    channel_attributes,
    content_attributes,
    position_attributes,
)
from reactive_kafka.tracing.tracer import CurrentSpan, Tracing
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message


class CallSpans:
    """Makes the spans of the calls of one channel.

    Args:
        tracing: Makes spans.
        settings: The settings of the channel.
        is_kafka: False: it is a memory channel.
    """

    def __init__(
        self, tracing: Tracing, settings: IncomingSettings, *, is_kafka: bool = True
    ) -> None:
        self._tracing = tracing
        self._name = settings.name
        self._is_kafka = is_kafka
        self._channel_attributes = channel_attributes(
            settings.name,
            "process",
            is_kafka=is_kafka,
            group_id=settings.group_id,
            client_id=settings.client.get("client_id"),
        )

    def around(self, call: Call) -> Call:
        """Return a call that does the same in a span. Its argument is a message or a batch."""

        async def call_in_span(argument: Message[Any] | Batch[Any]) -> Any:
            if isinstance(argument, Batch):
                span = self._of_batch(argument)
            else:
                span = self._of_message(argument)
            with span:
                return await call(argument)

        return call_in_span

    def _of_message(self, message: Message[Any]) -> CurrentSpan:
        record = message.record
        partition = message.topic_partition
        attributes: dict[str, str | int | bool] = {
            **self._channel_attributes,
            **content_attributes(record.key, is_tombstone=record.value is None),
            TOPIC: partition.topic,
            ATTEMPT: message.attempt,
        }
        if self._is_kafka:
            attributes |= position_attributes(partition, record.offset)
        tracing = self._tracing
        parent = tracing.context_in(record.headers)
        span = tracing.begin(f"process {partition.topic}", tracing.consumer, attributes, parent)
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
        attributes = {**self._channel_attributes, COUNT: count, ATTEMPT: attempt}
        name = self._name
        if len(topics) == 1:
            name = topics[0]
            attributes[TOPIC] = name
        if len(links) < count:
            attributes[UNLINKED] = count - len(links)
        span = tracing.begin(
            f"process {name}", tracing.consumer, attributes, tracing.no_parent, links
        )
        return tracing.current(span, tracing.no_parent)
