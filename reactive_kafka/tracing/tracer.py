"""Makes spans with the application's OpenTelemetry provider, and moves contexts in headers.

OpenTelemetry is imported when a run begins. Errors of a provider, a processor or a propagator harm
no record: the first one is printed to stderr.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import time, time_ns
from types import TracebackType
from typing import TYPE_CHECKING

from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.errors import MissingExtraError, describe
from reactive_kafka.observe.events.base import SafeCaller
from reactive_kafka.observe.facts import DurationHistogram, TraceExemplar
from reactive_kafka.records import HeaderPairs
from reactive_kafka.tracing.attributes import (
    ERROR_TYPE,
    NAME,
    NOTHING,
    SCHEMA_URL,
    Attributes,
    LinkedRecord,
    error_type,
    position_attributes,
)
from reactive_kafka.verdicts.later import failure_in
from reactive_kafka.version import VERSION

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer


def tracing_of(settings: TracingSettings) -> Tracing | None:
    """Return what makes the spans of a run. None: turned off, no provider, or not installed."""
    if settings.enabled is False or not is_installed():
        return None
    from opentelemetry.trace import (
        NoOpTracer,
        NoOpTracerProvider,
        ProxyTracerProvider,
        get_tracer_provider,
    )

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    tracer = provider.get_tracer(NAME, VERSION, schema_url=SCHEMA_URL)
    if isinstance(tracer, NoOpTracer):
        # The SDK gives such a tracer if OTEL_SDK_DISABLED is set.
        return None
    return Tracing(tracer)


def check_tracing(settings: TracingSettings) -> None:
    """Check that OpenTelemetry is installed if the settings require spans.

    Raises:
        MissingExtraError: It is not.
    """
    if settings.enabled and not is_installed():
        raise MissingExtraError("[tracing] enabled = true", "otel")


def is_installed() -> bool:
    """Return whether OpenTelemetry's API is installed."""
    try:
        import opentelemetry.trace  # noqa: F401
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "opentelemetry":
            raise
        return False
    return True


