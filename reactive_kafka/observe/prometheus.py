"""Turns facts into Prometheus metrics at each scrape. Only this module imports prometheus_client.

Nothing is counted here, and nothing happens for each record: the collector reads the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from reactive_kafka.observe.catalogue import CATALOGUE, Metric
from reactive_kafka.observe.facts import (
    AppFacts,
    DurationHistogram,
    TraceExemplar,
)
from reactive_kafka.observe.metric_samples import samples_of

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

# Other modules use this name in annotations, because they do not import the library.
Registry = CollectorRegistry


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
    for metric, value, labels in samples_of(facts):
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
