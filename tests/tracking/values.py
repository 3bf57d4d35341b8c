"""Trackers and planned ranges as rooms get them, for tests of those rooms."""

from __future__ import annotations

from reactive_kafka import TopicPartition
from reactive_kafka.tracking.plans import PlannedRange, check_plan
from reactive_kafka.tracking.tracker import OffsetTracker

ORDERS_0 = TopicPartition("orders", 0)


def tracker_of(
    partition: TopicPartition = ORDERS_0, position: int = 0, committed: int | None = None
) -> OffsetTracker:
    """The tracker of a partition that is read from *position* on."""
    return OffsetTracker(partition, position, committed=committed)


def planned_range(start: int, until: int, failed: tuple[tuple[int, int], ...] = ()) -> PlannedRange:
    """A range that can be planned; ValueError if it cannot."""
    planned = PlannedRange(start, until, failed)
    check_plan(planned)
    return planned
