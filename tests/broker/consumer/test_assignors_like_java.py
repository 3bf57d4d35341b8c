"""Our assignors and Java's, on the same groups."""

from __future__ import annotations

import random

import pytest

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    Assignor,
    Shares,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.cooperative_assignor import (
    CooperativeStickyAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.range_assignor import (
    RangeAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.round_robin_assignor import (
    RoundRobinAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.sticky_assignor import (
    StickyAssignor,
)
from tests.broker.consumer.assignor_cases import (
    GroupCase,
    by_java,
    changed_case,
    drawn_case,
    moves,
    spread,
    without_empty,
)

pytestmark = pytest.mark.kafka
CASES = 400


@pytest.mark.parametrize("with_racks", [False, True], ids=["no racks", "racks"])
@pytest.mark.parametrize(
    "assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda it: it.name
)
def test_range_and_roundrobin_give_each_member_the_partitions_that_java_gives_it(
    assignor: Assignor, with_racks: bool
) -> None:
    draw = random.Random(1)
    cases = [
        drawn_case(draw, are_equal=draw.random() < 0.5, with_racks=with_racks) for _ in range(CASES)
    ]
    expected = by_java(case.described(assignor.name) for case in cases)
    for case, shares in zip(cases, expected, strict=True):
        assert without_empty(case.assign(assignor)) == shares, case


@pytest.mark.parametrize("are_equal", [True, False], ids=["equal", "different"])
def test_sticky_shares_are_as_even_as_javas_and_no_more_partitions_move(are_equal: bool) -> None:
    assignor = StickyAssignor()
    cases = second_generations(random.Random(2), are_equal)
    told = [case.with_user_data(assignor) for case in cases]
    expected = by_java(case.described(assignor.name) for case in told)
    for case, said, shares in zip(cases, told, expected, strict=True):
        assert_no_worse(case, said.assign(assignor), shares)


@pytest.mark.parametrize("are_equal", [True, False], ids=["equal", "different"])
def test_two_cooperative_rounds_end_as_even_as_javas_and_no_more_partitions_move(
    are_equal: bool,
) -> None:
    assignor = CooperativeStickyAssignor()
    cases = second_generations(random.Random(3), are_equal)
    firsts = by_java(case.described(assignor.name) for case in cases)
    seconds = by_java(
        case.with_owned(shares, 4).described(assignor.name)
        for case, shares in zip(cases, firsts, strict=True)
    )
    for case, shares in zip(cases, seconds, strict=True):
        ours = case.with_owned(case.assign(assignor), 4).assign(assignor)
        assert_no_worse(case, ours, shares)


def second_generations(draw: random.Random, are_equal: bool) -> list[GroupCase]:
    """Groups that change after Java has assigned their partitions once."""
    firsts = [drawn_case(draw, are_equal=are_equal) for _ in range(CASES)]
    starts = by_java(case.described("sticky") for case in firsts)
    return [
        changed_case(draw, case.with_owned(shares, 3))
        for case, shares in zip(firsts, starts, strict=True)
    ]


def assert_no_worse(case: GroupCase, ours: Shares, javas: Shares) -> None:
    owners = {it: name for it, name in case.owners().items() if name in case.members}
    assert set().union(*ours.values()) == case.existing()
    # Java's cooperative assignor may need more than two rounds if members read different topics.
    if set().union(*javas.values()) != case.existing():
        return
    assert spread(case, ours) <= spread(case, javas), case
    # A more even result may need more moves.
    if spread(case, ours) == spread(case, javas):
        assert moves(owners, ours) <= moves(owners, javas), case
