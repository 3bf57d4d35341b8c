"""Records of a group with the consumer protocol, as the classes of Kafka 4.1 and 4.4 write them."""

from __future__ import annotations

import pytest

from tests.faults.group_records import GroupRecords
from tests.faults.owners import GroupEpoch, MemberEpoch

TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")
OF_GROUP = "000762696c6c696e67"
OF_MEMBER = OF_GROUP + "00026d31"
# Group epoch 9.
EPOCH = "00000000000900"
# The client id "left" in the rack "r1".
MEMBER = "000000037231056c6566740b2f3132372e302e302e3102076f7264657273010000ea600100"
# Epoch 7, with partitions 0 and 2, while partition 1 is not given up yet.
ASSIGNMENT_4_1 = (
    "00000000000700000006010200000000000000010000000000000002030000000000000002000200000000000000"
    "01000000000000000202000000010000"
)
# With the epochs in which the partitions were assigned.
ASSIGNMENT_4_4 = (
    "00000000000700000006010200000000000000010000000000000002030000000000000002010009030000000300"
    "000007020000000000000001000000000000000202000000010000"
)


def key(kind: int, rest: str) -> bytes:
    return kind.to_bytes(2, "big") + bytes.fromhex(rest)


@pytest.mark.parametrize("assignment", [ASSIGNMENT_4_1, ASSIGNMENT_4_4], ids=["4.1", "4.4"])
def test_what_a_member_owns_and_has_not_given_up_is_read_with_its_client_and_epoch(
    assignment: str,
) -> None:
    records = GroupRecords({TOPIC_ID: "orders"})
    assert records.take(1.0, key(3, OF_GROUP), bytes.fromhex(EPOCH)) == (
        "billing",
        GroupEpoch(1.0, 9),
    )
    assert records.take(1.0, key(5, OF_MEMBER), bytes.fromhex(MEMBER)) == ("billing", None)
    owned = frozenset(("orders", number) for number in range(3))
    assert records.take(2.0, key(8, OF_MEMBER), bytes.fromhex(assignment)) == (
        "billing",
        MemberEpoch(2.0, "m1", "left", 7, owned),
    )


def test_a_member_that_has_left_owns_nothing() -> None:
    records = GroupRecords({})
    records.take(1.0, key(5, OF_MEMBER), bytes.fromhex(MEMBER))
    assert records.take(2.0, key(8, OF_MEMBER), None) == (
        "billing",
        MemberEpoch(2.0, "m1", "left", -1, frozenset()),
    )
