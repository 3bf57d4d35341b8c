"""Decides at the start of a run which channels make spans. The others are built without any."""

from __future__ import annotations

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings, MemorySettings, OutgoingSettings
from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.memory_channels.memory_target import MemoryTarget
from reactive_kafka.observe.events import Observer
from reactive_kafka.outgoing.send_watch import SendWatch
from reactive_kafka.tracing.call_spans import CallSpans
from reactive_kafka.tracing.client_watch import CommitSpans, WatchedConnector
from reactive_kafka.tracing.clusters import ClusterAttributes, Clusters
from reactive_kafka.tracing.message_spans import MessageSpans
from reactive_kafka.tracing.send_spans import SendSpans
from reactive_kafka.tracing.tracer import tracing_of
from reactive_kafka.verdicts.message_watch import MessageWatch


class RunTracing:
    """What channels of one run are built with, to make spans or not.

    It is made after the ``on_start`` hooks, because one of them may set the tracer provider.
    """

    def __init__(self, settings: TracingSettings) -> None:
        self._tracing = tracing_of(settings)
        self._clusters = Clusters()
        # Why no spans are made although the settings ask for them. None: there is no problem.
        self.problem: str | None = None
        if settings.enabled and self._tracing is None:
            self.problem = (
                "[tracing] enabled = true has no effect: there was no tracer provider, or none "
                "that traces, when the on_start hooks had returned"
            )

    def calls(self, settings: IncomingSettings, *, is_kafka: bool = True) -> CallSpans | None:
        """Return what makes the spans of a channel's calls; None: it makes no spans."""
        if self._tracing is None or not settings.tracing_enabled:
            return None
        cluster = self._cluster_of(settings) if is_kafka else None
        return CallSpans(self._tracing, settings, cluster)

    def sends(self, settings: OutgoingSettings) -> SendWatch | None:
        """Return what makes the spans of a channel's records; None: it makes no spans."""
        if self._tracing is None or not settings.tracing_enabled:
            return None
        return SendSpans(self._tracing, settings, self._cluster_of(settings))

    def messages(self, settings: IncomingSettings) -> MessageWatch | None:
        """Return what makes the spans of a channel's verdicts; None: it makes no spans."""
        if self._tracing is None or not settings.tracing_enabled:
            return None
        return MessageSpans(self._tracing, settings, self._cluster_of(settings))

    def consumers(self, settings: IncomingSettings, connector: Connector) -> Connector:
        """Return what makes a channel's consumers: *connector*, or one whose commits have spans."""
        if self._tracing is None or not settings.tracing_enabled:
            return connector
        cluster = self._cluster_of(settings)
        return WatchedConnector(connector, CommitSpans(self._tracing, settings, cluster), cluster)

    def _cluster_of(self, settings: IncomingSettings | OutgoingSettings) -> ClusterAttributes:
        return self._clusters.of(settings.client["bootstrap_servers"])

    def memory(self, settings: MemorySettings, clock: Clock, observer: Observer) -> MemoryTarget:
        """Return the part of a memory channel that takes its values."""
        traced = None if self._tracing is None else self._tracing.with_context
        return MemoryTarget(settings, clock, observer, traced)
