"""Where Spark batches are cut: planned ranges whole and first, nothing twice, nothing lost, bounds
kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.spark.batches.cuts import (
    BatchLimits,
    batch_due,
    forget_empty_plans,
    next_offset,
    take_batch,
)
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.testing import record
from tests.delivery.values import lane_with as waiting_lane
from tests.tracking.values import planned_range, tracker_of


def lane_with(
    *pieces: Sequence[int], plans: Sequence[Any] = (), partition: int = 0, now: float = 0.0
) -> Any:
    """A lane in which records with these offsets wait, piece by piece."""
    tracker = tracker_of(TopicPartition("clicks", partition))
    for planned in plans:
        tracker.plan(planned)
    for offsets in pieces:
        tracker.deliver(list(offsets), 0)
    records = [[record(offset=offset) for offset in offsets] for offsets in pieces]
    return waiting_lane(tracker, *records, now=now)


def no_weight(piece: Sequence[Any]) -> int:
    return 0


def ten_each(piece: Sequence[Any]) -> int:
    return 10 * len(piece)


def all_of(lane: Any) -> int:
    return 10 * lane.waiting


def nothing(lane: Any) -> int:
    return 0


def limits(
    records: int = 100, bytes_: int = 10**9, wait_s: float = 2.0, is_even: bool = False
) -> BatchLimits:
    return BatchLimits(records, bytes_, wait_s, is_even)


def offsets(taken: RecordRun) -> list[int]:
    return [one.offset for part in taken.slices for one in part.records]


def test_a_batch_is_due_when_it_is_full_by_records_or_bytes_or_when_its_first_record_has_waited() -> (
    None
):
    lane = lane_with([0, 1, 2], now=5.0)
    assert batch_due([lane], limits(records=4), all_of) == 7.0
    assert batch_due([lane], limits(records=3), all_of) == 5.0
    assert batch_due([lane], limits(bytes_=30), all_of) == 5.0
    assert batch_due([lane], limits(bytes_=31), all_of) == 7.0
    assert batch_due([], limits(), all_of) == inf


def test_a_planned_range_is_due_at_once_when_all_of_it_is_there_and_not_before() -> None:
    plan = planned_range(0, 4)
    assert batch_due([lane_with([0, 1, 2], plans=[plan], now=5.0)], limits(), nothing) == inf
    assert batch_due([lane_with([0, 1, 2, 3], plans=[plan], now=5.0)], limits(), nothing) == 5.0
    # 2 and 3 are gone.
    assert batch_due([lane_with([0, 1, 4], plans=[plan], now=5.0)], limits(), nothing) == 5.0


def test_a_planned_range_is_taken_whole_alone_and_first_however_large_it_is() -> None:
    planned = lane_with([0, 1], [2, 3, 4, 5], plans=[planned_range(0, 4)])
    fresh = lane_with([0, 1], partition=1)
    (taken,) = take_batch([fresh, planned], limits(records=2), no_weight)
    assert taken.planned == planned_range(0, 4)
    assert offsets(taken) == [0, 1, 2, 3]
    assert [offsets(one) for one in take_batch([fresh, planned], limits(), no_weight)] == [
        [0, 1],
        [4, 5],
    ]


def test_what_lies_before_a_planned_range_is_cut_at_its_start() -> None:
    lane = lane_with([0, 1, 2, 3, 4], plans=[planned_range(2, 4)])
    (before,) = take_batch([lane], limits(), no_weight)
    assert (offsets(before), before.planned) == ([0, 1], planned_range(0, 2))
    (planned,) = take_batch([lane], limits(), no_weight)
    assert (offsets(planned), planned.planned) == ([2, 3], planned_range(2, 4))


def test_whole_planned_ranges_of_several_partitions_go_together_as_far_as_there_is_room() -> None:
    lanes = [
        lane_with([0, 1, 2], plans=[planned_range(0, 3)], partition=number) for number in range(3)
    ]
    taken = take_batch(lanes, limits(records=6), no_weight)
    assert [one.lane.tracker.partition.partition for one in taken] == [0, 1]


def test_bytes_bound_a_batch_within_a_piece_and_an_empty_batch_takes_one_record_all_the_same() -> (
    None
):
    lane = lane_with([0, 1, 2, 3])
    (taken,) = take_batch([lane], limits(bytes_=25), ten_each)
    assert offsets(taken) == [0, 1]
    (taken,) = take_batch([lane], limits(bytes_=5), ten_each)
    assert offsets(taken) == [2]
    assert next_offset(lane) == 3


def test_delayed_records_that_come_in_any_order_are_ranges_of_consecutive_ones() -> None:
    lane = lane_with()
    lane.tracker.deliver(range(6), 0)
    for index in (4, 0, 1, 5, 3):
        lane.add([record(offset=index)], index, 0.0)
    taken = take_batch([lane], limits(), no_weight)
    assert [offsets(one) for one in taken] == [[0, 1], [3, 4, 5]]


def test_a_planned_range_of_which_no_record_is_left_holds_nothing_back() -> None:
    lane = lane_with([7, 8], plans=[planned_range(2, 5), planned_range(7, 9)])
    forget_empty_plans(lane)
    assert lane.tracker.plans == (planned_range(7, 9),)


def test_an_even_batch_takes_alike_of_all_partitions_and_what_some_lack_of_the_others() -> None:
    def taken(bounds: BatchLimits) -> list[tuple[int, int]]:
        lanes = [
            lane_with(range(there), partition=number) for number, there in enumerate([9, 2, 9, 9])
        ]
        return [
            (one.lane.tracker.partition.partition, one.records)
            for one in take_batch(lanes, bounds, no_weight)
        ]

    assert taken(limits(20, is_even=True)) == [(0, 6), (1, 2), (2, 6), (3, 6)]
    assert taken(limits(20)) == [(0, 9), (1, 2), (2, 9)]


def test_an_even_batch_with_fewer_places_than_partitions_takes_one_of_each_that_has_most() -> None:
    lanes = [lane_with(range(there), partition=number) for number, there in enumerate([3, 1, 2, 1])]
    taken = take_batch(lanes, limits(2, is_even=True), no_weight)
    assert [(one.lane.tracker.partition.partition, one.records) for one in taken] == [
        (0, 1),
        (2, 1),
    ]


@given(data=st.data())
def test_every_record_is_taken_once_planned_ranges_as_they_were_and_fresh_ones_across_no_plan(
    data: st.DataObject,
) -> None:
    lanes, wanted = [], []
    for number in range(data.draw(st.integers(1, 3))):
        edges = sorted(data.draw(st.sets(st.integers(0, 40), max_size=8)))
        plans = [planned_range(*pair) for pair in zip(edges[::2], edges[1::2], strict=False)]
        there = sorted(data.draw(st.sets(st.integers(0, 45), max_size=30)))
        cuts = sorted(data.draw(st.sets(st.integers(0, len(there)), max_size=4)))
        pieces = [
            there[low:high]
            for low, high in zip([0, *cuts], [*cuts, len(there)], strict=True)
            if low < high
        ]
        lane = lane_with(*pieces, [46], plans=plans, partition=number)
        lanes.append(lane)
        wanted.append([*there, 46])
    most = data.draw(st.integers(1, 20))
    bytes_ = data.draw(st.sampled_from([10, 55, 10**9]))
    bounds = limits(most, bytes_, 0.0, is_even=data.draw(st.booleans()))
    seen: list[list[int]] = [[] for _ in lanes]
    while ready := [lane for lane in lanes if lane.advance()]:
        for lane in ready:
            forget_empty_plans(lane)
        assert batch_due(ready, bounds, all_of) < inf
        batch = take_batch(ready, bounds, ten_each)
        assert batch
        fresh = [one for one in batch if one.planned not in one.tracker.plans]
        assert not fresh or len(fresh) == len(batch)
        assert sum(one.records for one in fresh) <= most
        assert 10 * sum(one.records for one in fresh) <= max(bytes_, 10)
        for one in batch:
            tracker, found = one.tracker, offsets(one)
            assert found == list(one.offsets)
            seen[tracker.partition.partition] += found
            inside = [
                plan for plan in tracker.plans if plan.start <= found[-1] and found[0] < plan.until
            ]
            assert inside == ([] if one in fresh else [one.planned])
            assert one.planned.start <= found[0]
            assert found[-1] < one.planned.until
            if one not in fresh:
                tracker.plan_done(one.planned)
    assert seen == wanted
