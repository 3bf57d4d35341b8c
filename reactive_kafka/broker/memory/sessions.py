"""Members of the in-memory broker that are cut off from their group, until their sessions end or
they are healed.
"""

from __future__ import annotations

import asyncio

from reactive_kafka.broker.memory.group import Group
from reactive_kafka.broker.memory.member import Member


def cut_off(group: Group, member_id: str, now: float) -> None:
    """Cut a member off: it is out when its session has ended, and is not told. KeyError: there is
    none.
    """
    member = group.members[member_id]
    member.cut_since = now
    member.cut = asyncio.create_task(_end_session(group, member), name=f"{member_id}-cut-off")
    group.cut_off.append(member)


def heal(group: Group) -> None:
    """Members reach the group again: whose session has ended is told, and joins anew."""
    healed = group.cut_off
    group.cut_off = []
    for member in healed:
        if member.cut is not None:
            member.cut.cancel()
        member.cut_since = member.cut = None
        if member.member_id not in group.members:
            group.do_later(group.return_later(member, 0))


async def _end_session(group: Group, member: Member) -> None:
    await asyncio.sleep(member.session_timeout_s)
    if group.members.pop(member.member_id, None) is not None:
        group.rebalance()
