"""Which record runs next: none is lost or doubled, partitions keep their order, none waits for another's backlog.

And who has paused what: reasons come and go in any order, for the whole channel and for partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lane import KeyedLane, KeyLane, KeyOf, Lane
from reactive_kafka.delivery.lanes import Lanes, Pauses
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
    assert isinstance(lane, Lane)
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


def test_a_dropped_lane_has_forgotten_what_nobody_took() -> None:
    lanes, (lane,) = lanes_with([3])
    take_one(lanes)
    lane.delayed.hold(record(offset=3), 3, 5.0)
    lane.change("drop")
    assert (lane.waiting, len(lane.delayed)) == (0, 0)
    lanes.release(lane)
    assert lanes.take() is None


def test_what_is_held_in_order_is_due_no_sooner_than_what_was_held_before_it() -> None:
    lane = lane_of()
    for index, due in enumerate([5.0, 3.0, 7.0, 4.0]):
        lane.delayed.hold(record(offset=index), index, due, in_order=True)
    assert [[index for _, index in lane.delayed.take(now)] for now in (3.0, 5.0, 6.9, 7.0)] == [[], [0, 1], [], [2, 3]]


def test_what_is_held_in_any_order_comes_when_it_is_due() -> None:
    lane = lane_of()
    for index, due in enumerate([5.0, 3.0, 7.0, 4.0]):
        lane.delayed.hold(record(offset=index), index, due)
    assert [index for _, index in lane.delayed.take(7.0)] == [1, 3, 0, 2]


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4])
def test_a_suspended_lane_keeps_what_nobody_took_for_when_it_comes_back(taken: int) -> None:
    lanes, (lane,) = lanes_with([2])
    lanes.add(lane, records(2, 3), 2, 0.0)
    held = lanes.take()
    assert held is lane
    for _ in range(taken):
        assert lane.advance()
        lane.cursor += 1
    before = lane.records
    lane.change("suspend")
    assert lane.records is not before or not before, "a worker in the lane would go on"
    assert not lane.advance()
    lanes.release(lane)
    lanes.offer(lane)
    assert lanes.take() is None
    assert lane.waiting == 4 - taken
    lane.change("retain")
    lanes.offer(lane)
    assert rest_of(lanes) == [(0, offset) for offset in range(taken, 4)]


def test_a_record_that_a_worker_gives_back_is_the_next_one() -> None:
    lanes, (lane,) = lanes_with([3])
    _, index = take_one(lanes)
    lane.change("suspend")
    lane.put_back(record(offset=index), index)
    lanes.release(lane)
    assert lane.waiting == 3
    lane.change("retain")
    lanes.offer(lane)
    assert rest_of(lanes) == [(0, 0), (0, 1), (0, 2)]


def test_a_cut_lane_makes_its_worker_turn_away_and_loses_nothing() -> None:
    lanes, (lane,) = lanes_with([3])
    take_one(lanes)
    before = lane.records
    lane.cut()
    assert lane.records is not before
    lanes.release(lane)
    assert rest_of(lanes) == [(0, 1), (0, 2)]


def rest_of(lanes: Lanes) -> list[tuple[int, int]]:
    """Partition and arrival number of all that may be taken, in the order in which one worker would."""
    taken = []
    while (lane := lanes.take()) is not None:
        assert isinstance(lane, Lane)
        while lane.advance():
            taken.append((number(lane), lane.first + lane.cursor))
            lane.cursor += 1
        lanes.release(lane)
    return taken


# -- records that are not due yet


def kept(_: TopicPartition, records: list[RawRecord]) -> list[RawRecord]:
    return records


def test_records_come_out_when_they_are_due_whatever_the_order_they_came_in() -> None:
    lanes, (lane,) = lanes_with([0])
    for index, due in enumerate([30.0, 10.0, 20.0]):
        lane.delayed.hold(record(offset=index), index, due)
    assert (len(lane.delayed), lane.waiting, lane.next_due) == (3, 0, 10.0)
    assert lanes.add_due(lane, 9.9, kept) == 0
    assert lanes.add_due(lane, 20.0, kept) == 2
    assert rest_of(lanes) == [(0, 1), (0, 2)]
    assert lane.next_due == 30.0


def test_a_suspended_lane_holds_its_records_until_it_comes_back() -> None:
    lanes, (lane,) = lanes_with([0])
    lane.delayed.hold(record(offset=0), 0, 1.0)
    lane.change("suspend")
    assert lanes.add_due(lane, 5.0, kept) == 0
    assert lane.next_due is None
    lane.change("retain")
    assert lanes.add_due(lane, 5.0, kept) == 1


# -- keys


def keyed(*keys: bytes | None, key_of: KeyOf = lambda record: record.key) -> tuple[Lanes, Lane]:
    """One partition whose records have these keys, in order."""
    lanes = Lanes(shared=False, key_of=key_of)
    lane = lanes.new(OffsetTracker(TopicPartition("orders", 0), 0))
    lanes.add(lane, [record(offset=at, key=key) for at, key in enumerate(keys)], 0, 0.0)
    return lanes, lane


def take_key(lanes: Lanes) -> tuple[KeyLane, int] | None:
    """A worker takes the lane of a key, and one record of it; it does not let go."""
    lane = lanes.take()
    if lane is None:
        return None
    assert isinstance(lane, KeyLane)
    _, index = lane.queue.popleft()
    lane.partition_lane.in_keys -= 1
    return lane, index


def test_each_key_has_one_worker_and_none_waits_for_another() -> None:
    lanes, whole = keyed(b"a", b"a", b"b", None, b"a", None)
    taken = [take_key(lanes) for _ in range(3)]
    assert [one[1] for one in taken if one] == [0, 2, 3]
    assert take_key(lanes) is None
    assert (whole.workers, whole.waiting) == (3, 3)
    assert taken[0] is not None
    lanes.release(taken[0][0])
    assert take_key(lanes) == (taken[0][0], 1)


def test_a_record_that_a_worker_gives_back_is_the_next_one_of_its_key() -> None:
    lanes, whole = keyed(b"a", b"a", b"a")
    taken = take_key(lanes)
    assert taken is not None
    whole.change("suspend")
    taken[0].put_back(record(offset=0, key=b"a"), 0)
    lanes.release(taken[0])
    whole.change("retain")
    lanes.offer(whole)
    assert take_key(lanes) == (taken[0], 0)
    assert whole.waiting == 2


def test_a_key_with_nothing_left_takes_no_memory() -> None:
    lanes, whole = keyed(*(b"%d" % number for number in range(100)))
    while (taken := take_key(lanes)) is not None:
        lanes.release(taken[0])
    assert isinstance(whole, KeyedLane)
    assert not whole.keys
    assert (whole.workers, whole.waiting) == (0, 0)


def test_a_key_that_cannot_be_told_is_told_for_its_record_alone() -> None:
    def key_of(record: RawRecord) -> bytes | None:
        if record.key == b"bad":
            raise ValueError("no tenant")
        return record.key

    lanes, _ = keyed(b"a", b"bad", b"bad", b"a", key_of=key_of)
    taken = [take_key(lanes) for _ in range(3)]
    assert [(index, str(lane.error)) for lane, index in filter(None, taken)] == [
        (0, "None"), (1, "no tenant"), (2, "no tenant"),
    ]  # fmt: skip


def test_a_key_that_cannot_be_hashed_is_one_that_cannot_be_told() -> None:
    lanes, _ = keyed(b"a", key_of=lambda record: [record.key])
    taken = take_key(lanes)
    assert taken is not None
    assert isinstance(taken[0].error, TypeError)


@dataclass
class NoHash(Exception):
    """As every dataclass that says nothing of its hash."""

    key: bytes


class Colliding:
    """A key that has the hash of another, and refuses to be compared with it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return hash(1)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Colliding) and other.number == self.number:
            return True
        raise NoHash(b"compared")


