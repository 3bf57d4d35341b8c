"""How many bytes a poll may bring: no more than the bound, and never nothing for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.fetching.byte_budget import byte_room, rest_of_plan
from reactive_kafka.records import HeaderPairs, TopicPartition
from reactive_kafka.testing import record
from tests.delivery.values import lane_with
from tests.tracking.values import planned_range, tracker_of


@dataclass
class OfSize:
    value: bytes | None
    offset: int = 0
    timestamp: int | None = None
    key: bytes | None = None
    headers: HeaderPairs = ()


def room_of(held: list[int], most: int) -> tuple[Any, list[TopicPartition]]:
    partitions = [TopicPartition("orders", number) for number in range(len(held))]
    return byte_room(dict(zip(partitions, held, strict=True)), most), partitions


@given(
    held=st.lists(st.integers(0, 300), min_size=1, max_size=12),
    most=st.integers(1, 2000),
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=50),
)
def test_a_poll_keeps_the_bound_but_for_one_record_of_each_partition(
    held: list[int], most: int, sizes: list[int]
) -> None:
    room, partitions = room_of(held, most)
    before = sum(held)
    brought = 0
    last = 0
    for partition in partitions:
        records = [OfSize(bytes(size)) for size in sizes]
        count = room.fitting(partition, records)
        room.take(partition, records[:count])
        brought += sum(sizes[:count])
        last += sizes[count - 1] if count else 0
    # What a partition holds beyond its share is no more than its last record, as here.
    assert brought <= max(0, most - before) + last + sum(held)


@given(held=st.lists(st.integers(0, 300), min_size=1, max_size=12), most=st.integers(1, 2000))
def test_a_partition_that_holds_nothing_may_bring_a_record(held: list[int], most: int) -> None:
    room, partitions = room_of(held, most)
    for partition, size in zip(partitions, held, strict=True):
        if not size:
            assert room.fitting(partition, [OfSize(bytes(10_000))]) == 1
    if len(held) == 1:
        assert (room.left(partitions[0]) > 0) is (held[0] < most)


def test_half_is_divided_and_the_other_half_goes_to_who_comes_first() -> None:
    room, (first, second, third) = room_of([0, 0, 100], 600)
    assert [room.left(one) for one in (first, second, third)] == [400, 400, 300]
    room.take(first, [OfSize(bytes(350))])
    assert [room.left(one) for one in (first, second, third)] == [50, 150, 50]
    room.take(second, [OfSize(bytes(1000))])
    assert [room.left(one) for one in (first, second, third)] == [0, 0, 0]


def test_a_partition_without_a_bound_brings_all_and_takes_no_room_from_others() -> None:
    room, (first, second) = room_of([0, 0], 100)
    room.lift(first)
    records = [OfSize(bytes(1000))] * 20
    assert room.fitting(first, records) == 20
    room.take(first, records)
    assert room.left(second) == 75


@given(
    plans=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    first=st.integers(0, 3),
    came=st.integers(1, 20),
)
def test_the_rest_of_a_planned_range_of_which_some_waits_has_to_come(
    plans: list[int], first: int, came: int
) -> None:
    tracker = tracker_of(TopicPartition("orders", 0))
    ends = [first]
    for length in plans:
        tracker.plan(planned_range(ends[-1], ends[-1] + length))
        ends.append(ends[-1] + length)
    tracker.deliver(range(came), came)
    lane = lane_with(tracker, [record(offset=offset) for offset in range(came)])
    rest = rest_of_plan(lane)
    # It goes on to the end of a range, and to no other one.
    if came in ends or not first < came < ends[-1]:
        assert rest == 0
    else:
        assert came + rest == min(end for end in ends if end > came)
    # What jobs have makes room when they end.
    lane.take(came)
    assert rest_of_plan(lane) == 0


def test_planned_ranges_come_whole_while_delayed_records_wait_for_them() -> None:
    tracker = tracker_of(TopicPartition("orders_retry_1000", 0))
    tracker.plan(planned_range(5, 7))
    tracker.plan(planned_range(7, 9))
    lane = lane_with(tracker)
    tracker.deliver([0, 1], 2)
    lane.delayed.hold(record(offset=0), 0, due=1.0)
    assert rest_of_plan(lane) == 5
    tracker.deliver([2, 3, 4, 5, 6], 7)
    assert rest_of_plan(lane) == 2
    tracker.deliver([7, 8], 9)
    assert rest_of_plan(lane) == 0
