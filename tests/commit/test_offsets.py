"""The tracker against a model that is obviously right, and the facts one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.errors import DeliveryOrderError
from reactive_kafka.records import TopicPartition

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
    tracker.deliver(range(0, 3), 5)
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
    with pytest.raises(DeliveryOrderError, match="offset 2 was delivered when the position was 3"):
        tracker.deliver([2], 3)
    with pytest.raises(DeliveryOrderError):
        tracker.deliver([5, 4], 6)
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


def test_forgotten_records_are_read_again_from_the_first_of_them() -> None:
    tracker = tracker_with([3, 7, 8, 20], position=3)
    tracker.settle(0)
    tracker.forget_from(2)
    assert tracker.position == 8
    assert tracker.committable == 7
    assert tracker.deliver([8, 20], 21) == 2
    tracker.settle_range(1, 4)
    assert tracker.committable == 21


def test_forgetting_nothing_changes_nothing() -> None:
    tracker = tracker_with([0, 1])
    tracker.forget_from(2)
    assert tracker.position == 2
    assert tracker.unsettled == 2


def test_settled_records_before_the_first_unsettled_one_take_no_memory() -> None:
    tracker = OffsetTracker(TP, 0)
    for start in range(0, 100_000, 1000):
        tracker.deliver(range(start, start + 1000), start + 1000)
        tracker.settle_range(start, start + 1000)
    assert tracker.committable == 100_000
    assert tracker.window == 0
    assert len(tracker._runs) <= 1


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
    assert tracker.oldest_started() is None
    tracker.start_range(0, 1, 10.0)
    tracker.start_range(1, 2, 11.0)
    assert tracker.oldest_started() == (0, 10.0)
    tracker.nack(0)
    assert tracker.oldest_started() == (1, 11.0)
    tracker.settle_range(1, 3)
    assert tracker.oldest_started() is None


@given(st.lists(st.integers(0, 400), unique=True, min_size=1).map(sorted), st.data())
def test_an_offset_is_found_by_its_arrival_and_back(offsets: list[int], data: st.DataObject) -> None:
    tracker = tracker_with(offsets)
    settled = data.draw(st.integers(0, len(offsets) - 1))
    tracker.settle_range(0, settled)
    assert tracker.committable == offsets[settled]
    for index in range(settled, len(offsets)):
        assert tracker.offset_of(index) == offsets[index]
        assert tracker.index_at(offsets[index]) == index
    assert tracker.index_at(offsets[-1] + 1) == len(offsets)


class TrackerAgainstModel(RuleBasedStateMachine):
    """Deliver with gaps, ack, nack, settle in any order, twice and late; forget, close. The model keeps every record."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.tracker = OffsetTracker(TP, start)
        self.records: list[list[object]] = []  # [offset, state] by arrival; state: open, acked, nacked, failed
        self.position = start
        self.started = 0
        self.is_closed = False

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
        open_ones = [] if self.is_closed else [r for r in self.records[start:stop] if r[1] == "open"]
        assert self.tracker.settle_range(start, stop) == len(open_ones)
        for record in open_ones:
            record[1] = "acked"

    @precondition(lambda self: not self.is_closed)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        untouched = len(self.records)
        while untouched and self.records[untouched - 1][1] == "open":
            untouched -= 1
        index = data.draw(st.integers(untouched, len(self.records)))
        self.tracker.forget_from(index)
        if index < len(self.records):
            self.position = self.records[index][0]
            del self.records[index:]

    @rule()
    def close(self) -> None:
        self.tracker.close()
        self.is_closed = True

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "tracker"):
            return
        done = sum(1 for _, state in self.records if state in ("acked", "failed"))
        assert self.tracker.settled == done
        if self.is_closed:
            return
        unsettled = [offset for offset, state in self.records if state in ("open", "nacked")]
        assert self.tracker.position == self.position
        assert self.tracker.committable == (unsettled[0] if unsettled else self.position)
        assert self.tracker.unsettled == len(unsettled)
        assert self.tracker.open == sum(1 for _, state in self.records if state == "open")


TrackerAgainstModel.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestTrackerAgainstModel = TrackerAgainstModel.TestCase
