"""What the error codes of the classic protocol mean for a member. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum

from reactive_kafka.broker.error_codes import error_code


class ClassicRequest(StrEnum):
    """The requests of a member, by their names in Kafka."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"


class ClassicAnswer(Enum):
    """What a member does after an answer."""

    ACCEPTED = "the request has done what it should"
    NAMED = "the coordinator has given the member an id: join again with it, at once"
    RETRY = "send the request again after a pause"
    FIND_COORDINATOR = "look for the coordinator, and send the request again after a pause"
    REBALANCE = "the members have to join again"
    OUTDATED = "the group has gone on without the member: all partitions are lost, join again"
    REMOVED = "the group does not know the member: all partitions are lost, join as a new one"
    FENCED = "another consumer has the group_instance_id: all partitions are lost, for good"
    OPERATOR = "an operator must act: report it, and send the request again after a pause"


ANSWERS: Mapping[int, ClassicAnswer] = {
    0: ClassicAnswer.ACCEPTED,
    # COORDINATOR_LOAD_IN_PROGRESS
    14: ClassicAnswer.RETRY,
    # COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
    15: ClassicAnswer.FIND_COORDINATOR,
    16: ClassicAnswer.FIND_COORDINATOR,
    # ILLEGAL_GENERATION
    22: ClassicAnswer.OUTDATED,
    # UNKNOWN_MEMBER_ID
    25: ClassicAnswer.REMOVED,
    # REBALANCE_IN_PROGRESS
    27: ClassicAnswer.REBALANCE,
    # MEMBER_ID_REQUIRED
    79: ClassicAnswer.NAMED,
    # FENCED_INSTANCE_ID
    82: ClassicAnswer.FENCED,
}
"""Error code -> what it means. All other codes go by Kafka's table of error codes."""

_SET_ASSIGNORS = (
    "the members of the group have no assignor in common: set assignors to a list that contains "
    "one that all other members offer, such as 'range'; or the group is not of consumers"
)
REMEDIES: Mapping[int, str] = {
    23: _SET_ASSIGNORS,
    24: "the broker accepts no such group_id",
    26: (
        "session_timeout_ms must be between the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    30: "the right READ on the group is missing",
    35: "a group_instance_id needs Kafka 2.3 or newer",
    81: "the group has as many members as the broker's group.max.size allows",
}
"""Error code -> what an operator can change."""


def meaning_of(request: ClassicRequest, code: int) -> ClassicAnswer:
    """Return what the error code of an answer means for the member."""
    known = ANSWERS.get(code)
    if request is ClassicRequest.JOIN and known in (
        ClassicAnswer.REBALANCE,
        ClassicAnswer.OUTDATED,
    ):
        # A JoinGroup names no generation. So the coordinator is busy with another rebalance.
        return ClassicAnswer.RETRY
    if request is not ClassicRequest.JOIN and known is ClassicAnswer.NAMED:
        return ClassicAnswer.OPERATOR
    if known is not None:
        return known
    return ClassicAnswer.RETRY if error_code(code).is_retriable else ClassicAnswer.OPERATOR


def describe_refusal(group_id: str, code: int) -> str:
    """Return the text of a refusal, for the operator."""
    text = f"group {group_id!r} refuses this member: [Error {code}] {error_code(code).name}"
    remedy = REMEDIES.get(code)
    return text if remedy is None else f"{text}: {remedy}"
