"""The ``sticky`` assignor: even shares, and partitions stay with their owners. Eager. Pure.

Members revoke everything before they join, so a member tells the leader in its user data what it
owned last. Source: Java's ``StickyAssignor``; librdkafka and kafka-python write the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    NO_GENERATION,
    MemberSubscription,
    Shares,
    ordered,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.sticky_balance import (
    sticky_shares,
    valid_owners,
)
from reactive_kafka.broker.consumer.membership.classic_group.topic_arrays import (
    by_topic,
    partitions_of,
)
from reactive_kafka.broker.wire.codec import decode_first, encode
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.broker.wire.schema import WireField, WireMessage
from reactive_kafka.records import TopicPartition

STICKY_USER_DATA = WireMessage(
    "StickyUserData",
    versions="0-1",
    flexible="none",
    fields=(
        WireField(
            "previous_assignment",
            "[]TopicAssignment",
            "0+",
            fields=(
                WireField("topic", "string", "0+"),
                WireField("partitions", "[]int32", "0+"),
            ),
        ),
        WireField("generation", "int32", "1+", default=NO_GENERATION),
    ),
)
"""What a sticky assignor tells the leader. Kafka has no definition of it among its messages.

Source: ``StickyAssignor.STICKY_ASSIGNOR_USER_DATA_V1``.
"""


class StickyAssignor:
    """Gives equal shares, in which as many partitions as possible stay with their last owners."""

    name = "sticky"
    is_cooperative = False

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> Shares:
        claims = {
            member_id: last_assignment(members[member_id].user_data)
            for member_id in ordered(members)
        }
        return sticky_shares(members, partitions, valid_owners(claims))

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes:
        """Return the last assignment as bytes, in the newer of the two layouts."""
        values = {"previous_assignment": by_topic(owned), "generation": generation}
        return encode(STICKY_USER_DATA, 1, values)


def last_assignment(user_data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """Return what a member owned last, and in which generation.

    The bytes do not name their version: those without a generation are of version 0. Bytes that are
    neither are no claim, as in Java: the user data of another assignor must not stop a group.
    """
    for version in (1, 0):
        try:
            values, _ = decode_first(STICKY_USER_DATA, version, user_data)
        except MessageDecodeError:
            continue
        return partitions_of(values["previous_assignment"]), values["generation"]
    return frozenset(), NO_GENERATION
