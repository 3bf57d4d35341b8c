"""What stands beside a position: the user's strings and kept acks, through failures, rebalances and
crashes.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.commit.commit_engine import CommitRequest
from reactive_kafka.commit.strategy import CommitStrategy, LatestCommits, NoCommits
from reactive_kafka.errors import CommitRefusedError, NotOwnerError
from reactive_kafka.tracking.metadata.codec import LIMIT, Metadata, decode, encode, units
from reactive_kafka.tracking.metadata.pending import MetadataPolicy, last_before
from reactive_kafka.tracking.metadata.user import MetadataLimit
from reactive_kafka.tracking.plans import PlannedRange
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.commit.engines import CommitEngine
from tests.commit.test_plan_commits import Lagging
from tests.tracking.test_metadata_user import Model

NOW = 100.0
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def engine_with(
    stored: Committed | None = None,
    *,
    is_exact: bool = False,
    keeps_acks: bool = False,
    strategy: CommitStrategy | None = None,
    room: MetadataLimit | None = None,
) -> CommitEngine:
    """An engine with 30 records of one partition from the stored position on."""
    engine = CommitEngine(
        strategy,
        metadata=MetadataPolicy(
            is_exact=is_exact, keeps_acks=keeps_acks, room=room or MetadataLimit()
        ),
    )
    engine.begin(1, [A])
    track(engine, stored)
    return engine


def track(engine: CommitEngine, stored: Committed | None = None) -> OffsetTracker:
    begin = 0 if stored is None else stored.offset
    tracker = OffsetTracker(A, begin, committed=None if stored is None else begin)
    tracker.deliver(range(begin, begin + 30), begin + 30)
    engine.replace(tracker)
    engine.found(A, stored)
    return tracker


def ack(engine: CommitEngine, *offsets: int, metadata: str | None = None) -> None:
    """Settle records; the metadata is that of the last one."""
    tracker = engine.trackers[A]
    for offset in offsets:
        assert tracker.settle(offset - tracker.start)
    if metadata is not None:
        tracker.texts.supply(offsets[-1], metadata)


def store(engine: CommitEngine, now: float = NOW) -> Committed:
    """The commit that is due; it succeeds."""
    plan = engine.plan(now)
    assert plan is not None
    engine.confirm(plan, now)
    return plan.offsets[A]


def read(stored: Committed) -> Metadata:
    return decode(stored.metadata, stored.offset)


# -- the user's strings


def test_a_later_position_without_a_string_of_its_own_has_none() -> None:
    engine = engine_with(Committed(0, "found"))
    ack(engine, 0, metadata="mine")
    assert store(engine) == Committed(1, "mine")
    ack(engine, 1)
    assert store(engine) == Committed(2, "")


def test_what_was_found_stays_beside_the_unchanged_position_and_no_other() -> None:
    engine = engine_with(Committed(0, "found"))
    assert engine.plan(NOW) is None
    ack(engine, 0)
    assert store(engine) == Committed(1, "")


def test_a_string_that_moves_nothing_is_committed_with_the_unchanged_position_once() -> None:
    engine = engine_with(Committed(0, "found"))
    ack(engine, 5, metadata="of five")
    assert store(engine) == Committed(0, "of five")
    assert engine.plan(NOW) is None
    ack(engine, 0)
    assert store(engine) == Committed(1, "of five")
    ack(engine, 1)
    assert store(engine) == Committed(2, "")


def test_where_nothing_is_committed_a_string_is_stored_with_the_start() -> None:
    engine = engine_with()
    ack(engine, 5, metadata="of five")
    assert store(engine) == Committed(0, "of five")


def test_what_waits_for_a_new_position_is_not_used_up_by_ticks_before() -> None:
    engine = engine_with(Committed(0))
    assert engine.store_metadata(A, "later")
    assert engine.plan(NOW) is None
    ack(engine, 5, metadata="of five")
    assert engine.store_metadata(A, "latest")
    assert store(engine) == Committed(0, "of five")
    ack(engine, 0)
    assert store(engine) == Committed(1, "latest")


def test_a_commit_that_fails_uses_nothing_up() -> None:
    engine = engine_with(Committed(0))
    ack(engine, 0, metadata="mine")
    for is_unknown in (False, True):
        plan = engine.plan(NOW)
        assert plan is not None
        engine.fail(plan, is_unknown=is_unknown)
    ack(engine, 1)
    assert store(engine) == Committed(2, "mine")


def test_a_string_stays_beside_its_position_though_others_came_and_went_while_it_was_on_its_way() -> (
    None
):
    """With a cooperative client the next generation begins without a revocation of what is kept."""
    engine = engine_with(Committed(0))
    ack(engine, 0, metadata="mine")
    plan = engine.plan(NOW)
    assert plan is not None
    engine.begin(2, [])
    engine.confirm(plan, NOW)
    tracker = engine.trackers[A]
    tracker.plan(PlannedRange(1, 5))
    restated = engine.plan(NOW, wanted=[tracker])
    assert restated is not None
    assert (restated.offsets[A].offset, read(restated.offsets[A]).user) == (1, "mine")


def test_what_only_a_tick_commits_waits_for_one() -> None:
    engine = engine_with(Committed(0), strategy=LatestCommits(5.0))
    ack(engine, 5, metadata="of five")
    assert engine.plan(NOW, is_tick=False) is None
    assert store(engine) == Committed(0, "of five")


def test_exact_a_gap_of_the_log_does_not_part_a_string_from_its_position() -> None:
    engine = engine_with(Committed(0), is_exact=True)
    tracker = engine.trackers[A]
    ack(engine, *range(30), metadata="the last before the gap")
    tracker.deliver([40, 41], 42)
    engine.store_metadata(A, "newer")
    assert store(engine) == Committed(40, "the last before the gap")


def test_exact_a_string_is_not_replaced_by_a_newer_one_of_another_record() -> None:
    engine = engine_with(Committed(0), is_exact=True)
    ack(engine, 0, metadata="of zero")
    assert store(engine) == Committed(1, "of zero")
    ack(engine, 5, metadata="of five")
    assert engine.plan(NOW) is None
    ack(engine, 1)
    assert store(engine) == Committed(2, "of five")


def test_what_waits_outlives_a_seek_and_strings_of_acks_do_not() -> None:
    engine = engine_with(Committed(10))
    ack(engine, 15, metadata="of fifteen")
    engine.store_metadata(A, "later")
    tracker = OffsetTracker(A, 3)
    tracker.deliver(range(3, 30), 30)
    engine.replace(tracker, stored=10)
    assert engine.plan(NOW) is None
    ack(engine, 3)
    assert store(engine) == Committed(4, "later")


def test_a_string_may_come_before_reading_has_begun_and_not_before_or_after_the_assignment() -> (
    None
):
    engine = CommitEngine()
    assert not engine.store_metadata(A, "too early")
    engine.begin(1, [A])
    assert engine.store_metadata(A, "from a hook")
    assert not engine.store_metadata(B, "not ours")
    track(engine, Committed(0))
    ack(engine, 0)
    assert store(engine) == Committed(1, "from a hook")
    engine.leave()
    assert not engine.store_metadata(A, "too late")


def test_a_string_that_came_before_it_was_known_whether_a_partition_is_retained_outlives_another_revocation() -> (
    None
):
    engine = engine_with(Committed(0))
    engine.leave()
    engine.begin(2, [A])
    assert engine.store_metadata(A, "supplied while the broker was away")
    engine.leave()
    engine.begin(3, [A])
    assert engine.take_up(A, 0) is not None
    engine.found(A, Committed(0))
    ack(engine, 0)
    assert store(engine) == Committed(1, "supplied while the broker was away")


def test_what_came_before_another_member_can_have_had_the_partition_goes_with_no_later_position() -> (
    None
):
    engine = CommitEngine()
    engine.begin(1, [A])
    engine.store_metadata(A, "from a hook")
    engine.leave()
    engine.begin(3, [A])
    track(engine, Committed(0))
    ack(engine, 0)
    assert store(engine) == Committed(1, "")


def test_strings_of_a_partition_that_comes_straight_back_go_on_waiting() -> None:
    engine = engine_with(Committed(0))
    ack(engine, 5, metadata="of five")
    engine.leave()
    tracker = engine.left(A)
    assert tracker is not None
    engine.begin(2, [A])
    engine.store_metadata(A, "from a hook")
    assert engine.take_up(A, 0) is tracker
    engine.found(A, Committed(0))
    assert store(engine) == Committed(0, "of five")
    ack(engine, 0)
    assert store(engine) == Committed(1, "from a hook")


def test_a_string_that_was_stored_unheard_is_used_up_when_the_next_assignment_finds_it() -> None:
    engine = engine_with(Committed(0))
    ack(engine, 0, metadata="mine")
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    engine.leave()
    engine.begin(2, [A])
    assert engine.take_up(A, 1) is not None
    engine.found(A, Committed(1, "mine"))
    ack(engine, 1)
    assert store(engine) == Committed(2, "")


def test_under_ignore_strings_go_only_with_commits_that_somebody_asks_for() -> None:
    engine = engine_with(Committed(0), strategy=NoCommits())
    ack(engine, 0, 5, metadata="of five")
    assert engine.plan(NOW, is_last=True) is None
    plan = engine.plan_positions({A: 1})
    assert plan is not None
    assert plan.offsets == {A: Committed(1, "of five")}


# -- what is known


def test_what_is_known_to_be_stored() -> None:
    engine = CommitEngine()
    assert engine.metadata_of(A) is None
    engine.begin(1, [A])
    assert engine.metadata_of(A) is None
    track(engine)
    assert engine.metadata_of(A) == Committed(-1, "")
    ack(engine, 0, metadata="mine")
    plan = engine.plan(NOW)
    assert plan is not None
    assert engine.metadata_of(A) == Committed(-1, "")
    engine.confirm(plan, NOW)
    assert engine.metadata_of(A) == Committed(1, "mine")
    ack(engine, 1)
    unheard = engine.plan(NOW)
    assert unheard is not None
    engine.fail(unheard, is_unknown=True)
    assert engine.metadata_of(A) is None
    store(engine)
    assert engine.metadata_of(A) == Committed(2, "")
    engine.leave()
    assert engine.metadata_of(A) is None


def test_of_an_envelope_the_users_string_is_known() -> None:
    assert engine_with(Committed(0, encode(0, (), "rk1 of theirs"))).metadata_of(A) == Committed(
        0, "rk1 of theirs"
    )


# -- kept acks


def test_acks_above_the_position_go_with_it_and_then_with_the_unchanged_one() -> None:
    engine = engine_with(Committed(0), keeps_acks=True)
    ack(engine, 0, 2, 3, metadata="mine")
    first = store(engine)
    acks = read(first).acks
    assert (first.offset, read(first).user) == (1, "mine")
    assert acks is not None
    assert (list(acks.open), acks.until) == ([1], 4)
    assert engine.plan(NOW) is None
    ack(engine, 9)
    second = store(engine)
    acks = read(second).acks
    assert (second.offset, read(second).user) == (1, "mine")
    assert acks is not None
    assert (list(acks.open), acks.until) == ([1, 4, 5, 6, 7, 8], 10)


def test_without_anything_above_the_position_the_string_goes_out_untouched() -> None:
    engine = engine_with(Committed(0), keeps_acks=True)
    ack(engine, 0, 1, metadata="rather plain")
    assert store(engine) == Committed(2, "rather plain")


def test_foreign_text_is_left_alone_until_there_is_something_to_keep() -> None:
    engine = engine_with(Committed(0, "somebody else's"), keeps_acks=True)
    assert engine.plan(NOW, is_last=True) is None
    ack(engine, 4)
    assert read(store(engine)).user == "somebody else's"


def test_acks_at_position_0_of_a_group_that_has_none_are_kept() -> None:
    engine = engine_with(keeps_acks=True)
    ack(engine, 4)
    stored = store(engine)
    acks = read(stored).acks
    assert stored.offset == 0
    assert acks is not None
    assert list(acks.open) == [0, 1, 2, 3]


def test_a_nacked_record_is_not_done_before_its_strategy_is_carried_out() -> None:
    engine = engine_with(Committed(0), keeps_acks=True)
    tracker = engine.trackers[A]
    assert tracker.nack(2)
    ack(engine, 1, 3)
    acks = read(store(engine)).acks
    assert acks is not None
    assert list(acks.open) == [0, 2]
    assert tracker.settle_nacked(2)
    acks = read(store(engine)).acks
    assert acks is not None
    assert list(acks.open) == [0]


def test_acks_never_cost_the_users_string_its_place() -> None:
    engine = engine_with(Committed(0), keeps_acks=True)
    long = "x" * (LIMIT - 5)
    ack(engine, 4, metadata=long)
    assert store(engine) == Committed(0, long)
    assert engine.plan(NOW) is None


def test_behind_a_place_that_was_never_read_nothing_is_known_as_done() -> None:
    """After a seek forward the group's position is before everything that is tracked."""
    engine = engine_with(Committed(0), keeps_acks=True)
    tracker = OffsetTracker(A, 20)
    tracker.deliver(range(20, 30), 30)
    engine.replace(tracker, stored=0)
    ack(engine, 25)
    assert engine.plan(NOW) is None


