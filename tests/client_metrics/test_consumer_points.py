"""The metrics of a consumer, from what its Kafka clients have counted."""

from __future__ import annotations

import pytest

from reactive_kafka.client_metrics.consumer_points import ConsumerPoints
from tests.broker.metrics_receivers import ScriptedReceiver, subscription

CONNECTIONS = "org.apache.kafka.consumer.connection.creation"
BEGAN_AT = 100.0


def connections(points: ConsumerPoints, now: float) -> tuple[float | None, float]:
    """Connections per second since the last call, None if no time has passed; and all of them."""
    values = {point.series.name: point.value for point in points.measured([], 0, now)}
    return values.get(f"{CONNECTIONS}.rate"), values[f"{CONNECTIONS}.total"]


def test_connections_are_a_rate_since_the_last_measurement_and_a_total_of_all_clients() -> None:
    points = ConsumerPoints(BEGAN_AT)
    counts = ScriptedReceiver(subscription()).counts
    points.count_with(counts)
    counts.connections = 6
    assert connections(points, BEGAN_AT + 3) == (2.0, 6)
    assert connections(points, BEGAN_AT + 4) == (0.0, 6)
    counts.connections = 8
    assert connections(points, BEGAN_AT + 8) == (0.5, 8)
    assert connections(points, BEGAN_AT + 8) == (None, 8)

    # The same client has connected again: nothing counts twice.
    points.count_with(counts)
    assert connections(points, BEGAN_AT + 9) == (0.0, 8)

    # Another client has replaced it, whose connections are added to those before.
    replaced_by = ScriptedReceiver(subscription()).counts
    points.count_with(replaced_by)
    assert connections(points, BEGAN_AT + 10) == (0.0, 8)
    replaced_by.connections = 3
    assert connections(points, BEGAN_AT + 12) == (1.5, 11)


def test_latencies_are_those_since_the_last_measurement_in_milliseconds() -> None:
    points = ConsumerPoints(BEGAN_AT)
    latency = "org.apache.kafka.consumer.coordinator.rebalance.latency"

    def latencies(now: float) -> dict[str, float]:
        return {
            point.series.name.removeprefix(latency): point.value
            for point in points.measured([], 0, now)
            if point.series.name.startswith(latency)
        }

    points.rebalances.note(0.2)
    points.rebalances.note(0.4)
    assert latencies(BEGAN_AT + 1) == pytest.approx({".avg": 300, ".max": 400, ".total": 600})
    points.rebalances.note(0.1)
    assert latencies(BEGAN_AT + 2) == pytest.approx({".avg": 100, ".max": 100, ".total": 700})
    assert latencies(BEGAN_AT + 3) == pytest.approx({".total": 700})
