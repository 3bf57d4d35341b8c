"""Turns facts into Prometheus metrics at each scrape. Only this module imports prometheus_client.

Nothing is counted here, and nothing happens for each record: the collector reads the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from reactive_kafka.observe import catalogue as names
from reactive_kafka.observe.catalogue import CATALOGUE, Metric
from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    DurationHistogram,
    PartitionTotals,
    SparkFacts,
    TraceExemplar,
)
from reactive_kafka.observe.health import health
from reactive_kafka.records import TopicPartition

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

# Other modules use this name in annotations, because they do not import the library.
Registry = CollectorRegistry
Value = float | DurationHistogram
Sample = tuple[Metric, Value, tuple[str, ...]]


def registry(facts: Callable[[], AppFacts]) -> Registry:
    """Return a registry whose collector calls *facts* at each scrape.

    Applications may register metrics of their own in it. ``register`` rejects our names.
    """
    result = _AppRegistry(auto_describe=False)
    result.register(_FactsCollector(facts, result))
    return result


def snapshot(source: Registry) -> Collector:
    """Collect the metrics of *source* now, and return a collector that gives them unchanged.

    Collecting reads the application, so it belongs on its loop; a thread may render the snapshot.
    Of our own metrics only the facts are read now. Their samples are made when the snapshot is
    rendered, because 10,000 partitions have 130,000 of them.
    """
    if isinstance(source, _AppRegistry):
        with source.deferring():
            families = tuple(source.collect())
    else:
        families = tuple(source.collect())
    return _Snapshot(families)


class _AppRegistry(CollectorRegistry):
    """A registry that can collect facts without making samples of them."""

    is_deferring = False

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Collect `_DeferredFamilies` within this block."""
        self.is_deferring = True
        try:
            yield
        finally:
            self.is_deferring = False


class _FactsCollector(Collector):
    """Collects our own metrics."""

    def __init__(self, facts: Callable[[], AppFacts], registry: _AppRegistry) -> None:
        self._facts = facts
        self._registry = registry

    def describe(self) -> Iterable[Family]:
        return [_family(metric) for metric in CATALOGUE]

    def collect(self) -> Iterable[Family]:
        facts = self._facts()
        if self._registry.is_deferring:
            return [_DeferredFamilies(facts)]
        return _families(facts)


class _DeferredFamilies(Family):
    """A placeholder for all of our families, until they are rendered."""

    def __init__(self, facts: AppFacts) -> None:
        super().__init__("deferred", "", "gauge")
        self.facts = facts


class _Snapshot(Collector):
    """Families that were collected earlier."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._collected = families

    def collect(self) -> Iterator[Family]:
        for family in self._collected:
            if isinstance(family, _DeferredFamilies):
                yield from _families(family.facts)
            else:
                yield family


def is_openmetrics(accept_header: str) -> bool:
    """True if the header asks for OpenMetrics, False for Prometheus text."""
    # Compare the media type only: the library's parser fails on malformed versions, and repeats
    # unknown ones in its answer.
    return OPENMETRICS.partition(";")[0] in accept_header


def render(source: Collector, accept_header: str) -> tuple[bytes, str]:
    """Return the body and the content type of a scrape: Prometheus text or OpenMetrics."""
    encode, content_type = choose_encoder(OPENMETRICS if is_openmetrics(accept_header) else "")
    return encode(source), content_type


def _families(facts: AppFacts) -> Iterable[Family]:
    families = {metric.name: _family(metric) for metric in CATALOGUE}
    for metric, value, labels in _samples(facts):
        if isinstance(value, DurationHistogram):
            families[metric.name].add_metric(labels, _buckets(value), sum_value=value.sum_s)
        else:
            families[metric.name].add_metric(labels, value)
    return families.values()


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](metric.name, metric.meaning, labels=metric.labels)


def _buckets(histogram: DurationHistogram) -> list[tuple[str, float, Exemplar | None]]:
    """Return cumulative counts by upper bound, as the exposition format requires.

    Each has the exemplar of its bucket, which only OpenMetrics shows.
    """
    bounds = (*map(str, histogram.bounds), "+Inf")
    exemplars = map(_exemplar, map(histogram.exemplars.get, range(len(bounds))))
    return list(zip(bounds, map(float, accumulate(histogram.counts)), exemplars, strict=True))


def _exemplar(kept: TraceExemplar | None) -> Exemplar | None:
    """Return an exemplar with the ids in the form of W3C's ``traceparent``."""
    if kept is None:
        return None
    ids = {"trace_id": f"{kept.trace_id:032x}", "span_id": f"{kept.span_id:016x}"}
    return Exemplar(ids, kept.duration_s, kept.at)


def _samples(facts: AppFacts) -> Iterator[Sample]:
    yield names.LOOP_LAG, facts.loop_lag_s, ()
    yield from _up(facts)
    for channel in facts.channels:
        yield from _channel(channel)
        yield from _partitions(channel)
        yield from _totals(channel)
    for outgoing in facts.outgoing:
        yield names.SEND_DURATION, outgoing.send_durations, (outgoing.channel,)
        yield from _by(names.RECORDS_SENT, outgoing.sent, (outgoing.channel,), names.SEND_OUTCOMES)
    for spark in facts.spark:
        yield from _spark(spark)
    for action, outcomes in facts.actions.items():
        yield from _by(names.ACTIONS, outcomes, (action,), names.ACTION_OUTCOMES)


