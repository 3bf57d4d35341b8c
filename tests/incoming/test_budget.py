"""Back-pressure: the limit is kept, and no partition takes what another needs to go on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.incoming.budget import PAUSE_AFTER_S, READ_AHEAD, Valves, budgets, read_ahead
from reactive_kafka.records import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def held(*records: int) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", number): count for number, count in enumerate(records)}


def test_without_partitions_nothing_is_asked_for() -> None:
    assert budgets({}, 100) == {}


def test_a_partition_alone_may_fill_the_whole_channel() -> None:
    assert budgets(held(0), 100) == {A: 100}
    assert budgets(held(99), 100) == {A: 1}
    assert budgets(held(100), 100) == {}


def test_a_busy_partition_may_have_more_than_its_own_half() -> None:
    assert budgets(held(50, 0), 100)[A] == 12  # a quarter is its own, half of what is left of the other half is offered
    assert budgets(held(0, 0), 100) == {A: 50, B: 50}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=6), st.integers(1, 300))
def test_what_is_read_in_search_of_other_keys_keeps_a_limit_of_its_own(counts: list[int], limit: int) -> None:
    unsettled = held(*counts)
    records = read_ahead(unsettled, limit)
    assert 0 <= records <= limit
    assert not records or sum(counts) + records * len(counts) <= READ_AHEAD * limit


def test_with_all_of_it_read_no_other_keys_are_looked_for() -> None:
    assert read_ahead(held(1000), 100) == 0
    assert read_ahead(held(100, 0), 100) == 100


def test_a_stuck_partition_leaves_every_other_its_own_part() -> None:
    assert budgets(held(75, 0), 100) == {B: 25}
    assert budgets(held(66, 0, 0), 100) == {B: 16, C: 16}


def test_with_more_partitions_than_room_each_may_still_have_one_record() -> None:
    assert budgets(held(0, 0, 0, 0), 2) == dict.fromkeys(held(0, 0, 0, 0), 1)
    assert budgets(held(1, 0, 1, 0), 2) == {B: 1, TopicPartition("orders", 3): 1}


@given(records=st.lists(st.integers(0, 60), min_size=2, max_size=8), limit=st.integers(1, 100))
def test_who_holds_nothing_may_always_have_one_record(records: list[int], limit: int) -> None:
    """Whatever the others hold: more than the limit, too, when partitions came to those that were there."""
    unsettled = held(*records)
    allowed = budgets(unsettled, limit)
    assert all(more > 0 for more in allowed.values())
    assert all(partition in allowed for partition, count in unsettled.items() if not count)


@given(
    stuck=st.integers(0, 3),
    limit=st.integers(2, 60),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=60),
)
def test_whatever_a_stuck_partition_was_given_the_others_go_on(
    stuck: int, limit: int, steps: list[tuple[int, int]]
) -> None:
    """One partition takes whatever it may and settles nothing; each of the others settles all it has at its turn."""
    names = list(held(0, 0, 0, 0))
    holds = dict.fromkeys(names, 0)
    for turn, wish in steps:
        partition = names[turn]
        if turn != stuck:
            holds[partition] = 0
        allowed = budgets(holds, limit).get(partition, 0)
        assert turn == stuck or allowed > 0, f"{partition} stands still"
        holds[partition] += min(wish, allowed)
        assert sum(holds.values()) <= max(limit, len(names))


# -- valves


def test_a_partition_without_room_is_paused_only_after_a_while() -> None:
    valves = Valves()
    assert valves.update([A, B], [A], [], 0.0) == ([], [])
    assert valves.update([A, B], [A], [], PAUSE_AFTER_S / 2) == ([], [])
    assert valves.update([A, B], [A], [], PAUSE_AFTER_S) == ([B], [])
    assert valves.closed == {B}
    assert valves.update([A, B], [A], [], PAUSE_AFTER_S + 1) == ([], [])


def test_a_partition_that_had_room_in_between_waits_again_before_it_is_paused() -> None:
    valves = Valves()
    valves.update([A], [], [], 0.0)
    valves.update([A], [A], [], 0.9)
    assert valves.update([A], [], [], 1.1) == ([], [])
    assert valves.update([A], [], [], 2.1) == ([A], [])


def test_a_stopped_partition_is_paused_at_once() -> None:
    assert Valves().update([A, B], [B], [A], 0.0) == ([A], [])


def test_a_paused_partition_is_resumed_as_soon_as_there_is_room() -> None:
    valves = Valves()
    valves.update([A], [], [A], 0.0)
    assert valves.update([A], [A], [], 0.1) == ([], [A])
    assert valves.closed == set()


def test_a_partition_that_is_gone_is_neither_paused_nor_resumed() -> None:
    valves = Valves()
    valves.update([A, B], [], [A, B], 0.0)
    assert valves.update([B], [], [], 9.0) == ([], [])


def test_a_partition_that_begins_anew_in_the_same_assignment_is_still_paused_and_is_resumed() -> None:
    valves = Valves()
    valves.update([A, B], [], [A, B], 0.0)
    valves.update([B], [], [], 1.0)
    assert valves.update([A, B], [A], [], 2.0) == ([], [A])


def test_a_new_assignment_begins_with_open_valves() -> None:
    valves = Valves()
    valves.update([A], [], [A], 0.0)
    valves.open_all()
    assert valves.closed == set()
    assert valves.update([A], [], [], 0.5) == ([], [])
