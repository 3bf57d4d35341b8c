"""The metrics of a consumer under the names of KIP-714, and ours under the names of ``/metrics``.

Pure. Not among them are those of the KIP that mean nothing here, or are not counted:
``consumer.poll.idle.ratio.avg`` (polls never wait for handlers) and ``consumer.node.request.*``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reactive_kafka.broker.client_metrics import ClientCounts, Latencies
from reactive_kafka.client_metrics.otlp import Point, Series
from reactive_kafka.client_metrics.wanted_points import PARTITION, wants_any_of
from reactive_kafka.observe.catalogue import CATALOGUE
from reactive_kafka.observe.facts import ChannelFacts, DurationHistogram
from reactive_kafka.observe.metric_samples import channel_samples
from reactive_kafka.records import TopicPartition

KAFKAS = "org.apache.kafka.consumer."
"""How the names of Kafka's own metrics begin."""
OURS = "reactive_kafka."
"""How the names of our metrics begin."""
_PREFIX = "reactive_kafka_"
_OUR_NAMES = {
    metric.name: OURS + metric.name.removeprefix(_PREFIX)
    for metric in CATALOGUE
    if metric.kind != "histogram"
}
"""The name of a metric in ``/metrics`` -> its name for brokers. Histograms are not pushed."""


class ConsumedPartition(NamedTuple):
    """One partition that a client reads."""

    partition: TopicPartition
    # Offset of the next record to read.
    position: int
    # None: not known yet.
    log_end: int | None


class ConsumerPoints:
    """Makes the points of one client.

    Args:
        began_at: When the client began to count, by the monotonic clock.
    """

    def __init__(self, began_at: float) -> None:
        self.rebalances = Latencies()
        self._counted_at = began_at
        # Connections of clients that were replaced.
        self._earlier_connections = 0
        self._counts = ClientCounts()
        self._connections_then = 0

    def count_with(self, counts: ClientCounts) -> None:
        """Take the counts of another Kafka client, which replaces the one before."""
        if counts is not self._counts:
            self._earlier_connections += self._counts.connections
            self._counts = counts

    def measured(
        self, partitions: Sequence[ConsumedPartition], assigned: int, now: float
    ) -> Iterator[Point]:
        """Return the points of the client. Averages are those since the last call.

        Args:
            partitions: What it reads.
            assigned: How many partitions it has, also those that it does not read yet.
        """
        connections = self._earlier_connections + self._counts.connections
        since_s = now - self._counted_at
        if since_s > 0:
            rate = (connections - self._connections_then) / since_s
            yield _kafkas("connection.creation.rate", rate)
        self._counted_at = now
        self._connections_then = connections
        yield _kafkas("connection.creation.total", connections, is_sum=True)
        yield _kafkas("coordinator.assigned.partitions", assigned)
        yield from _latency("coordinator.commit.latency", self._counts.commits)
        yield from _latency("coordinator.rebalance.latency", self.rebalances)
        total_ms = self.rebalances.total_s * 1000
        yield _kafkas("coordinator.rebalance.latency.total", total_ms, is_sum=True)
        yield from _latency("fetch.manager.fetch.latency", self._counts.fetches)
        yield from _lags(partitions)


def _kafkas(name: str, value: float, *, is_sum: bool = False) -> Point:
    return Point(Series(KAFKAS + name), value, is_sum)


def _latency(name: str, latencies: Latencies) -> Iterator[Point]:
    """Return average and maximum in milliseconds, as Kafka's own clients do."""
    window = latencies.take()
    if window is not None:
        yield _kafkas(f"{name}.avg", window.average_s * 1000)
        yield _kafkas(f"{name}.max", window.longest_s * 1000)


def _lags(partitions: Iterable[ConsumedPartition]) -> Iterator[Point]:
    """Return how many records are left to read: Kafka's lag begins at the position."""
    longest = None
    for (topic, number), position, log_end in partitions:
        if log_end is None:
            continue
        lag = max(0, log_end - position)
        longest = lag if longest is None else max(longest, lag)
        attributes = (("topic", topic), (PARTITION, str(number)))
        yield Point(Series(f"{KAFKAS}fetch.manager.records.lag", attributes), lag)
    if longest is not None:
        yield _kafkas("fetch.manager.records.lag.max", longest)


def our_points(facts: ChannelFacts) -> Iterator[Point]:
    """Return the counters and gauges that ``/metrics`` has of a channel."""
    for metric, value, labels in channel_samples(facts):
        if isinstance(value, DurationHistogram):
            continue
        attributes = tuple(zip(metric.labels, labels, strict=True))
        series = Series(_OUR_NAMES[metric.name], attributes)
        yield Point(series, value, is_sum=metric.kind == "counter")


def wants_ours(prefixes: Sequence[str]) -> bool:
    """Return whether a broker wants any of our metrics, which are made from the facts."""
    return wants_any_of(OURS, prefixes)
