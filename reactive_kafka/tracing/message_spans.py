"""Spans of what becomes of messages around the calls of handlers: received, acked, nacked."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.tracing.attributes import (
    COUNT,
    STRATEGY,
    TOPIC,
    Attributes,
    LinkedRecord,
    Operation,
    OperationAttributes,
    content_attributes,
    position_attributes,
    span_name,
)
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.tracer import Tracing
from reactive_kafka.verdicts.delivery import Delivery, keep_trace, trace_of
from reactive_kafka.verdicts.futures import ThreadVerdict, when_done

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


class MessageSpans:
    """Makes the spans of what becomes of a channel's messages, besides those of its calls.

    The span of a verdict is a child of the call, or of the receive span, that the message was in.
    If the message was in none, its parent is the span of its producer.
    """

    def __init__(
        self, tracing: Tracing, settings: IncomingSettings, cluster: ClusterAttributes
    ) -> None:
        self._tracing = tracing
        self._attributes = {
            operation: OperationAttributes(
                settings.name,
                operation,
                cluster,
                group_id=settings.group_id,
                client_id=settings.client.get("client_id"),
            )
            for operation in _OPERATIONS
        }

    def received(self, message: Delivery, waited_s: float) -> None:
        """Make the span of a message that the application has waited for."""
        record = message.record
        attributes = {
            **self._of_record("receive", message),
            **content_attributes(record.key, record.value, record.headers),
        }
        tracing = self._tracing
        links = tracing.links([_linked(message)], 1)
        span = tracing.begin(
            span_name("receive", message.topic_partition.topic),
            tracing.client,
            attributes,
            links=links,
            began_ago_s=waited_s,
        )
        tracing.end(span)
        keep_trace(message, tracing.inside(span))

    def acked(self, message: Delivery, answer: Future[bool] | ThreadVerdict) -> None:
        """Make the span of an ack. It ends when the ack has its answer."""
        if isinstance(answer, ThreadVerdict):
            # In another thread it is not known yet whether the ack has an effect.
            answer.add_done_callback(partial(self.acked, message))
            return
        if _has_no_effect(answer):
            return
        parent = self._context_of(message)
        if self._tracing.is_dropped(parent):
            return
        attributes = self._of_record("ack", message)
        self._until(answer, "ack", message.topic_partition.topic, attributes, parent)

    def acked_together(
        self, messages: Sequence[Delivery], answer: Future[bool] | ThreadVerdict, trace: object
    ) -> None:
        """Make the span of an ack of several messages."""
        if isinstance(answer, ThreadVerdict):
            answer.add_done_callback(
                lambda answered: self.acked_together(messages, answered, trace)
            )
            return
        if _has_no_effect(answer):
            return
        parent: Any = trace or self._tracing.no_parent
        if self._tracing.is_dropped(parent):
            return
        attributes: dict[str, str | int | bool] = {
            **self._attributes["ack"].all(),
            COUNT: len(messages),
        }
        topics = {message.topic_partition.topic for message in messages}
        topic = None
        if len(topics) == 1:
            (topic,) = topics
            attributes[TOPIC] = topic
        self._until(answer, "ack", topic, attributes, parent)

    def nacked(self, delivery: Delivery, strategy: str, answer: Future[bool]) -> None:
        """Make the span of a nack. It ends when the failure strategy has been carried out."""
        parent = self._context_of(delivery)
        if self._tracing.is_dropped(parent):
            return
        attributes = {**self._of_record("nack", delivery), STRATEGY: strategy}
        self._until(answer, "nack", delivery.topic_partition.topic, attributes, parent)

    def _of_record(self, operation: Operation, delivery: Delivery) -> Attributes:
        return {
            **self._attributes[operation].all(),
            **position_attributes(delivery.topic_partition, delivery.offset),
        }

    def _context_of(self, delivery: Delivery) -> Context:
        kept: Any = trace_of(delivery)
        if kept is None:
            return self._tracing.context_in(delivery.record.headers)
        context: Context = kept
        return context

    def _until(
        self,
        answer: Future[bool],
        operation: Operation,
        topic: str | None,
        attributes: Attributes,
        parent: Context,
    ) -> None:
        """Make a span from now until there is an answer."""
        tracing = self._tracing
        span = tracing.begin(span_name(operation, topic), tracing.client, attributes, parent)
        if answer.done():
            tracing.end(span)
        else:
            when_done(answer, partial(self._answered, span))

    def _answered(self, span: Span, answer: Future[bool]) -> None:
        error: BaseException | None = None
        if not answer.cancelled():
            error = answer.exception()
            if error is None and not answer.result():
                error = NotOwnerError("the partition went before the verdict was carried out")
        self._tracing.end(span, error)


_OPERATIONS: tuple[Operation, ...] = ("receive", "ack", "nack")


def _has_no_effect(answer: Future[bool]) -> bool:
    """Whether it is known that a verdict has no effect, for example because there was another."""
    if not answer.done():
        return False
    return answer.cancelled() or answer.exception() is not None or not answer.result()


def _linked(message: Delivery) -> LinkedRecord:
    return LinkedRecord(message.topic_partition, message.offset, message.record.headers)
