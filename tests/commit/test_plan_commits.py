"""Plans in the group: whoever goes on from its position finds every range that has run beyond
it.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.commit.commit_engine import CommitRequest
from reactive_kafka.commit.strategy import CommitStrategy, LatestCommits, Progress
from reactive_kafka.tracking.metadata.codec import decode, encode
from reactive_kafka.tracking.plans import PlannedRange, Plans
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import REPEAT_AFTER_S
from tests.commit.engines import CommitEngine

NOW = 100.0
A, B = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
FIRST, SECOND = PlannedRange(0, 10), PlannedRange(10, 20)


class Lagging:
    """A custom strategy that stays a few offsets behind, and has times when it wants nothing."""

    interval_s: float | None = 1.0
    commits_at_ack = False

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.is_idle = False

    def position(self, progress: Progress, now: float) -> int | None:
        return None if self.is_idle else max(0, progress.safe - self.behind)


def engine_with(
    *plans: PlannedRange, stored: Committed | None = None, strategy: CommitStrategy | None = None
) -> CommitEngine:
    """An engine with 30 records of one partition from the stored position on, and its plans."""
    engine = CommitEngine(strategy)
    engine.begin(1, [A])
    begin = 0 if stored is None else stored.offset
    tracker = OffsetTracker(A, begin, committed=None if stored is None else begin)
    tracker.deliver(range(begin, begin + 30), begin + 30)
    engine.replace(tracker)
    engine.found(A, stored)
    for planned in plans:
        tracker.plan(planned)
    return engine


def asked(engine: CommitEngine, now: float = NOW) -> CommitRequest | None:
    """The commit that is due where somebody waits for the plans."""
    return engine.plan(now, wanted=list(engine.trackers.values()))


def sent(engine: CommitEngine, now: float = NOW) -> Committed:
    """That one, for the only partition."""
    plan = asked(engine, now)
    assert plan is not None
    (stored,) = plan.offsets.values()
    return stored


def store(engine: CommitEngine, now: float = NOW) -> Committed:
    """That one, and it succeeds."""
    plan = asked(engine, now)
    assert plan is not None
    engine.confirm(plan, now)
    return plan.offsets[A]


# -- the position has not moved


def test_plans_alone_are_due_when_somebody_asks_and_only_once() -> None:
    engine = engine_with(FIRST, stored=Committed(0))
    assert engine.plan(NOW) is None
    assert store(engine) == Committed(0, encode(0, (FIRST,)))
    assert asked(engine) is None
    assert not engine.lacks_plans(engine.trackers[A])


def test_what_was_on_its_way_when_a_partition_became_anothers_stores_no_plan_of_its_next_tracker() -> (
    None
):
    engine = engine_with(FIRST)
    plan = asked(engine)
    assert plan is not None
    engine.drop(A)
    tracker = OffsetTracker(A, 0)
    tracker.deliver(range(30), 30)
    tracker.plan(FIRST)
    engine.replace(tracker)
    engine.found(A, None)
    # Of others, that went with it.
    engine.confirm(plan, NOW)
    assert engine.lacks_plans(tracker)
    assert store(engine) == Committed(0, encode(0, (FIRST,)))


def test_where_nothing_is_stored_the_start_is() -> None:
    engine = engine_with(FIRST)
    assert engine.trackers[A].committed is None
    assert store(engine) == Committed(0, encode(0, (FIRST,)))
    assert engine.trackers[A].committed == 0


def test_without_plans_nothing_is_stored_for_them() -> None:
    assert asked(engine_with()) is None
    assert asked(engine_with(stored=Committed(5))) is None


def test_plans_of_an_earlier_owner_that_are_not_kept_are_wiped_out() -> None:
    engine = engine_with(stored=Committed(0, encode(0, (FIRST,))))
    assert store(engine) == Committed(0, "")


def test_plans_that_came_with_the_assignment_are_there_already() -> None:
    engine = engine_with(FIRST, stored=Committed(0, encode(0, (FIRST,))))
    assert asked(engine) is None


def test_only_those_that_are_asked_for_are_sent() -> None:
    engine = engine_with(FIRST)
    engine.begin(2, [A, B])
    for partition in (A, B):
        tracker = OffsetTracker(partition, 0)
        engine.replace(tracker)
        tracker.plan(FIRST)
    plan = engine.plan(NOW, wanted=[engine.trackers[B], engine.trackers[B]])
    assert plan is not None
    assert plan.offsets == {B: Committed(0, encode(0, (FIRST,)))}
    assert len(plan.due) == 1


def test_a_tracker_of_another_assignment_is_not_sent() -> None:
    engine = engine_with(FIRST)
    (tracker,) = engine.leave()
    engine.begin(2, [A])
    engine.replace(OffsetTracker(A, 0))
    assert engine.plan(NOW, wanted=[tracker]) is None


# -- the position moves


def test_a_position_takes_the_plans_beyond_it_along() -> None:
    engine = engine_with(FIRST, SECOND, PlannedRange(20, 30))
    tracker = engine.trackers[A]
    tracker.settle_range(0, 20)
    for planned in (FIRST, SECOND):
        tracker.plan_done(planned)
    assert store(engine) == Committed(20, encode(20, (PlannedRange(20, 30),)))
    tracker.settle_range(20, 30)
    tracker.plan_done(PlannedRange(20, 30))
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets == {A: Committed(30, "")}


def test_a_done_plan_goes_along_as_long_as_one_before_it_runs() -> None:
    engine = engine_with(FIRST, SECOND)
    tracker = engine.trackers[A]
    tracker.settle_range(10, 20)
    tracker.plan_done(SECOND)
    tracker.plan(third := PlannedRange(20, 30))
    assert store(engine) == Committed(0, encode(0, (FIRST, SECOND, third)))


def test_a_custom_position_inside_of_a_plan_is_put_before_it() -> None:
    engine = engine_with(FIRST, SECOND, strategy=Lagging(3))
    tracker = engine.trackers[A]
    tracker.settle_range(0, 20)
    for planned in (FIRST, SECOND):
        tracker.plan_done(planned)
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets == {A: Committed(10, encode(10, (SECOND,)))}


def test_latest_unsafe_commits_up_to_the_start_of_a_plan_that_runs() -> None:
    engine = engine_with(PlannedRange(5, 15), strategy=LatestCommits(1.0, is_unsafe=True))
    engine.trackers[A].settle(12)
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets == {A: Committed(5, encode(5, (PlannedRange(5, 15),)))}


# -- what is not ours


def test_foreign_text_stays_beside_the_position_where_it_was_found_and_goes_with_the_next() -> None:
    engine = engine_with(FIRST, SECOND, stored=Committed(0, "stage 3"))
    assert store(engine) == Committed(0, encode(0, (FIRST, SECOND), "stage 3"))
    tracker = engine.trackers[A]
    tracker.settle_range(0, 10)
    tracker.plan_done(FIRST)
    assert store(engine) == Committed(10, encode(10, (SECOND,)))


def test_a_users_string_in_our_envelope_stays_too() -> None:
    engine = engine_with(SECOND, stored=Committed(0, encode(0, (FIRST,), "stage 3")))
    assert store(engine) == Committed(0, encode(0, (SECOND,), "stage 3"))


def test_foreign_text_is_left_alone_where_nothing_is_planned() -> None:
    assert asked(engine_with(stored=Committed(0, "stage 3"))) is None


# -- failures


@pytest.mark.parametrize("is_unknown", [False, True])
def test_what_was_not_confirmed_is_not_stored(is_unknown: bool) -> None:
    engine = engine_with(FIRST, stored=Committed(0))
    for _ in range(3):
        plan = asked(engine)
        assert plan is not None
        assert plan.offsets == {A: Committed(0, encode(0, (FIRST,)))}
        engine.fail(plan, is_unknown=is_unknown)
        assert engine.lacks_plans(engine.trackers[A])


def test_the_old_plan_is_sent_again_after_a_new_one_of_unknown_outcome() -> None:
    engine = engine_with(FIRST, stored=Committed(0))
    store(engine)
    tracker = engine.trackers[A]
    parts = PlannedRange(0, 5, ((0, 10),)), PlannedRange(5, 10, ((0, 10),))
    tracker.replan(FIRST, *parts)
    plan = asked(engine)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    assert sent(engine).metadata == encode(0, parts)


def test_a_repeat_goes_over_a_late_commit_with_the_plans_of_then() -> None:
    engine = engine_with(FIRST, stored=Committed(0))
    late = asked(engine)
    assert late is not None
    engine.fail(late, is_unknown=True)
    store(engine)
    tracker = engine.trackers[A]
    tracker.plan(SECOND)
    repeat = engine.plan(NOW + REPEAT_AFTER_S)
    assert repeat is not None
    assert repeat.offsets == {A: Committed(0, encode(0, (FIRST, SECOND)))}
    engine.confirm(repeat, NOW + REPEAT_AFTER_S)
    assert not engine.lacks_plans(tracker)


def test_plans_do_not_take_the_group_back_behind_a_position_of_unknown_outcome() -> None:
    strategy = Lagging(0)
    engine = engine_with(stored=Committed(0), strategy=strategy)
    tracker = engine.trackers[A]
    tracker.settle_range(0, 10)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    strategy.is_idle = True
    tracker.plan(SECOND)
    assert store(engine) == Committed(10, encode(10, (SECOND,)))
    assert tracker.committed == 10


def test_a_strategy_that_commits_nothing_yet_does_not_hold_plans_up() -> None:
    engine = engine_with(SECOND, stored=Committed(0), strategy=Lagging(100))
    assert store(engine) == Committed(0, encode(0, (SECOND,)))


# -- seeks and assignments


def sought(engine: CommitEngine, there: int) -> OffsetTracker:
    """The tracker of a partition that is read from somewhere else, as a seek makes it."""
    stored = engine.stored(A)
    new = OffsetTracker(
        A, there, committed=stored if stored is not None and stored <= there else None
    )
    new.uncommitted_from = there
    engine.replace(new, stored)
    return new


def test_after_a_seek_a_doubt_from_before_takes_plans_to_no_other_position() -> None:
    engine = engine_with(stored=Committed(50))
    engine.trackers[A].settle_range(0, 10)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    new = sought(engine, 40)
    new.plan(PlannedRange(60, 70))
    assert store(engine) == Committed(50, encode(50, (PlannedRange(60, 70),)))
    # The place that was sought is not committed by itself.
    assert engine.repeat_at is None
    new.deliver(range(40, 45), 45)
    new.settle_range(0, 5)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.confirm(plan, NOW)
    assert engine.repeat_at == NOW + REPEAT_AFTER_S


def test_after_a_seek_plans_of_unknown_outcome_are_wiped_out() -> None:
    engine = engine_with(FIRST, stored=Committed(0))
    plan = asked(engine)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    sought(engine, 20)
    assert store(engine) == Committed(0, "")


@pytest.mark.parametrize("there", [5, 50, 200])
def test_after_a_seek_plans_are_stored_at_the_position_that_the_group_has(there: int) -> None:
    engine = engine_with(stored=Committed(100))
    new = sought(engine, there)
    new.plan(PlannedRange(300, 310))
    new.plan(PlannedRange(there, there + 10))
    beyond = (PlannedRange(200, 210),) if there == 200 else ()
    assert store(engine) == Committed(100, encode(100, (*beyond, PlannedRange(300, 310))))
    assert (new.committed, new.uncommitted_from) == (100 if there >= 100 else None, there)
    new.deliver(range(there, there + 20), there + 20)
    new.settle_range(0, 10)
    new.plan_done(PlannedRange(there, there + 10))
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets[A].offset == there + 10


def test_after_a_seek_back_a_plan_that_the_group_s_position_lies_inside_of_is_divided_there() -> (
    None
):
    engine = engine_with(stored=Committed(100))
    new = sought(engine, 90)
    new.plan(PlannedRange(90, 95))
    new.plan(PlannedRange(95, 120, ((80, 130),)))
    assert not engine.lacks_plans(new)
    assert engine.divide(new)
    parts = (PlannedRange(95, 100, ((80, 130),)), PlannedRange(100, 120, ((80, 130),)))
    assert new.plans == (PlannedRange(90, 95), *parts)
    assert not engine.divide(new)
    assert store(engine) == Committed(100, encode(100, parts[1:]))


def test_a_second_seek_does_not_forget_what_the_group_has() -> None:
    engine = engine_with(stored=Committed(50))
    sought(engine, 5)
    new = sought(engine, 100)
    new.plan(PlannedRange(100, 110))
    assert store(engine).offset == 50


def test_a_commit_that_was_on_its_way_during_a_seek_tells_what_the_group_has() -> None:
    engine = engine_with(stored=Committed(0))
    engine.trackers[A].settle_range(0, 10)
    on_its_way = engine.plan(NOW)
    assert on_its_way is not None
    new = sought(engine, 100)
    engine.confirm(on_its_way, NOW)
    new.plan(PlannedRange(100, 110))
    assert store(engine) == Committed(10, encode(10, (PlannedRange(100, 110),)))


def test_what_came_straight_back_keeps_its_plans_and_knows_what_is_stored() -> None:
    engine = engine_with(FIRST, stored=Committed(0))
    text = store(engine)
    (tracker,) = engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 0) is tracker
    engine.found(A, text)
    assert tracker.plans == (FIRST,)
    assert asked(engine) is None
    engine.leave()
    engine.begin(3, [A])
    assert engine.take_up(A, 0) is tracker
    # Somebody else has committed without them.
    engine.found(A, Committed(0, ""))
    assert store(engine) == text


def test_plans_that_a_late_commit_has_overwritten_are_stored_again_though_nobody_asks() -> None:
    engine = engine_with(stored=Committed(0))
    tracker = engine.trackers[A]
    tracker.settle_range(0, 1)
    late = engine.plan(NOW)
    assert late is not None
    engine.fail(late, is_unknown=True)
    tracker.plan(planned := PlannedRange(1, 10))
    # Its job runs.
    text = store(engine)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 1) is tracker
    # It has landed, over the plan.
    engine.found(A, late.offsets[A])
    again = engine.plan(NOW)
    assert again is not None
    assert again.offsets == {A: text} == {A: Committed(1, encode(1, (planned,)))}
    engine.confirm(again, NOW)
    assert engine.plan(NOW) is None


# -- all of it, against a model


class PipelineModel(RuleBasedStateMachine):
    """One owner after the other runs ranges of a partition, each range only after its plan was
    stored.

    What a range has written is known by the range. So whoever goes on from the group's position
    must find each range that ran beyond it, itself or as a wider one that failed. A commit may get
    lost, fail, or be stored late or unheard.
    """

    @initialize(behind=st.sampled_from([None, None, 3, 7]))
    def begin(self, behind: int | None) -> None:
        self.strategy = None if behind is None else Lagging(behind)
        self.generation = 0
        self.now = NOW
        self.log_end = 0
        self.stored: Committed | None = None
        self.settled: set[int] = set()
        # Offset -> the range under which it was written last.
        self.written: dict[int, tuple[int, int]] = {}
        self.late: list[Committed] = []
        # A late commit has landed, and none was stored since.
        self.is_upset = False
        # Its owner has found it so, and has not stored what is missing.
        self.is_unsaid = False
        self.has_sought = False
        self.start_anew()

    def start_anew(self) -> None:
        self.engine = CommitEngine(self.strategy)
        self.assign(self.engine)

    def assign(self, engine: CommitEngine) -> None:
        self.generation += 1
        engine.begin(self.generation, [A])
        stored = self.stored
        tracker = engine.take_up(A, None if stored is None else stored.offset)
        if tracker is None:
            begin = 0 if stored is None else stored.offset
            tracker = OffsetTracker(A, begin, committed=None if stored is None else begin)
            engine.replace(tracker)
            self.cut_at = begin
            for planned in self.planned():
                tracker.plan(planned)
            self.running: set[PlannedRange] = set()
        engine.found(A, stored)
        self.in_flight: CommitRequest | None = None
        self.tracker = tracker
        # The broker refuses what comes from an earlier generation.
        self.late = []

    def planned(self) -> Plans:
        if self.stored is None:
            return ()
        found = decode(self.stored.metadata, self.stored.offset)
        assert found.lost is None
        return found.plans

    # -- the work

    @rule(count=st.integers(1, 12), gap=st.integers(0, 3))
    def deliver(self, count: int, gap: int) -> None:
        start = self.tracker.position + (gap if self.tracker.position >= self.log_end else 0)
        self.tracker.deliver(range(start, start + count), start + count)
        if start > self.log_end:
            # There are no records.
            self.settled.update(range(self.log_end, start))
        self.log_end = max(self.log_end, start + count)

    @rule(size=st.integers(1, 8))
    def cut(self, size: int) -> None:
        """Plan the next records that are in no plan and have not been handled."""
        plans = self.tracker.plans
        start = max([self.cut_at, self.tracker.committable, *(one.until for one in plans)])
        until = min(start + size, self.tracker.position)
        if start < until:
            self.tracker.plan(PlannedRange(start, until))
            self.cut_at = until

    @rule(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=3))
    def start_jobs(self, sizes: list[int]) -> None:
        """As a dispatcher does it: read, cut, store the plans, and run."""
        self.deliver(sum(sizes), 0)
        for size in sizes:
            self.cut(size)
        if self.in_flight is None:
            self.send(stores=True, wait_s=0.0, is_last=False)
            self.answered()
        self.run()

    def answered(self) -> None:
        """What is on its way, if anything is, succeeds."""
        if self.in_flight is not None:
            self.answer("ok")

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def settle_some(self, data: st.DataObject) -> None:
        """Some records of a range are settled, and others not: nacks that are still being carried
        out.
        """
        planned = data.draw(st.sampled_from(sorted(self.running)))
        upto = data.draw(st.integers(planned.start, planned.until - 1))
        for index in range(self.tracker.base, self.tracker.base + self.tracker.window):
            if planned.start <= (
                offset := self.tracker.offset_of(index)
            ) < upto and self.tracker.settle(index):
                self.settled.add(offset)

    @rule()
    def mood(self) -> None:
        """A custom strategy may want nothing for a while."""
        if self.strategy is not None:
            self.strategy.is_idle = not self.strategy.is_idle

    @rule()
    def run(self) -> None:
        """Whatever is planned, stored and read runs, and writes."""
        if self.engine.lacks_plans(self.tracker) or self.engine.divide(self.tracker):
            return
        for planned in self.tracker.plans:
            if planned.until <= self.tracker.position and planned not in self.running:
                self.running.add(planned)
                self.written.update(
                    dict.fromkeys(
                        range(planned.start, planned.until), (planned.start, planned.until)
                    )
                )

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        planned = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(planned)
        for index in range(self.tracker.base, self.tracker.base + self.tracker.window):
            if planned.start <= self.tracker.offset_of(index) < planned.until:
                self.tracker.settle(index)
        self.settled.update(range(planned.start, planned.until))
        self.tracker.plan_done(planned)
        self.cut_at = max(self.cut_at, planned.until)

    @precondition(lambda self: any(one.until - one.start > 1 for one in self.running))
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        old = data.draw(
            st.sampled_from(sorted(one for one in self.running if one.until - one.start > 1))
        )
        self.running.remove(old)
        failed = (*old.failed, (old.start, old.until))
        middle = data.draw(st.integers(old.start + 1, old.until - 1))
        self.tracker.replan(
            old, PlannedRange(old.start, middle, failed), PlannedRange(middle, old.until, failed)
        )

    # -- commits

    @precondition(lambda self: self.in_flight is None)
    @rule(stores=st.booleans(), wait_s=st.sampled_from([0.0, 0.5, 2.0]), is_last=st.booleans())
    def send(self, stores: bool, wait_s: float, is_last: bool) -> None:
        self.now += wait_s
        self.in_flight = self.engine.plan(
            self.now, is_last=is_last, wanted=[self.tracker] if stores else []
        )

    @precondition(lambda self: self.in_flight is not None)
    @rule(outcome=st.sampled_from(["ok", "ok", "ok", "failed", "unheard", "late"]))
    def answer(self, outcome: str) -> None:
        plan, self.in_flight = self.in_flight, None
        assert plan is not None
        if outcome in ("ok", "unheard"):
            self.take(plan)
        elif outcome == "late":
            self.late.append(plan.offsets[A])
        if outcome == "ok":
            self.engine.confirm(plan, self.now)
            if plan.is_last and plan.repeated:
                # The assignment ends with it, and the broker refuses what comes after that.
                self.late.clear()
        else:
            self.engine.fail(plan, is_unknown=outcome != "failed")

    def take(self, plan: CommitRequest) -> None:
        """The broker stores it: here is what must hold for each."""
        (new,) = plan.offsets.values()
        missing = set(range(new.offset)) - self.settled
        may_be_back = self.is_upset or self.has_sought
        before = 0 if self.stored is None else self.stored.offset
        assert not missing or (self.stored is not None and new.offset <= before), (
            f"{new} passes {sorted(missing)[:5]}"
        )
        assert new.offset >= before or may_be_back, f"{new} goes back from {before}"
        found = decode(new.metadata, new.offset)
        assert found.lost is None
        assert found.plans == tuple(one for one in found.plans if one.start >= new.offset)
        self.stored = new
        self.is_upset = self.is_unsaid = False

    @precondition(lambda self: self.late)
    @rule()
    def land(self) -> None:
        self.stored = self.late.pop(0)
        self.is_upset = True

    # -- what happens to an owner

    @rule()
    def comes_straight_back(self) -> None:
        if self.in_flight is not None:
            self.answer("failed")
        self.engine.leave()
        self.check()
        self.assign(self.engine)
        # What has gone over the plans was read: nobody has to ask until they are stored again.
        if self.is_upset:
            self.is_unsaid, self.is_upset = self.engine.lacks_plans(self.tracker), False
        if self.is_unsaid:
            self.send(stores=False, wait_s=0.0, is_last=False)
            assert self.in_flight is not None
            assert decode(self.in_flight.due[0].text, self.in_flight.due[0].position).plans

    @rule()
    def crashes(self) -> None:
        self.check()
        self.start_anew()
        # Who reads a late commit cannot know better.
        if self.is_upset or self.is_unsaid or self.has_sought:
            self.written, self.is_upset, self.is_unsaid, self.has_sought = {}, False, False, False

    @rule(there=st.integers(0, 40), luck=st.integers(0, 9))
    def seek(self, there: int, luck: int) -> None:
        """Read from somewhere else, now and then: what was written there is written anew, the user
        wants it so.
        """
        if luck:
            return
        if self.in_flight is not None:
            self.answer("ok")
        there = min(there, self.log_end)
        new = sought(self.engine, there)
        self.settled.update(range(there))
        self.tracker, self.running, self.cut_at, self.written = new, set(), there, {}
        self.has_sought = True

    def check(self) -> None:
        """Whoever goes on from here finds what has run."""
        if self.is_upset or self.is_unsaid:
            return
        position, plans = 0 if self.stored is None else self.stored.offset, self.planned()
        for offset, wrote in self.written.items():
            if offset < position:
                continue
            holder = next((one for one in plans if one.start <= offset < one.until), None)
            assert holder is not None, (
                f"{offset} was written under {wrote}, and {plans} do not say so"
            )
            assert wrote in ((holder.start, holder.until), *holder.failed)

    @invariant()
    def positions_lie_in_no_plan(self) -> None:
        if not hasattr(self, "tracker"):
            return
        for position in (self.tracker.committable, self.tracker.highest):
            assert not any(one.start < position < one.until for one in self.tracker.plans)
        if self.stored is not None and not self.is_upset and not self.has_sought:
            assert not any(one.start < self.stored.offset < one.until for one in self.tracker.plans)

    def teardown(self) -> None:
        """With a broker that answers, everything gets stored, and late commits are gone over."""
        if not hasattr(self, "tracker"):
            return
        if self.in_flight is not None:
            self.answer("failed")
        while self.late:
            self.land()
        for _ in range(9):
            self.send(stores=True, wait_s=2.0, is_last=True)
            if self.in_flight is None:
                break
            self.answer("ok")
        assert self.in_flight is None, "it does not end"
        assert not self.engine.lacks_plans(self.tracker)
        if self.stored is not None and not self.has_sought:
            assert not self.is_upset
            assert not self.is_unsaid
            assert self.planned() == self.tracker.planned_beyond(self.stored.offset)
        self.check()


PipelineModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestPipelineModel = PipelineModel.TestCase