def _up(facts: AppFacts) -> Iterator[Sample]:
    """Return one sample for each channel name.

    If an incoming and an outgoing channel have the same name, both must be up.
    """
    channels = {channel.channel for channel in facts.channels} | {
        channel.channel for channel in facts.outgoing
    }
    down = {check.channel for check in health(facts).overall.checks if check.status == "DOWN"}
    for channel in sorted(channels):
        yield names.CHANNEL_UP, float(channel not in down), (channel,)


def _channel(facts: ChannelFacts) -> Iterator[Sample]:
    channel = (facts.channel,)
    yield names.COMMIT_DURATION, facts.commit_durations, channel
    yield names.HANDLER_DURATION, facts.handler_durations, channel
    yield names.DELIVERY_DELAY, facts.delivery_delays, channel
    yield names.RECORD_AGE, facts.record_ages, channel
    yield names.STALE_RESULTS, facts.stale_results, channel
    yield names.RETRIES, facts.retries, channel
    yield names.OUTPUTS_LOST, sum(totals.outputs_lost for totals in facts.totals.values()), channel
    yield names.PAUSED_PARTITIONS, sum(partition.paused for partition in facts.partitions), channel
    yield names.ABANDONED_HANDLERS, facts.abandoned_handlers, channel
    yield names.DUPLICATES_DROPPED, facts.duplicates_dropped, channel
    yield names.REPLAYS_AVOIDED, facts.replays_avoided, channel
    yield names.METADATA_DROPPED, facts.metadata_dropped, channel
    yield names.UNSYNCED_AGE, facts.unsynced_age_s or 0.0, channel
    yield names.OUTBOX_ROWS, facts.outbox_rows or 0, channel
    yield from _by(names.COMMITS, facts.commits, channel, names.COMMIT_OUTCOMES)
    yield from _by(names.REBALANCES, facts.rebalances, channel, names.REBALANCE_KINDS)
    yield from _by(names.OFFSET_RESETS, facts.resets, channel, names.RESET_TARGETS)
    yield from _by(names.RECORDS_SKIPPED, _skipped(facts), channel, names.SKIP_REASONS)
    yield from _by(names.UNREADABLE_OFFSETS, facts.unreadable, channel, names.UNREADABLE_POLICIES)


def _skipped(facts: ChannelFacts) -> Mapping[str, int]:
    sums = PartitionTotals()
    for totals in facts.totals.values():
        sums.add(totals)
    return sums.skipped


def _partitions(facts: ChannelFacts) -> Iterator[Sample]:
    """Return the gauges of the assigned partitions; their series end with the assignment."""
    for partition in facts.partitions:
        labels = _labels(facts.channel, partition.partition)
        yield names.RECORDS_IN_FLIGHT, partition.in_flight, labels
        yield names.RECORDS_QUEUED, partition.queued, labels
        yield names.OLDEST_UNACKED_AGE, partition.oldest_unacked_s or 0.0, labels
        yield names.POSITION, partition.position, labels
        yield names.OFFSET_METADATA_UNITS, partition.metadata_units, labels
        if partition.committed is not None:
            yield names.COMMITTED_OFFSET, partition.committed, labels
        if partition.lag is not None:
            yield names.LAG, partition.lag, labels


def _totals(facts: ChannelFacts) -> Iterator[Sample]:
    """Return the counters of every partition that this process ever had.

    They outlive the assignment, because a counter must not decrease. They start at 0 with the
    assignment, so that a first nack between two scrapes counts as an increase.
    """
    assigned = {partition.partition: PartitionTotals() for partition in facts.partitions}
    for partition, totals in (assigned | dict(facts.totals)).items():
        labels = _labels(facts.channel, partition)
        yield names.RECORDS_RECEIVED, totals.received, labels
        yield names.RECORDS_ACKED, totals.acked, labels
        yield names.DEAD_LETTERS, totals.dead_lettered, labels
        yield names.DELAYED_RETRIES, totals.delayed, labels
        yield names.POISON_RECORDS, totals.poison, labels
        yield from _by(names.RECORDS_NACKED, totals.nacked, labels, facts.failure_strategies)


def _spark(facts: SparkFacts) -> Iterator[Sample]:
    channel = (facts.channel,)
    yield from _by(names.SPARK_JOBS, facts.jobs, channel, names.SPARK_OUTCOMES)
    yield names.SPARK_JOB_DURATION, facts.job_durations, channel
    yield names.SPARK_BATCH_RECORDS, facts.batch_records, channel
    yield from _by(names.SPARK_TASKS, facts.tasks, channel, names.SPARK_TASK_STATES)
    yield names.SPARK_RUNNING, len(facts.running), channel
    yield names.SPARK_REJECTED, facts.rejected, channel
    yield names.SPARK_BISECTIONS, facts.bisection_jobs, channel
    yield names.SPARK_READY, float(facts.ready), channel


def _by(
    metric: Metric, counts: Mapping[str, int], labels: tuple[str, ...], expected: tuple[str, ...]
) -> Iterator[Sample]:
    """Return one sample for each key. Expected keys start at 0, or a rate would miss the first."""
    for key in dict.fromkeys((*expected, *counts)):
        yield metric, counts.get(key, 0), (*labels, key)


def _labels(channel: str, partition: TopicPartition) -> tuple[str, ...]:
    return (channel, partition.topic, str(partition.partition))
