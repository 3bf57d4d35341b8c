"""Who wrote a commit, and when the group was left alone: each rule fails on a bad history made by
hand.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.checker import Commit
from tests.faults.owners import (
    Asked,
    Generation,
    GroupEpoch,
    GroupLog,
    LeftBehind,
    MemberEpoch,
    commits_of_strangers,
    disturbed,
    left_behind,
    rebalances,
)

TP, OTHER = ("orders", 0), ("orders", 1)
LOG: GroupLog = [
    Generation(1.0, 1, {TP: "left", OTHER: "left"}),
    Commit(1.5, TP, 3, "log"),
    Generation(2.0, 2, {TP: "right", OTHER: "left"}),
    Commit(2.5, TP, 5, "log"),
    Commit(2.6, OTHER, 7, "log"),
]
ASKED = [
    Asked(1.49, "left", 1, TP, 3),
    Asked(2.49, "right", 2, TP, 5),
    Asked(2.59, "left", 2, OTHER, 7),
]


def found(log: GroupLog, asked: Sequence[Asked]) -> list[str]:
    return [str(violation) for violation in commits_of_strangers(log, asked)]


def test_commits_of_the_owners_are_in_order() -> None:
    assert found(LOG, ASKED) == []


def test_a_commit_of_a_member_that_has_lost_the_partition_is_found() -> None:
    zombie = [*ASKED[:1], Asked(2.49, "left", 2, TP, 5), *ASKED[2:]]
    assert found(LOG, zombie) == [
        "I4: orders-0: 5 was committed at 2.500 by left of generation 2; the owner was right, generation 2"
    ]


def test_a_commit_of_an_owner_in_an_old_generation_is_found() -> None:
    late = [*ASKED[:2], Asked(2.59, "left", 1, OTHER, 7)]
    assert found(LOG, late) == [
        "I4: orders-1: 7 was committed at 2.600 by left of generation 1; the owner was left, generation 2"
    ]


def test_a_commit_that_a_zombie_asks_for_too_and_is_refused_is_the_owners() -> None:
    assert found(LOG, [*ASKED, Asked(2.4, "left", 1, TP, 5)]) == []


@pytest.mark.parametrize("t", [2.51, 9.0])
def test_a_commit_that_nobody_had_asked_for_by_then_is_found(t: float) -> None:
    assert found(LOG, [ASKED[0], ASKED[1]._replace(t=t), ASKED[2]]) == [
        "I4: orders-0: 5 was committed at 2.500 by nobody; the owner was right, generation 2"
    ]


def test_a_commit_into_a_group_without_members_is_found() -> None:
    reset = [*LOG, Generation(3.0, 3, {}), Commit(3.5, TP, 0, "log")]
    assert found(reset, [*ASKED, Asked(3.4, "", -1, TP, 0)]) == [
        "I4: orders-0: 0 was committed at 3.500 by  of generation -1; the owner was None, generation 3"
    ]


def test_a_rebalance_in_a_time_that_concerns_no_member_is_found() -> None:
    assert rebalances(LOG, 0.0, 9.0) == 2
    assert list(disturbed(LOG, [("node killed", 1.1, 1.9)])) == []
    (violation,) = disturbed(LOG, [("node killed", 1.1, 1.9), ("node killed", 1.8, 2.2)])
    assert str(violation) == "I4: 1 rebalances during node killed, from 1.800 to 2.200"


# A group of the consumer protocol: the partition moves from left to right, member by member.
BOTH = frozenset({TP, OTHER})
MOVING: GroupLog = [
    GroupEpoch(1.0, 1),
    MemberEpoch(1.0, "m1", "left", 1, BOTH),
    Commit(1.5, TP, 3, "log"),
    GroupEpoch(2.0, 2),
    MemberEpoch(2.0, "m2", "right", 2, frozenset()),
    # It is told to give one up, and may commit it until it has.
    MemberEpoch(2.1, "m1", "left", 1, BOTH),
    Commit(2.2, TP, 4, "log"),
    MemberEpoch(2.3, "m1", "left", 2, frozenset({OTHER})),
    MemberEpoch(2.4, "m2", "right", 2, frozenset({TP})),
    Commit(2.5, TP, 5, "log"),
    Commit(2.6, OTHER, 7, "log"),
]
OF_MOVING = [
    Asked(1.49, "left", 1, TP, 3),
    Asked(2.19, "left", 1, TP, 4),
    Asked(2.49, "right", 2, TP, 5),
    # It has owned this one since epoch 1.
    Asked(2.59, "left", 1, OTHER, 7),
]


def test_commits_of_owners_with_the_epochs_in_which_they_own_the_partition_are_in_order() -> None:
    assert found(MOVING, OF_MOVING) == []


@pytest.mark.parametrize(
    ("asked", "who"),
    [
        (Asked(2.49, "left", 1, TP, 5), "left of generation 1"),
        (Asked(2.49, "left", 2, TP, 5), "left of generation 2"),
        # In an epoch before it had the partition, and in one that has not begun.
        (Asked(2.49, "right", 1, TP, 5), "right of generation 1"),
        (Asked(2.49, "right", 3, TP, 5), "right of generation 3"),
    ],
)
def test_a_commit_of_another_member_or_of_another_epoch_is_found(asked: Asked, who: str) -> None:
    stranger = [one for one in OF_MOVING if one.offset != 5]
    assert found(MOVING, [*stranger, asked]) == [
        f"I4: orders-0: 5 was committed at 2.500 by {who}; the owner was right, generation 2"
    ]


def test_a_commit_of_a_member_that_has_left_is_found() -> None:
    log: GroupLog = [
        MemberEpoch(1.0, "m1", "left", 1, BOTH),
        MemberEpoch(2.0, "m1", "left", -1, frozenset()),
        Commit(2.5, TP, 5, "log"),
    ]
    assert found(log, [Asked(2.4, "left", 1, TP, 5)]) == [
        "I4: orders-0: 5 was committed at 2.500 by left of generation 1; "
        "the owner was None, generation -1"
    ]


def test_a_process_that_comes_back_is_another_member_whose_partitions_the_dead_one_does_not_take() -> (
    None
):
    log: GroupLog = [
        MemberEpoch(1.0, "m1", "left", 1, BOTH),
        MemberEpoch(2.0, "m1", "left", -1, frozenset()),
        MemberEpoch(2.0, "m2", "left", 3, BOTH),
        MemberEpoch(2.1, "m1", "left", -1, frozenset()),
        Commit(2.5, TP, 5, "log"),
    ]
    assert found(log, [Asked(2.4, "left", 3, TP, 5)]) == []
    assert len(found(log, [Asked(2.4, "left", 1, TP, 5)])) == 1


def test_a_group_that_is_moved_to_the_other_protocol_keeps_its_owners() -> None:
    log: GroupLog = [
        Generation(1.0, 4, {TP: "left", OTHER: "left"}),
        GroupEpoch(2.0, 5),
        MemberEpoch(2.0, "m1", "left", 4, BOTH),
        MemberEpoch(2.1, "m1", "left", 5, frozenset({OTHER})),
        Commit(2.2, OTHER, 7, "log"),
        MemberEpoch(2.3, "m1", "left", -1, frozenset()),
        Generation(3.0, 6, {TP: "left", OTHER: "left"}),
        Commit(3.5, TP, 9, "log"),
    ]
    asked = [Asked(2.1, "left", 4, OTHER, 7), Asked(3.4, "left", 6, TP, 9)]
    assert found(log, asked) == []


def test_a_member_that_is_behind_the_epoch_when_its_group_becomes_classic_again_is_left_behind() -> (
    None
):
    gone = [
        MemberEpoch(3.0, "m1", "left", -1, frozenset()),
        MemberEpoch(3.0, "m2", "right", -1, frozenset()),
    ]
    log: GroupLog = [
        Generation(1.0, 3, {TP: "left", OTHER: "right"}),
        MemberEpoch(2.0, "m1", "left", 4, frozenset({TP})),
        MemberEpoch(2.0, "m2", "right", 4, frozenset({OTHER})),
        GroupEpoch(2.5, 5),
        MemberEpoch(2.6, "m2", "right", 5, frozenset({OTHER})),
        *gone,
        Generation(3.0, 5, {TP: "left", OTHER: "right"}),
        Generation(3.5, 6, {TP: "left", OTHER: "right"}),
    ]
    assert list(left_behind(log)) == [LeftBehind(3.0, "left")]
    assert list(left_behind(LOG)) == []
    assert list(left_behind(MOVING)) == []


def test_an_epoch_in_a_time_that_concerns_no_member_is_found() -> None:
    assert rebalances(MOVING, 0.0, 9.0) == 2
    (violation,) = disturbed(MOVING, [("node killed", 1.1, 1.9), ("node killed", 1.8, 2.2)])
    assert str(violation) == "I4: 1 rebalances during node killed, from 1.800 to 2.200"
