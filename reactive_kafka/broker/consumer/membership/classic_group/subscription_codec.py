"""What members of a classic group tell each other, as bytes: subscriptions and assignments. Pure.

The coordinator passes these bytes on without reading them. A version is in front. Members write the
version that they have, so a leader reads all of them. A newer one only adds fields at the end: it
is read as the newest that is known here.

Source: Kafka's ``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``, versions 0-3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    NO_GENERATION,
    MemberSubscription,
)
from reactive_kafka.broker.consumer.membership.classic_group.topic_arrays import (
    ArrayReader,
    encoded_partitions,
    encoded_text,
)
from reactive_kafka.errors import ReactiveKafkaError
from reactive_kafka.records import TopicPartition

# From these versions on a subscription has the field.
OWNED_SINCE_VERSION = 1
GENERATION_SINCE_VERSION = 2
RACK_SINCE_VERSION = 3
NEWEST_VERSION = 3
_NO_BYTES = struct.pack(">i", -1)
_NO_TEXT = struct.pack(">h", -1)


class MemberDataError(ReactiveKafkaError, ValueError):
    """The bytes of another member are no subscription or assignment. The text names the member."""


def encode_subscription(member: MemberSubscription, version: int = NEWEST_VERSION) -> bytes:
    """Return the metadata with which a member joins."""
    parts = [struct.pack(">hi", version, len(member.topics))]
    parts.extend(encoded_text(topic) for topic in sorted(member.topics))
    parts.append(_encoded_bytes(member.user_data))
    if version >= OWNED_SINCE_VERSION:
        parts.append(encoded_partitions(member.owned))
    if version >= GENERATION_SINCE_VERSION:
        parts.append(struct.pack(">i", member.generation))
    if version >= RACK_SINCE_VERSION:
        parts.append(_NO_TEXT if member.rack is None else encoded_text(member.rack))
    return b"".join(parts)


def decode_subscription(
    content: bytes, member_id: str, instance_id: str | None = None
) -> MemberSubscription:
    """Return what a member has told when it joined.

    Raises:
        MemberDataError: The bytes are no subscription. The text names the member.
    """
    try:
        reader = ArrayReader(content)
        version = _version(reader)
        topics = frozenset(reader.texts())
        user_data = reader.optional_bytes() or b""
        owned = frozenset[TopicPartition]()
        generation = NO_GENERATION
        rack = None
        if version >= OWNED_SINCE_VERSION:
            owned = reader.partitions()
        if version >= GENERATION_SINCE_VERSION:
            generation = reader.int32()
        if version >= RACK_SINCE_VERSION:
            rack = reader.optional_text()
    except ValueError as error:
        raise MemberDataError(
            f"member {member_id!r} of the group has joined with metadata that is no subscription "
            f"of a consumer: {error}"
        ) from error
    return MemberSubscription(topics, user_data, owned, generation, rack, instance_id)


def encode_assignment(partitions: Iterable[TopicPartition], version: int = NEWEST_VERSION) -> bytes:
    """Return the assignment of one member, as the leader sends it."""
    return struct.pack(">h", version) + encoded_partitions(partitions) + _encoded_bytes(b"")


def decode_assignment(content: bytes, leader: str) -> frozenset[TopicPartition]:
    """Return the partitions that the leader has assigned to this member.

    No bytes at all mean that the leader has not named this member: it gets nothing.

    Raises:
        MemberDataError: The bytes are no assignment. The text names the leader.
    """
    if not content:
        return frozenset()
    try:
        reader = ArrayReader(content)
        _version(reader)
        return reader.partitions()
    except ValueError as error:
        raise MemberDataError(
            f"{leader} has sent an assignment that is none of a consumer: {error}"
        ) from error


def _version(reader: ArrayReader) -> int:
    version = reader.int16()
    if version < 0:
        raise ValueError(f"the version is {version}")
    return min(version, NEWEST_VERSION)


def _encoded_bytes(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content if content else _NO_BYTES