class Tracing:
    """Makes spans, takes their parents from headers, and puts their contexts into headers."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import context, propagate, trace

        self._tracer = tracer
        self._safe = SafeCaller()
        self._context = context
        self._propagate = propagate
        self._trace = trace
        self._no_parent = context.Context()
        self._header_names = frozenset(propagate.get_global_textmap().fields)

    @property
    def client(self) -> SpanKind:
        """The kind of the spans of receiving and settling."""
        return self._trace.SpanKind.CLIENT

    @property
    def consumer(self) -> SpanKind:
        """The kind of the spans of calls."""
        return self._trace.SpanKind.CONSUMER

    @property
    def producer(self) -> SpanKind:
        """The kind of the spans of sends."""
        return self._trace.SpanKind.PRODUCER

    def begin(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        *,
        began_ago_s: float = 0.0,
    ) -> Span:
        """Start a span, which the caller must end.

        Args:
            parent: None: the current context.
            began_ago_s: How long ago it began, in seconds.
        """
        no_span: Span = self._trace.INVALID_SPAN
        start_ns = time_ns() - int(began_ago_s * 1e9) if began_ago_s else None
        return self._safe.result(
            self._tracer.start_span, no_span, name, parent, kind, attributes, links, start_ns
        )

    def end(
        self, span: Span, error: BaseException | None = None, attributes: Attributes = NOTHING
    ) -> None:
        """End a span, with the error that has happened in it, and with more attributes."""
        self._safe.call(self._end, span, error, attributes)

    def _end(self, span: Span, error: BaseException | None, attributes: Attributes) -> None:
        try:
            if attributes:
                span.set_attributes(attributes)
            failure = failure_in(error)
            if failure is not None and span.is_recording():
                span.set_attribute(ERROR_TYPE, error_type(failure))
                span.set_status(self._trace.StatusCode.ERROR, describe(failure))
                # The SDK asks for the text of the error, which may raise.
                span.record_exception(failure)
        finally:
            span.end()

    def current(self, span: Span, parent: Context) -> CurrentSpan:
        """Return a block in which the span is the current one, and that ends it."""
        return CurrentSpan(self, span, self.inside(span, parent))

    def inside(self, span: Span, parent: Context | None = None) -> Context:
        """Return the context of what happens in a span. *parent* None: the current context."""
        return self._trace.set_span_in_context(span, parent)

    def exemplar(self, span: Span, duration_s: float) -> TraceExemplar | None:
        """Return what a histogram keeps of a span that is ending; None: it is not recorded."""
        return self._safe.result(self._exemplar, None, span, duration_s)

    def _exemplar(self, span: Span, duration_s: float) -> TraceExemplar | None:
        context = span.get_span_context()
        # A span that is not sampled is never exported, so its trace would lead nowhere.
        if not (span.is_recording() and context.trace_flags.sampled):
            return None
        return TraceExemplar(duration_s, context.trace_id, context.span_id, time())

    def is_dropped(self, context: Context) -> bool:
        """True if the span of a context is not sampled. Then spans within it are of no use."""
        span = self._trace.get_current_span(context).get_span_context()
        return span.is_valid and not span.trace_flags.sampled

    def attach(self, context: Context) -> Token[Context]:
        """Make a context the current one."""
        return self._context.attach(context)

    def detach(self, token: Token[Context]) -> None:
        """Make the context before `attach` the current one again."""
        self._context.detach(token)

    @property
    def no_parent(self) -> Context:
        """An empty context: a span that starts in it has no parent."""
        return self._no_parent

    def context_in(self, headers: HeaderPairs) -> Context:
        """Return the context in a record's headers."""
        if not headers:
            return self._no_parent
        # If a name occurs twice, the last header counts, as in `lastHeader` of Kafka's Java client.
        carrier = {
            name: (value or b"").decode(errors="replace")
            for name, value in headers
            if name in self._header_names
        }
        return self._safe.result(self._propagate.extract, self._no_parent, carrier, self._no_parent)

    def links(self, records: Iterable[LinkedRecord], most: int) -> list[Link]:
        """Return links to the contexts of the first *most* records that have one."""
        links: list[Link] = []
        for record in records:
            if len(links) >= most:
                break
            span = self._trace.get_current_span(self.context_in(record.headers))
            context = span.get_span_context()
            if context.is_valid:
                attributes = position_attributes(record.partition, record.offset)
                links.append(self._trace.Link(context, attributes))
        return links

    def with_context(self, headers: HeaderPairs, span: Span | None = None) -> HeaderPairs:
        """Return the headers with the context of *span*, or the current one, as their only one."""
        context = None if span is None else self._trace.set_span_in_context(span)
        injected: HeaderPairs = self._safe.result(self._injected, (), context)
        others = (header for header in headers if header[0] not in self._header_names)
        return (*others, *injected)

    def _injected(self, context: Context | None) -> HeaderPairs:
        """Return the headers of a context, as the propagator writes them."""
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, context)
        return tuple((name, value.encode()) for name, value in carrier.items())


class CurrentSpan:
    """A block in which a span is the current one. The end of the block ends the span.

    An error that leaves the block becomes the error of the span.
    """

    __slots__ = ("_span", "_token", "_tracing", "context")

    def __init__(self, tracing: Tracing, span: Span, context: Context) -> None:
        self._tracing = tracing
        self._span = span
        self.context = context

    def exemplify(self, *measured: tuple[DurationHistogram, float]) -> None:
        """Keep the span with durations that histograms count, if the span is recorded."""
        exemplar = self._tracing.exemplar(self._span, 0.0)
        if exemplar is None:
            return
        for histogram, duration_s in measured:
            histogram.exemplify(exemplar._replace(duration_s=duration_s))

    def __enter__(self) -> None:
        self._token = self._tracing.attach(self.context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tracing.detach(self._token)
        if isinstance(error, GeneratorExit):
            # The caller stopped reading the values of a handler that yields. That is no failure.
            error = None
        self._tracing.end(self._span, error)