def test_what_is_wide_is_cut_and_the_size_is_known_before() -> None:
    engine = CommitEngine(metadata=MetadataPolicy(keeps_acks=True))
    engine.begin(1, [A])
    tracker = OffsetTracker(A, 0)
    tracker.deliver(range(60_000), 60_000)
    engine.replace(tracker)
    engine.found(A, None)
    for index in range(1, 60_000, 2):
        tracker.settle(index)
    assert engine.metadata_units(tracker) == LIMIT
    stored = store(engine)
    acks = read(stored).acks
    assert units(stored.metadata) <= LIMIT
    assert acks is not None
    assert 20_000 < acks.until < 60_000


@pytest.mark.parametrize("done", [[1], [1, 2, 3, 20], range(1, 30, 3), range(1, 30)])
def test_the_size_that_is_told_is_enough(done: Iterable[int]) -> None:
    engine = engine_with(Committed(0), keeps_acks=True)
    ack(engine, *done, metadata="mine")
    told = engine.metadata_units(engine.trackers[A])
    assert units(store(engine).metadata) <= told <= LIMIT


# -- brokers that take less


def refuse(engine: CommitEngine, least: int) -> Committed:
    """Let a broker with a limit answer until it has stored something."""
    for _ in range(20):
        plan = engine.plan(NOW)
        assert plan is not None
        if units(plan.offsets[A].metadata) <= least:
            engine.confirm(plan, NOW)
            return plan.offsets[A]
        assert engine.takes_less(plan, [A])
    raise AssertionError("it does not end")


