"""What the error code of a heartbeat in the consumer protocol means for the member. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from reactive_kafka.broker.error_codes import error_code


class HeartbeatAnswer(Enum):
    """What a member does after an answer."""

    ACCEPTED = "it is a member"
    RETRY = "send the heartbeat again after a pause"
    FIND_COORDINATOR = "look for the coordinator, and send the heartbeat again after a pause"
    REMOVED = "the group does not know the member: all partitions are lost, join again"
    FENCED = "another consumer has the group_instance_id: all partitions are lost, for good"
    OPERATOR = "an operator must act: report it, and send the heartbeat again after a pause"


GROUP_ID_NOT_FOUND = 69

ANSWERS: Mapping[int, HeartbeatAnswer] = {
    0: HeartbeatAnswer.ACCEPTED,
    # COORDINATOR_LOAD_IN_PROGRESS
    14: HeartbeatAnswer.RETRY,
    # COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
    15: HeartbeatAnswer.FIND_COORDINATOR,
    16: HeartbeatAnswer.FIND_COORDINATOR,
    # UNKNOWN_MEMBER_ID
    25: HeartbeatAnswer.REMOVED,
    # FENCED_INSTANCE_ID
    82: HeartbeatAnswer.FENCED,
    # FENCED_MEMBER_EPOCH
    110: HeartbeatAnswer.REMOVED,
    # UNRELEASED_INSTANCE_ID: the name is free when the other member's session ends.
    111: HeartbeatAnswer.OPERATOR,
}
"""Error code -> what it means. All other codes go by Kafka's table of error codes."""

REMEDIES: Mapping[int, str] = {
    30: "the right READ on the group is missing",
    29: "the right DESCRIBE on a topic is missing",
    35: "the cluster does not have the consumer protocol: set group_protocol to 'classic'",
    GROUP_ID_NOT_FOUND: (
        "the group has members of the classic protocol, and the broker's "
        "group.consumer.migration.policy does not let others join: set group_protocol to 'classic'"
    ),
    81: "the group has as many members as group.consumer.max.size allows",
    111: (
        "another member has the same group_instance_id: "
        "this one joins when that one has left, or its session is over"
    ),
    112: "the broker does not have this assignor: set assignor to 'uniform' or 'range'",
}
"""Error code -> what an operator can change."""


def meaning_of(code: int, *, is_join: bool) -> HeartbeatAnswer:
    """Return what the error code of an answer means for the member.

    Args:
        code: The error code.
        is_join: Whether the heartbeat has asked to join.
    """
    if code == GROUP_ID_NOT_FOUND and not is_join:
        # The group has removed the last member of the consumer protocol, and has become classic.
        # When this member joins again, the broker makes it a consumer group again.
        return HeartbeatAnswer.REMOVED
    known = ANSWERS.get(code)
    if known is not None:
        return known
    return HeartbeatAnswer.RETRY if error_code(code).is_retriable else HeartbeatAnswer.OPERATOR


def describe_refusal(group_id: str, code: int, message: str | None) -> str:
    """Return the text of a refusal, for the operator."""
    text = f"group {group_id!r} refuses this member: [Error {code}] {error_code(code).name}"
    parts = [text, *(part for part in (message, REMEDIES.get(code)) if part)]
    return ": ".join(parts)
