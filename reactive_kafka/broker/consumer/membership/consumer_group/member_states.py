"""The states of a member in the consumer protocol, and the transitions between them. Pure."""

from __future__ import annotations

from enum import StrEnum


class ConsumerMemberState(StrEnum):
    """How a member stands with its group.

    ``out``: it is no member, and the next heartbeat joins; ``joining``: that heartbeat is on its
    way; ``member``: the group knows it; ``removed``: the group has removed it, and it must give up
    all partitions before it joins again; ``overdue``: it has left because nobody polled it, and it
    joins again after the next poll; ``fenced``: another consumer uses its ``group_instance_id``,
    so it never joins again; ``left``: it was stopped.
    """

    OUT = "out"
    JOINING = "joining"
    MEMBER = "member"
    REMOVED = "removed"
    OVERDUE = "overdue"
    FENCED = "fenced"
    LEFT = "left"


_S = ConsumerMemberState
CONSUMER_MEMBER_TRANSITIONS: dict[ConsumerMemberState, dict[str, ConsumerMemberState]] = {
    _S.OUT: {"join": _S.JOINING, "overdue": _S.OVERDUE, "leave": _S.LEFT},
    _S.JOINING: {
        "admit": _S.MEMBER,
        "refuse": _S.OUT,
        "fence": _S.FENCED,
        "leave": _S.LEFT,
    },
    _S.MEMBER: {
        "remove": _S.REMOVED,
        "overdue": _S.OVERDUE,
        "fence": _S.FENCED,
        "leave": _S.LEFT,
    },
    _S.REMOVED: {"lost": _S.OUT, "leave": _S.LEFT},
    _S.OVERDUE: {"polled": _S.OUT, "leave": _S.LEFT},
    _S.FENCED: {"leave": _S.LEFT},
    _S.LEFT: {},
}
"""state -> event -> next state.

``join``: the first heartbeat is sent; ``admit``: the group has answered it with an epoch;
``refuse``: the group has refused it, or did not answer; ``remove``: the group does not know the
member any more; ``lost``: all of its partitions are given up; ``overdue``: nobody has polled the
consumer for ``max_poll_interval_ms``; ``polled``: somebody has polled it again, and its partitions
are given up; ``fence``: another consumer has its ``group_instance_id``; ``leave``: it is stopped.
"""
