"""Measures messaging operations with the application's OpenTelemetry meter provider.

Errors of a provider harm no record: the first one is printed to stderr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.observe.events.base import SafeCaller
from reactive_kafka.tracing.attributes import NAME, SCHEMA_URL, Attributes
from reactive_kafka.tracing.tracer import is_installed
from reactive_kafka.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

DURATION_BUCKETS_S: Sequence[float] = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
"""The upper bounds of the buckets that the conventions ask for."""

OPERATION_DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
PROCESS_DURATION = "messaging.process.duration"


def meter_of(settings: TracingSettings) -> MessagingMeter | None:
    """Return what measures a run. None: turned off, no meter provider, or not installed."""
    if settings.enabled is False or not is_installed():
        return None
    from opentelemetry.metrics import NoOpMeter, get_meter_provider

    provider = get_meter_provider()
    # Until an application sets a provider there is one of the API itself, whose class is private.
    if type(provider).__module__.startswith("opentelemetry.metrics"):
        return None
    meter = provider.get_meter(NAME, VERSION, schema_url=SCHEMA_URL)
    if isinstance(meter, NoOpMeter):
        # The SDK gives such a meter if OTEL_SDK_DISABLED is set.
        return None
    return MessagingMeter(meter)


class MessagingMeter:
    """The four metrics of the messaging conventions. Durations are in seconds."""

    def __init__(self, meter: Meter) -> None:
        from opentelemetry.context import Context

        self._safe = SafeCaller()
        # An SDK looks for an exemplar in the current span, which a counter has no use for. It would
        # take a third of the time of a measurement.
        self._no_span = Context()
        self._operation = meter.create_histogram(
            OPERATION_DURATION,
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._process = meter.create_histogram(
            PROCESS_DURATION,
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._sent = meter.create_counter(
            SENT, "{message}", "Number of messages producer attempted to send to the broker."
        )
        self._consumed = meter.create_counter(
            CONSUMED, "{message}", "Number of messages that were delivered to the application."
        )

    def operation(self, duration_s: float, attributes: Attributes) -> None:
        """Count a send, a receive or a commit."""
        self._safe.call(self._operation.record, duration_s, attributes)

    def processed(self, duration_s: float, attributes: Attributes) -> None:
        """Count a call of a handler."""
        self._safe.call(self._process.record, duration_s, attributes)

    def sent(self, messages: int, attributes: Attributes) -> None:
        """Count messages that were sent, or could not be."""
        self._safe.call(self._sent.add, messages, attributes, self._no_span)

    def consumed(self, messages: int, attributes: Attributes) -> None:
        """Count messages that the application gets."""
        self._safe.call(self._consumed.add, messages, attributes, self._no_span)
