"""Decides at the start of a run which channels make spans and measurements.

The others are built without any.
"""

from __future__ import annotations

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings, MemorySettings, OutgoingSettings
from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.memory_channels.memory_target import MemoryTarget
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.outgoing.send_watch import SendWatch
from reactive_kafka.tracing.call_spans import CallSpans
from reactive_kafka.tracing.channel_watch import CallWatch, Receives
from reactive_kafka.tracing.client_watch import WatchedConsumers, WatchedProducers
from reactive_kafka.tracing.clusters import ClusterAttributes, Clusters
from reactive_kafka.tracing.commit_spans import CommitSpans
from reactive_kafka.tracing.measurements import CallMetrics, CommitMetrics, ReceiveMetrics
from reactive_kafka.tracing.message_spans import MessageSpans
from reactive_kafka.tracing.meter import MessagingMeter, meter_of
from reactive_kafka.tracing.send_spans import SendSpans
from reactive_kafka.tracing.tracer import Tracing, tracing_of
from reactive_kafka.verdicts.message_watch import ReceiveWatch, VerdictWatch


class RunTracing:
    """What channels of one run are built with, to make spans and measurements or not.

    It is made after the ``on_start`` hooks, because one of them may set the providers.
    """

    def __init__(self, settings: TracingSettings, clock: Clock) -> None:
        self._tracing = tracing_of(settings)
        self._meter = meter_of(settings)
        self._clusters = Clusters()
        self._now = clock.monotonic
        self._wall = clock.wall
        # Why nothing is made although the settings ask for it. None: there is no problem.
        self.problem: str | None = None
        if settings.enabled and self._tracing is None and self._meter is None:
            self.problem = (
                "[tracing] enabled = true has no effect: there was no tracer provider and no meter "
                "provider, or none that does anything, when the on_start hooks had returned"
            )

    def calls(self, settings: IncomingSettings, *, is_kafka: bool = True) -> CallWatch | None:
        """Return what watches a channel's calls; None: nothing does."""
        tracing, meter = self._of(settings)
        cluster = self._cluster_of(settings) if is_kafka else None
        spans = (
            None
            if tracing is None
            else CallSpans(tracing, settings, cluster, self._now, self._wall)
        )
        metrics = None
        if meter is not None:
            metrics = CallMetrics(meter, cluster, settings.group_id, self._now)
        if spans is None and metrics is None:
            return None
        return CallWatch(spans, metrics)

    def verdicts(self, settings: IncomingSettings) -> VerdictWatch | None:
        """Return what makes the spans of a channel's verdicts; None: it makes no spans."""
        tracing, _ = self._of(settings)
        if tracing is None:
            return None
        return MessageSpans(tracing, settings, self._cluster_of(settings))

    def receives(self, settings: IncomingSettings) -> ReceiveWatch | None:
        """Return what watches an application that iterates over a channel; None: nothing does."""
        tracing, meter = self._of(settings)
        cluster = self._cluster_of(settings)
        spans = None if tracing is None else MessageSpans(tracing, settings, cluster)
        metrics = None
        if meter is not None:
            metrics = ReceiveMetrics(meter, cluster, settings.group_id)
        if spans is None and metrics is None:
            return None
        return Receives(spans, metrics)

    def consumers(
        self, settings: IncomingSettings, connector: Connector, durations: DurationHistogram
    ) -> Connector:
        """Return what makes a channel's clients: *connector*, or one whose clients are watched.

        Args:
            durations: Counts the commits of the channel.
        """
        tracing, meter = self._of(settings)
        if tracing is None and meter is None:
            return connector
        cluster = self._cluster_of(settings)
        spans = None
        if tracing is not None:
            spans = CommitSpans(tracing, settings, cluster, durations, self._now)
        metrics = None
        if meter is not None:
            metrics = CommitMetrics(meter, cluster, settings.group_id, self._now)
            # Its dead letters and delayed retries are sends, too.
            connector = WatchedProducers(connector, meter, self._clusters, self._now)
        return WatchedConsumers(connector, cluster, spans, metrics)

    def sends(self, settings: OutgoingSettings) -> SendWatch | None:
        """Return what makes the spans of a channel's records; None: it makes no spans."""
        tracing, _ = self._of(settings)
        if tracing is None:
            return None
        return SendSpans(tracing, settings, self._cluster_of(settings))

    def producers(self, settings: OutgoingSettings, connector: Connector) -> Connector:
        """Return what makes a channel's clients: *connector*, or one whose writes are measured."""
        _, meter = self._of(settings)
        if meter is None:
            return connector
        return WatchedProducers(connector, meter, self._clusters, self._now)

    def memory(self, settings: MemorySettings, clock: Clock, observer: Observer) -> MemoryTarget:
        """Return the part of a memory channel that takes its values."""
        traced = None if self._tracing is None else self._tracing.with_context
        return MemoryTarget(settings, clock, observer, traced)

    def _of(
        self, settings: IncomingSettings | OutgoingSettings
    ) -> tuple[Tracing | None, MessagingMeter | None]:
        """Return what makes spans and what measures, for one channel."""
        if not settings.tracing_enabled:
            return None, None
        return self._tracing, self._meter

    def _cluster_of(self, settings: IncomingSettings | OutgoingSettings) -> ClusterAttributes:
        return self._clusters.of(settings.client["bootstrap_servers"])
