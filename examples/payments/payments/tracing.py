"""Where spans go. The package makes them as soon as a provider is set."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


def trace_to_stdout() -> None:
    """Print spans, if ``TRACE=stdout`` is set. A service in production exports them to its
    collector here.
    """
    if os.environ.get("TRACE") == "stdout":
        provider = TracerProvider(resource=Resource.create({"service.name": "payments"}))
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
        trace.set_tracer_provider(provider)