def _raise(error: BaseException) -> Hashable:
    raise error


GOOD: list[Callable[[], Hashable]] = [
    lambda: b"a",
    lambda: None,
    lambda: ("no key", 0),
    lambda: ("no key", 1, None),
    lambda: Colliding(7),
]
BAD: list[Callable[[], Any]] = [
    list,
    lambda: ([],),
    lambda: Colliding(8),  # where 7 has a lane
    lambda: _raise(NoHash(b"x")),
    lambda: _raise(ValueError("no tenant")),
    lambda: _raise(StopIteration()),
    lambda: _raise(KeyboardInterrupt()),
    lambda: _raise(asyncio.CancelledError()),
]


@given(st.lists(st.sampled_from([*GOOD, *BAD])))
def test_each_record_whose_key_cannot_be_told_stands_alone_and_those_of_one_key_together(
    makers: list[Callable[[], Hashable]],
) -> None:
    makers = [GOOD[-1], *makers]
    lanes, whole = keyed(*[None] * len(makers), key_of=lambda record: makers[record.offset]())
    queued: list[list[int]] = []
    while (lane := lanes.take()) is not None:
        assert isinstance(lane, KeyLane)
        indexes = [index for _, index in lane.queue]
        assert (lane.error is not None) == (makers[indexes[0]] in BAD)
        assert lane.error is None or len(indexes) == 1
        queued.append(indexes)
        lane.queue.clear()
        lanes.release(lane)
    good = [
        [at for at, one in enumerate(makers) if one is maker and maker not in BAD] for maker in dict.fromkeys(makers)
    ]
    bad = [[at] for at, one in enumerate(makers) if one in BAD]
    expected = sorted([*(indexes for indexes in good if indexes), *bad])
    assert sorted(queued) == expected
    assert isinstance(whole, KeyedLane)
    assert not whole.keys


