"""Which record runs next: none is lost or doubled, partitions keep their order, none waits for another's backlog."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.incoming.lanes import Lane, Lanes
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.testing import record


def lane_of(partition: int = 0) -> Lane:
    return Lane(OffsetTracker(TopicPartition("orders", partition), 0))


def records(*offsets: int) -> list[RawRecord]:
    return [record(offset=offset) for offset in offsets]


def lanes_with(waiting: Sequence[int], *, shared: bool = False, now: float = 0.0) -> tuple[Lanes, list[Lane]]:
    """Lanes of partitions 0, 1, ... with so many records waiting in each."""
    lanes, each = Lanes(shared=shared), [lane_of(number) for number in range(len(waiting))]
    for lane, count in zip(each, waiting, strict=True):
        if count:
            lanes.add(lane, records(*range(count)), 0, now)
    return lanes, each


def take_one(lanes: Lanes) -> tuple[Lane, int]:
    """A worker takes a lane, and one record of it: the lane and the record's arrival number. It does not let go."""
    lane = lanes.take()
    assert lane is not None
    index = lane.first + lane.cursor
    lane.cursor += 1
    return lane, index


def number(lane: Lane) -> int:
    return lane.tracker.partition.partition


# -- lanes


def test_a_lane_goes_on_to_the_next_piece_and_numbers_go_on() -> None:
    lane = lane_of()
    lane.add(records(5, 6), 0, 1.0)
    lane.add(records(9), 2, 2.0)
    assert lane.waiting == 3
    read = []
    while lane.advance():
        read.append((lane.first + lane.cursor, lane.records[lane.cursor].offset))
        lane.cursor += 1
    assert read == [(0, 5), (1, 6), (2, 9)]
    assert lane.waiting == 0
    assert not lane.records  # let go of


@pytest.mark.parametrize(("taken", "first_unstarted"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, None)])
def test_dropping_a_lane_tells_the_first_record_that_nobody_took(taken: int, first_unstarted: int | None) -> None:
    lane = lane_of()
    lane.add(records(0, 1), 0, 0.0)
    lane.add(records(2, 3), 2, 0.0)
    for _ in range(taken):
        assert lane.advance()
        lane.cursor += 1
    assert lane.drop() == first_unstarted
    assert lane.waiting == 0
    assert not lane.advance()
    assert lane.drop() is None


def test_a_dropped_lane_takes_records_again() -> None:
    lanes, (lane,) = lanes_with([3])
    take_one(lanes)
    assert lane.drop() == 1
    lanes.release(lane)
    assert lanes.take() is None
    lanes.add(lane, records(1), 1, 0.0)
    assert take_one(lanes) == (lane, 1)


# -- whose turn it is


def test_with_partition_ordering_a_lane_has_one_worker_at_a_time() -> None:
    lanes, (lane,) = lanes_with([5])
    take_one(lanes)
    lanes.add(lane, records(5), 5, 0.0)
    assert lanes.take() is None
    lanes.release(lane)
    assert take_one(lanes) == (lane, 1)


def test_unordered_lanes_have_as_many_workers_as_records() -> None:
    lanes, (lane,) = lanes_with([3], shared=True)
    assert [take_one(lanes)[1] for _ in range(3)] == [0, 1, 2]
    assert lane.workers == 3
    assert lanes.take() is None


@pytest.mark.parametrize("shared", [False, True])
def test_a_partition_with_little_waiting_has_its_turn_beside_one_with_much(shared: bool) -> None:
    lanes, _ = lanes_with([1000, 1, 2], shared=shared)
    turns = []
    for _ in range(5):
        lane, _ = take_one(lanes)
        lanes.release(lane)
        turns.append(number(lane))
    assert turns == [0, 1, 2, 0, 2]


def test_nothing_waits_in_lanes_that_are_empty() -> None:
    lanes = Lanes(shared=False)
    assert lanes.take() is None
    assert lanes.batch_due(10, 1.0) is None
    assert lanes.take_batch(10) == []
    assert not lanes.has_work