def test_a_broker_that_takes_less_gets_the_position_without_the_string() -> None:
    room = MetadataLimit()
    engine = engine_with(Committed(0), room=room)
    ack(engine, 0, metadata="x" * 600)
    assert refuse(engine, 500) == Committed(1, "")
    assert (room.dropped, room.least_refused) == (1, 600)
    assert room.warning is not None
    ack(engine, 1, metadata="y" * 400)
    assert refuse(engine, 500) == Committed(2, "y" * 400)
    ack(engine, 2)
    assert refuse(engine, 500) == Committed(3, "")
    assert room.dropped == 1


def test_a_string_that_does_not_fit_does_not_push_out_the_one_beside_the_unchanged_position() -> (
    None
):
    room = MetadataLimit()
    room.refused(100)
    engine = engine_with(Committed(0, "found"), room=room)
    ack(engine, 5, metadata="x" * 200)
    assert engine.plan(NOW) is None
    ack(engine, 0)
    assert store(engine) == Committed(1, "")
    assert room.dropped == 1


@pytest.mark.parametrize("least", [0, 10, 60, 200])
def test_a_broker_that_takes_less_gets_fewer_acks_and_nothing_counts_as_dropped(least: int) -> None:
    room = MetadataLimit()
    engine = CommitEngine(metadata=MetadataPolicy(keeps_acks=True, room=room or MetadataLimit()))
    engine.begin(1, [A])
    tracker = OffsetTracker(A, 0)
    tracker.deliver(range(6_000), 6_000)
    engine.replace(tracker)
    engine.found(A, None)
    for index in (0, *range(2, 6_000, 3)):
        tracker.settle(index)
    stored = refuse(engine, least)
    assert stored.offset == 1
    assert room.dropped == 0
    assert (read(stored).acks is not None) == (least > 30)


