"""The engine against a model of a broker that loses answers, and a group that takes partitions and gives them back."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka.commit.engine import CommitEngine, CommitPlan
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.records import Committed, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def engine_with(*partitions: TopicPartition, records: int = 3) -> CommitEngine:
    engine = CommitEngine()
    engine.begin(1, partitions)
    for partition in partitions:
        tracker = OffsetTracker(partition, 0)
        tracker.deliver(range(records), records)
        engine.add(tracker)
    return engine


def test_nothing_new_asks_for_no_request() -> None:
    engine = engine_with(A)
    assert engine.plan() is None
    engine.trackers[A].settle(1)
    assert engine.plan() is None


def test_only_partitions_that_moved_are_in_the_request() -> None:
    engine = engine_with(A, B)
    engine.trackers[A].settle_range(0, 2)
    plan = engine.plan()
    assert plan is not None
    assert plan.offsets == {A: Committed(2)}
    assert plan.generation == 1


def test_one_commit_is_in_flight_at_most() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    plan = engine.plan()
    engine.trackers[A].settle(1)
    assert engine.plan() is None
    assert plan is not None
    engine.confirm(plan)
    following = engine.plan()
    assert following is not None
    assert following.offsets == {A: Committed(2)}


def test_a_failed_commit_goes_out_again_with_the_position_of_then() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    plan = engine.plan()
    assert plan is not None
    engine.fail(plan)
    assert engine.trackers[A].committed is None
    engine.trackers[A].settle(1)
    again = engine.plan()
    assert again is not None
    assert again.offsets == {A: Committed(2)}


def test_a_failed_commit_goes_out_again_without_new_progress() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    plan = engine.plan()
    assert plan is not None
    engine.fail(plan)
    again = engine.plan()
    assert again is not None
    assert again.offsets == plan.offsets


def test_the_start_of_a_latest_reset_is_committed_before_any_record() -> None:
    engine = CommitEngine()
    engine.begin(1, [A])
    engine.add(OffsetTracker(A, 40, commit_start=True))
    plan = engine.plan()
    assert plan is not None
    assert plan.offsets == {A: Committed(40)}
    engine.confirm(plan)
    assert engine.plan() is None


def test_nothing_is_committed_after_a_revocation() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    engine.leave()
    assert tracker.settle(0)
    assert engine.plan() is None


def test_a_partition_that_comes_straight_back_keeps_its_tracker_and_its_acks() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    engine.leave()
    tracker.settle(0)
    assert engine.begin(2, [A]) == []
    assert engine.take_up(A, None) is tracker
    plan = engine.plan()
    assert plan is not None
    assert (plan.generation, plan.offsets) == (2, {A: Committed(1)})


def test_a_partition_that_was_elsewhere_in_between_starts_afresh() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    engine.leave()
    engine.begin(3, [A])
    assert engine.take_up(A, None) is None
    assert not tracker.settle(0)


def test_a_partition_whose_position_somebody_moved_starts_afresh() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    tracker.settle(0)
    plan = engine.plan()
    assert plan is not None
    engine.confirm(plan)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 2) is None
    assert not tracker.settle(1)


def test_a_commit_whose_answer_was_lost_is_ours_when_the_partition_comes_back() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    tracker.settle_range(0, 2)
    plan = engine.plan()
    assert plan is not None
    engine.fail(plan)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 2) is tracker
    assert tracker.committed == 2
    assert engine.plan() is None


def test_a_partition_that_is_not_in_the_next_assignment_is_closed() -> None:
    engine = engine_with(A, B)
    b = engine.trackers[B]
    engine.leave()
    assert engine.begin(2, [A]) == [b]
    assert not b.settle(0)


def test_an_assignment_without_a_revocation_before_it_commits_nothing_of_the_old_one() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.begin(2, [A])
    assert engine.plan() is None


class GroupModel(RuleBasedStateMachine):
    """One member of a group, driven by its engine; the broker checks what it is asked to store.

    The broker knows the generation, the owner, and which records have been settled by anybody.
    """

    @initialize()
    def begin(self) -> None:
        self.engine = CommitEngine()
        self.generation = 0
        self.owner = False
        self.stored: int | None = None
        self.settled: set[int] = set()  # offsets handled by us or by another owner
        self.log_end = 0
        self.plan: CommitPlan | None = None
        self.stale: list[OffsetTracker] = []

    # -- the broker

    def store(self, plan: CommitPlan) -> None:
        """The broker takes a commit: these are the invariants."""
        if plan.generation != self.generation or not self.owner:
            return  # refused: illegal generation
        for partition, position in plan.offsets.items():
            assert partition == A
            missing = set(range(position.offset)) - self.settled
            assert not missing, f"commit {position.offset} passes unsettled {sorted(missing)[:5]}"
            assert self.stored is None or position.offset >= self.stored, "the position went back"
            self.stored = position.offset

    # -- the group

    @precondition(lambda self: not self.owner)
    @rule(others=st.integers(0, 2), worked=st.integers(0, 3))
    def assigned(self, others: int, worked: int) -> None:
        """The partition comes: in the very next generation, or after others had it for some generations and worked."""
        self.generation += 1 + others
        if others:
            at = self.stored or 0
            upto = min(self.log_end, at + worked)
            self.settled.update(range(at, upto))
            self.stored = upto if upto > at else self.stored
        self.owner = True
        left = self.engine.left(A)
        self.engine.begin(self.generation, [A])
        tracker = self.engine.take_up(A, self.stored)
        if tracker is None:
            if left is not None:
                self.stale.append(left)
            self.engine.add(OffsetTracker(A, self.stored or 0, committed=self.stored))
        else:
            assert not others, "taken up although somebody else had it"

    @precondition(lambda self: self.owner)
    @rule()
    def revoked(self) -> None:
        self.engine.leave()
        self.owner = False

    @precondition(lambda self: not self.owner)
    @rule()
    def assigned_to_another(self) -> None:
        self.generation += 1
        left = self.engine.left(A)
        self.engine.begin(self.generation, [])
        if left is not None:
            self.stale.append(left)

    # -- the work

    @precondition(lambda self: self.owner)
    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        tracker = self.engine.trackers[A]
        start = tracker.position
        tracker.deliver(range(start, start + count), start + count)
        self.log_end = max(self.log_end, start + count)

    def tracker(self) -> OffsetTracker | None:
        return self.engine.trackers.get(A) or self.engine.left(A)

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        tracker = self.tracker()
        if tracker is None or not tracker.window:
            return
        index = data.draw(st.integers(tracker.base, tracker.base + tracker.window - 1))
        offset = tracker.offset_of(index)
        if tracker.settle(index):
            self.settled.add(offset)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def ack_late(self, data: st.DataObject) -> None:
        tracker = data.draw(st.sampled_from(self.stale))
        assert not tracker.settle(data.draw(st.integers(0, 20)))

    # -- the commits

    @precondition(lambda self: self.plan is None)
    @rule()
    def tick(self) -> None:
        self.plan = self.engine.plan()

    @precondition(lambda self: self.plan is not None)
    @rule()
    def succeeds(self) -> None:
        plan, self.plan = self.plan, None
        assert plan is not None
        if plan.generation == self.generation and self.owner:
            self.store(plan)
            self.engine.confirm(plan)
        else:
            self.engine.fail(plan)

    @precondition(lambda self: self.plan is not None)
    @rule(landed=st.booleans())
    def fails_or_is_unknown(self, landed: bool) -> None:
        plan, self.plan = self.plan, None
        assert plan is not None
        if landed:
            self.store(plan)
        self.engine.fail(plan)

    @invariant()
    def what_we_believe_committed_is_stored(self) -> None:
        if not hasattr(self, "engine") or not self.owner:
            return
        tracker = self.engine.trackers[A]
        assert tracker.committed is None or (self.stored is not None and tracker.committed <= self.stored)

    def teardown(self) -> None:
        """However it went, with a broker that answers everything settled gets committed."""
        if not hasattr(self, "engine") or not self.owner:
            return
        if self.plan is not None:
            self.fails_or_is_unknown(landed=False)
        tracker = self.engine.trackers[A]
        if tracker.window:
            self.settled.update(tracker.offset_of(i) for i in range(tracker.base, tracker.base + tracker.window))
            tracker.settle_range(tracker.base, tracker.base + tracker.window)
        plan = self.engine.plan()
        if plan is not None:
            self.store(plan)
            self.engine.confirm(plan)
        assert self.stored == (tracker.position or None)
        assert self.engine.plan() is None


GroupModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestGroupModel = GroupModel.TestCase
