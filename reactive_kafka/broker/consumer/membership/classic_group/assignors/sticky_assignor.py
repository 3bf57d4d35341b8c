"""The ``sticky`` assignor: even shares, and partitions stay with their owners. Eager. Pure.

Members revoke everything before they join, so a member tells the leader in its user data what it
owned last. Source: Java's ``StickyAssignor``; librdkafka and kafka-python write the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

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
    try:
        partitions, rest = _decoded_partitions(user_data)
        if len(rest) < 4:
            return partitions, NO_GENERATION
        return partitions, struct.unpack_from(">i", rest)[0]
    except (struct.error, UnicodeDecodeError, ValueError):
        return frozenset(), NO_GENERATION


def encoded_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return partitions by topic, as Kafka writes arrays of topics and numbers."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts.append(struct.pack(">h", len(name)) + name)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def _decoded_partitions(data: bytes) -> tuple[frozenset[TopicPartition], bytes]:
    """Return partitions, and the bytes behind them.

    Raises:
        ValueError: A length is negative, or larger than the data; also its subclasses.
        struct.error: The data ends too early.
    """
    found: set[TopicPartition] = set()
    (topics,) = struct.unpack_from(">i", data)
    at = 4
    for _ in range(_checked(topics, data)):
        (length,) = struct.unpack_from(">h", data, at)
        past = at + 2 + _checked(length, data)
        topic = data[at + 2 : past].decode()
        (count,) = struct.unpack_from(">i", data, past)
        numbers = struct.unpack_from(f">{_checked(count, data)}i", data, past + 4)
        found.update(TopicPartition(topic, number) for number in numbers)
        at = past + 4 + 4 * count
    return frozenset(found), data[at:]


def _checked(length: int, data: bytes) -> int:
    if not 0 <= length <= len(data):
        raise ValueError(f"a length of {length} in {len(data)} bytes")
    return length
