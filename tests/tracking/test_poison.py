"""The poison watch: what is overdue is found in time, named once, and not taken for settled when it
is only away.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.tracking.poison_watch import (
    LOOK_S,
    RECHECK_S,
    CountedTime,
    PoisonWatch,
    oldest_started,
)
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.commit.engines import CommitEngine

LIMIT_S = 60.0


def tracker_with(starts: list[float], waiting: int = 0, partition: int = 0) -> OffsetTracker:
    """Records from offset 100 on, begun at these times; and more behind them that wait for a
    handler.
    """
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
    assert found(watch, tracker, 64.5) == []
    assert watch.next_look([tracker], 64.5) == 65.0
    assert found(watch, tracker, 64.999) == []
    assert found(watch, tracker, 65.0) == [100]


def test_poison_names_offset_start_and_how_many_wait_behind_it() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([5.0, 6.0, 7.0], waiting=4)
    tracker.settle(1)
    (poison,) = watch.look([tracker], 70.0)
    assert (poison.offset, poison.since, poison.waiting) == (100, 5.0, 5)


def test_what_waits_before_a_poison_record_does_not_wait_behind_it() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([90.0, 5.0, 90.0], waiting=4)
    tracker.in_order = False
    (poison,) = watch.look([tracker], 100.0)
    assert (poison.offset, poison.waiting) == (101, 5)
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


def test_after_rest_a_record_is_overdue_at_its_limit_and_time_that_was_lost_since_does_not_count() -> (
    None
):
    for lost_s in (0.0, 50.0):
        watch = PoisonWatch(LIMIT_S)
        watch.look([], 10.0)
        watch.next_look([], 10.0)
        assert watch.rest()
        watch.begin(500.0)
        tracker = tracker_with([500.0])
        now = 500.0 + LOOK_S + lost_s
        while not found(watch, tracker, now):
            later = watch.next_look([tracker], now)
            assert later is not None
            now = later
        assert now == 560.0 + lost_s


def test_there_is_no_rest_before_what_was_reported_has_settled() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    assert found(watch, tracker, 60.0) == [100]
    assert not watch.rest()
    tracker.settle(0)
    assert not watch.rest()
    assert len(watch.settled()) == 1
    assert watch.rest()


def test_a_nacked_record_is_not_poison() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    tracker.nack(0)
    assert found(watch, tracker, 100.0) == []


def test_partitions_are_watched_each_for_itself() -> None:
    watch = PoisonWatch(LIMIT_S)
    trackers = [
        tracker_with([0.0]),
        tracker_with([30.0], partition=1),
        tracker_with([1.0], partition=2),
    ]
    assert [poison.tracker.partition.partition for poison in watch.look(trackers, 61.0)] == [0, 2]
    assert [poison.tracker.partition.partition for poison in watch.look(trackers, 90.0)] == [1]
    assert len(watch.current) == 3


def test_while_there_is_poison_its_end_is_looked_for_often() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    watch.look([tracker], 60.0)
    assert watch.next_look([tracker], 60.0) == 60.0 + RECHECK_S


def test_a_look_is_never_further_away_than_a_second() -> None:
    assert PoisonWatch(LIMIT_S).next_look([tracker_with([], waiting=1)], 7.0) == 7.0 + LOOK_S
    assert PoisonWatch(LIMIT_S).next_look([tracker_with([7.0])], 7.0) == 7.0 + LOOK_S


def test_a_limit_of_zero_turns_the_watch_off() -> None:
    watch, tracker = PoisonWatch(0), tracker_with([0.0])
    assert found(watch, tracker, 1e9) == []
    assert watch.next_look([tracker], 1e9) is None


def test_poison_out_of_sight_for_a_rebalance_has_neither_settled_nor_become_new() -> None:
    engine, watch, tracker = CommitEngine(), PoisonWatch(LIMIT_S), tracker_with([0.0])
    engine.begin(1, [tracker.partition])
    engine.replace(tracker)
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
    engine.replace(tracker)
    engine.leave()
    watch.look(engine.trackers.values(), 59.5)
    assert watch.next_look(engine.all_trackers(), 59.5) == 60.0


def test_the_lowest_of_several_overdue_records_is_the_one_that_is_named() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([20.0, 10.0, 0.0])
    tracker.in_order = False
    assert found(watch, tracker, 60.0) == [102]
    assert found(watch, tracker, 70.0) == [101]
    assert found(watch, tracker, 80.0) == [100]
    tracker.settle(0)
    assert found(watch, tracker, 81.0) == []
    assert [poison.offset for poison in watch.current] == [101]


# -- time in which this process did not run


def looking(watch: PoisonWatch, tracker: OffsetTracker, since: float, until: float) -> list[int]:
    """Look whenever the watch says so; what it found."""
    offsets, now = [], since
    while now <= until:
        offsets += found(watch, tracker, now)
        due = watch.next_look([tracker], now)
        assert due is not None
        now = due
    return offsets


def test_a_process_that_was_stopped_finds_no_poison_when_it_goes_on() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    assert looking(watch, tracker, 0.0, 10.0) == []
    assert found(watch, tracker, 1000.0) == []
    # The next look was due at 11.
    assert watch.age_s(0.0, 1000.0) == 11.0
    assert looking(watch, tracker, 1000.0, 1048.9) == []
    assert looking(watch, tracker, 1048.9, 1049.0) == [100]
    (poison,) = watch.current
    assert 1049.0 - poison.since == LIMIT_S


def test_what_started_after_the_process_was_stopped_ages_from_its_start() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([], waiting=1)
    looking(watch, tracker, 0.0, 10.0)
    watch.look([tracker], 1000.0)
    tracker.start_range(0, 1, 1000.0)
    assert watch.age_s(1000.0, 1060.0) == LIMIT_S
    assert looking(watch, tracker, 1000.0, 1059.9) == []
    assert looking(watch, tracker, 1059.9, 1060.0) == [100]


def test_a_loop_that_is_a_little_late_loses_no_time() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([0.0])
    now = 0.0
    while now < LIMIT_S:
        assert found(watch, tracker, now) == []
        due = watch.next_look([tracker], now)
        assert due is not None
        now = due + LOOK_S
    assert found(watch, tracker, now) == [100]


def test_time_that_was_lost_before_every_record_in_flight_is_forgotten() -> None:
    watch, tracker = PoisonWatch(LIMIT_S), tracker_with([], waiting=1)
    for moment in range(0, 1000, 10):
        watch.look([tracker], moment)
        watch.next_look([tracker], moment)
    assert len(watch._time._lost) <= 1


def test_time_that_was_lost_just_before_a_record_started_is_none_of_its_own() -> None:
    time = CountedTime()
    time.lose(0.0, 100.0)
    assert time.before(60.0, 160.5) == 100.5
    assert time.before(60.0, 159.5) == -0.5


moments = st.lists(st.floats(0, 1000), min_size=2, max_size=8, unique=True)


@settings(deadline=None)
@given(lost=moments, since=st.floats(0, 1000), age_s=st.floats(0.1, 100), now=st.floats(0, 1200))
def test_the_three_questions_to_the_counted_time_have_one_answer(
    lost: list[float], since: float, age_s: float, now: float
) -> None:
    ends, time = sorted(lost), CountedTime()
    for begin, until in zip(ends[::2], ends[1::2], strict=False):
        time.lose(begin, until)
        now = max(now, until)
    since = min(since, now)
    stretches = [
        (max(begin, since), until) for begin, until in zip(ends[::2], ends[1::2], strict=False)
    ]
    counted = now - since - sum(max(0.0, until - begin) for begin, until in stretches)
    assert abs(time.age_s(since, now) - counted) < 1e-6
    if abs(counted - age_s) > 1e-6:
        assert (since <= time.before(age_s, now)) == (counted > age_s)
        assert (time.due(since, age_s) <= now) == (counted > age_s)


# -- in time, whatever happens


@dataclass
class World:
    """Trackers in which records start in any order and settle, and a watch that looks when it said
    it would.

    Now and then the process is stopped: nothing starts, settles or looks meanwhile.
    """

    limit_s: float
    watch: PoisonWatch = field(init=False)
    now: float = 0.0
    lost: list[tuple[float, float]] = field(default_factory=list)
    found_at: dict[tuple[int, int], float] = field(default_factory=dict)
    lowest_since: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watch = PoisonWatch(self.limit_s)
        self.trackers = [tracker_with([], waiting=10, partition=number) for number in range(3)]
        self.started: list[dict[int, float]] = [{}, {}, {}]
        for tracker in self.trackers:
            tracker.in_order = False
        self.look()

    def age_s(self, since: float) -> float:
        """How long a record has been with its handler while the process ran."""
        return (
            self.now
            - since
            - sum(until - max(begin, since) for begin, until in self.lost if until > since)
        )

    def look(self) -> None:
        for poison in self.watch.look(self.trackers, self.now):
            number, index = poison.tracker.partition.partition, poison.index
            assert (number, index) not in self.found_at, "reported twice"
            age_s = self.age_s(self.started[number][index])
            assert age_s >= self.limit_s - 1e-6, "reported too early"
            assert abs(self.now - poison.since - age_s) < 1e-6
            self.found_at[number, index] = self.now
        due = self.watch.next_look(self.trackers, self.now)
        assert due is not None
        assert self.now < due <= self.now + LOOK_S
        self.next_look = due

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        while self.next_look <= end:
            self.note_the_lowest(self.next_look)
            self.now = self.next_look
            self.look()
        self.note_the_lowest(end)
        self.now = end

    def stop(self, for_s: float) -> None:
        end = self.now + for_s
        if end > self.next_look + LOOK_S:
            self.lost.append((self.next_look, end))
        else:
            self.note_the_lowest(end)
        self.now = end
        if end >= self.next_look:
            self.look()

    def note_the_lowest(self, upto: float) -> None:
        """Which record is the lowest of its partition that is too old, and since when."""
        for number, starts in enumerate(self.started):
            late = {
                index: self.now + max(0.0, self.limit_s - self.age_s(since))
                for index, since in starts.items()
            }
            for index, moment in sorted(late.items(), key=lambda one: one[1]):
                if moment <= upto and not any(
                    other < index and late[other] <= upto for other in late
                ):
                    self.lowest_since.setdefault((number, index), moment)

    def start(self, number: int, index: int) -> None:
        if index not in self.started[number] and self.trackers[number].is_open(index):
            self.trackers[number].start_range(index, 1, self.now)
            self.started[number][index] = self.now

    def settle(self, number: int, index: int) -> None:
        self.trackers[number].settle(index)
        self.started[number].pop(index, None)

    def check(self) -> None:
        for (number, index), since in self.lowest_since.items():
            due = (
                max([since, *(until for begin, until in self.lost if begin >= since)])
                + LOOK_S
                + 1e-6
            )
            is_open = index in self.started[number]
            is_behind = any(
                (number, other) in self.found_at for other in self.started[number] if other < index
            )
            assert (
                (number, index) in self.found_at or not is_open or is_behind or self.now <= due
            ), "not found in time"


@settings(deadline=None)
@given(
    limit_s=st.sampled_from([0.1, 1.0, 60.0]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 40),
            st.sampled_from(["start", "start", "start", "settle", "stop"]),
            st.integers(0, 2),
            st.integers(0, 9),
        ),
        max_size=40,
    ),
)
def test_every_overdue_record_is_found_within_a_second_of_the_limit_and_none_before(
    limit_s: float, steps: list[tuple[float, str, int, int]]
) -> None:
    world = World(limit_s)
    for wait_s, what, number, index in steps:
        if what == "stop":
            world.stop(wait_s * 10)
        else:
            world.run(wait_s)
            getattr(world, what)(number, index)
        world.check()
    world.run(2 * LOOK_S)
    world.check()


@given(st.data())
def test_the_age_of_a_record_is_the_time_in_which_its_clock_has_run(data: st.DataObject) -> None:
    """Whatever stops it, in whatever order, also while it is stopped for something else."""
    count = data.draw(st.integers(1, 4))
    tracker = tracker_with([10.0] * count)
    tracker.in_order = data.draw(st.booleans())
    now = 10.0
    ages = [0.0] * count
    reasons = [0] * count
    for _ in range(data.draw(st.integers(0, 30))):
        passed = data.draw(st.floats(0.0, 50.0))
        now += passed
        ages = [age if reason else age + passed for age, reason in zip(ages, reasons, strict=True)]
        index = data.draw(st.integers(0, count - 1))
        if reasons[index] and data.draw(st.booleans()):
            tracker.start_clock([index], now)
            reasons[index] -= 1
        else:
            tracker.stop_clock([index], now)
            reasons[index] += 1
    running = [index for index in range(count) if not reasons[index]]
    for index in running:
        assert abs(now - tracker.started[index] - ages[index]) < 1e-6
    limit_s = 100.0
    overdue_now = [100 + index for index in running if ages[index] >= limit_s + 1e-6]
    assert (
        found(PoisonWatch(limit_s), tracker, now)[:1] == overdue_now[:1]
        or min(abs(age - limit_s) for age in ages) < 1e-5
    )


@given(st.integers(0, 3), st.integers(0, 3))
def test_a_record_whose_output_is_on_its_way_hides_no_stuck_record_behind_it(
    handed: int, settled: int
) -> None:
    tracker = tracker_with([1.0, 2.0, 3.0, 4.0])
    tracker.settle(settled)
    tracker.hand_over(handed)
    expected = [index for index in range(4) if index not in (handed, settled)]
    assert found(PoisonWatch(LIMIT_S), tracker, 100.0) == [100 + expected[0]]


def test_what_was_settled_while_its_clock_stood_leaves_nothing_behind() -> None:
    tracker = tracker_with([1.0, 2.0])
    tracker.stop_clock([0, 1], 5.0)
    tracker.settle(0)
    tracker.compact()
    tracker.start_clock([0, 1], 6.0)
    assert tracker.started[0] == 3.0
    assert tracker._stopped_since == {}


def test_a_record_that_is_settled_while_its_clock_is_stopped_for_good_leaves_nothing_behind() -> (
    None
):
    tracker = tracker_with([1.0, 2.0, 3.0])
    tracker.stop_clock([0, 1, 2], 5.0)
    tracker.hand_over(1)
    tracker.settle(0)
    tracker.settle(1)
    tracker.compact()
    assert tracker._stopped_since == {2: 5.0}
    # That one is still there, and ages again.
    tracker.start_clock([2], 9.0)
    assert found(PoisonWatch(LIMIT_S), tracker, 100.0) == [102]
    assert tracker.started[0] == 7.0


def test_a_record_whose_clock_has_stood_hides_no_older_one_behind_it() -> None:
    """Records that started in order are of any age once a clock has stood."""
    tracker = tracker_with([1.0, 2.0], waiting=1)
    tracker.stop_clock([0], 3.0)
    tracker.start_clock([0], 200.0)
    watch = PoisonWatch(LIMIT_S)
    assert found(watch, tracker, 210.0) == [101]
    assert oldest_started(tracker) == (1, 2.0)


def test_a_record_that_was_handed_over_stays_so_however_often_its_clock_is_stopped_and_started() -> (
    None
):
    tracker = tracker_with([1.0])
    tracker.hand_over(0)
    for moment in range(300):
        tracker.stop_clock([0], moment)
        tracker.start_clock([0], moment + 0.5)
    assert found(PoisonWatch(LIMIT_S), tracker, 1000.0) == []