@given(
    least=st.integers(0, 120),
    plans=st.integers(0, 5),
    topic=st.sampled_from([None, "topic-id-of-orders", "other-id"]),
    user=st.text("x \N{GRINNING FACE}=t", max_size=40),
    keeps_acks=st.booleans(),
    tells_topic=st.booleans(),
)
def test_a_request_is_repeated_at_once_only_while_something_can_be_left_out(
    least: int, plans: int, topic: str | None, user: str, keeps_acks: bool, tells_topic: bool
) -> None:
    engine = CommitEngine(metadata=MetadataPolicy(keeps_acks=keeps_acks, tells_topic=tells_topic))
    engine.begin(1, [A])
    tracker = track(engine)
    if topic is not None:
        partition = engine.table.get(A)
        assert partition is not None
        partition.commits.metadata.reads_topic(topic)
    for number in range(plans):
        tracker.plan(PlannedRange(2 + 5 * number, 7 + 5 * number))
    ack(engine, 0, *range(10, 30, 2), metadata=user)
    lengths = []
    while (request := engine.plan(NOW)) is not None:
        text = request.offsets[A].metadata
        # Each one is shorter than the one before.
        assert not lengths or units(text) < lengths[-1]
        lengths.append(units(text))
        if units(text) <= least:
            break
        if not engine.takes_less(request, [A]):
            # Plans are needed, and stay.
            assert text == encode(1, tracker.planned_beyond(1))
            assert plans
            break
    assert lengths


