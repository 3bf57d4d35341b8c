"""The states of a lane and the transitions between them, as a table. Pure.

An event that a state has no row for is a bug of ours: :func:`next_state` raises.
"""

from __future__ import annotations

from enum import StrEnum


class LaneState(StrEnum):
    """Whether records of a lane may be taken.

    ``open``: records may be taken; ``paused``: the application has paused the partition or the
    channel; ``suspended``: the partition is being revoked, or the channel ends, and the records
    stay until it is known whether the partition is retained; ``suspended and paused``: both;
    ``dropped``: its records belong to another member, or are read again.
    """

    OPEN = "open"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    SUSPENDED_AND_PAUSED = "suspended and paused"
    DROPPED = "dropped"


_L = LaneState
LANE_TRANSITIONS: dict[LaneState, dict[str, LaneState]] = {
    _L.OPEN: {"pause": _L.PAUSED, "suspend": _L.SUSPENDED, "drop": _L.DROPPED},
    _L.PAUSED: {
        "pause": _L.PAUSED,
        "resume": _L.OPEN,
        "suspend": _L.SUSPENDED_AND_PAUSED,
        "drop": _L.DROPPED,
    },
    _L.SUSPENDED: {
        "pause": _L.SUSPENDED_AND_PAUSED,
        "suspend": _L.SUSPENDED,
        "retain": _L.OPEN,
        "drop": _L.DROPPED,
    },
    _L.SUSPENDED_AND_PAUSED: {
        "pause": _L.SUSPENDED_AND_PAUSED,
        "resume": _L.SUSPENDED,
        "suspend": _L.SUSPENDED_AND_PAUSED,
        "retain": _L.PAUSED,
        "drop": _L.DROPPED,
    },
    _L.DROPPED: {},
}
"""state -> event -> next state.

``pause``: by the application; ``resume``: by the application; ``suspend``: the partition is being
revoked, or the channel ends; ``retain``: it was assigned to us again, at the position where we left
it; ``drop``: its records belong to another member, or are read again."""

REVOKED_LANES = frozenset({_L.SUSPENDED, _L.SUSPENDED_AND_PAUSED, _L.DROPPED})
"""The partition is being taken or gone: nothing that was fetched for it may be added."""

PAUSED_LANES = frozenset({_L.PAUSED, _L.SUSPENDED_AND_PAUSED})
"""Lanes that the application has paused."""

OPEN = LaneState.OPEN
"""Hot loops compare with this: a module's name is found faster than a member of an enum."""
