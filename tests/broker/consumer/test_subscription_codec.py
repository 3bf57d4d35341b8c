"""Subscriptions and assignments as bytes, and what other clients read in them."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    MemberSubscription,
)
from reactive_kafka.broker.consumer.membership.classic_group.subscription_codec import (
    MemberDataError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.assignor_cases import lines_by_java

names = st.text("abcö", min_size=1, max_size=4)
partition_sets = st.frozensets(
    st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=9
)
subscriptions = st.builds(
    MemberSubscription,
    topics=st.frozensets(names, max_size=5),
    user_data=st.binary(max_size=9),
    owned=partition_sets,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | names,
    instance_id=st.none() | names,
)
EXAMPLE = MemberSubscription(
    frozenset({"bills", "orders"}),
    b"\x01\x02",
    frozenset({TopicPartition("bills", 1), TopicPartition("orders", 0)}),
    7,
    "west",
)


@given(subscriptions)
def test_a_subscription_is_read_as_it_was_written(member: MemberSubscription) -> None:
    content = encode_subscription(member)
    assert decode_subscription(content, "m", member.instance_id) == member


@given(partition_sets)
def test_an_assignment_is_read_as_it_was_written(partitions: frozenset[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(partitions), "the leader") == partitions


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, replace(EXAMPLE, owned=frozenset(), generation=-1, rack=None)),
        (1, replace(EXAMPLE, generation=-1, rack=None)),
        (2, replace(EXAMPLE, rack=None)),
        (3, EXAMPLE),
    ],
)
def test_older_versions_have_fewer_fields(version: int, expected: MemberSubscription) -> None:
    content = encode_subscription(EXAMPLE, version)
    assert content[:2] == struct.pack(">h", version)
    assert decode_subscription(content, "m") == expected


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    newer = struct.pack(">h", 9) + encode_subscription(EXAMPLE)[2:] + b"more fields"
    assert decode_subscription(newer, "m") == EXAMPLE
    assignment = struct.pack(">h", 9) + encode_assignment(EXAMPLE.owned)[2:] + b"more fields"
    assert decode_assignment(assignment, "the leader") == EXAMPLE.owned


def test_a_member_that_the_leader_has_forgotten_gets_nothing() -> None:
    assert decode_assignment(b"", "the leader") == frozenset()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_with_the_name_of_the_member(content: bytes) -> None:
    try:
        decode_subscription(content, "shop-1")
    except MemberDataError as error:
        assert "member 'shop-1' of the group" in str(error)
    try:
        decode_assignment(content, "the leader 'shop-2'")
    except MemberDataError as error:
        assert str(error).startswith("the leader 'shop-2'")


@given(st.data())
def test_cut_off_bytes_are_refused(data: st.DataObject) -> None:
    content = encode_subscription(EXAMPLE)
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    with pytest.raises(MemberDataError):
        decode_subscription(cut, "shop-1")


def test_an_array_of_a_billion_elements_is_refused_before_it_is_read() -> None:
    with pytest.raises(MemberDataError, match="topics: the 6 bytes end before it does"):
        decode_subscription(struct.pack(">hi", 0, 10**9), "shop-1")


def test_aiokafkas_clients_read_what_they_know_of() -> None:
    read = ConsumerProtocolMemberMetadata.decode(encode_subscription(EXAMPLE))
    assert sorted(read.subscription) == ["bills", "orders"]
    assert read.user_data == EXAMPLE.user_data
    assigned = ConsumerProtocolMemberAssignment.decode(encode_assignment(EXAMPLE.owned))
    assert {tuple(it) for it in assigned.partitions()} == EXAMPLE.owned


@pytest.mark.kafka
def test_javas_client_reads_every_version_and_writes_the_same_bytes() -> None:
    members = [EXAMPLE, MemberSubscription(frozenset()), replace(EXAMPLE, user_data=b"")]
    subscribed = [
        encode_subscription(member, version) for member in members for version in range(4)
    ]
    assigned = [encode_assignment(member.owned) for member in members]
    told = [f"subscription {content.hex()}\n" for content in subscribed]
    told += [f"assignment {content.hex()}\n" for content in assigned]
    assert [bytes.fromhex(line) for line in lines_by_java(told)] == subscribed + assigned
