"""Which record runs next: none is lost or doubled, partitions keep their order, none waits for
another's backlog.

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

from reactive_kafka import TopicPartition
from reactive_kafka.delivery.lanes.keyed import KeyedLane, UnknownKey
from reactive_kafka.delivery.lanes.lane import UNKEYED, KeyOf, Lane
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.records import RawRecord
from reactive_kafka.testing import record
from tests.tracking.values import tracker_of


def lane_of(partition: int = 0) -> Lane:
    return Lane(tracker_of(TopicPartition("orders", partition)))


def records(*offsets: int) -> list[RawRecord]:
    return [record(offset=offset) for offset in offsets]


def lanes_with(
    waiting: Sequence[int], *, shared: bool = False, now: float = 0.0
) -> tuple[LaneQueue, list[Lane]]:
    """Lanes of partitions 0, 1, ... with so many records waiting in each."""
    lanes, each = LaneQueue(shared=shared), [lane_of(number) for number in range(len(waiting))]
    for lane, count in zip(each, waiting, strict=True):
        if count:
            lanes.add(lane, records(*range(count)), 0, now)
    return lanes, each


def take_one(lanes: LaneQueue) -> tuple[Lane, int]:
    """A worker takes a lane, and one record of it: the lane and the record's arrival number. It
    does not let go.
    """
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
    # Let go of.
    assert not lane.records


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
    assert [[index for _, index in lane.delayed.take(now)] for now in (3.0, 5.0, 6.9, 7.0)] == [
        [],
        [0, 1],
        [],
        [2, 3],
    ]


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


def rest_of(lanes: LaneQueue) -> list[tuple[int, int]]:
    """Partition and arrival number of all that may be taken, in the order in which one worker
    would.
    """
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


class OfKey:
    """A worker that is in the lane of one partition, and the record that it took last."""

    def __init__(self, lane: KeyedLane) -> None:
        self.lane = lane
        self.key: Hashable = UNKEYED
        self.index = -1
        self.record: RawRecord | None = None

    def takes_alone(self, index: int) -> None:
        """Run the record with this arrival number of the current piece, as who is alone does."""
        self.lane.taken = self.index = index
        self.record = self.lane.records[index - self.lane.first]

    def goes_on(self) -> bool:
        """Let go of its key, and take the next record there is."""
        self.free()
        found = self.lane.next_record()
        if found is not None:
            self.key, self.index, self.record = found
        return found is not None

    def free(self) -> None:
        if self.key is not UNKEYED:
            self.lane.free(self.key)
            self.key = UNKEYED


def keyed(
    *keys: bytes | None, key_of: KeyOf = lambda record: record.key, is_total: bool = False
) -> tuple[LaneQueue, KeyedLane]:
    """One partition whose records have these keys, in order."""
    lanes = LaneQueue(shared=False, key_of=key_of, keys_are_total=is_total)
    lane = lanes.new(tracker_of())
    assert isinstance(lane, KeyedLane)
    lanes.add(lane, [record(offset=at, key=key) for at, key in enumerate(keys)], 0, 0.0)
    return lanes, lane


def take_key(lanes: LaneQueue) -> OfKey | None:
    """A worker takes the lane, and one record of it; it does not let go."""
    lane = lanes.take()
    if lane is None:
        return None
    assert isinstance(lane, KeyedLane)
    worker = OfKey(lane)
    assert worker.goes_on(), "who takes a lane finds a record"
    return worker


def let_go(lanes: LaneQueue, worker: OfKey) -> None:
    worker.free()
    lanes.release(worker.lane)


def all_of(lanes: LaneQueue) -> list[OfKey]:
    return list(iter(lambda: take_key(lanes), None))


def test_each_key_has_one_worker_and_none_waits_for_another() -> None:
    lanes, whole = keyed(b"a", b"a", b"b", None, b"a", None)
    taken = all_of(lanes)
    assert [one.index for one in taken] == [0, 2, 3]
    assert (whole.workers, whole.waiting) == (3, 3)
    let_go(lanes, taken[0])
    assert [one.index for one in all_of(lanes)] == [1]


def test_what_waited_with_a_key_goes_before_what_came_later() -> None:
    lanes, _ = keyed(b"a", b"a", b"b", b"c", b"d")
    first = take_key(lanes)
    second = take_key(lanes)
    assert first is not None
    assert second is not None
    seen = []
    while first.goes_on():
        seen.append(first.index)
    assert seen == [1, 3, 4]


def test_a_record_that_a_worker_gives_back_is_the_next_one_of_its_key() -> None:
    lanes, whole = keyed(b"a", b"a", b"a")
    taken = take_key(lanes)
    assert taken is not None
    whole.change("suspend")
    whole.put_back(record(offset=0, key=b"a"), 0, taken.key)
    let_go(lanes, taken)
    whole.change("retain")
    lanes.offer(whole)
    again = take_key(lanes)
    assert again is not None
    assert (again.index, whole.waiting) == (0, 2)


def test_a_key_with_nothing_left_takes_no_memory() -> None:
    lanes, whole = keyed(*(b"%d" % number for number in range(100)))
    for worker in all_of(lanes):
        let_go(lanes, worker)
    assert not whole.busy
    assert not whole.freed
    assert (whole.workers, whole.waiting) == (0, 0)


def test_who_is_alone_takes_records_as_they_came_until_another_looks_whose_key_is_another() -> None:
    lanes, whole = keyed(b"a", b"b", b"b", b"a", b"c", is_total=True)
    assert lanes.take() is whole
    first = OfKey(whole)
    assert whole.begin_alone(first)
    # It has run the first record, and its handler waits with the second.
    first.takes_alone(1)
    second = take_key(lanes)
    assert second is not None
    assert whole.sole is not first
    assert (first.index, first.key, second.index) == (1, b"b", 3)
    third = take_key(lanes)
    assert third is not None
    assert third.index == 4
    assert not third.goes_on()
    assert third.lane.waiting == 1
    let_go(lanes, first)
    assert [one.index for one in all_of(lanes)] == [2]


def test_whose_lane_is_cut_while_it_is_alone_holds_its_key() -> None:
    lanes, whole = keyed(b"a", b"a", b"b", is_total=True)
    assert lanes.take() is whole
    first = OfKey(whole)
    assert whole.begin_alone(first)
    first.takes_alone(0)
    whole.change("pause")
    assert take_key(lanes) is None
    whole.change("resume")
    lanes.offer(whole)
    assert [one.index for one in all_of(lanes)] == [2]
    let_go(lanes, first)
    assert [one.index for one in all_of(lanes)] == [1]


def test_who_is_alone_at_the_end_of_a_piece_holds_its_key_when_a_record_comes_that_was_held_back() -> (
    None
):
    lanes, whole = keyed(b"a", b"b", is_total=True)
    assert lanes.take() is whole
    first = OfKey(whole)
    assert whole.begin_alone(first)
    first.takes_alone(1)
    lanes.add(whole, [record(offset=7, key=b"a")], 7, 0.0)
    assert [one.index for one in all_of(lanes)] == [7]
    assert (first.index, first.key) == (1, b"b")


def test_nobody_is_alone_where_a_key_may_not_be_told_or_another_worker_has_come() -> None:
    lanes, whole = keyed(b"a", b"b")
    assert lanes.take() is whole
    assert not whole.begin_alone(OfKey(whole))
    lanes, whole = keyed(b"a", b"b", is_total=True)
    assert take_key(lanes) is not None
    assert lanes.take() is whole
    assert not whole.begin_alone(OfKey(whole))
    # Two have come, and neither has taken a record.
    lanes, whole = keyed(b"a", b"a", is_total=True)
    assert lanes.take() is whole
    assert lanes.take() is whole
    assert not whole.begin_alone(OfKey(whole))


def test_a_key_that_cannot_be_told_is_told_for_its_record_alone() -> None:
    def key_of(record: RawRecord) -> bytes | None:
        if record.key == b"bad":
            raise ValueError("no tenant")
        return record.key

    lanes, _ = keyed(b"a", b"bad", b"bad", b"a", key_of=key_of)
    taken = [
        (one.index, str(one.key.error) if isinstance(one.key, UnknownKey) else one.key)
        for one in all_of(lanes)
    ]
    assert taken == [(0, b"a"), (1, "no tenant"), (2, "no tenant")]


def test_a_key_that_cannot_be_hashed_is_one_that_cannot_be_told() -> None:
    lanes, _ = keyed(b"a", key_of=lambda record: [record.key])
    taken = take_key(lanes)
    assert taken is not None
    assert isinstance(taken.key, UnknownKey)
    assert isinstance(taken.key.error, TypeError)


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
    # Where 7 has a lane.
    lambda: Colliding(8),
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
    at_once = all_of(lanes)
    for worker in at_once:
        assert isinstance(worker.key, UnknownKey) == (makers[worker.index] in BAD)
    firsts = {makers.index(maker) for maker in makers if maker not in BAD}
    assert {worker.index for worker in at_once} == firsts | {
        at for at, one in enumerate(makers) if one in BAD
    }
    seen: dict[Callable[[], Any], list[int]] = {}
    while at_once:
        worker = at_once.pop()
        seen.setdefault(makers[worker.index], []).append(worker.index)
        let_go(lanes, worker)
        at_once += all_of(lanes)
    assert sum(map(len, seen.values())) == len(makers)
    assert all(indexes == sorted(indexes) for maker, indexes in seen.items() if maker not in BAD)
    assert not whole.busy


@given(
    keys=st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=30),
    is_total=st.booleans(),
    data=st.data(),
)
def test_every_record_of_a_key_is_taken_once_and_in_order_also_when_the_partition_goes_and_comes_back(
    keys: list[bytes | None], is_total: bool, data: st.DataObject
) -> None:
    lanes, whole = keyed(is_total=is_total)
    held: list[OfKey] = []
    taken: list[int] = []
    given_back: list[int] = []
    settled: list[int] = []
    added = 0

    def note(worker: OfKey) -> None:
        taken.append(worker.index)
        if worker.index in given_back:
            given_back.remove(worker.index)
        assert worker.index >= 0
        key = keys[worker.index]
        assert all(keys[other.index] != key for other in held if other is not worker), (
            "two workers at one key"
        )

    def go_on(worker: OfKey) -> bool:
        # As the dispatcher's loop does.
        if whole.sole is worker:
            if not whole.advance():
                return False
            worker.takes_alone(whole.taken + 1)
            return True
        return worker.goes_on()

    steps = [
        "add",
        "take",
        "take",
        "go on",
        "go on",
        "release",
        "give back",
        "ack",
        "nack",
        "suspend",
        "retain",
        "pause",
        "resume",
    ]
    for step in [
        *data.draw(st.lists(st.sampled_from(steps), max_size=80)),
        "add",
        "retain",
        "resume",
    ]:
        worker = held[data.draw(st.integers(0, len(held) - 1))] if held else None
        if step == "add" and not whole.revoked:
            until = data.draw(st.integers(added, len(keys)))
            came = [record(offset=at, key=keys[at]) for at in range(added, until)]
            if came:
                whole.tracker.deliver(range(added, until), until)
                lanes.add(whole, came, added, 0.0)
            added = until
        elif step == "take" and lanes.take() is not None:
            assert not whole.revoked
            assert not whole.is_paused
            worker = OfKey(whole)
            whole.begin_alone(worker)
            assert go_on(worker), "who takes a lane finds a record"
            held.append(worker)
            note(worker)
        elif step == "go on" and worker is not None:
            if go_on(worker):
                note(worker)
            else:
                held.remove(worker)
                let_go(lanes, worker)
        elif step == "release" and worker is not None:
            held.remove(worker)
            let_go(lanes, worker)
        elif step == "give back" and worker is not None and whole.revoked:
            held.remove(worker)
            taken.remove(worker.index)
            whole.wait_again(
                record(offset=worker.index, key=keys[worker.index]), worker.index, worker.key
            )
            given_back.append(worker.index)
            let_go(lanes, worker)
        elif step in ("ack", "nack") and given_back:
            # The application has kept the message of its first call.
            index = given_back.pop()
            assert whole.tracker.settle(index) if step == "ack" else whole.tracker.nack(index)
            settled.append(index)
        elif (
            step in ("suspend", "pause")
            or (step == "retain" and whole.revoked)
            or (step == "resume" and whole.is_paused)
        ):
            whole.change(step)
            lanes.offer(whole)
        assert whole.waiting == added - len(taken) - len(settled)
        assert whole.workers == len(held)
    for worker in held:
        let_go(lanes, worker)
    held.clear()
    while (one := take_key(lanes)) is not None:
        note(one)
        let_go(lanes, one)
    assert sorted([*taken, *settled]) == list(range(added))
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


def test_a_worker_goes_where_no_worker_is() -> None:
    lanes, (busy, quiet) = lanes_with([9, 0], shared=True)
    for _ in range(3):
        take_one(lanes)
    assert not lanes.wants_worker_of(busy)
    lanes.add(quiet, records(0, 1, 2), 0, 0.0)
    assert lanes.wants_worker_of(busy)
    lanes.release(busy)
    assert take_one(lanes) == (quiet, 0)


@given(workers=st.integers(1, 60), count=st.integers(1, 8), data=st.data())
def test_workers_divide_alike_among_lanes_and_then_stay(
    workers: int, count: int, data: st.DataObject
) -> None:
    """However they began: no lane waits in vain, where workers look now and then, and nobody goes
    to and fro.
    """
    lanes, each = lanes_with([1000] * count, shared=True)
    held = [data.draw(st.sampled_from(each)) for _ in range(workers)]
    for lane in held:
        lanes.hold(lane)
    seen: set[int] = set()
    for turn in range(3 * count):
        seen.update(number(lane) for lane in held)
        before = list(held)
        for at, lane in enumerate(held):
            if lanes.wants_worker_of(lane):
                lanes.release(lane)
                taken = lanes.take()
                assert taken is not None
                assert taken is not lane
                held[at] = taken
        assert sum(lane.workers for lane in each) == workers
        if turn > 2 * count and workers >= 9 * count:
            assert held == before, "they go to and fro"
    assert len(seen) == count, "a lane never had its turn"
    if workers >= count:
        counts = [lane.workers for lane in each]
        assert max(counts) - min(counts) <= 1 + min(counts) // 8


def test_nothing_waits_in_lanes_that_are_empty() -> None:
    lanes = LaneQueue(shared=False)
    assert lanes.take() is None
    assert lanes.batch_due(10, 1.0) is None
    assert lanes.take_batch(10) == []
    assert not lanes.ready


@given(shared=st.booleans(), data=st.data())
def test_every_record_is_taken_once_and_each_partition_in_order(
    shared: bool, data: st.DataObject
) -> None:
    lanes, each = LaneQueue(shared=shared), [lane_of(number) for number in range(3)]
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
    lanes, first, second = LaneQueue(shared=False), lane_of(0), lane_of(1)
    lanes.add(second, records(0), 0, 3.0)
    lanes.add(first, records(0), 0, 5.0)
    lanes.add(second, records(1), 1, 9.0)
    assert lanes.batch_due(10, 2.0) == 5.0


def test_a_batch_is_due_at_once_where_no_more_may_come_until_one_is_taken() -> None:
    lanes, _ = lanes_with([3, 2], shared=True, now=1.0)
    lanes.out_of_room.add(client := object())
    assert lanes.batch_due(9, 5.0) == 1.0
    lanes.take_batch(4)
    assert lanes.batch_due(9, 5.0) == 6.0
    lanes.out_of_room.add(client)
    assert lanes.batch_due(9, 5.0) == 1.0
    lanes.out_of_room.discard(client)
    assert lanes.batch_due(9, 5.0) == 6.0


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
    assert [(number(part.lane), part.first, len(part.records)) for part in batch] == [
        (0, 0, 3),
        (1, 0, 2),
    ]
    assert [lane.workers for lane in each] == [1, 1, 0]


def test_a_batch_joins_the_pieces_of_a_lane_and_holds_it_once() -> None:
    lanes, (lane,) = lanes_with([2])
    lanes.add(lane, records(2, 3), 2, 0.0)
    batch = lanes.take_batch(3)
    assert [(part.first, [one.offset for one in part.records]) for part in batch] == [
        (0, [0, 1]),
        (2, [2]),
    ]
    assert lane.workers == 1
    lanes.release(lane)
    assert lanes.take_batch(3) == [(lane, records(3), 3)]


def test_whole_pieces_are_taken_and_given_back_in_their_order() -> None:
    lane = lane_of()
    lane.add(records(0, 1, 2), 0, 1.0)
    lane.add(records(3, 4), 3, 2.0)
    lane.cursor = 1
    assert [(first, [one.offset for one in piece]) for first, piece in lane.pieces()] == [
        (1, [1, 2]),
        (3, [3, 4]),
    ]
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


@pytest.mark.parametrize(
    "key_of", [None, lambda record: record.offset % 2], ids=["by partition", "by key"]
)
def test_a_paused_lane_gives_nothing_until_it_is_resumed_also_where_it_comes_straight_back(
    key_of: KeyOf | None,
) -> None:
    pauses = Pauses()
    pauses.pause("lunch", [TopicPartition("orders", 0)])
    lanes = LaneQueue(shared=False, key_of=key_of, pauses=pauses)
    each = [lanes.new(tracker_of(TopicPartition("orders", number))) for number in (0, 1)]
    for lane in each:
        lanes.add(lane, records(0, 1, 2), 0, 0.0)
    taken = lanes.take()
    assert taken is not None
    assert number(taken) == 1
    assert {number(lane) for lane in lanes.takeable_lanes()} <= {1}
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
    assert lanes.take() is each[0]
    assert lanes.take() in (None, each[0])


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
    st.booleans(),
    st.sampled_from(["a", "b", "c"]),
    st.none() | st.lists(st.sampled_from(PARTITIONS), max_size=3),
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
            model -= (
                {place for place in model if place[1] == reason} if partitions is None else places
            )
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
