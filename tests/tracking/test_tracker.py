"""The tracker against a model that is obviously right, and the facts one by one."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka import TopicPartition
from reactive_kafka.errors import DeliveryOrderError
from reactive_kafka.tracking.poison_watch import oldest_started, overdue
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.tracking.test_known_done import Counted

TP = TopicPartition("orders", 0)


def tracker_with(offsets: list[int], *, position: int = 0) -> OffsetTracker:
    tracker = OffsetTracker(TP, position)
    tracker.deliver(offsets, offsets[-1] + 1)
    return tracker


def test_an_unsettled_record_holds_back_those_settled_after_it() -> None:
    tracker = tracker_with([5, 6, 7])
    assert tracker.settle(1)
    assert tracker.settle(2)
    assert tracker.committable == 5
    assert tracker.settle(0)
    assert tracker.committable == 8


def test_a_gap_counts_as_settled() -> None:
    tracker = tracker_with([5, 9, 30])
    tracker.settle(0)
    assert tracker.committable == 9
    tracker.settle(1)
    assert tracker.committable == 30


def test_markers_behind_the_last_record_are_passed_once_it_has_settled() -> None:
    tracker = OffsetTracker(TP, 0)
    tracker.deliver(range(3), 5)
    assert tracker.committable == 0
    tracker.settle_range(0, 3)
    assert tracker.committable == 5
    tracker.deliver((), 9)
    assert tracker.committable == 9


def test_a_second_verdict_takes_no_effect() -> None:
    tracker = tracker_with([0, 1])
    assert tracker.settle(0)
    assert not tracker.settle(0)
    assert not tracker.nack(0)
    assert tracker.nack(1)
    assert not tracker.settle(1)
    assert tracker.committable == 1


def test_a_nacked_record_is_passed_only_when_its_strategy_was_carried_out() -> None:
    tracker = tracker_with([0, 1])
    tracker.nack(0)
    tracker.settle(1)
    assert tracker.committable == 0
    assert tracker.settle_nacked(0)
    assert tracker.committable == 2
    assert tracker.failed == 1
    assert not tracker.settle_nacked(0)


def test_an_acked_record_cannot_be_settled_as_nacked() -> None:
    tracker = tracker_with([0, 1])
    tracker.settle(1)
    assert not tracker.settle_nacked(1)
    assert not tracker.settle_nacked(0)
    assert tracker.committable == 0


def test_a_closed_tracker_refuses_every_verdict() -> None:
    tracker = tracker_with([0, 1, 2])
    tracker.settle(0)
    tracker.close()
    assert not tracker.settle(1)
    assert not tracker.nack(1)
    assert not tracker.settle_nacked(1)
    assert tracker.settle_range(0, 3) == 0
    assert not tracker.is_open(1)
    assert tracker.settled == 1
    tracker.close()
    assert tracker.settled == 1


def test_records_out_of_order_are_a_bug_that_is_loud_and_changes_nothing() -> None:
    tracker = tracker_with([0, 1, 2])
    with pytest.raises(
        DeliveryOrderError, match="offset 2 was delivered when the position was already 3"
    ):
        tracker.deliver([2], 3)
    with pytest.raises(DeliveryOrderError):
        tracker.deliver([5, 4], 6)
    with pytest.raises(DeliveryOrderError):
        tracker.deliver([5, 5], 6)
    assert tracker.position == 3
    assert tracker.unsettled == 3
    assert tracker.deliver([3], 4) == 3
    assert tracker.offset_of(3) == 3


def test_a_marker_between_two_deliveries_is_a_gap() -> None:
    tracker = OffsetTracker(TP, 0)
    tracker.deliver([0], 2)
    tracker.settle(0)
    tracker.deliver([2, 4], 5)
    assert tracker.committable == 2
    tracker.settle(1)
    assert tracker.committable == 4


def test_the_position_is_past_every_delivered_record_whatever_the_caller_says() -> None:
    tracker = OffsetTracker(TP, 0)
    tracker.deliver([5], 3)
    assert tracker.position == 6


def acks_behind_a_straggler(window: int) -> float:
    """What an ack costs, in seconds of CPU time, in a window whose first record is the last to be
    settled.
    """
    tracker = tracker_with(list(range(window)))
    order = list(range(1, window))
    random.Random(window).shuffle(order)
    began = time.thread_time()
    for number, index in enumerate(order):
        assert tracker.settle(index)
        if number % 100 == 0:
            assert tracker.committable == 0
    took = time.thread_time() - began
    assert tracker.settle(0)
    assert tracker.committable == window
    assert tracker.window == 0
    return took / window


def test_an_ack_costs_the_same_in_a_window_of_a_hundred_thousand_as_in_one_of_a_thousand() -> None:
    """Row E4 of the faults."""
    little = min(acks_behind_a_straggler(1_000) for _ in range(10))
    much = min(acks_behind_a_straggler(100_000) for _ in range(2))
    assert much < 20 * little, "what looks at the whole window costs a hundred times as much"


def test_polls_behind_a_straggler_look_at_what_is_new() -> None:
    """Each asks how many records are not settled, and half a million had been counted for each
    thousand that came.
    """
    tracker, most = OffsetTracker(TP, 0), 300_000
    tracker.flags = flags = Counted()
    looked_at = 0
    for start in range(0, most, 1000):
        tracker.deliver(range(start, start + 1000), start + 1000)
        before = flags.looked_at
        assert tracker.unsettled == (1001 if start else 1000)
        looked_at += flags.looked_at - before
        tracker.settle_range(max(start, 1), start + 1000)
    assert tracker.unsettled == 1
    assert looked_at < 10 * most, "to count all of them each time is 150 times"
    tracker.settle(0)
    assert tracker.unsettled == 0


def test_settled_records_before_the_first_unsettled_one_take_no_memory() -> None:
    tracker = OffsetTracker(TP, 0)
    for start in range(0, 100_000, 1000):
        tracker.deliver(range(start, start + 1000), start + 1000)
        tracker.settle_range(start, start + 1000)
    assert tracker.committable == 100_000
    assert tracker.window == 0
    assert len(tracker.offsets.runs) <= 1


def test_acks_are_counted_once_and_without_what_failed() -> None:
    tracker = tracker_with([0, 1, 2, 3])
    tracker.settle(0)
    tracker.nack(1)
    tracker.settle_nacked(1)
    assert tracker.newly_acked() == 1
    tracker.settle(2)
    tracker.close()
    assert tracker.newly_acked() == 1
    assert tracker.newly_acked() == 0


def test_the_oldest_is_the_lowest_started_record_without_a_verdict() -> None:
    tracker = tracker_with([4, 5, 6, 7])
    assert oldest_started(tracker) is None
    tracker.start_range(0, 1, 10.0)
    tracker.start_range(1, 2, 11.0)
    assert oldest_started(tracker) == (0, 10.0)
    tracker.nack(0)
    assert oldest_started(tracker) == (1, 11.0)
    tracker.settle_range(1, 3)
    assert oldest_started(tracker) is None


@given(
    records=st.lists(
        st.tuples(st.sampled_from(["waits", "acked", "nacked", "runs"]), st.integers(1, 9)),
        max_size=20,
    ),
    before=st.integers(0, 10),
)
def test_where_records_start_in_any_order_the_oldest_and_the_lowest_overdue_are_found(
    records: list[tuple[str, int]], before: int
) -> None:
    tracker = OffsetTracker(TP, 0)
    tracker.in_order = False
    tracker.deliver(range(len(records)), len(records))
    for index, (state, since) in enumerate(records):
        if state != "waits":
            tracker.start_range(index, 1, since)
        if state == "acked":
            tracker.settle(index)
        elif state == "nacked":
            tracker.nack(index)
    running = [
        (index, float(since)) for index, (state, since) in enumerate(records) if state == "runs"
    ]
    assert oldest_started(tracker) == min(running, key=lambda one: (one[1], one[0]), default=None)
    assert overdue(tracker, before) == next((one for one in running if one[1] <= before), None)


def test_a_record_that_was_given_back_is_with_nobody_and_hides_none_behind_it() -> None:
    tracker = tracker_with([0, 1, 2])
    tracker.start_range(0, 2, 3.0)
    tracker.unstart(0)
    assert oldest_started(tracker) == (1, 3.0)
    assert tracker.is_open(0)


def test_a_verdict_takes_only_records_out_of_the_lane_that_wait_there() -> None:
    tracker = tracker_with([0, 1, 2, 3])
    left: list[int] = []
    tracker.start_range(0, 4, 3.0)
    tracker.put_back(1, left.append)
    tracker.put_back(2, left.append)
    assert tracker.settle(0)
    assert left == []
    assert tracker.nack(1)
    assert left == [1]
    assert tracker.settle_range(0, 4) == 2
    assert left == [1, 2]


def test_what_was_put_back_is_forgotten_once_it_has_left_the_window() -> None:
    tracker = tracker_with([0])
    for index in range(100):
        tracker.start_range(index, 1, 3.0)
        tracker.put_back(index, lambda _: None)
        tracker.deliver([index + 1], index + 2)
        tracker.settle(index)
    assert tracker.committable == 100
    assert len(tracker._had) <= 1


def test_the_highest_position_passes_what_is_unsettled() -> None:
    tracker = tracker_with([5, 6, 9], position=5)
    assert tracker.highest == 5
    tracker.settle(1)
    assert (tracker.committable, tracker.highest) == (5, 7)
    tracker.settle(2)
    assert tracker.highest == 10
    tracker.settle(0)
    assert (tracker.committable, tracker.highest) == (10, 10)


def in_a_run() -> OffsetTracker:
    """Six records; the worker has run 0 to 2, and its handler got 3 at 7.0."""
    tracker = tracker_with([0, 1, 2, 3, 4, 5])
    tracker.begin_run(0)
    for index in range(4):
        tracker.run_at, tracker.run_since = index, 4.0 + index
    return tracker


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda tracker: tracker.committable, 3),
        (lambda tracker: tracker.settled, 3),
        (lambda tracker: tracker.unsettled, 3),
        (lambda tracker: tracker.open, 3),
        (lambda tracker: tracker.newly_acked(), 3),
        (lambda tracker: oldest_started(tracker), (3, 7.0)),
        (lambda tracker: tracker.settle(1), False),
        (lambda tracker: tracker.settle(3), True),
        (lambda tracker: tracker.nack(2), False),
        (lambda tracker: tracker.nack(3), True),
        (lambda tracker: tracker.is_open(2), False),
        (lambda tracker: tracker.is_open(3), True),
        (lambda tracker: tracker.settle_range(0, 5), 2),
        (lambda tracker: (tracker.deliver([9], 10), tracker.window), (6, 4)),
        (lambda tracker: (tracker.close(), tracker.settled), (None, 3)),
        (lambda tracker: tracker.highest, 3),
        (lambda tracker: overdue(tracker, 7.0), (3, 7.0)),
        (lambda tracker: overdue(tracker, 6.9), None),
    ],
)
def test_a_run_is_seen_by_whoever_asks_first(
    ask: Callable[[OffsetTracker], object], answer: object
) -> None:
    assert ask(in_a_run()) == answer


def test_a_run_whose_record_fails_leaves_that_one_with_its_handler() -> None:
    tracker = in_a_run()
    tracker.end_run(3, 7.0)
    assert tracker.committable == 3
    assert oldest_started(tracker) == (3, 7.0)
    tracker.begin_run(4)
    tracker.run_at, tracker.run_since = 4, 8.0
    tracker.end_run(5)
    assert tracker.settled == 4
    assert oldest_started(tracker) == (3, 7.0)


def test_a_handler_that_acks_its_own_record_in_a_run_moves_the_window_past_it() -> None:
    tracker = in_a_run()
    assert tracker.settle(3)
    assert tracker.committable == 4
    assert oldest_started(tracker) is None
    tracker.end_run(4)
    assert tracker.committable == 4
    assert tracker.settled == 4


def test_a_run_that_outlives_its_assignment_settles_nothing() -> None:
    tracker = in_a_run()
    tracker.close()
    tracker.end_run(4)
    tracker.begin_run(4)
    tracker.run_at = 4
    assert tracker.settled == 3
    assert tracker.unsettled == 0
    assert not tracker.settle(4)


def test_memory_of_what_is_settled_is_given_back_in_both_arrays() -> None:
    tracker = tracker_with(list(range(100)))
    tracker.settle_range(0, 90)
    assert tracker.committable == 90
    assert len(tracker.started) == len(tracker.flags) == 10


@given(st.lists(st.integers(0, 400), unique=True, min_size=1).map(sorted), st.data())
def test_an_offset_is_found_by_its_arrival(offsets: list[int], data: st.DataObject) -> None:
    tracker = tracker_with(offsets)
    settled = data.draw(st.integers(0, len(offsets) - 1))
    tracker.settle_range(0, settled)
    assert tracker.committable == offsets[settled]
    for index in range(settled, len(offsets)):
        assert tracker.offset_of(index) == offsets[index]


class Impatient(OffsetTracker):
    """Notes which records are not settled where few are counted."""

    __slots__ = ()
    LONG_WINDOW = 4


class TrackerAgainstModel(RuleBasedStateMachine):
    """Deliver with gaps, ack, nack, settle in any order, twice and late; close; the model keeps
    each record.
    """

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.tracker = Impatient(TP, start)
        # [offset, state] by arrival; state: open, acked, nacked, failed.
        self.records: list[list[object]] = []
        self.position = start
        self.started = 0
        self.is_closed = False
        self.run: int | None = None

    @precondition(lambda self: not self.is_closed)
    @rule(gaps=st.lists(st.integers(0, 5), max_size=12), tail=st.integers(0, 4))
    def deliver(self, gaps: list[int], tail: int) -> None:
        offsets, at = [], self.position
        for gap in gaps:
            offsets.append(at + gap)
            at += gap + 1
        is_dense = bool(offsets) and offsets[-1] - offsets[0] + 1 == len(offsets)
        given = range(offsets[0], offsets[-1] + 1) if is_dense else offsets
        first = self.tracker.deliver(given, at + tail)
        assert first == len(self.records)
        self.records += [[offset, "open"] for offset in offsets]
        self.position = at + tail

    def pick(self, data: st.DataObject, upto: int | None = None) -> int | None:
        last = len(self.records) if upto is None else upto
        return data.draw(st.integers(0, last - 1)) if last else None

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        index = self.pick(data)
        if index is not None:
            expected = not self.is_closed and self.records[index][1] == "open"
            assert self.tracker.settle(index) is expected
            if expected:
                self.records[index][1] = "acked"

    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        index = self.pick(data)
        if index is not None:
            expected = not self.is_closed and self.records[index][1] == "open"
            assert self.tracker.nack(index) is expected
            if expected:
                self.records[index][1] = "nacked"

    @rule(data=st.data())
    def carry_out(self, data: st.DataObject) -> None:
        index = self.pick(data)
        if index is not None:
            expected = not self.is_closed and self.records[index][1] == "nacked"
            assert self.tracker.settle_nacked(index) is expected
            if expected:
                self.records[index][1] = "failed"

    @rule(data=st.data())
    def ack_range(self, data: st.DataObject) -> None:
        start = self.pick(data)
        if start is None:
            return
        stop = data.draw(st.integers(start, len(self.records)))
        open_ones = (
            [] if self.is_closed else [r for r in self.records[start:stop] if r[1] == "open"]
        )
        assert self.tracker.settle_range(start, stop) == len(open_ones)
        for record in open_ones:
            record[1] = "acked"

    @precondition(lambda self: not self.is_closed and self.run is None)
    @rule(data=st.data(), now=st.floats(1, 9))
    def begin_run(self, data: st.DataObject, now: float) -> None:
        """A worker begins on a record; what it has run before is done, as soon as it has gone
        on.
        """
        untouched = len(self.records)
        while untouched and self.records[untouched - 1][1] == "open":
            untouched -= 1
        if untouched < len(self.records):
            self.run = untouched
            self.tracker.begin_run(untouched)
            self.tracker.run_at, self.tracker.run_since = untouched, now

    @precondition(lambda self: not self.is_closed and self.run is not None)
    @rule(now=st.floats(1, 9))
    def go_on(self, now: float) -> None:
        assert self.run is not None
        if self.run + 1 < len(self.records) and self.records[self.run + 1][1] == "open":
            self.done(self.run)
            self.run += 1
            self.tracker.run_at, self.tracker.run_since = self.run, now

    @precondition(lambda self: not self.is_closed and self.run is not None)
    @rule(fails=st.booleans())
    def end_run(self, fails: bool) -> None:
        assert self.run is not None
        if fails:
            self.tracker.end_run(self.run, 5.0)
        else:
            self.done(self.run)
            self.tracker.end_run(self.run + 1)
        self.run = None

    def done(self, index: int) -> None:
        if self.records[index][1] == "open":
            self.records[index][1] = "acked"

    @rule()
    def close(self) -> None:
        self.tracker.close()
        self.is_closed = True
        self.run = None

    @rule()
    def count(self) -> None:
        """A poll asks, and so do those after it: what is known of the first answer must hold for
        theirs.
        """
        unsettled = sum(state in ("open", "nacked") for _, state in self.records)
        assert self.tracker.unsettled == (0 if self.is_closed else unsettled)

    def asked(self) -> OffsetTracker:
        """The tracker as if nobody had asked it anything since the last step: each question alone
        must do.
        """
        return copy.deepcopy(self.tracker)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "tracker"):
            return
        done = sum(1 for _, state in self.records if state in ("acked", "failed"))
        assert self.asked().settled == done
        if self.is_closed:
            return
        unsettled = [offset for offset, state in self.records if state in ("open", "nacked")]
        assert self.asked().position == self.position
        assert self.asked().committable == (unsettled[0] if unsettled else self.position)
        assert self.asked().unsettled == len(unsettled)
        assert self.asked().open == sum(1 for _, state in self.records if state == "open")
        if unsettled and self.run is not None and self.records[self.run] == [unsettled[0], "open"]:
            assert oldest_started(self.asked()) == (self.run, self.tracker.run_since)


TrackerAgainstModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None
)
TestTrackerAgainstModel = TrackerAgainstModel.TestCase
