"""The door to OpenTelemetry: it makes spans with the provider that the application has set, and
moves contexts.

Nothing of it is imported before a run begins. What a provider, a processor or a propagator raises
harms no record: it goes to stderr, the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.errors import MissingExtraError, describe
from reactive_kafka.observe.events.base import Guard
from reactive_kafka.records import HeaderPairs
from reactive_kafka.tracing.names import (
    ERROR_TYPE,
    NAME,
    NOTHING,
    Attributes,
    Place,
    error_type,
    of_place,
)

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer


def tracing_of(settings: TracingSettings) -> Tracing | None:
    """What makes the spans of a run; None: it is turned off, or there is no provider or no
    OpenTelemetry.
    """
    if settings.enabled is False or not _is_installed():
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
    tracer = provider.get_tracer(NAME)
    # OTEL_SDK_DISABLED makes such a one.
    return None if isinstance(tracer, NoOpTracer) else Tracing(tracer)


def check_tracing(settings: TracingSettings) -> None:
    """MissingExtraError: spans are demanded, and the extra is not installed."""
    if settings.enabled and not _is_installed():
        raise MissingExtraError("[tracing] enabled = true", "otel")


def _is_installed() -> bool:
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
        self._guard = Guard()
        self._context = context
        self._propagate = propagate
        self._trace = trace
        self._nothing = context.Context()
        self._names = frozenset(propagate.get_global_textmap().fields)

    @property
    def consumer(self) -> SpanKind:
        """The kind of spans of calls."""
        return self._trace.SpanKind.CONSUMER

    @property
    def producer(self) -> SpanKind:
        """The kind of spans of sends."""
        return self._trace.SpanKind.PRODUCER

    def begin(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Span:
        """A span that has begun, and is to be ended; *parent* None: the current one."""
        nothing: Span = self._trace.INVALID_SPAN
        return self._guard.result(
            partial(self._tracer.start_span, name, parent, kind, attributes, links), nothing
        )

    def end(
        self, span: Span, error: BaseException | None = None, said: Attributes = NOTHING
    ) -> None:
        """End a span, with what has failed, and with what more is known of it."""
        self._guard.call(self._end, span, error, said)

    def _end(self, span: Span, error: BaseException | None, said: Attributes) -> None:
        if said:
            span.set_attributes(said)
        if error is not None and span.is_recording():
            span.record_exception(error)
            span.set_attribute(ERROR_TYPE, error_type(error))
            span.set_status(self._trace.StatusCode.ERROR, describe(error))
        span.end()

    def current(self, span: Span, parent: Context) -> Current:
        """Makes a span the current one, in the context of its parent, and ends it."""
        return Current(self, span, self._trace.set_span_in_context(span, parent))

    def attach(self, context: Context) -> Token[Context]:
        return self._context.attach(context)

    def detach(self, token: Token[Context]) -> None:
        self._context.detach(token)

    @property
    def nothing(self) -> Context:
        """The context of what has no parent, whatever is current."""
        return self._nothing

    def context_in(self, headers: HeaderPairs) -> Context:
        """The context that a record's headers bring."""
        if not headers:
            return self._nothing
        # Of each name the last one counts, as Kafka's own ``lastHeader`` has it.
        found = {
            name: (value or b"").decode(errors="replace")
            for name, value in headers
            if name in self._names
        }
        return self._guard.result(
            partial(self._propagate.extract, found, self._nothing), self._nothing
        )

    def links(self, records: Iterable[Place], most: int) -> list[Link]:
        """Links to the contexts of the first records that bring one."""
        found: list[Link] = []
        for record in records:
            if len(found) >= most:
                break
            context = self._trace.get_current_span(
                self.context_in(record.headers)
            ).get_span_context()
            if context.is_valid:
                found.append(self._trace.Link(context, of_place(record.partition, record.offset)))
        return found

    def with_context(self, headers: HeaderPairs, span: Span | None = None) -> HeaderPairs:
        """The headers with the current context, of *span* if given, in the place of any other that
        they bring.
        """
        context = None if span is None else self._trace.set_span_in_context(span)
        found: dict[str, str] = {}
        self._guard.call(self._propagate.inject, found, context)
        kept = (header for header in headers if header[0] not in self._names)
        return (*kept, *((name, value.encode()) for name, value in found.items()))


class Current:
    """A span that is the current one within a block, and ends with it, and with what the block
    raises.
    """

    __slots__ = ("_context", "_span", "_token", "_tracing")

    def __init__(self, tracing: Tracing, span: Span, context: Context) -> None:
        self._tracing = tracing
        self._span = span
        self._context = context

    def __enter__(self) -> None:
        self._token = self._tracing.attach(self._context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tracing.detach(self._token)
        self._tracing.end(self._span, None if isinstance(error, GeneratorExit) else error)
