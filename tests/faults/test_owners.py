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
    GroupLog,
    commits_of_strangers,
    disturbed,
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