@given(keys=st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=30), data=st.data())
def test_every_record_of_a_key_is_taken_once_and_in_order_also_when_the_partition_goes_and_comes_back(
    keys: list[bytes | None], data: st.DataObject
) -> None:
    lanes, whole = keyed(*keys)
    held: list[KeyLane] = []
    taken: list[int] = []
    for step in data.draw(
        st.lists(st.sampled_from(["take", "release", "give back", "suspend", "retain"]), max_size=80)
    ):
        if step == "take" and (one := take_key(lanes)) is not None:
            assert not whole.revoked
            assert one[0] not in held, "two workers at one key"
            held.append(one[0])
            taken.append(one[1])
        elif step == "release" and held:
            lanes.release(held.pop(data.draw(st.integers(0, len(held) - 1))))
        elif step == "give back" and held and whole.revoked:
            lane = held.pop()
            index = next(at for at in reversed(taken) if keys[at] == lane.key)
            taken.remove(index)
            lane.put_back(record(offset=index, key=keys[index]), index)
            lanes.release(lane)
        elif step == "suspend":
            whole.change("suspend")
        elif step == "retain" and whole.revoked:
            whole.change("retain")
            lanes.offer(whole)
        assert whole.waiting == len(keys) - len(taken)
        assert whole.workers == len(held)
    if whole.revoked:
        whole.change("retain")
    lanes.offer(whole)
    for lane in held:
        lanes.release(lane)
    while (one := take_key(lanes)) is not None:
        taken.append(one[1])
        lanes.release(one[0])
    assert sorted(taken) == list(range(len(keys)))
    for key in set(keys):
        mine = [index for index in taken if keys[index] == key]
        assert mine == sorted(mine)


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
        assert isinstance(lane, Lane)
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


def test_a_batch_joins_the_pieces_of_a_lane_and_holds_it_once() -> None:
    lanes, (lane,) = lanes_with([2])
    lanes.add(lane, records(2, 3), 2, 0.0)
    batch = lanes.take_batch(3)
    assert [(part.first, [one.offset for one in part.records]) for part in batch] == [(0, [0, 1]), (2, [2])]
    assert lane.workers == 1
    lanes.release(lane)
    assert lanes.take_batch(3) == [(lane, records(3), 3)]


def test_whole_pieces_are_taken_and_given_back_in_their_order() -> None:
    lane = lane_of()
    lane.add(records(0, 1, 2), 0, 1.0)
    lane.add(records(3, 4), 3, 2.0)
    lane.cursor = 1
    assert [(first, [one.offset for one in piece]) for first, piece in lane.pieces()] == [(1, [1, 2]), (3, [3, 4])]
    first, second = lane.take(3)
    assert ([one.offset for one in first.records], first.first) == ([1, 2], 1)
    assert ([one.offset for one in second.records], second.first) == ([3], 3)
    assert lane.waiting == 1
    lane.give_back(second.records, second.first)
    lane.give_back(first.records, first.first)
    assert [(first, len(piece)) for first, piece in lane.pieces()] == [(1, 2), (3, 1), (4, 1)]
    assert lane.waiting == 4
    assert [part.first for part in lane.take(10, most_pieces=2)] == [1, 3]


def test_two_batches_share_an_unordered_lane() -> None:
    lanes, (lane,) = lanes_with([4], shared=True)
    first, second = lanes.take_batch(2), lanes.take_batch(2)
    assert [part.first for part in (*first, *second)] == [0, 2]
    assert lane.workers == 2


