"""No more than so many lanes of one partition are taken at once; nothing waits that may run, is
lost or overtakes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.delivery.lanes.keyed import KeyedLane
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.records import RawRecord
from reactive_kafka.testing import record
from tests.tracking.values import tracker_of


class Taking:
    """Lanes of some partitions, what was put into them, and what workers hold."""

    def __init__(self, most: int, partitions: int, *, keyed: bool) -> None:
        self.most, self.keyed = most, keyed
        self.lanes = LaneQueue(
            most_per_lane=most,
            shared=not keyed,
            key_of=(lambda record: record.key) if keyed else None,
        )
        self.wholes = [
            self.lanes.new(tracker_of(TopicPartition("t", number))) for number in range(partitions)
        ]
        self.added = [0] * partitions
        self.waiting: dict[tuple[int, bytes], deque[int]] = defaultdict(deque)
        self.held: list[tuple[Lane, Hashable]] = []
        self.done = 0

    def add(self, partition: int, keys: list[int]) -> None:
        first = self.added[partition]
        came = [record(offset=first + at, key=b"%d" % key) for at, key in enumerate(keys)]
        for at, one in enumerate(came, first):
            self.waiting[partition, one.key or b""].append(at)
        self.added[partition] += len(keys)
        self.lanes.add(self.wholes[partition], came, first, 0.0)

    def number(self, lane: Lane) -> int:
        return lane.tracker.partition.partition

    def running(self, partition: int) -> int:
        return sum(self.number(lane) == partition for lane, _ in self.held)

    def may_run(self, partition: int) -> bool:
        if self.running(partition) >= self.most or self.wholes[partition].state.name != "OPEN":
            return False
        busy = {key for lane, key in self.held if self.number(lane) == partition}
        queues = [(key, queue) for (of, key), queue in self.waiting.items() if of == partition]
        return any(queue and (not self.keyed or key not in busy) for key, queue in queues)

    def take(self) -> None:
        runnable = [number for number in range(len(self.wholes)) if self.may_run(number)]
        lane = self.lanes.take()
        assert (lane is None) == (not runnable), "what may run does, and nothing else"
        if lane is None:
            return
        partition = self.number(lane)
        assert partition in runnable
        found = lane.next_record() if isinstance(lane, KeyedLane) else None
        if found is None:
            lane.cursor += 1
            found = None, lane.taken, lane.records[lane.cursor - 1]
        key, index, one = found
        self.held.append((lane, key))
        assert self.running(partition) <= self.most
        assert self.waiting[partition, one.key or b""].popleft() == index, "a key keeps its order"
        self.done += 1

    def release(self, at: int) -> None:
        if self.held:
            lane, key = self.held.pop(at % len(self.held))
            if isinstance(lane, KeyedLane):
                lane.free(key)
            self.lanes.release(lane)

    def change(self, partition: int, event: str) -> None:
        lane = self.wholes[partition]
        if (lane.state.name == "OPEN") == (event == "suspend"):
            lane.change(event)
            if event == "retain":
                self.lanes.offer(lane)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.integers(0, 2), st.lists(st.integers(0, 4), min_size=1, max_size=5)
        ),
        st.tuples(st.just("take")),
        st.tuples(st.just("take")),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("change"), st.integers(0, 2), st.sampled_from(["suspend", "retain"])),
    ),
    max_size=80,
)


@pytest.mark.parametrize("keyed", [True, False])
@given(st.integers(1, 4), STEPS)
def test_never_more_than_the_cap_runs_and_nothing_waits_that_may(
    keyed: bool, most: int, steps: list[Any]
) -> None:
    taking = Taking(most, 3, keyed=keyed)
    for name, *arguments in steps:
        getattr(taking, name)(*arguments)
    for number in range(3):
        taking.change(number, "retain")
    while taking.held or any(taking.waiting.values()):
        taking.take()
        taking.release(0)
    assert taking.done == sum(taking.added)
    assert taking.lanes.take() is None
    assert not taking.lanes.ready


def test_a_dropped_partition_holds_nothing_up() -> None:
    taking = Taking(1, 2, keyed=True)
    taking.add(0, [1, 2, 3])
    taking.take()
    taking.wholes[0].change("drop")
    taking.release(0)
    assert taking.lanes.take() is None
    taking.add(1, [1])
    assert taking.lanes.take() is not None


@pytest.mark.parametrize(("partitions", "keys"), [(1_000, 100), (1, 100_000)])
def test_whatever_number_of_keys_waits_behind_a_cap_a_take_looks_at_one_of_them(
    partitions: int, keys: int
) -> None:
    looked = 0

    def key_of(record: RawRecord) -> bytes | None:
        nonlocal looked
        looked += 1
        return record.key

    lanes = LaneQueue(most_per_lane=2, shared=False, key_of=key_of)
    wholes = [lanes.new(tracker_of(TopicPartition("t", number))) for number in range(partitions)]
    for whole in wholes:
        lanes.add(whole, [record(offset=key, key=b"%d" % key) for key in range(keys)], 0, 0.0)

    def take() -> tuple[KeyedLane, Hashable] | None:
        lane = lanes.take()
        if lane is None:
            return None
        assert isinstance(lane, KeyedLane)
        found = lane.next_record()
        assert found is not None
        return lane, found[0]

    held = deque(iter(take, None))
    assert (len(held), looked) == (2 * partitions, 2 * partitions)
    for number in range(100):
        lane, key = held.popleft()
        lane.free(key)
        lanes.release(lane)
        held.append(next(iter(take, None)))
        assert lanes.take() is None
        assert looked == 2 * partitions + number + 1