@given(shared=st.booleans(), data=st.data())
def test_every_record_is_taken_once_and_each_partition_in_order(shared: bool, data: st.DataObject) -> None:
    lanes, each = Lanes(shared=shared), [lane_of(number) for number in range(3)]
    arrived = [0, 0, 0]
    held: list[Lane] = []
    taken: list[list[int]] = [[], [], []]

    def worker_takes() -> bool:
        lane = lanes.take()
        if lane is None:
            return False
        assert shared or lane not in held, "two workers in one lane"
        held.append(lane)
        taken[number(lane)].append(lane.first + lane.cursor)
        lane.cursor += 1
        return True

    for step in data.draw(st.lists(st.sampled_from(["arrive", "take", "release"]), max_size=60)):
        if step == "arrive":
            at, count = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 4))
            lanes.add(each[at], records(*range(arrived[at], arrived[at] + count)), arrived[at], 0.0)
            arrived[at] += count
        elif step == "take":
            worker_takes()
        elif held:
            lanes.release(held.pop(data.draw(st.integers(0, len(held) - 1))))
    while held or worker_takes():
        if held:
            lanes.release(held.pop())
    assert taken == [list(range(count)) for count in arrived]
    assert not any(lane.workers for lane in each)


# -- batches


def test_a_batch_is_due_at_once_when_enough_records_wait() -> None:
    lanes, _ = lanes_with([3, 2], now=7.0)
    assert lanes.batch_due(5, 10.0) == 7.0
    assert lanes.batch_due(6, 10.0) == 17.0


def test_a_batch_is_due_when_the_oldest_arrival_has_waited_long_enough() -> None:
    lanes, first, second = Lanes(shared=False), lane_of(0), lane_of(1)
    lanes.add(second, records(0), 0, 3.0)
    lanes.add(first, records(0), 0, 5.0)
    lanes.add(second, records(1), 1, 9.0)
    assert lanes.batch_due(10, 2.0) == 5.0


def test_what_a_worker_holds_does_not_make_a_batch_due() -> None:
    lanes, (lane,) = lanes_with([4])
    (part,) = lanes.take_batch(1)
    assert lanes.batch_due(2, 1.0) is None
    lanes.release(part.lane)
    assert lanes.batch_due(3, 1.0) == 0.0
    assert lane.waiting == 3


def test_a_batch_takes_from_several_lanes_up_to_its_bound_and_holds_only_those() -> None:
    lanes, each = lanes_with([3, 3, 3])
    batch = lanes.take_batch(5)
    assert [(number(part.lane), part.first, len(part.records)) for part in batch] == [(0, 0, 3), (1, 0, 2)]
    assert [lane.workers for lane in each] == [1, 1, 0]


def test_a_batch_ends_with_the_part_that_reaches_its_weight() -> None:
    lanes, each = lanes_with([2, 2, 2])
    batch = lanes.take_batch(100, 3.0, weigh=len)
    assert [len(part.records) for part in batch] == [2, 2]
    assert [lane.workers for lane in each] == [1, 1, 0]


def test_a_batch_joins_the_pieces_of_a_lane_and_holds_it_once() -> None:
    lanes, (lane,) = lanes_with([2])
    lanes.add(lane, records(2, 3), 2, 0.0)
    batch = lanes.take_batch(3)
    assert [(part.first, [one.offset for one in part.records]) for part in batch] == [(0, [0, 1]), (2, [2])]
    assert lane.workers == 1
    lanes.release(lane)
    assert lanes.take_batch(3) == [(lane, records(3), 3)]


def test_two_batches_share_an_unordered_lane() -> None:
    lanes, (lane,) = lanes_with([4], shared=True)
    first, second = lanes.take_batch(2), lanes.take_batch(2)
    assert [part.first for part in (*first, *second)] == [0, 2]
    assert lane.workers == 2


@given(
    shared=st.booleans(),
    waiting=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    most=st.integers(1, 8),
    weight=st.sampled_from([1.0, 3.0, inf]),
)
def test_batches_lose_nothing_and_hold_no_lane_that_they_took_nothing_from(
    shared: bool, waiting: list[int], most: int, weight: float
) -> None:
    lanes, each = lanes_with(waiting, shared=shared)
    seen: list[list[int]] = [[] for _ in waiting]
    while batch := lanes.take_batch(most, weight, weigh=len):
        assert 0 < sum(len(part.records) for part in batch) <= most
        assert all(part.records for part in batch)
        took_from = {number(part.lane) for part in batch}
        assert {number(lane) for lane in each if lane.workers} == took_from
        for part in batch:
            seen[number(part.lane)] += range(part.first, part.first + len(part.records))
        for held in took_from:
            lanes.release(each[held])
    assert seen == [list(range(count)) for count in waiting]