@given(
    shared=st.booleans(),
    waiting=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    most=st.integers(1, 8),
)
def test_batches_lose_nothing_and_hold_no_lane_that_they_took_nothing_from(
    shared: bool, waiting: list[int], most: int
) -> None:
    lanes, each = lanes_with(waiting, shared=shared)
    seen: list[list[int]] = [[] for _ in waiting]
    while batch := lanes.take_batch(most):
        assert 0 < sum(len(part.records) for part in batch) <= most
        assert all(part.records for part in batch)
        took_from = {number(part.lane) for part in batch}
        assert {number(lane) for lane in each if lane.workers} == took_from
        for part in batch:
            seen[number(part.lane)] += range(part.first, part.first + len(part.records))
        for held in took_from:
            lanes.release(each[held])
    assert seen == [list(range(count)) for count in waiting]


# -- pauses


@pytest.mark.parametrize("key_of", [None, lambda record: record.offset % 2], ids=["by partition", "by key"])
def test_a_paused_lane_gives_nothing_until_it_is_resumed_also_where_it_comes_straight_back(
    key_of: KeyOf | None,
) -> None:
    pauses = Pauses()
    pauses.pause("lunch", [TopicPartition("orders", 0)])
    lanes = Lanes(shared=False, key_of=key_of, pauses=pauses)
    each = [lanes.new(OffsetTracker(TopicPartition("orders", number), 0)) for number in (0, 1)]
    for lane in each:
        lanes.add(lane, records(0, 1, 2), 0, 0.0)
    taken = lanes.take()
    assert taken is not None
    assert number(taken.partition_lane) == 1
    assert {number(lane) for lane in lanes.whole_lanes()} <= {1}
    each[0].change("suspend")
    each[0].change("retain")
    lanes.offer(each[0])
    assert taken.advance()
    pauses.pause("lunch", [TopicPartition("orders", 1)])
    lanes.look_at_pauses(each)
    assert not taken.advance(), "the worker that is in it turns away"
    lanes.release(taken)
    assert lanes.take() is None

    pauses.resume("lunch", [TopicPartition("orders", 0)])
    lanes.look_at_pauses(each)
    freed = []
    while (free := lanes.take()) is not None:
        freed.append(number(free.partition_lane))
    assert set(freed) == {0}


def test_what_a_poll_of_before_the_pause_brings_waits_also_when_a_worker_is_in_the_lane() -> None:
    lanes, (lane,) = lanes_with([1])
    take_one(lanes)
    lane.change("pause")
    lanes.add(lane, records(1, 2), 1, 1.0)
    assert not lane.advance()
    lanes.release(lane)
    assert lanes.take() is None
    lane.change("resume")
    lanes.offer(lane)
    assert rest_of(lanes) == [(0, 1), (0, 2)]


PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
STEPS = st.tuples(
    st.booleans(), st.sampled_from(["a", "b", "c"]), st.none() | st.lists(st.sampled_from(PARTITIONS), max_size=3)
)


@given(st.lists(STEPS, max_size=30))
def test_a_partition_is_paused_while_a_reason_is_left_for_it_or_for_the_channel(
    steps: list[tuple[bool, str, list[TopicPartition] | None]],
) -> None:
    pauses, model = Pauses(), set[tuple[TopicPartition | None, str]]()
    for pausing, reason, partitions in steps:
        places = {(place, reason) for place in ([None] if partitions is None else partitions)}
        if pausing:
            pauses.pause(reason, partitions)
            model |= places
        else:
            pauses.resume(reason, partitions)
            model -= {place for place in model if place[1] == reason} if partitions is None else places
        paused = {place for place, _ in model}
        assert set(pauses.reasons) == {reason for place, reason in model if place is None}
        assert [pauses.has(partition) for partition in PARTITIONS] == [
            None in paused or partition in paused for partition in PARTITIONS
        ]
        assert bool(pauses) == bool(model)


def test_reasons_are_told_in_the_order_in_which_they_came() -> None:
    pauses = Pauses()
    for reason in ("b", "a", "b"):
        pauses.pause(reason)
    assert pauses.reasons == ("b", "a")


def test_a_reason_that_is_taken_away_without_partitions_is_gone_everywhere() -> None:
    pauses = Pauses()
    pauses.pause("a")
    pauses.pause("a", PARTITIONS)
    pauses.pause("b", PARTITIONS[:1])
    pauses.resume("a")
    assert (pauses.reasons, pauses.partitions) == ((), frozenset(PARTITIONS[:1]))


def test_partitions_keep_the_channels_reasons_when_theirs_is_taken_away() -> None:
    pauses = Pauses()
    pauses.pause("a")
    pauses.pause("a", PARTITIONS)
    pauses.resume("a", PARTITIONS)
    assert (pauses.reasons, pauses.has(PARTITIONS[0])) == (("a",), True)
