"""What the tests of tracing share: a provider for one test, and what its spans say of each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from reactive_kafka import IncomingSettings
from reactive_kafka.records import HeaderPairs
from reactive_kafka.tracing.call_spans import CallSpans
from reactive_kafka.tracing.channel_watch import CallWatch
from reactive_kafka.tracing.clusters import ClusterAttributes
from reactive_kafka.tracing.tracer import Tracing

Header = tuple[str, bytes | None]


class Spans:
    """What was exported, the first to end first."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = provider or TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.of(name)
        return span

    def of_calls(self, settings: IncomingSettings) -> CallWatch:
        """Have the calls of a channel make spans."""
        tracing = Tracing(self.tracer)
        return CallWatch(CallSpans(tracing, settings, ClusterAttributes("localhost:9092")))

    def handling(self) -> list[ReadableSpan]:
        """All but those that settle records."""
        return [span for span in self.all() if operation_type(span) != "settle"]

    def names(self) -> list[str]:
        """The names of `handling`."""
        return [span.name for span in self.handling()]

    def clear(self) -> None:
        self.exporter.clear()


@contextmanager
def provided(provider: TracerProvider | None = None) -> Iterator[Spans]:
    """A provider in the place of the process's one, which can be set only once."""
    spans = Spans(provider)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
        yield spans
    spans.provider.shutdown()


def said(span: ReadableSpan) -> dict[str, object]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def operation_type(span: ReadableSpan) -> object:
    return said(span).get("messaging.operation.type")


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    """Whether the span's parent is that one, in its trace."""
    parent, context = span.parent, context_of(of)
    return parent is not None and (parent.trace_id, parent.span_id) == (
        context.trace_id,
        context.span_id,
    )


def traceparent(span: ReadableSpan) -> Header:
    """The header that a record has which was sent in this span."""
    context = context_of(span)
    ids = f"{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
    return "traceparent", f"00-{ids}-{context.trace_flags:02x}".encode()


def producers(number: int) -> Header:
    """The header of some producer's record."""
    return "traceparent", f"00-{number:032x}-{number:016x}-01".encode()


def number_of(context: SpanContext | None) -> int | None:
    """The number of the producer whose record it was."""
    return None if context is None else context.span_id


def contexts(headers: HeaderPairs) -> list[Header]:
    return [header for header in headers if header[0] == "traceparent"]


@dataclass(frozen=True)
class Point:
    """One data point of a metric: the sum of a counter, or a histogram."""

    attributes: dict[str, object]
    value: float
    count: int
    bounds: tuple[float, ...]


class Measures:
    """What was measured since the start of a test."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def metrics(self) -> dict[str, Metric]:
        """Name -> metric, as the SDK exports it."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def of(self, name: str, **wanted: object) -> list[Point]:
        """The points of a metric that have these attributes, given with ``_`` instead of ``.``."""
        found = self.metrics().get(name)
        points = [] if found is None else [_point(each) for each in found.data.data_points]
        return [
            point
            for point in points
            if wanted.items()
            <= {key.replace(".", "_"): value for key, value in point.attributes.items()}.items()
        ]

    def only(self, name: str, **wanted: object) -> Point:
        (point,) = self.of(name, **wanted)
        return point


def _point(point: Any) -> Point:
    if isinstance(point, NumberDataPoint):
        return Point(dict(point.attributes or {}), point.value, 1, ())
    return Point(dict(point.attributes), point.sum, point.count, tuple(point.explicit_bounds))


@contextmanager
def measured() -> Iterator[Measures]:
    """A meter provider in the place of the process's one, which can be set only once."""
    measures = Measures()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", measures.provider)
        yield measures
    measures.provider.shutdown()
