"""What watches a channel for OpenTelemetry: spans, measurements, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.tracing.attributes import LinkedRecord
from reactive_kafka.tracing.call_spans import CallSpans
from reactive_kafka.tracing.measurements import CallMetrics, ReceiveMetrics
from reactive_kafka.tracing.message_spans import MessageSpans
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.delivery_hook import Call


@dataclass(frozen=True, slots=True)
class CallWatch:
    """Watches the calls of one incoming channel. Measurements are made within the span."""

    spans: CallSpans | None = None
    metrics: CallMetrics | None = None

    def around(self, call: Call, durations: DurationHistogram, times: RecordTimes) -> Call:
        """Return a call that does the same and is watched. It takes a message or a batch.

        Args:
            durations: As of :meth:`CallSpans.around`.
            times: As of :meth:`CallSpans.around`.
        """
        if self.metrics is not None:
            call = self.metrics.around(call)
        if self.spans is not None:
            call = self.spans.around(call, durations, times)
        return call

    def of_many(
        self,
        topics: Iterable[str],
        count: int,
        records: Iterable[LinkedRecord],
        attempt: int,
        durations: DurationHistogram,
        took_s: Callable[[], float],
    ) -> AbstractContextManager[object]:
        """Return the block that is one call for several records. As :meth:`CallSpans.of_many`.

        Args:
            durations: Counts the calls, and keeps some of the spans as exemplars.
            took_s: Returns at the end of the block how long the call has taken.
        """
        topics = sorted(topics)
        blocks = ExitStack()
        if self.spans is not None:
            span = self.spans.of_many(topics, count, records, attempt)
            blocks.enter_context(span)
            # It runs before the end of the span.
            blocks.callback(lambda: span.exemplify((durations, took_s())))
        if self.metrics is not None:
            place = topics[0] if len(topics) == 1 else None
            blocks.enter_context(self.metrics.of_many(place, count, is_first=attempt == 1))
        return blocks


@dataclass(frozen=True, slots=True)
class Receives:
    """Watches the messages that an application takes from a channel by itself."""

    spans: MessageSpans | None
    metrics: ReceiveMetrics | None

    def received(self, message: Delivery, waited_s: float) -> None:
        """The application gets a message that it asked for, and that it waited for so long."""
        if self.spans is not None:
            self.spans.received(message, waited_s)
        if self.metrics is not None:
            self.metrics.received(message, waited_s)
