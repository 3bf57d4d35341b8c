"""Members of a classic group read each other's subscriptions and assignments."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from reactive_kafka.broker.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from reactive_kafka.broker.wire.errors import MessageDecodeError

OWNED = [{"topic": "orders", "partitions": [0, 2]}]


def test_a_subscription_is_read_again_in_the_newest_version() -> None:
    values = {
        "topics": ["orders", "bills"],
        "user_data": b"\x00\x07",
        "owned_partitions": OWNED,
        "generation_id": 4,
        "rack_id": "east",
    }
    content = encode_subscription(values)
    assert content[:2] == b"\x00\x03"
    assert decode_subscription(content) == values


def test_aiokafka_reads_our_bytes_and_we_read_its() -> None:
    ours = encode_subscription({"topics": ["orders"], "owned_partitions": OWNED})
    theirs = ConsumerProtocolMemberMetadata.decode(ours)
    assert theirs.subscription == ["orders"]
    old = ConsumerProtocolMemberMetadata(0, ["orders"], b"x").encode()
    assert decode_subscription(old)["topics"] == ["orders"]
    assert decode_subscription(old)["owned_partitions"] == []
    assert old == encode_subscription({"topics": ["orders"], "user_data": b"x"}, version=0)

    given = encode_assignment({"assigned_partitions": OWNED})
    assert ConsumerProtocolMemberAssignment.decode(given).assignment == [("orders", [0, 2])]
    got = ConsumerProtocolMemberAssignment(0, [("orders", [0, 2])], b"").encode()
    assert decode_assignment(got)["assigned_partitions"] == OWNED


def test_what_a_newer_member_adds_is_left_unread() -> None:
    newer = b"\x00\x63" + encode_subscription({"topics": ["orders"]})[2:] + b"more"
    assert decode_subscription(newer)["topics"] == ["orders"]


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff\xff\x00", b"\x00\x00\x00\x00\x00\x09"])
def test_what_is_no_subscription_is_refused(content: bytes) -> None:
    with pytest.raises(MessageDecodeError, match="ConsumerProtocolSubscription"):
        decode_subscription(content)
    with pytest.raises(MessageDecodeError, match="ConsumerProtocolAssignment"):
        decode_assignment(content)


def test_an_old_version_drops_the_owned_partitions() -> None:
    values = {"topics": ["orders"], "owned_partitions": OWNED}
    assert encode_subscription(values, version=0) == encode_subscription(
        {"topics": ["orders"]}, version=0
    )
