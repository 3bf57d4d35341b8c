"""What the tests of tracing share: a provider for one test, and what its spans say of each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from reactive_kafka.records import HeaderPairs

Header = tuple[str, bytes | None]


class Spans:
    """What was exported, the first to end first."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.of(name)
        return span

    def handling(self) -> list[ReadableSpan]:
        """All but those that settle records."""
        return [span for span in self.all() if operation_type(span) != "settle"]

    def names(self) -> list[str]:
        """The names of `handling`."""
        return [span.name for span in self.handling()]

    def clear(self) -> None:
        self.exporter.clear()


@contextmanager
def provided() -> Iterator[Spans]:
    """A provider in the place of the process's one, which can be set only once."""
    spans = Spans()
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
