"""Which channels of a run make spans: decided at its start, so that nothing is in the way of those
that make none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings, MemorySettings, OutgoingSettings
from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.observe.events import Observer
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.memory import MemoryTarget
from reactive_kafka.tracing.call_spans import CallSpans
from reactive_kafka.tracing.send_spans import (
    SendSpans,
    TracedChannel,
    TracedMemory,
    TracedTransactions,
)
from reactive_kafka.tracing.tracer import tracing_of


class RunTracing:
    """The channels of one run, with spans or without.

    Made when the ``on_start`` hooks have returned, for one of them may set the tracer provider.
    """

    def __init__(self, settings: TracingSettings) -> None:
        self._tracing = tracing_of(settings)
        # Why there are none, though they are demanded.
        self.problem: str | None = None
        if settings.enabled and self._tracing is None:
            why = "there was no tracer provider, or none that traces, when the on_start hooks had returned"
            self.problem = f"[tracing] enabled = true has no effect: {why}"

    def calls(self, settings: IncomingSettings, *, is_kafka: bool = True) -> CallSpans | None:
        """What makes the spans of a channel's calls; None: nothing does."""
        if self._tracing is None or not settings.tracing_enabled:
            return None
        return CallSpans(self._tracing, settings, is_kafka=is_kafka)

    def outgoing(self, settings: OutgoingSettings) -> Callable[..., OutgoingChannel]:
        """What an outgoing channel is made with."""
        if self._tracing is None or not settings.tracing_enabled:
            return OutgoingChannel
        kind = TracedChannel if settings.transactional_id is None else TracedTransactions
        return partial(kind, SendSpans(self._tracing, settings))

    def memory(self, settings: MemorySettings, clock: Clock, observer: Observer) -> MemoryTarget:
        """The end of a memory channel that values go into."""
        if self._tracing is None:
            return MemoryTarget(settings, clock, observer)
        return TracedMemory(self._tracing, settings, clock, observer)
