"""What is true of a static assignment with every client: partitions named, no group joined."""

from __future__ import annotations

GENERATION = 0
"""Of its one assignment."""

NO_GROUP = "a consumer without a group_id has no committed positions"
"""Why it can neither store one nor ask for it."""


def members_share(group_id: str) -> str:
    """Why a position cannot be stored in a group that has members."""
    return (
        f"group {group_id!r} has members, which share their partitions among themselves: "
        "who is none of them stores positions only in a group without members"
    )
