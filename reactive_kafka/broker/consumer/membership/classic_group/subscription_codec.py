"""What members of a classic group tell each other: subscriptions and assignments. Pure.

The bytes are those of ``broker.wire.consumer_protocol``. The coordinator passes them on without
reading them, so a leader has to expect anything from the other members. An error names the member.
"""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    MemberSubscription,
)
from reactive_kafka.broker.consumer.membership.classic_group.topic_arrays import (
    by_topic,
    partitions_of,
)
from reactive_kafka.broker.wire import consumer_protocol
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.errors import ReactiveKafkaError
from reactive_kafka.records import TopicPartition


class MemberDataError(ReactiveKafkaError, ValueError):
    """The bytes of another member are no subscription or assignment. The text names the member."""


def encode_subscription(member: MemberSubscription, version: int | None = None) -> bytes:
    """Return the metadata with which a member joins; in the newest version by default."""
    values = {
        "topics": sorted(member.topics),
        "user_data": member.user_data or None,
        "owned_partitions": by_topic(member.owned),
        "generation_id": member.generation,
        "rack_id": member.rack,
    }
    return consumer_protocol.encode_subscription(values, version)


def decode_subscription(
    content: bytes, member_id: str, instance_id: str | None = None
) -> MemberSubscription:
    """Return what a member has told when it joined.

    Raises:
        MemberDataError: The bytes are no subscription. The text names the member.
    """
    try:
        values = consumer_protocol.decode_subscription(content)
    except MessageDecodeError as error:
        raise MemberDataError(
            f"member {member_id!r} of the group has joined with metadata that is no subscription "
            f"of a consumer: {error}"
        ) from error
    return MemberSubscription(
        topics=frozenset(values["topics"]),
        user_data=bytes(values["user_data"] or b""),
        owned=partitions_of(values["owned_partitions"]),
        generation=values["generation_id"],
        rack=values["rack_id"],
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the assignment of one member, as the leader sends it."""
    return consumer_protocol.encode_assignment({"assigned_partitions": by_topic(partitions)})


def decode_assignment(content: bytes, leader: str) -> frozenset[TopicPartition]:
    """Return the partitions that the leader has assigned to this member.

    No bytes at all mean that the leader has not named this member: it gets nothing.

    Raises:
        MemberDataError: The bytes are no assignment. The text names the leader.
    """
    if not content:
        return frozenset()
    try:
        values = consumer_protocol.decode_assignment(content)
    except MessageDecodeError as error:
        raise MemberDataError(
            f"{leader} has sent an assignment that is none of a consumer: {error}"
        ) from error
    return partitions_of(values["assigned_partitions"])
