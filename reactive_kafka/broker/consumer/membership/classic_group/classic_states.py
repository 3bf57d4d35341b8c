"""The states of a member in the classic protocol, and the transitions between them. Pure."""

from __future__ import annotations

from enum import StrEnum


class ClassicMemberState(StrEnum):
    """How a member stands with its group.

    ``out``: it is in no generation, and joins next; ``joining``: its JoinGroup is on its way, or
    waits at the coordinator for the other members; ``leading``: it is the leader of the new
    generation, and has to distribute the partitions; ``syncing``: it asks for its assignment;
    ``stable``: it has an assignment; ``preparing``: it joins again as soon as it has given up what
    it must; ``removed``: the group does not count on it any more, and it must give up all
    partitions before it joins again; ``overdue``: it has left because nobody polled it, and it
    joins again after the next poll; ``fenced``: another consumer uses its ``group_instance_id``,
    so it never joins again; ``left``: it was stopped.
    """

    OUT = "out"
    JOINING = "joining"
    LEADING = "leading"
    SYNCING = "syncing"
    STABLE = "stable"
    PREPARING = "preparing"
    REMOVED = "removed"
    OVERDUE = "overdue"
    FENCED = "fenced"
    LEFT = "left"


_S = ClassicMemberState
# Each of these may happen at any time while the member takes part.
_ENDINGS = {
    "remove": _S.REMOVED,
    "overdue": _S.OVERDUE,
    "fence": _S.FENCED,
    "leave": _S.LEFT,
}
CLASSIC_MEMBER_TRANSITIONS: dict[ClassicMemberState, dict[str, ClassicMemberState]] = {
    _S.OUT: {"join": _S.JOINING, "overdue": _S.OVERDUE, "leave": _S.LEFT},
    _S.JOINING: {
        "lead": _S.LEADING,
        "follow": _S.SYNCING,
        "refuse": _S.PREPARING,
        **_ENDINGS,
    },
    _S.LEADING: {"plan": _S.SYNCING, "rebalance": _S.PREPARING, **_ENDINGS},
    _S.SYNCING: {"assign": _S.STABLE, "rebalance": _S.PREPARING, **_ENDINGS},
    _S.STABLE: {"rebalance": _S.PREPARING, **_ENDINGS},
    _S.PREPARING: {"join": _S.JOINING, "rebalance": _S.PREPARING, **_ENDINGS},
    _S.REMOVED: {"lost": _S.OUT, "leave": _S.LEFT},
    _S.OVERDUE: {"polled": _S.OUT, "leave": _S.LEFT},
    _S.FENCED: {"leave": _S.LEFT},
    _S.LEFT: {},
}
"""state -> event -> next state.

``join``: JoinGroup is sent; ``refuse``: JoinGroup was refused or not answered, or its answer names
the id to join with; ``lead``: a generation begins, and this member is its leader; ``follow``: a
generation begins, and another member is its leader; ``plan``: the partitions are distributed;
``assign``: the member has its assignment; ``rebalance``: the members have to join again;
``remove``: the group does not know the member, or not in this generation; ``lost``: all of its
partitions are given up; ``overdue``: nobody has polled the consumer for ``max_poll_interval_ms``;
``polled``: somebody has polled it again, and its partitions are given up; ``fence``: another
consumer has its ``group_instance_id``; ``leave``: it is stopped.
"""

OUT_OF_GROUP = frozenset({_S.REMOVED, _S.OVERDUE, _S.FENCED})
"""In these states the member has lost its partitions, and has to give them up."""
