"""The attributes of measurements: one object for equal ones, and a bounded number of them."""

from __future__ import annotations

from reactive_kafka import TopicPartition
from reactive_kafka.tracing.measurements import MOST_KEPT, MetricAttributes


def test_equal_attributes_are_one_object_until_there_are_too_many() -> None:
    attributes = MetricAttributes("process", None)
    place = TopicPartition("orders", 0)
    first = attributes.of(place)
    assert attributes.of(place) is first
    # With the first one these are as many as are kept.
    for number in range(MOST_KEPT - 1):
        attributes.of(f"topic {number}")
    assert attributes.of(place) is first
    attributes.of("one more topic")
    again = attributes.of(place)
    assert again == first
    assert again is not first
