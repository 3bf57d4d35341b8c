"""The states of a partition, and a table of partitions against a model of a group that takes and
gives them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reactive_kafka import TopicPartition
from reactive_kafka.partitions.partition import (
    COMMITTING,
    OURS,
    PENDING,
    TRANSITIONS,
    IllegalStateError,
    PartitionState,
)
from reactive_kafka.partitions.start_choice import StartChoice
from reactive_kafka.partitions.table import PartitionTable
from tests.partitions.reading import lone_partition
from tests.tracking.values import tracker_of

NAMES = [TopicPartition("orders", number) for number in range(4)]
A, B, *_ = NAMES
EVENTS = sorted({event for events in TRANSITIONS.values() for event in events})


def started(table: PartitionTable, name: TopicPartition, position: int = 0) -> Any:
    """Read a partition that was assigned."""
    one = table.get(name)
    assert one is not None
    tracker = tracker_of(name, position)
    table.start(one, tracker)
    table.move(one, "read")
    return tracker


@given(
    st.sampled_from(sorted(PartitionState, key=lambda state: state.name)),
    st.sampled_from([*EVENTS, "no such event"]),
)
def test_an_event_that_has_no_place_raises_and_changes_nothing(
    state: PartitionState, event: str
) -> None:
    one = lone_partition(A)
    one.state = state
    if event in TRANSITIONS[state]:
        one.go(event)
        assert one.state is TRANSITIONS[state][event]
    else:
        with pytest.raises(
            IllegalStateError, match=f"orders-0 is {state.name}: '{event}' cannot come now"
        ):
            one.go(event)
        assert one.state is state


def test_every_state_is_reached_and_only_what_has_gone_is_left_by_nothing() -> None:
    reached = {to for events in TRANSITIONS.values() for to in events.values()} | {
        PartitionState.ASSIGNED
    }
    assert reached == set(PartitionState) == TRANSITIONS.keys()
    assert [state for state, events in TRANSITIONS.items() if not events] == [PartitionState.GONE]


def test_a_partition_is_always_let_go_by_a_revocation_or_a_loss() -> None:
    for state in PartitionState:
        ways = TRANSITIONS[state]
        assert state is PartitionState.GONE or "lose" in ways
        assert ("revoke" in ways) == (state in OURS)


def test_what_is_committed_or_waits_to_be_read_is_ours() -> None:
    assert COMMITTING < OURS
    assert PENDING < OURS
    assert PartitionState.SUSPENDED not in OURS


def test_a_revocation_names_its_partitions_and_leaves_the_others_alone() -> None:
    table = PartitionTable()
    table.assign(1, [A, B])
    trackers = {name: started(table, name) for name in (A, B)}
    assert [one.id for one in table.drain([A])] == [A]
    assert [one.id for one in table.reading] == [B]
    assert [one.id for one in table.revoke([A])] == [A]
    assert table.trackers == {B: trackers[B]}
    assert table.ours == {B}


def test_an_assignment_names_what_it_brings_and_leaves_the_others_alone() -> None:
    table = PartitionTable()
    table.assign(1, [A])
    tracker = started(table, A)
    tracker.deliver(range(3), 3)
    assert table.assign(2, [B]) == []
    assert table.trackers == {A: tracker}
    assert tracker.settle(0)
    assert table.generation == 2


def test_what_was_revoked_and_is_not_in_the_next_assignment_has_gone() -> None:
    table = PartitionTable()
    table.assign(1, [A, B])
    tracker = started(table, A)
    started(table, B)
    table.revoke([A])
    (gone,) = table.assign(2, [])
    assert (gone.id, gone.state, tracker.is_closed) == (A, PartitionState.GONE, True)
    assert table.get(A) is None
    assert table.ours == {B}


def test_a_partition_that_moved_away_and_came_back_is_not_retained() -> None:
    table = PartitionTable()
    table.assign(1, [A, B])
    tracker = started(table, A)
    table.revoke([A])
    table.assign(2, [])
    table.assign(3, [A])
    one = table.get(A)
    assert one is not None
    assert one.tracker is None
    assert tracker.is_closed


@pytest.mark.parametrize("drains", [True, False])
def test_a_partition_without_a_tracker_is_forgotten_by_the_next_assignment(drains: bool) -> None:
    table = PartitionTable()
    table.assign(1, [A])
    if drains:
        assert table.drain([A]) == []
    assert table.revoke([A]) == []
    assert table.ours == frozenset()
    (gone,) = table.assign(2, [])
    assert (gone.id, gone.tracker) == (A, None)
    assert table.get(A) is None


@pytest.mark.parametrize("drains", [True, False])
@pytest.mark.parametrize(("generation", "later"), [(2, "mine"), (3, None)])
def test_a_string_waits_for_the_start_of_reading_while_nobody_else_can_have_had_the_partition(
    drains: bool, generation: int, later: str | None
) -> None:
    table = PartitionTable()
    table.assign(1, [A])
    one = table.get(A)
    assert one is not None
    assert one.store_metadata("mine")
    if drains:
        table.drain([A])
    table.revoke([A])
    table.assign(generation, [A])
    assert started(table, A).texts.later == later


class IncrementalGroup(RuleBasedStateMachine):
    """A group that moves some partitions and leaves the others, beside the table of one of its
    members.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = PartitionTable()
        self.generation = 0
        self.ours: set[TopicPartition] = set()
        # Since the generation.
        self.revoked: dict[TopicPartition, int] = {}
        self.live: dict[TopicPartition, Any] = {}
        self.closed: list[Any] = []

    @initialize(partitions=st.sets(st.sampled_from(NAMES)))
    def join(self, partitions: set[TopicPartition]) -> None:
        self.assign(partitions)

    @rule(partitions=st.sets(st.sampled_from(NAMES)))
    def assign(self, partitions: set[TopicPartition]) -> None:
        added = partitions - self.ours
        self.generation += 1
        for one in self.table.assign(self.generation, added):
            assert one.id not in added
            if one.tracker is not None:
                self.closed.append(one.tracker)
        self.ours |= added
        for name in list(self.revoked):
            if name not in added:
                del self.revoked[name]

    @rule(partitions=st.sets(st.sampled_from(NAMES)), drains=st.booleans())
    def revoke(self, partitions: set[TopicPartition], drains: bool) -> None:
        going = partitions & self.ours
        if drains:
            self.table.drain(going)
        self.table.revoke(going)
        self.ours -= going
        for name in going:
            one = self.table.get(name)
            if one is not None and one.tracker is not None:
                self.revoked[name] = self.generation
            self.live.pop(name, None)

    @rule(name=st.sampled_from(NAMES), committed=st.sampled_from([None, 0, 7]))
    def read(self, name: TopicPartition, committed: int | None) -> None:
        one = self.table.get(name)
        if one is None or not one.is_ours or one.live is not None:
            return
        left = one.left
        may_be = self.revoked.pop(name, None) == self.generation - 1
        retained = self.table.retain(one, committed)
        # Nobody here commits a 7.
        assert retained is None or (retained is left and may_be and committed != 7)
        if retained is None:
            assert left is None or left.is_closed
            started(self.table, name)
        else:
            self.table.move(one, "read")
        assert one.live is not None
        self.live[name] = one.live

    @rule(name=st.sampled_from(NAMES))
    def seek(self, name: TopicPartition) -> None:
        if name in self.live:
            self.closed.append(self.live[name])
            one = self.table.get(name)
            assert one is not None
            self.live[name] = tracker_of(name, 3)
            self.table.start(one, self.live[name])

    @invariant()
    def nothing_but_what_is_ours_is_read_or_committed(self) -> None:
        assert self.table.ours == self.ours
        assert self.table.trackers == self.live
        assert {one.id for one in self.table.reading} == {
            name for name in self.live if self.state_of(name) is PartitionState.READING
        }

    def state_of(self, name: TopicPartition) -> PartitionState:
        one = self.table.get(name)
        assert one is not None
        return one.state

    @invariant()
    def whatever_has_gone_takes_no_verdict(self) -> None:
        assert all(tracker.is_closed for tracker in self.closed)
        assert not any(tracker.is_closed for tracker in self.live.values())


TestIncrementalGroup = IncrementalGroup.TestCase


@pytest.mark.parametrize(("committed", "is_ours"), [(4, True), (5, True), (6, False)])
def test_the_last_position_that_was_sent_before_a_seek_counts_as_ours_and_the_next_one_does_not(
    committed: int, is_ours: bool
) -> None:
    """A rebalance finds it in the group, and the answer to its commit was lost: that does not undo
    the seek.
    """
    table = PartitionTable()
    table.assign(1, [A])
    tracker = started(table, A)
    tracker.deliver(range(5), 5)
    tracker.attempted = 5
    one = table.get(A)
    assert one is not None
    table.start(one, tracker_of(A, 20))
    table.revoke([A])
    table.assign(2, [A])
    assert table.is_retained(one, committed) is is_ours


def test_what_was_sought_in_a_partition_that_goes_is_no_wish_for_its_next_assignment() -> None:
    table = PartitionTable()
    table.assign(1, [A])
    one = table.get(A)
    assert one is not None
    one.start.seek(StartChoice("end"))
    table.drain([A])
    table.revoke([A])
    table.assign(2, [A])
    again = table.get(A)
    assert again is not None
    assert again.start.choice is None
