"""What every assignor promises, and what the sticky ones promise in addition."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    Assignor,
    MemberSubscription,
    Shares,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.named_assignors import (
    DEFAULT_ASSIGNORS,
    KAFKA_ASSIGNORS,
    are_cooperative,
    assignors_named,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.sticky_assignor import (
    STICKY_USER_DATA,
    StickyAssignor,
    last_assignment,
)
from reactive_kafka.broker.consumer.membership.classic_group.topic_arrays import by_topic
from reactive_kafka.broker.wire.codec import encode
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.assignor_cases import GroupCase, changed_case, drawn_case, moves, spread
from tests.formats.refusals import refused_at_start_up

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE = KAFKA_ASSIGNORS
EACH = pytest.mark.parametrize("assignor", KAFKA_ASSIGNORS, ids=lambda it: it.name)
seeds = st.integers(0, 2**32).map(random.Random)


def partitions_of(shares: Shares) -> list[TopicPartition]:
    return [it for share in shares.values() for it in share]


def stable(case: GroupCase, assignor: Assignor) -> GroupCase:
    """The group after the generation that follows, which gives everything out."""
    return case.with_owned(case.assign(assignor), 1)


def group(members: str, **sizes: int) -> GroupCase:
    """Members with one letter each that all read the same topics."""
    return GroupCase(
        {name: MemberSubscription(frozenset(sizes)) for name in members},
        {topic: range(size) for topic, size in sizes.items()},
        {},
    )


@EACH
@given(draw=seeds)
def test_each_partition_that_is_read_has_one_owner_and_this_one_reads_its_topic(
    assignor: Assignor, draw: random.Random
) -> None:
    case = drawn_case(draw, with_racks=draw.random() < 0.5)
    shares = case.assign(assignor)
    assert shares.keys() == case.members.keys()
    assert sorted(partitions_of(shares)) == sorted(case.existing())
    for name, share in shares.items():
        assert {it.topic for it in share} <= case.members[name].topics


@EACH
@given(draw=seeds)
def test_the_order_in_which_members_are_listed_changes_nothing(
    assignor: Assignor, draw: random.Random
) -> None:
    case = drawn_case(draw, with_racks=True)
    listed = list(case.members.items())
    draw.shuffle(listed)
    assert replace(case, members=dict(listed)).assign(assignor) == case.assign(assignor)


@pytest.mark.parametrize("assignor", [ROUND_ROBIN, STICKY, COOPERATIVE], ids=lambda it: it.name)
@given(draw=seeds)
def test_members_with_equal_topics_have_at_most_one_partition_more_than_each_other(
    assignor: Assignor, draw: random.Random
) -> None:
    case = drawn_case(draw, are_equal=True)
    sizes = spread(case, case.assign(assignor))
    assert sizes[0] - sizes[-1] <= 1


@given(draw=seeds)
def test_range_gives_a_member_the_same_numbers_of_topics_with_equal_sizes(
    draw: random.Random,
) -> None:
    case = drawn_case(draw, are_equal=True)
    case = replace(case, partitions=dict.fromkeys(case.partitions, range(draw.randint(1, 9))))
    for share in case.assign(RANGE).values():
        numbers = {
            topic: {it.partition for it in share if it.topic == topic} for topic in case.partitions
        }
        assert all(it == numbers["t0"] for it in numbers.values())


def test_range_gives_partitions_to_members_in_the_rack_of_a_replica() -> None:
    case = group("ab", t=4)
    members = {
        name: replace(member, rack=rack)
        for (name, member), rack in zip(case.members.items(), ("west", "east"), strict=True)
    }
    racks = {
        TopicPartition("t", number): frozenset({"east" if number < 2 else "west"})
        for number in range(4)
    }
    shares = GroupCase(members, case.partitions, racks).assign(RANGE)
    assert shares == {
        "a": {TopicPartition("t", 2), TopicPartition("t", 3)},
        "b": {TopicPartition("t", 0), TopicPartition("t", 1)},
    }


def test_static_members_keep_their_place_when_a_restart_changes_their_member_id() -> None:
    def share_of(instance: str, ids: Mapping[str, str]) -> set[TopicPartition]:
        members = {
            member_id: MemberSubscription(frozenset({"t"}), instance_id=name)
            for name, member_id in ids.items()
        }
        return GroupCase(members, {"t": range(4)}, {}).assign(RANGE)[ids[instance]]

    before = {"one": "a", "two": "b"}
    after = {"one": "z", "two": "b"}
    assert share_of("one", before) == share_of("one", after)


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=lambda it: it.name)
@given(draw=seeds)
def test_nothing_moves_if_nothing_changed(assignor: Assignor, draw: random.Random) -> None:
    case = stable(drawn_case(draw), assignor)
    told = case if assignor.is_cooperative else case.with_user_data(assignor)
    assert told.assign(assignor) == {name: set(it.owned) for name, it in case.members.items()}


@given(draw=seeds)
def test_only_the_partitions_of_a_member_that_left_move_if_all_read_the_same(
    draw: random.Random,
) -> None:
    case = stable(drawn_case(draw, are_equal=True), STICKY)
    gone = draw.choice(list(case.members))
    members = {name: member for name, member in case.members.items() if name != gone}
    if not members:
        return
    shares = replace(case, members=members).with_user_data(STICKY).assign(STICKY)
    for name, member in members.items():
        assert shares[name] >= member.owned


@given(draw=seeds)
def test_a_new_member_gets_its_share_and_nothing_else_moves_if_all_read_the_same(
    draw: random.Random,
) -> None:
    case = stable(drawn_case(draw, are_equal=True), STICKY)
    topics = next(iter(case.members.values())).topics
    case = replace(case, members={**case.members, "new": MemberSubscription(topics)})
    shares = case.with_user_data(STICKY).assign(STICKY)
    assert moves(case.owners(), shares) == len(shares["new"])


@given(draw=seeds)
def test_a_cooperative_round_gives_no_partition_while_another_member_owns_it(
    draw: random.Random,
) -> None:
    case = changed_case(draw, stable(drawn_case(draw), COOPERATIVE))
    owners = {it: name for it, name in case.owners().items() if name in case.members}
    shares = case.assign(COOPERATIVE)
    assert moves(owners, shares) == 0


@given(draw=seeds)
def test_the_second_cooperative_round_gives_everything_out_and_takes_nothing_away(
    draw: random.Random,
) -> None:
    case = changed_case(draw, stable(drawn_case(draw), COOPERATIVE))
    # What a member does not get, it has revoked before it joins again.
    between = case.with_owned(case.assign(COOPERATIVE), 2)
    last = between.assign(COOPERATIVE)
    assert set(partitions_of(last)) == case.existing()
    for name, member in between.members.items():
        assert last[name] >= member.owned
    assert between.with_owned(last, 3).assign(COOPERATIVE) == last


@given(draw=seeds)
def test_no_member_could_get_a_partition_from_one_with_two_more(draw: random.Random) -> None:
    case = changed_case(draw, stable(drawn_case(draw), STICKY)).with_user_data(STICKY)
    shares = case.assign(STICKY)
    for more, less in combinations(sorted(shares, key=lambda it: -len(shares[it])), 2):
        if len(shares[more]) - len(shares[less]) > 1:
            assert not {it.topic for it in shares[more]} & case.members[less].topics


def test_of_two_members_that_own_a_partition_the_one_of_the_newer_generation_keeps_it() -> None:
    case = group("ab", t=2)
    both = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    members = {
        "a": replace(case.members["a"], owned=both, generation=3),
        "b": replace(case.members["b"], owned=both, generation=4),
    }
    shares = replace(case, members=members).assign(COOPERATIVE)
    assert shares["a"] == set()
    assert len(shares["b"]) == 1


def test_a_partition_that_two_members_own_equally_is_taken_from_both_first() -> None:
    case = group("ab", t=2)
    both = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    shares = case.with_owned({"a": both, "b": both}, 3).assign(COOPERATIVE)
    assert shares == {"a": set(), "b": set()}


def test_the_generation_may_be_in_the_user_data_of_older_clients() -> None:
    case = group("ab", t=2)
    both = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    members = {
        "a": replace(case.members["a"], owned=both, user_data=COOPERATIVE.user_data(both, 4)),
        "b": replace(case.members["b"], owned=both, user_data=COOPERATIVE.user_data(both, 3)),
    }
    shares = replace(case, members=members).assign(COOPERATIVE)
    assert len(shares["a"]) == 1
    assert shares["b"] == set()


@given(
    st.frozensets(st.builds(TopicPartition, st.text("tö-", max_size=4), st.integers(0, 2**31 - 1))),
    st.integers(-1, 2**31 - 1),
)
def test_sticky_user_data_is_read_as_it_was_written(
    owned: frozenset[TopicPartition], generation: int
) -> None:
    assert last_assignment(StickyAssignor().user_data(owned, generation)) == (owned, generation)


def test_sticky_user_data_without_a_generation_is_of_no_generation() -> None:
    owned = frozenset({TopicPartition("t", 7)})
    assert last_assignment(
        encode(STICKY_USER_DATA, 0, {"previous_assignment": by_topic(owned)})
    ) == (owned, -1)


@given(st.binary(max_size=40))
def test_user_data_that_is_no_assignment_is_no_claim(user_data: bytes) -> None:
    owned, generation = last_assignment(user_data)
    assert all(isinstance(it.topic, str) for it in owned)
    assert -(2**31) <= generation < 2**31


@pytest.mark.parametrize("generation", [-2, -(2**31)])
def test_a_generation_that_no_group_has_keeps_nobody_from_being_assigned(generation: int) -> None:
    """Members of any client may say so, and the leader would fail for all of them."""
    owned = frozenset({TopicPartition("t", 0)})
    by_data = MemberSubscription(
        frozenset({"t"}), user_data=StickyAssignor().user_data(owned, generation)
    )
    by_field = MemberSubscription(frozenset({"t"}), owned=owned, generation=generation)
    for assignor, member in ((STICKY, by_data), (COOPERATIVE, by_field)):
        assert assignor.assign({"a": member}, {"t": [0]}, {}) == {"a": set(owned)}


@EACH
def test_ten_thousand_partitions_of_a_hundred_members_take_less_than_a_second(
    assignor: Assignor,
) -> None:
    names = [f"member-{number:03}" for number in range(100)]
    topics = [f"topic-{number}" for number in range(10)]
    members = {name: MemberSubscription(frozenset(topics)) for name in names}
    everything = GroupCase(members, dict.fromkeys(topics, range(1_000)), {})
    half = {
        name: replace(member, topics=frozenset(topics[number % 2 :: 2]) | {topics[0]})
        for number, (name, member) in enumerate(members.items())
    }
    for case in (everything, replace(everything, members=half)):
        owned = stable(case, assignor)
        without_ten = dict(list(owned.members.items())[10:])
        told = replace(owned, members={**without_ten, "new": case.members[names[0]]})
        told = told if assignor.is_cooperative else told.with_user_data(assignor)
        began = process_time()
        told.assign(assignor)
        assert process_time() - began < 1


def test_the_default_list_can_join_groups_of_other_clients_and_is_eager() -> None:
    assignors = assignors_named(DEFAULT_ASSIGNORS)
    assert {it.name for it in assignors} >= {"range", "roundrobin", "cooperative-sticky"}
    assert assignors[0].name == "range"
    assert not are_cooperative(assignors)
    assert are_cooperative(assignors_named(["cooperative-sticky"]))


class OwnAssignor:
    name = "own"
    is_cooperative = False

    def assign(self, members, partitions, replica_racks):  # type: ignore[no-untyped-def]
        return {member_id: set() for member_id in members}

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes:
        return b""


def test_a_users_own_assignor_is_named_by_module_and_object() -> None:
    (found,) = assignors_named([f"{__name__}:OwnAssignor"])
    assert isinstance(found, OwnAssignor)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (
            ["rnage"],
            '\'rnage\' is no assignor: allowed are "range", "roundrobin", "sticky", '
            '"cooperative-sticky" and "module:object"',
        ),
        (["range", "range"], "'range': another assignor of the list is 'range', too"),
        ([], "the list of assignors is empty: name at least one"),
        (["no.such:thing"], "'no.such:thing': there is no module 'no'"),
        (
            ["random:Random"],
            "'random:Random' is no assignor: it has no name, is_cooperative, assign, user_data",
        ),
    ],
)
def test_a_wrong_list_of_assignors_says_what_is_wrong(names: list[str], reason: str) -> None:
    with refused_at_start_up(f"^{re.escape(reason)}$"):
        assignors_named(names)


@pytest.mark.parametrize("name", [None, 5, b"own", "", "x" * 2**15, "\udc80", ["own"]])
def test_an_assignor_whose_name_no_request_can_have_is_refused_at_the_start(
    name: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnAssignor, "name", name)
    path = f"{__name__}:OwnAssignor"
    reason = f"{path!r} is no assignor: its name must be a string of 1 to 32767 bytes"
    with refused_at_start_up(f"^{re.escape(reason)}$"):
        assignors_named([path])