# -- commits of given positions


def test_exactly_the_positions_that_are_asked_for_are_committed() -> None:
    engine = engine_with(Committed(0))
    ack(engine, *range(10), metadata="mine")
    plan = engine.plan_positions({A: 4})
    assert plan is not None
    assert plan.offsets == {A: Committed(4, "mine")}
    engine.confirm(plan, NOW)
    assert engine.trackers[A].committed == 4
    assert engine.plan_positions({A: 4}) is None
    assert store(engine) == Committed(10, "")


def test_an_equal_position_is_sent_again_with_a_string_that_waits() -> None:
    engine = engine_with(Committed(7))
    engine.store_metadata(A, "stage 2")
    plan = engine.plan_positions({A: 7})
    assert plan is not None
    assert plan.offsets == {A: Committed(7, "stage 2")}
    engine.confirm(plan, NOW)
    assert engine.plan_positions({A: 7}) is None


@pytest.mark.parametrize(
    ("position", "says"),
    [
        (4, "the record at offset 3 is not settled"),
        (30, "the record at offset 3 is not settled"),
        (1, "would go back from 2"),
    ],
)
def test_a_position_that_may_not_be_committed_is_refused(position: int, says: str) -> None:
    engine = engine_with(Committed(2))
    ack(engine, 2, 5)
    with pytest.raises(CommitRefusedError, match=says):
        engine.plan_positions({A: position})
    assert store(engine).offset == 3


def test_a_position_beyond_what_was_read_is_refused() -> None:
    engine = engine_with(Committed(0))
    ack(engine, *range(30))
    with pytest.raises(CommitRefusedError, match="records from 30 on have not been read"):
        engine.check_positions({A: 31})
    engine.check_positions({A: 30})


def test_after_a_seek_back_the_group_may_be_taken_back() -> None:
    engine = engine_with(Committed(10))
    engine.replace(OffsetTracker(A, 3), stored=10)
    plan = engine.plan_positions({A: 3})
    assert plan is not None
    engine.confirm(plan, NOW)
    assert engine.stored(A) == 3


def test_what_may_have_been_stored_is_not_gone_back_from() -> None:
    engine = engine_with(Committed(0))
    ack(engine, *range(10))
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    with pytest.raises(CommitRefusedError, match="back from 10, which may have been stored"):
        engine.check_positions({A: 5})


def test_partitions_of_others_and_what_is_no_offset_are_named() -> None:
    engine = engine_with(Committed(0))
    with pytest.raises(NotOwnerError, match="orders-1 is not ours"):
        engine.check_positions({A: 0, B: 0})
    for wrong in (-1, True, 1.5, "3"):
        with pytest.raises(ValueError, match="an offset from 0 on"):
            engine.check_positions({A: wrong})  # type: ignore[dict-item]
    engine.begin(2, [A, B])
    with pytest.raises(CommitRefusedError, match="reading has not begun"):
        engine.check_positions({B: 0})


