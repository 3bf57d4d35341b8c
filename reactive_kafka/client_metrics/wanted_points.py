"""Which points a broker wants, and what their sums are to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reactive_kafka.broker.client_metrics import MetricsSubscription
from reactive_kafka.client_metrics.otlp import Point, Series

ALL = ("", "*")
"""What stands for every metric: KIP-714 says the empty string, and Kafka's brokers send a star."""
PARTITION = "partition"
"""The attribute of a series of one partition."""


def is_wanted(name: str, prefixes: Sequence[str]) -> bool:
    """Return whether a metric is wanted by its name."""
    return any(prefix in ALL or name.startswith(prefix) for prefix in prefixes)


def wants_any_of(namespace: str, prefixes: Sequence[str]) -> bool:
    """Return whether a metric is wanted whose name begins with *namespace*, whichever that is."""
    return any(
        prefix in ALL or namespace.startswith(prefix) or prefix.startswith(namespace)
        for prefix in prefixes
    )


def without_partitions(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that are not of one partition: these remain if the push is too large."""
    return tuple(
        point
        for point in points
        if not any(name == PARTITION for name, _ in point.series.attributes)
    )


class PushedSums:
    """Makes sums what the subscription asks for: since the start, or since the last push.

    A push that the broker has not confirmed does not count. So what was added until then is part of
    the next push. It is told twice if only the answer was lost.
    """

    def __init__(self) -> None:
        self._pushed: Mapping[Series, float] = {}

    def as_wanted(
        self, points: Iterable[Point], subscription: MetricsSubscription
    ) -> tuple[Point, ...]:
        """Return the wanted points, with sums in the temporality of the subscription."""
        wanted = [point for point in points if is_wanted(point.series.name, subscription.prefixes)]
        if not subscription.is_delta:
            return tuple(wanted)
        return tuple(map(self._since_last_push, wanted))

    def _since_last_push(self, point: Point) -> Point:
        if not point.is_sum:
            return point
        return point._replace(value=point.value - self._pushed.get(point.series, 0.0))

    def confirmed(self, points: Iterable[Point]) -> None:
        """Note the points, as they were measured, of a push that the broker has confirmed."""
        self._pushed = {point.series: point.value for point in points if point.is_sum}
