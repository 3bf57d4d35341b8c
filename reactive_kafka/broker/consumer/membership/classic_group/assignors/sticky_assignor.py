"""The ``sticky`` assignor: even shares, and partitions stay with their owners. Eager. Pure.

Members revoke everything before they join, so a member tells the leader in its user data what it
owned last. Source: Java's ``StickyAssignor``; librdkafka and kafka-python write the same bytes.
"""

from __future__ import annotations

import struct
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
    ArrayReader,
    encoded_partitions,
)
from reactive_kafka.records import TopicPartition


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
        return encoded_partitions(owned) + struct.pack(">i", generation)


def last_assignment(user_data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """Return what a member owned last, and in which generation.

    Version 1 ends with the generation, version 0 has none. Bytes that are neither are no claim, as
    in Java: the user data of another assignor must not stop a group.
    """
    reader = ArrayReader(user_data)
    try:
        partitions = reader.partitions()
        generation = reader.int32() if reader.left >= 4 else NO_GENERATION
    except ValueError:
        return frozenset(), NO_GENERATION
    return partitions, generation
