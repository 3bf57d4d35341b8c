"""Planned ranges: no position is given out inside of one, and none is forgotten before it has been
committed past.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka import TopicPartition
from reactive_kafka.tracking.plans import PlannedRange, check_plan, holding, still_to_come
from reactive_kafka.tracking.tracker import OffsetTracker

TP = TopicPartition("clicks", 0)
FIRST, SECOND, THIRD = PlannedRange(0, 10), PlannedRange(10, 20), PlannedRange(25, 30)


def tracker_with(*plans: PlannedRange, records: int = 30) -> OffsetTracker:
    tracker = OffsetTracker(TP, 0)
    tracker.deliver(range(records), records)
    for planned in plans:
        tracker.plan(planned)
    return tracker


def test_planned_ranges_are_to_be_read_up_to_the_end_of_the_last_one() -> None:
    assert still_to_come((FIRST, SECOND), 3) == 17
    assert still_to_come((FIRST, SECOND), 20) == still_to_come((FIRST, SECOND), 21) == 0
    assert still_to_come((), 3) == 0


def test_the_position_waits_before_a_plan_until_all_of_it_is_settled() -> None:
    tracker = tracker_with(FIRST, SECOND)
    tracker.settle_range(0, 9)
    assert (tracker.committable, tracker.highest) == (0, 0)
    tracker.settle(9)
    assert tracker.committable == 10
    tracker.settle_range(10, 15)
    assert (tracker.committable, tracker.highest) == (10, 10)


def test_records_before_a_plan_move_the_position_up_to_it() -> None:
    tracker = tracker_with(THIRD)
    tracker.settle_range(0, 24)
    assert tracker.committable == 24
    tracker.settle_range(24, 27)
    assert tracker.committable == 25


def test_the_highest_settled_record_inside_of_a_plan_counts_from_its_start() -> None:
    tracker = tracker_with(FIRST, SECOND)
    tracker.settle(15)
    assert (tracker.committable, tracker.highest) == (0, 10)
    tracker.settle_range(10, 20)
    assert (tracker.committable, tracker.highest) == (0, 20)


def test_a_plan_may_reach_beyond_what_was_read() -> None:
    tracker = tracker_with(PlannedRange(20, 40))
    tracker.settle_range(0, 30)
    assert tracker.committable == 20
    tracker.deliver((), 40)
    assert tracker.committable == 40


def test_a_plan_that_is_done_holds_the_position_where_its_end_was_not_read() -> None:
    tracker = tracker_with(planned := PlannedRange(20, 40))
    tracker.settle_range(0, 30)
    tracker.plan_done(planned)
    assert tracker.committable == 20
    tracker.deliver((), 41)
    assert tracker.committable == 41


def test_a_done_plan_is_told_until_the_group_has_a_position_behind_it() -> None:
    tracker = tracker_with(FIRST, SECOND, THIRD)
    tracker.settle_range(10, 20)
    tracker.plan_done(SECOND)
    assert tracker.plans == (FIRST, THIRD)
    assert tracker.planned_beyond(0) == (FIRST, SECOND, THIRD)
    tracker.settle_range(0, 10)
    tracker.plan_done(FIRST)
    # The group may still be there.
    assert tracker.planned_beyond(0) == (FIRST, SECOND, THIRD)
    assert tracker.planned_beyond(20) == (THIRD,)
    tracker.settle_range(20, 30)
    tracker.uncommitted_from = 20
    tracker.plan_done(THIRD)
    assert tracker.planned_beyond(0) == (THIRD,)


def test_a_done_plan_of_one_record_is_told_too() -> None:
    one, other = PlannedRange(0, 1), PlannedRange(1, 2)
    tracker = tracker_with(one, other)
    tracker.settle_range(0, 2)
    tracker.plan_done(one)
    tracker.plan_done(other)
    assert tracker.planned_beyond(0) == (one, other)


def test_a_custom_position_is_put_before_a_plan_that_is_done() -> None:
    tracker = tracker_with(FIRST)
    tracker.settle_range(0, 10)
    tracker.plan_done(FIRST)
    assert [tracker.outside_plans(at) for at in (0, 1, 9, 10, 11)] == [0, 0, 0, 10, 11]


def test_a_split_plan_lets_the_position_go_as_far_as_its_parts_are_settled() -> None:
    tracker = tracker_with(FIRST)
    failed = ((0, 10),)
    left, right = PlannedRange(0, 5, failed), PlannedRange(5, 10, failed)
    tracker.replan(FIRST, left, right)
    assert tracker.plans == (left, right)
    tracker.settle_range(0, 7)
    assert tracker.committable == 5
    tracker.plan_done(left)
    assert tracker.planned_beyond(5) == (right,)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (PlannedRange(0, 5),),
        (PlannedRange(0, 5), PlannedRange(6, 10)),
        (PlannedRange(0, 6), PlannedRange(5, 10)),
        (PlannedRange(5, 10), PlannedRange(0, 5)),
        (PlannedRange(0, 5), PlannedRange(5, 11)),
    ],
)
def test_parts_that_are_not_all_of_the_plan_are_refused_and_change_nothing(
    parts: tuple[PlannedRange, ...],
) -> None:
    tracker = tracker_with(FIRST)
    with pytest.raises(ValueError, match=r"is not all of \[0, 10\)"):
        tracker.replan(FIRST, *parts)
    assert tracker.plans == (FIRST,)


def test_what_is_not_planned_can_neither_be_done_nor_split() -> None:
    for tracker in (tracker_with(), tracker_with(FIRST)):
        with pytest.raises(ValueError, match=r"\[10, 20\) is not planned"):
            tracker.plan_done(SECOND)
        with pytest.raises(ValueError, match=r"\[10, 20\) is not planned"):
            tracker.replan(SECOND, PlannedRange(10, 15), PlannedRange(15, 20))


def test_plans_that_overlap_are_refused_those_done_included() -> None:
    tracker = tracker_with(SECOND, THIRD)
    for overlapping in (
        PlannedRange(5, 11),
        PlannedRange(19, 21),
        PlannedRange(12, 13),
        SECOND,
        PlannedRange(24, 31),
    ):
        with pytest.raises(ValueError, match="begins before its end"):
            tracker.plan(overlapping)
    tracker.settle_range(10, 20)
    tracker.plan_done(SECOND)
    with pytest.raises(ValueError, match="begins before its end"):
        tracker.plan(PlannedRange(12, 13))
    assert tracker.plans == (THIRD,)


def test_a_plan_before_the_position_is_refused() -> None:
    tracker = tracker_with()
    tracker.settle_range(0, 12)
    with pytest.raises(ValueError, match=r"clicks-0: \[10, 20\) begins before the position 12"):
        tracker.plan(SECOND)
    tracker.plan(PlannedRange(12, 20))


@pytest.mark.parametrize(
    "planned",
    [
        PlannedRange(5, 5),
        PlannedRange(6, 5),
        PlannedRange(-1, 5),
        PlannedRange(0, 5, ((0, 5),)),
        PlannedRange(0, 5, ((1, 9),)),
        PlannedRange(0, 5, ((0, 8), (0, 9))),
        PlannedRange(0, 5, ((0, 9), (0, 9))),
    ],
)
def test_what_is_no_plan_is_refused(planned: PlannedRange) -> None:
    with pytest.raises(ValueError, match=r"\["):
        check_plan(planned)
    with pytest.raises(ValueError, match=r"\["):
        tracker_with(planned)


def test_a_plan_may_have_failed_in_several_wider_ranges() -> None:
    check_plan(PlannedRange(3, 5, ((0, 20), (0, 10), (0, 5))))


def test_a_closed_tracker_has_no_plans() -> None:
    tracker = tracker_with(FIRST, SECOND)
    tracker.plan_done(SECOND)
    tracker.close()
    assert (tracker.plans, tracker.planned_beyond(0)) == ((), ())
    # As a late verdict: nothing comes of it.
    tracker.plan_done(FIRST)
    tracker.replan(FIRST, PlannedRange(0, 5), PlannedRange(5, 10))
    tracker.plan(THIRD)
    assert tracker.plans == ()


def test_one_more_plan_has_room_until_the_metadata_is_full() -> None:
    tracker = OffsetTracker(TP, 10**12)
    planned = 0
    while tracker.has_room_for(fresh := PlannedRange(10**12 + planned, 10**12 + planned + 1)):
        tracker.plan(fresh)
        planned += 1
    assert 100 < planned < 4096 / 26


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 60))
def test_the_plan_of_an_offset_is_found(sizes: list[int], offset: int) -> None:
    plans, at = [], 2
    for number, size in enumerate(sizes):
        if number % 2:
            plans.append(PlannedRange(at, at + size))
        at += size
    assert holding(plans, offset) == next(
        (one for one in plans if one.start <= offset < one.until), None
    )


class PlansAgainstModel(RuleBasedStateMachine):
    """Records of a log with gaps, ranges that are planned, split and done in any order, and commits
    now and then.
    """

    @initialize(position=st.integers(0, 20))
    def begin(self, position: int) -> None:
        self.tracker = OffsetTracker(TP, position)
        # Offset -> whether it is settled.
        self.log: dict[int, bool] = {}
        self.position = position
        self.seen = position
        self.plans: list[PlannedRange] = []
        # And not committed past.
        self.done: list[PlannedRange] = []

    @rule(gaps=st.lists(st.integers(0, 3), max_size=8), tail=st.integers(0, 3))
    def deliver(self, gaps: list[int], tail: int) -> None:
        offsets, at = [], self.position
        for gap in gaps:
            offsets.append(at + gap)
            at += gap + 1
        self.tracker.deliver(offsets, at + tail)
        self.log.update(dict.fromkeys(offsets, False))
        self.position = at + tail

    @rule(first=st.integers(0, 12), size=st.integers(1, 10))
    def plan(self, first: int, size: int) -> None:
        start = self.expected() + first
        planned = PlannedRange(start, start + size)
        if any(
            one.start < planned.until and start < one.until for one in (*self.plans, *self.done)
        ):
            with pytest.raises(ValueError, match="before its end"):
                self.tracker.plan(planned)
        else:
            self.tracker.plan(planned)
            self.plans.append(planned)

    @precondition(lambda self: self.plans)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.plans))
        if old.until - old.start < 2:
            return
        middle = data.draw(st.integers(old.start + 1, old.until - 1))
        failed = (*old.failed, (old.start, old.until))
        parts = [PlannedRange(old.start, middle, failed), PlannedRange(middle, old.until, failed)]
        self.tracker.replan(old, *parts)
        self.plans.remove(old)
        self.plans += parts

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        open_ones = [offset for offset, is_settled in self.log.items() if not is_settled]
        if not open_ones:
            return
        for offset in data.draw(st.lists(st.sampled_from(open_ones), unique=True)):
            index = list(self.log).index(offset)
            assert self.tracker.settle(index)
            self.log[offset] = True

    @precondition(lambda self: self.plans)
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """Everything in a plan is settled, and it is done."""
        planned = data.draw(st.sampled_from(self.plans))
        for index, (offset, is_settled) in enumerate(self.log.items()):
            if planned.start <= offset < planned.until and not is_settled:
                assert self.tracker.settle(index)
                self.log[offset] = True
        self.tracker.plan_done(planned)
        self.plans.remove(planned)
        self.done.append(planned)

    @rule()
    def commit(self) -> None:
        self.tracker.uncommitted_from = self.tracker.committable
        self.done = [one for one in self.done if one.until > self.tracker.uncommitted_from]

    def expected(self) -> int:
        raw = next(
            (offset for offset, is_settled in self.log.items() if not is_settled), self.position
        )
        return next(
            (one.start for one in (*self.plans, *self.done) if one.start < raw < one.until), raw
        )

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "tracker"):
            return
        position, highest = self.tracker.committable, self.tracker.highest
        assert position == self.expected()
        assert position >= self.seen, "the position went back"
        self.seen = position
        assert highest >= position
        for at in (position, highest):
            assert not any(one.start < at < one.until for one in (*self.plans, *self.done))
        assert self.tracker.plans == tuple(sorted(self.plans))
        told = self.tracker.planned_beyond(position)
        must_be_told = {one for one in (*self.plans, *self.done) if one.until > position}
        assert must_be_told <= set(told)
        assert list(told) == sorted(told)
        assert all(one.start >= position for one in told)


PlansAgainstModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None
)
TestPlansAgainstModel = PlansAgainstModel.TestCase
