"""The engine against a model of a broker that loses answers, and a group that takes partitions and
gives them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.commit.commit_engine import CommitRequest
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import REPEAT_AFTER_S, UnknownCommits
from tests.commit.engines import CommitEngine

NOW = 100.0

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def engine_with(*partitions: TopicPartition, records: int = 3) -> CommitEngine:
    engine = CommitEngine()
    engine.begin(1, partitions)
    for partition in partitions:
        tracker = OffsetTracker(partition, 0)
        tracker.deliver(range(records), records)
        engine.replace(tracker)
    return engine


def test_nothing_new_asks_for_no_request() -> None:
    engine = engine_with(A)
    assert engine.plan(NOW) is None
    engine.trackers[A].settle(1)
    assert engine.plan(NOW) is None


def test_only_partitions_that_moved_are_in_the_request() -> None:
    engine = engine_with(A, B)
    engine.trackers[A].settle_range(0, 2)
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets == {A: Committed(2)}
    assert plan.generation == 1


def test_one_commit_is_in_flight_at_most() -> None:
    """Row A7 of the faults."""
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    plan = engine.plan(NOW)
    engine.trackers[A].settle(1)
    assert engine.plan(NOW) is None
    assert plan is not None
    engine.confirm(plan, NOW)
    following = engine.plan(NOW)
    assert following is not None
    assert following.offsets == {A: Committed(2)}


def test_a_failed_commit_goes_out_again_with_the_position_of_then() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=False)
    assert engine.trackers[A].committed is None
    engine.trackers[A].settle(1)
    again = engine.plan(NOW)
    assert again is not None
    assert again.offsets == {A: Committed(2)}


def test_a_failed_commit_goes_out_again_without_new_progress() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=False)
    again = engine.plan(NOW)
    assert again is not None
    assert again.offsets == plan.offsets


def test_the_start_of_a_latest_reset_is_committed_before_any_record() -> None:
    engine = CommitEngine()
    engine.begin(1, [A])
    engine.replace(OffsetTracker(A, 40, commit_start=True))
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets == {A: Committed(40)}
    engine.confirm(plan, NOW)
    assert engine.plan(NOW) is None


def test_nothing_is_committed_after_a_revocation() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    engine.leave()
    assert tracker.settle(0)
    assert engine.plan(NOW) is None


def test_a_partition_that_comes_straight_back_keeps_its_tracker_and_its_acks() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    engine.leave()
    tracker.settle(0)
    assert engine.begin(2, [A]) == []
    assert engine.take_up(A, None) is tracker
    assert engine.all_trackers() == [tracker]
    plan = engine.plan(NOW)
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
    """Row C11 of the faults."""
    engine = engine_with(A)
    tracker = engine.trackers[A]
    tracker.settle(0)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.confirm(plan, NOW)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 2) is None
    assert not tracker.settle(1)


def test_a_commit_whose_answer_was_lost_is_ours_when_the_partition_comes_back() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    tracker.settle_range(0, 2)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 2) is tracker
    assert tracker.committed == 2
    assert engine.plan(NOW) is None


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
    assert engine.plan(NOW) is None


# -- somewhere else in the log


def seeked(
    *, committed: int | None, stored: int | None, to: int
) -> tuple[CommitEngine, OffsetTracker]:
    """A partition whose reading goes on at *to*, with records from there on; the group has
    *stored*.
    """
    engine = engine_with(A)
    tracker = OffsetTracker(A, to, committed=committed)
    tracker.deliver(range(to, to + 5), to + 5)
    engine.replace(tracker, stored)
    return engine, tracker


def test_after_a_seek_back_commits_go_on_from_the_new_place() -> None:
    for committed, stored in ((100, None), (None, 100)):
        engine, tracker = seeked(committed=committed, stored=stored, to=50)
        assert engine.plan(NOW) is None
        tracker.settle(0)
        plan = engine.plan(NOW)
        assert plan is not None
        assert plan.offsets == {A: Committed(51)}
        assert engine.confirm(plan, NOW) == [(tracker, 51)]
        assert tracker.committed == 51


def test_after_a_seek_back_a_partition_that_comes_straight_back_is_as_we_left_it() -> None:
    for committed, stored in ((100, None), (None, 100)):
        for landed, found in ((False, 100), (True, 51)):
            engine, tracker = seeked(committed=committed, stored=stored, to=50)
            tracker.settle(0)
            plan = engine.plan(NOW)
            assert plan is not None
            engine.fail(plan, is_unknown=landed)
            engine.leave()
            engine.begin(2, [A])
            assert engine.take_up(A, found) is tracker


def test_after_a_seek_back_a_position_that_is_not_ours_starts_afresh() -> None:
    engine, _ = seeked(committed=None, stored=100, to=50)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 70) is None


def test_after_a_commit_from_the_new_place_the_old_position_is_not_ours_any_more() -> None:
    engine, tracker = seeked(committed=None, stored=100, to=50)
    tracker.settle(0)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.confirm(plan, NOW)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 100) is None


def test_the_confirmation_of_a_commit_from_the_old_place_moves_nothing() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle_range(0, 3)
    plan = engine.plan(NOW)
    assert plan is not None
    new = OffsetTracker(A, 1)
    engine.replace(new, 0)
    assert engine.confirm(plan, NOW) == []
    assert new.committed is None


def test_what_was_left_can_be_dropped_for_another_place() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    engine.leave()
    engine.begin(2, [A])
    assert engine.drop_left(A) is tracker
    assert tracker.is_closed
    assert engine.drop_left(A) is None
    assert engine.take_up(A, None) is None


def test_without_a_group_what_was_left_always_comes_straight_back() -> None:
    engine = CommitEngine(is_static=True)
    engine.begin(0, [A])
    tracker = OffsetTracker(A, 0)
    engine.replace(tracker)
    engine.leave()
    engine.begin(0, [A])
    assert engine.take_up(A, 7) is tracker


# -- commits of unknown outcome


def reads_on(engine: CommitEngine, position: int, committed: int | None) -> None:
    """A client without a group reads A from a position on, up to 100."""
    engine.begin(0, [A])
    tracker = OffsetTracker(A, position, committed=committed)
    tracker.deliver(range(position, 100), 100)
    engine.replace(tracker, committed)


def plan_of(engine: CommitEngine, now: float) -> CommitRequest:
    plan = engine.plan(now)
    assert plan is not None
    return plan


def ends_doubts(engine: CommitEngine, now: float) -> list[float]:
    """Store whatever is to be sent from *now* on: when that was."""
    sent = []
    while (at := engine.repeat_at) is not None:
        sent.append(max(at, now))
        engine.confirm(plan_of(engine, sent[-1]), sent[-1])
    assert engine.plan(1e9) is None
    return sent


def test_the_first_commit_that_succeeds_after_an_unknown_one_is_sent_again_at_growing_intervals() -> (
    None
):
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.trackers[A].settle(1)
    engine.confirm(plan_of(engine, 5.0), 5.5)
    assert engine.repeat_at == 5.5 + REPEAT_AFTER_S
    assert engine.plan(6.0) is None
    again = plan_of(engine, 6.5)
    assert again.offsets == {A: Committed(2)}
    engine.confirm(again, 6.5)
    assert ends_doubts(engine, 0.0) == [7.5, 9.5, 13.5, 21.5, 37.5, 65.5]


def test_the_commit_that_is_repeated_takes_new_progress_along() -> None:
    engine = engine_with(A, B)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    engine.trackers[A].settle(1)
    engine.trackers[B].settle(0)
    engine.confirm(plan_of(engine, 10.0), 10.0)
    assert engine.plan(14.9) is None
    assert ends_doubts(engine, 0.0) == [15.0, 25.0, 45.0, 65.0]


def test_what_may_have_landed_late_is_ours_when_the_partition_comes_back() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    tracker.settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    tracker.settle(1)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 1) is tracker
    assert plan_of(engine, 6.0).offsets == {A: Committed(2)}


def test_a_repeated_commit_that_fails_is_sent_again() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    engine.fail(plan_of(engine, 10.0), is_unknown=False)
    engine.confirm(plan_of(engine, 15.0), 15.0)
    assert ends_doubts(engine, 0.0) == [25.0, 45.0, 65.0]


def test_a_repeated_commit_of_unknown_outcome_is_sent_again_though_nothing_is_new() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    engine.fail(plan_of(engine, 6.0), is_unknown=True)
    again = plan_of(engine, 10.0)
    assert again.offsets == {A: Committed(1)}
    engine.confirm(again, 10.0)
    assert engine.repeat_at == 10.0 + REPEAT_AFTER_S
    assert ends_doubts(engine, 0.0)[-1] == 70.0


def test_a_commit_that_failed_for_sure_is_not_repeated() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=False)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    assert engine.plan(10.0, is_last=True) is None


def test_an_unknown_commit_of_an_earlier_generation_is_nothing_to_fear() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 1) is not None
    engine.trackers[A].settle(1)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    assert engine.plan(10.0, is_last=True) is None


def test_an_unknown_commit_of_a_partition_that_stays_is_feared_in_the_next_generation() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.trackers[A].settle(1)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    # It has landed here, in the old generation.
    engine.begin(2, [B])
    again = plan_of(engine, 6.0)
    assert again.generation == 2
    assert again.offsets == {A: Committed(2)}
    engine.confirm(again, 6.0)
    assert ends_doubts(engine, 0.0)[-1] == 65.0


def test_the_answer_to_a_request_counts_after_a_rebalance_if_its_partitions_stay() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    request = plan_of(engine, 0.0)
    engine.begin(2, [B])
    engine.trackers[A].settle(1)
    # It is on its way, and a second one could overtake it.
    assert engine.plan(1.0) is None
    engine.fail(request, is_unknown=True)
    engine.confirm(plan_of(engine, 2.0), 2.0)
    assert ends_doubts(engine, 0.0)[-1] == 62.0


def test_a_request_on_its_way_may_be_stored_late_for_what_stays_when_others_go() -> None:
    engine = engine_with(A, B)
    engine.trackers[A].settle(0)
    engine.trackers[B].settle(0)
    plan_of(engine, 0.0)
    engine.table.revoke([B])
    engine.begin(2, [])
    engine.trackers[A].settle(1)
    engine.confirm(plan_of(engine, 1.0), 1.0)
    assert ends_doubts(engine, 0.0)[-1] == 61.0


def test_without_a_group_an_unknown_commit_outlives_its_client_and_the_last_commit() -> None:
    unanswered = dict[TopicPartition, UnknownCommits]()
    engine = CommitEngine(is_static=True, unanswered=unanswered)
    reads_on(engine, 0, None)
    engine.trackers[A].settle_range(0, 2)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    last = engine.plan(6.0, is_last=True)
    assert last is not None
    engine.confirm(last, 6.0)
    engine.leave()
    engine.close()
    following = CommitEngine(is_static=True, unanswered=unanswered)
    reads_on(following, 2, 2)
    again = plan_of(following, 10.0)
    assert again.offsets == {A: Committed(2)}
    following.confirm(again, 10.0)
    assert ends_doubts(following, 0.0)[-1] == 70.0


def test_without_a_group_a_request_without_an_answer_at_the_end_counts_as_unknown() -> None:
    unanswered = dict[TopicPartition, UnknownCommits]()
    engine = CommitEngine(is_static=True, unanswered=unanswered)
    reads_on(engine, 0, None)
    engine.trackers[A].settle(0)
    plan_of(engine, 0.0)
    engine.leave()
    engine.close()
    following = CommitEngine(is_static=True, unanswered=unanswered)
    reads_on(following, 1, None)
    following.trackers[A].settle(0)
    following.confirm(plan_of(following, 10.0), 10.0)
    assert following.repeat_at == 10.0 + REPEAT_AFTER_S


def test_a_client_that_goes_on_behind_the_group_does_not_commit_before_its_first_record() -> None:
    """The application had sought back, and was started again."""
    unanswered = {A: UnknownCommits(is_fenced=False)}
    unanswered[A].add(3, is_repeated=False)
    engine = CommitEngine(is_static=True, unanswered=unanswered)
    engine.begin(0, [A])
    tracker = OffsetTracker(A, 1)
    tracker.deliver([1, 2], 3)
    engine.replace(tracker, 3)
    assert engine.plan(10.0) is None
    tracker.settle(0)
    assert plan_of(engine, 15.0).offsets == {A: Committed(2)}


def test_a_seek_back_is_not_held_up_by_an_unknown_commit_of_the_old_place() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle_range(0, 3)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    tracker = OffsetTracker(A, 1, committed=3)
    tracker.deliver([1, 2], 3)
    tracker.settle(0)
    engine.replace(tracker)
    assert plan_of(engine, 5.0).offsets == {A: Committed(2)}


def test_after_a_seek_it_is_the_new_place_that_is_sent_once_more() -> None:
    engine = engine_with(A)
    engine.trackers[A].settle_range(0, 3)
    engine.fail(plan_of(engine, 0.0), is_unknown=True)
    engine.confirm(plan_of(engine, 5.0), 5.0)
    tracker = OffsetTracker(A, 1)
    tracker.deliver([1, 2], 3)
    engine.replace(tracker, 3)
    assert engine.plan(10.0) is None
    tracker.settle(0)
    engine.confirm(plan_of(engine, 15.0), 15.0)
    again = plan_of(engine, 20.0)
    assert again.offsets == {A: Committed(2)}


@dataclass
class LateBroker:
    """Stores what it is sent; a request of unknown outcome may land later, but not behind two that
    succeeded.
    """

    stored: int | None = None
    # Position, requests that succeeded since.
    on_their_way: list[list[int]] = field(default_factory=list)

    def take(self, position: int) -> None:
        """A request succeeds; what could not land after it lands before it."""
        for late in list(self.on_their_way):
            if late[1]:
                self.land(late)
            late[1] += 1
        self.stored = position

    def land(self, late: list[int]) -> None:
        self.on_their_way.remove(late)
        self.stored = late[0]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 6),
            st.integers(0, 3),
            st.sampled_from(
                ["ok", "ok", "failed", "unknown: stored", "unknown: lost", "unknown: late", "lands"]
            ),
        ),
        max_size=30,
    )
)
def test_however_late_an_unknown_commit_lands_the_last_position_is_the_one_that_stays(
    steps: list[tuple[float, int, str]],
) -> None:
    engine, broker, now = engine_with(A, records=100), LateBroker(), 0.0
    tracker = engine.trackers[A]
    for wait_s, settles, outcome in steps:
        now += wait_s
        tracker.settle_range(tracker.base, tracker.base + settles)
        if outcome == "lands":
            if broker.on_their_way:
                broker.land(broker.on_their_way[0])
            continue
        plan = engine.plan(now)
        if plan is not None:
            position = plan.offsets[A].offset
            if outcome == "ok":
                broker.take(position)
                engine.confirm(plan, now)
                continue
            if outcome == "unknown: stored":
                broker.stored = position
            elif outcome == "unknown: late":
                broker.on_their_way.append([position, 0])
            engine.fail(plan, is_unknown=outcome != "failed")
    requests = 0
    while (plan := engine.plan(now, is_last=True)) is not None:
        broker.take(plan.offsets[A].offset)
        engine.confirm(plan, now)
        requests += 1
    assert requests <= 2
    for late in list(broker.on_their_way):
        broker.land(late)
    assert broker.stored == (tracker.committable or None)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 6),
            st.integers(0, 3),
            st.sampled_from(["ok", "ok", "failed", "unknown: stored", "unknown: late", "restart"]),
        ),
        max_size=30,
    )
)
def test_without_a_group_what_lands_late_of_any_client_moves_nothing_back_for_good(
    steps: list[tuple[float, int, str]],
) -> None:
    unanswered = dict[TopicPartition, UnknownCommits]()
    engine = CommitEngine(is_static=True, unanswered=unanswered)
    reads_on(engine, 0, None)
    stored: int | None = None
    late = list[int]()
    now = 0.0
    for wait_s, settles, outcome in steps:
        now += wait_s
        tracker = engine.trackers[A]
        if outcome == "restart":
            position = tracker.committable
            engine.leave()
            engine.close()
            engine = CommitEngine(is_static=True, unanswered=unanswered)
            reads_on(engine, position, stored)
            continue
        tracker.settle_range(tracker.base, tracker.base + settles)
        plan = engine.plan(now)
        if plan is None:
            continue
        position = plan.offsets[A].offset
        assert stored is None or position >= stored
        if outcome in ("ok", "unknown: stored"):
            stored = position
        if outcome == "ok":
            engine.confirm(plan, now)
            continue
        if outcome == "unknown: late":
            late.append(position)
        engine.fail(plan, is_unknown=outcome != "failed")
    # What comes last is stored, and only then all that is late lands.
    tracker = engine.trackers[A]
    tracker.settle(tracker.base)
    engine.confirm(plan_of(engine, now), now)
    stored = min([tracker.committable, *late])
    while (at := engine.repeat_at) is not None:
        now = max(now, at)
        plan = plan_of(engine, now)
        engine.confirm(plan, now)
        stored = plan.offsets[A].offset
    assert stored == tracker.committable


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
        # Offsets handled by us or by another owner.
        self.settled: set[int] = set()
        self.log_end = 0
        self.plan: CommitRequest | None = None
        self.stale: list[OffsetTracker] = []

    # -- the broker

    def store(self, plan: CommitRequest) -> None:
        """The broker takes a commit: these are the invariants."""
        if plan.generation != self.generation or not self.owner:
            # refused: illegal generation.
            return
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
        """The partition comes: in the very next generation, or after others had it for some
        generations and worked.
        """
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
            self.engine.replace(OffsetTracker(A, self.stored or 0, committed=self.stored))
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
        self.plan = self.engine.plan(NOW)

    @precondition(lambda self: self.plan is not None)
    @rule()
    def succeeds(self) -> None:
        plan, self.plan = self.plan, None
        assert plan is not None
        if plan.generation == self.generation and self.owner:
            self.store(plan)
            self.engine.confirm(plan, NOW)
        else:
            self.engine.fail(plan, is_unknown=False)

    @precondition(lambda self: self.plan is not None)
    @rule(landed=st.booleans())
    def fails_or_is_unknown(self, landed: bool) -> None:
        plan, self.plan = self.plan, None
        assert plan is not None
        if landed:
            self.store(plan)
        self.engine.fail(plan, is_unknown=landed)

    @invariant()
    def what_we_believe_committed_is_stored(self) -> None:
        if not hasattr(self, "engine") or not self.owner:
            return
        tracker = self.engine.trackers[A]
        assert tracker.committed is None or (
            self.stored is not None and tracker.committed <= self.stored
        )

    @invariant()
    def what_rests_has_nothing_that_could_be_due(self) -> None:
        one = self.engine.table.get(A) if hasattr(self, "engine") else None
        if one is None or one.live is None or not one.commits.rests(one.live):
            return
        assert self.engine.reached(one.live) <= one.live.uncommitted_from
        assert not one.commits.unknown
        assert not one.commits.metadata.lost_plans
        assert one.commits.restated(one.live) is None

    def teardown(self) -> None:
        """However it went, with a broker that answers everything settled gets committed."""
        if not hasattr(self, "engine") or not self.owner:
            return
        if self.plan is not None:
            self.fails_or_is_unknown(landed=False)
        tracker = self.engine.trackers[A]
        if tracker.window:
            self.settled.update(
                tracker.offset_of(i) for i in range(tracker.base, tracker.base + tracker.window)
            )
            tracker.settle_range(tracker.base, tracker.base + tracker.window)
        plan = self.engine.plan(NOW)
        if plan is not None:
            self.store(plan)
            self.engine.confirm(plan, NOW)
        assert self.stored == (tracker.position or None)
        again = self.engine.plan(NOW, is_last=True)
        if again is not None:
            self.engine.confirm(again, NOW)
        assert self.engine.plan(NOW, is_last=True) is None


GroupModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestGroupModel = GroupModel.TestCase
