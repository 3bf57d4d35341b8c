"""Records of retry topics begin when their delay has passed, whatever a poll had to do before they
were looked at.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.fetching.delayed_records import LOOK_S, DelayedRecords
from reactive_kafka.testing import FakeClock
from tests.delivery.values import lane_queue, workers_that_do_nothing
from tests.tracking.values import planned_range, tracker_of


def test_a_record_is_due_by_when_it_is_looked_at_and_not_by_when_its_poll_ended() -> None:
    clock, lanes = FakeClock(monotonic=100.0), lane_queue()
    record: Any = SimpleNamespace(offset=0, timestamp=round(clock.wall() * 1000))
    lane = lanes.new(tracker_of(TopicPartition("orders_400", 0)))
    first, polled_at = lane.tracker.deliver([0], 1), clock.monotonic()
    # Other partitions' records came first.
    clock.advance(0.005)
    table: Any = ()
    delayed = DelayedRecords(
        clock, table, lanes, workers_that_do_nothing(), {}, lambda: None, in_order=False
    )
    delayed.hold(lane, [record], first, polled_at, 400)
    assert lane.next_due == pytest.approx(100.4)


async def test_a_record_waits_no_longer_for_a_planned_range_whose_end_is_a_gap(
    virtual_time: FakeClock,
) -> None:
    """Such as a record at its end that an operator has skipped."""
    released: list[float] = []
    lanes = lane_queue()
    lane = lanes.new(tracker_of(TopicPartition("orders_400", 0)))
    table: Any = [SimpleNamespace(lane=lane)]
    delayed = DelayedRecords(
        virtual_time,
        table,
        lanes,
        workers_that_do_nothing(),
        {},
        lambda: released.append(now()),
        in_order=False,
    )
    running = asyncio.create_task(delayed.run())
    lane.tracker.plan(planned_range(1, 3))
    for offset in (0, 1):
        record: Any = SimpleNamespace(offset=offset, timestamp=round(virtual_time.wall() * 1000))
        first = lane.tracker.deliver([offset], offset + 1)
        delayed.hold(lane, [record], first, now(), 400)
    await asyncio.sleep(5.0)
    assert not released
    # The poll brings what follows the range, and no record.
    ended_at = now()
    lane.tracker.deliver((), 3)
    await asyncio.sleep(5.0)
    assert [at - ended_at <= LOOK_S for at in released] == [True]
    running.cancel()


def now() -> float:
    return asyncio.get_running_loop().time()