# -- all of it, against a model


class GroupModel(RuleBasedStateMachine):
    """Owners of a partition ack in any order, with strings and without; the group must have what
    the rules say.

    A commit may fail, get lost, or be stored unheard. Whoever comes next takes up kept acks, as a
    reader does.
    """

    @initialize(
        is_exact=st.booleans(), keeps_acks=st.booleans(), behind=st.sampled_from([None, None, 3])
    )
    def begin(self, is_exact: bool, keeps_acks: bool, behind: int | None) -> None:
        self.is_exact, self.keeps_acks = is_exact, keeps_acks
        self.strategy = None if behind is None else Lagging(behind)
        self.now = NOW
        self.generation = 0
        self.log: list[int] = []
        self.stored: Committed | None = None
        # What nobody may get again.
        self.promised: set[int] = set()
        self.number = 0
        self.start_anew()

    def start_anew(self) -> None:
        beside = MetadataPolicy(is_exact=self.is_exact, keeps_acks=self.keeps_acks)
        self.engine = CommitEngine(self.strategy, metadata=beside)
        self.assign()

    def assign(self) -> None:
        self.generation += 1
        self.engine.begin(self.generation, [A])
        found = self.stored
        tracker = self.engine.take_up(A, None if found is None else found.offset)
        if tracker is None:
            begin = 0 if found is None else found.offset
            tracker = OffsetTracker(A, begin, committed=None if found is None else begin)
            self.engine.replace(tracker)
            self.model = Model(is_exact=self.is_exact)
            acks = read(found).acks if found is not None else None
            tracker.kept = acks if self.keeps_acks else None
            self.done = {
                offset for offset in self.log if offset < begin or (acks and acks.is_done(offset))
            }
        elif found is not None and self.unheard is not None and found.offset == self.unheard[0]:
            self.model.used = max(self.model.used, self.unheard[1])
            self.model.passed = max(self.model.passed, self.last(found.offset))
        self.engine.found(A, found)
        self.tracker = tracker
        self.in_flight: CommitRequest | None = None
        self.unheard: tuple[int, int] | None = None

    def last(self, position: int) -> int:
        return max((offset for offset in self.log if offset < position), default=position - 1)

    @rule(count=st.integers(1, 8), gap=st.integers(0, 3))
    def deliver(self, count: int, gap: int) -> None:
        if self.strategy is not None and self.is_exact:
            # A custom strategy may stay behind what the tracker knows of gaps: the newest goes
            # then.
            gap = 0
        at = self.tracker.position
        end = max(self.log[-1] + 1 if self.log else 0, at)
        self.log += [end + gap + number for number in range(count)]
        coming = [offset for offset in self.log if offset >= at][:count]
        kept = self.tracker.kept
        fresh = [offset for offset in coming if kept is None or not kept.is_done(offset)]
        assert not self.promised.intersection(fresh), "delivered again though its ack was kept"
        self.tracker.deliver(fresh, coming[-1] + 1)

    @precondition(lambda self: self.tracker.open)
    @rule(data=st.data(), has_text=st.booleans())
    def acks(self, data: st.DataObject, has_text: bool) -> None:
        tracker = self.tracker
        indexes = [
            index
            for index in range(tracker.base, tracker.base + tracker.window)
            if tracker.is_open(index)
        ]
        index = data.draw(st.sampled_from(indexes))
        offset = tracker.offset_of(index)
        assert tracker.settle(index)
        self.done.add(offset)
        if has_text:
            tracker.texts.supply(offset, text := self.next_text())
            self.model.all.append((offset, text))

    def next_text(self) -> str:
        self.number += 1
        return f"text {self.number}"

    @rule()
    def for_later(self) -> None:
        text = self.next_text()
        assert self.engine.store_metadata(A, text)
        self.model.all.append((None, text))

    # -- commits

    @precondition(lambda self: self.in_flight is None)
    @rule(wait_s=st.sampled_from([0.0, 0.5, 2.0]), is_tick=st.booleans(), is_last=st.booleans())
    def send(self, wait_s: float, is_tick: bool, is_last: bool) -> None:
        self.now += wait_s
        before = self.tracker.uncommitted_from
        plan = self.in_flight = self.engine.plan(self.now, is_tick=is_tick, is_last=is_last)
        if plan is not None:
            self.check(plan, is_new=plan.offsets[A].offset > before)

    @precondition(lambda self: self.in_flight is None)
    @rule(position=st.integers(0, 40))
    def send_position(self, position: int) -> None:
        self.tracker.compact()
        if self.is_exact and last_before(self.tracker, position) != self.last(position):
            # Before a gap that has left the window no record is known: the newest goes then.
            return
        stored = self.tracker.uncommitted_from
        try:
            plan = self.in_flight = self.engine.plan_positions({A: position})
        except CommitRefusedError:
            missing = [
                offset for offset in self.log if offset < position and offset not in self.done
            ]
            is_back = position < max(
                stored, self.tracker.attempted if self.engine.repeat_at is not None else 0
            )
            assert (
                missing
                or position > self.tracker.position
                or is_back
                or position < self.tracker.attempted
            )
            return
        if plan is not None:
            assert plan.offsets[A].offset == position
            self.check(plan, is_new=True)

    def check(self, plan: CommitRequest, *, is_new: bool) -> None:
        new = plan.offsets[A]
        assert {offset for offset in self.log if offset < new.offset} <= self.done
        due = self.model.due(self.last(new.offset), is_new=is_new)
        if due is None:
            there = (
                read(self.known)
                if self.known is not None and self.known.offset == new.offset
                else Metadata()
            )
            due = there.user
        assert read(new).user == due
        acks = read(new).acks
        above = {offset for offset in self.done if offset >= new.offset}
        if not self.keeps_acks:
            assert acks is None
        elif above:
            assert acks is not None
            assert {offset for offset in self.log if acks.is_done(offset)} == above
        self.sent_number = self.number_of(due) if is_new else 0

    def number_of(self, text: str) -> int:
        return next((at for at, (_, one) in enumerate(self.model.all, 1) if one == text), 0)

    @property
    def known(self) -> Committed | None:
        return self.stored

    @precondition(lambda self: self.in_flight is not None)
    @rule(outcome=st.sampled_from(["ok", "ok", "ok", "failed", "unheard", "lost"]))
    def answer(self, outcome: str) -> None:
        plan, self.in_flight = self.in_flight, None
        assert plan is not None
        new, is_new = plan.offsets[A], plan.due[0].is_new
        if outcome in ("ok", "unheard"):
            self.take(new)
        if outcome == "ok":
            self.engine.confirm(plan, self.now)
            if is_new:
                self.model.used = max(self.model.used, self.sent_number)
                self.model.passed = max(self.model.passed, self.last(new.offset))
            self.unheard = None
            assert self.engine.metadata_of(A) == Committed(new.offset, read(new).user)
        else:
            self.engine.fail(plan, is_unknown=outcome != "failed")
            if outcome == "unheard":
                self.unheard = (new.offset, self.sent_number)

    def take(self, new: Committed) -> None:
        acks = read(new).acks
        done = {
            offset
            for offset in self.log
            if offset < new.offset or (acks is not None and acks.is_done(offset))
        }
        assert not self.keeps_acks or self.promised <= done, "what was kept is not any more"
        self.promised = done if self.keeps_acks else set()
        self.stored = new

    # -- what happens to an owner

    @rule(data=st.data(), acks=st.booleans())
    def comes_straight_back(self, data: st.DataObject, acks: bool) -> None:
        if self.in_flight is not None:
            self.answer("failed")
        self.engine.leave()
        if acks and self.tracker.open:
            self.acks(data, True)
        self.assign()

    @rule()
    def crashes(self) -> None:
        self.start_anew()

    def teardown(self) -> None:
        """With a broker that answers, all that acks have brought is in the group, and then nothing
        is due.
        """
        if not hasattr(self, "tracker"):
            return
        if self.in_flight is not None:
            self.answer("failed")
        for _ in range(9):
            self.send(wait_s=2.0, is_tick=True, is_last=True)
            if self.in_flight is None:
                break
            self.answer("ok")
        assert self.in_flight is None, "it does not end"
        if self.stored is not None:
            due = self.model.due(self.last(self.stored.offset), is_new=False)
            assert due is None or read(self.stored).user == due


GroupModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestGroupModel = GroupModel.TestCase
