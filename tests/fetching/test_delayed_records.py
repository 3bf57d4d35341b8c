"""Records of retry topics begin when their delay has passed, whatever a poll had to do before they
were looked at.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.fetching.delayed_records import DelayedRecords
from reactive_kafka.testing import FakeClock
from tests.delivery.values import lane_queue, workers_that_do_nothing
from tests.tracking.values import tracker_of


def test_a_record_is_due_by_when_it_is_looked_at_and_not_by_when_its_poll_ended() -> None:
    clock, lanes = FakeClock(monotonic=100.0), lane_queue()
    record: Any = SimpleNamespace(offset=0, timestamp=round(clock.wall() * 1000))
    lane = lanes.new(tracker_of(TopicPartition("orders_400", 0)))
    first, polled_at = lane.tracker.deliver([0], 1), clock.monotonic()
    # Other partitions' records came first.
    clock.advance(0.005)
    table: Any = ()
    delayed = DelayedRecords(clock, table, lanes, workers_that_do_nothing(), {}, lambda: None)
    delayed.hold(lane, [record], first, polled_at, 400)
    assert lane.next_due == pytest.approx(100.4)
