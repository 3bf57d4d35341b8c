"""Lanes whose values have a rate: in which order records start that were held back."""

from __future__ import annotations

import asyncio

from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lanes.limited import LimitedLane, ValueLimit
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.lanes.rates_by_value import BucketsByValue
from reactive_kafka.testing import record
from tests.app.helpers import in_virtual_time
from tests.tracking.values import tracker_of


def once_a_second(*keys: bytes) -> tuple[LaneQueue, LimitedLane]:
    """A partition whose records have these keys, in order; one of them starts in a second."""
    clock = Clock(monotonic=asyncio.get_running_loop().time)
    buckets = BucketsByValue(1, lambda partition, record: "all")
    limit = ValueLimit(buckets, clock, lambda lane: lanes.offer(lane), lambda: None)
    lanes = LaneQueue(shared=False, key_of=lambda record: record.key, value_limit=limit)
    lane = lanes.new(tracker_of())
    assert isinstance(lane, LimitedLane)
    lanes.add(lane, [record(offset=at, key=key) for at, key in enumerate(keys)], 0, 0.0)
    return lanes, lane


def started(lanes: LaneQueue) -> list[int]:
    """The records that start now, each done at once."""
    offsets: list[int] = []
    while (lane := lanes.take()) is not None:
        assert isinstance(lane, LimitedLane)
        found = lane.next_record()
        if found is not None:
            key, index, _ = found
            offsets.append(index)
            lane.free(key)
        lanes.release(lane)
    return offsets


@in_virtual_time
async def test_a_record_whose_key_was_skipped_when_it_could_start_overtakes_no_other_key() -> None:
    lanes, lane = once_a_second(b"a", b"b", b"c")
    assert started(lanes) == [0]
    await asyncio.sleep(1.1)
    # It could start now, and an operator skips it before a worker takes it.
    assert lane.remove(1) is not None
    lanes.add(lane, [record(offset=3, key=b"b")], 3, 1.1)
    assert started(lanes) == []
    await asyncio.sleep(1.1)
    assert started(lanes) == [2]
    await asyncio.sleep(1.1)
    assert started(lanes) == [3]
    assert not lane.busy
