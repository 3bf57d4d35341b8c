"""The poison watch: what is overdue is found in time, named once, and not taken for settled when it is only away."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.commit.poison import RECHECK_S, PoisonWatch
from reactive_kafka.records import TopicPartition

LIMIT_S = 60.0


def tracker_with(starts: list[float], waiting: int = 0, partition: int = 0) -> OffsetTracker:
    """Records from offset 100 on, begun at these times; and more behind them that wait for a handler."""
    tracker = OffsetTracker(TopicPartition("orders", partition), 100)
    count = len(starts) + waiting
    tracker.deliver(range(100, 100 + count), 100 + count)
    for index, start in enumerate(starts):
        tracker.start_range(index, 1, start)
    return tracker


def found(watch: PoisonWatch, tracker: OffsetTracker, now: float) -> list[int]:
    return [poison.offset for poison in watch.look([tracker], now)]


def test_a_record_is_overdue_exactly_at_the_limit() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([5.0])
    assert watch.next_look([tracker], 5.0) == 65.0
    assert found(watch, tracker, 64.999) == []
    assert found(watch, tracker, 65.0) == [100]


def test_poison_names_offset_start_and_how_many_wait_behind_it() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([5.0, 6.0, 7.0], waiting=4)
    tracker.settle(1)
    (poison,) = watch.look([tracker], 70.0)
    assert (poison.offset, poison.since, poison.waiting) == (100, 5.0, 5)
    assert watch.current == (poison,)


def test_poison_is_reported_once_for_as_long_as_it_lasts() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    assert found(watch, tracker, 60.0) == [100]
    assert found(watch, tracker, 61.0) == []
    assert len(watch.current) == 1


def test_poison_that_settles_is_told_once_and_the_next_one_is_found() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0, 1.0])
    assert found(watch, tracker, 61.5) == [100]
    assert watch.settled() == []
    tracker.settle(0)
    assert found(watch, tracker, 61.75) == [101]
    assert [poison.offset for poison in watch.settled()] == [100]
    assert watch.settled() == []


def test_a_record_that_waits_for_a_handler_does_not_age() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([], waiting=3)
    assert found(watch, tracker, 1e6) == []
    assert watch.current == ()


def test_a_nacked_record_is_not_poison() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    tracker.nack(0)
    assert found(watch, tracker, 100.0) == []


def test_partitions_are_watched_each_for_itself() -> None:
    watch = PoisonWatch(LIMIT_S)
    trackers = [tracker_with([0.0]), tracker_with([30.0], partition=1), tracker_with([1.0], partition=2)]
    assert [poison.tracker.partition.partition for poison in watch.look(trackers, 61.0)] == [0, 2]
    assert [poison.tracker.partition.partition for poison in watch.look(trackers, 90.0)] == [1]
    assert len(watch.current) == 3


def test_while_there_is_poison_its_end_is_looked_for_often() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    watch.look([tracker], 60.0)
    assert watch.next_look([tracker], 60.0) == 60.0 + RECHECK_S


def test_with_nothing_in_flight_the_next_look_is_a_limit_away() -> None:
    assert PoisonWatch(LIMIT_S).next_look([tracker_with([], waiting=1)], 7.0) == 67.0


def test_a_limit_of_zero_turns_the_watch_off() -> None:
    watch, tracker = PoisonWatch(0), tracker_with([0.0])
    assert found(watch, tracker, 1e9) == []
    assert watch.next_look([tracker], 1e9) is None


def test_poison_out_of_sight_for_a_rebalance_has_neither_settled_nor_become_new() -> None:
    engine, watch, tracker = CommitEngine(), PoisonWatch(LIMIT_S), tracker_with([0.0])
    engine.begin(1, [tracker.partition])
    engine.add(tracker)
    watch.look(engine.trackers.values(), 60.0)
    engine.leave()
    assert watch.look(engine.trackers.values(), 61.0) == []
    assert (watch.current, watch.settled()) == ((), [])
    assert watch.next_look(engine.all_trackers(), 61.0) == 61.0 + RECHECK_S

    engine.begin(2, [tracker.partition])
    assert engine.take_up(tracker.partition, None) is tracker
    assert watch.look(engine.trackers.values(), 61.25) == []
    assert len(watch.current) == 1


def test_poison_whose_partition_has_gone_for_good_is_forgotten() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    watch.look([tracker], 60.0)
    tracker.close()
    assert watch.look([], 61.0) == []
    assert watch.settled() == []


def test_a_record_that_comes_straight_back_keeps_its_deadline() -> None:
    engine, watch, tracker = CommitEngine(), PoisonWatch(LIMIT_S), tracker_with([0.0])
    engine.begin(1, [tracker.partition])
    engine.add(tracker)
    engine.leave()
    watch.look(engine.trackers.values(), 30.0)
    assert watch.next_look(engine.all_trackers(), 30.0) == 60.0


# -- in time, whatever happens


@dataclass
class World:
    """Trackers in which records start and settle, and a watch that looks only when it said it would."""

    limit_s: float
    watch: PoisonWatch = field(init=False)
    now: float = 0.0
    found_at: dict[tuple[int, int], float] = field(default_factory=dict)
    overdue_since: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watch = PoisonWatch(self.limit_s)
        self.trackers = [tracker_with([], waiting=0, partition=number) for number in range(3)]
        self.starts: list[list[float]] = [[], [], []]
        self.look()

    def look(self) -> None:
        for poison in self.watch.look(self.trackers, self.now):
            key = (poison.tracker.partition.partition, poison.index)
            assert key not in self.found_at, "reported twice"
            assert self.now - self.starts[key[0]][poison.index] >= self.limit_s, "reported too early"
            self.found_at[key] = self.now
        due = self.watch.next_look(self.trackers, self.now)
        assert due is not None
        assert due > self.now
        self.next_look = due

    def run_until(self, end: float) -> None:
        while self.next_look <= end:
            self.note_overdue(self.next_look)
            self.now = self.next_look
            self.look()
        self.note_overdue(end)
        self.now = end

    def note_overdue(self, upto: float) -> None:
        """Which records have become the lowest open one of their partition and too old, and since when."""
        for number, tracker in enumerate(self.trackers):
            oldest = tracker.oldest_started()
            if oldest is not None and (late := oldest[1] + self.limit_s) <= upto:
                self.overdue_since.setdefault((number, oldest[0]), max(late, self.now))

    def start(self, number: int) -> None:
        tracker = self.trackers[number]
        index = tracker.deliver([tracker.position], tracker.position + 1)
        tracker.start_range(index, 1, self.now)
        self.starts[number].append(self.now)

    def settle(self, number: int, which: int) -> None:
        tracker = self.trackers[number]
        if tracker.window:
            tracker.settle(tracker.base + which % tracker.window)


@given(
    limit_s=st.sampled_from([0.1, 1.0, 60.0]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 40), st.sampled_from(["start", "start", "settle"]), st.integers(0, 2), st.integers(0, 9)
        ),
        max_size=40,
    ),
)
def test_every_overdue_record_is_found_within_a_second_of_the_limit(
    limit_s: float, steps: list[tuple[float, str, int, int]]
) -> None:
    world = World(limit_s)
    for wait_s, what, number, which in steps:
        world.run_until(world.now + wait_s)
        if what == "start":
            world.start(number)
        else:
            world.settle(number, which)
        for key, since in world.overdue_since.items():
            was_open = world.trackers[key[0]].is_open(key[1])
            assert key in world.found_at or not was_open or world.now < since + 1.0, f"{key} overdue and not found"
    for key, at in world.found_at.items():
        assert at <= world.overdue_since[key] + 1.0
