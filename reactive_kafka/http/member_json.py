"""What a page shows of each member: of this process, and of answers from other ones. Pure.

An answer of another process is data like any other: only known fields are taken, numbers that are
numbers and texts of one line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reactive_kafka.observe.safe_text import one_line

Json = Mapping[str, Any]

MOST_CHANNELS = 200
MOST_MEMBERS = 64
"""How much is taken from one answer."""
_TEXTS = ("name", "version", "host", "state", "status", "reason")
_NUMBERS = ("pid", "worker", "uptime_seconds")
_CHANNEL_TEXTS = ("channel", "state", "status")
_CHANNEL_NUMBERS = ("partition_count", "lag", "in_flight", "poison")


def member_of(facts: Json) -> dict[str, Any]:
    """Return this process as a member, from what an event of the stream holds."""
    application = facts["application"]
    reasons = [f"{one['name']}: {one['reason']}" for one in application["reasons"]]
    return {
        "address": None,
        "worker": None,
        "is_reached": True,
        "name": application["name"],
        "version": application["version"],
        "host": application["host"],
        "pid": application["pid"],
        "uptime_seconds": application["uptime_seconds"],
        "state": application["state"],
        "status": application["status"],
        "reason": "; ".join(reasons) or None,
        "channels": [
            {
                "channel": channel["channel"],
                "state": channel["state"],
                "status": channel["status"],
                "partition_count": channel["partition_count"],
                "lag": channel["lag"],
                "in_flight": channel["in_flight"],
                "poison": len(channel["poison"]),
            }
            for channel in facts["incoming"]
        ],
    }


def unreached(reason: str, *, address: str | None = None, worker: int | None = None) -> Json:
    """Return a member that has not answered, and why."""
    return {
        "address": address,
        "worker": worker,
        "is_reached": False,
        **dict.fromkeys(("name", "version", "host", "pid", "uptime_seconds", "state", "status")),
        "reason": one_line(reason),
        "channels": [],
    }


def not_among(members: Sequence[Json], others: Sequence[Json]) -> list[Json]:
    """Return the *others* that are not among the *members*.

    All processes of a service may have the same list of peers, so each finds itself there.
    """
    known = {_process(one) for one in members}
    return [one for one in others if not one["is_reached"] or _process(one) not in known]


def _process(member: Json) -> tuple[object, object]:
    return member["host"], member["pid"]


def members_in(body: bytes, *, address: str | None = None) -> Sequence[Json]:
    """Return the members in an answer to ``GET /api/members``.

    Args:
        address: The peer that has answered.

    Raises:
        ValueError: It is no such answer.
    """
    try:
        answer = json.loads(body)
    except RecursionError as error:
        raise ValueError("it is too deep") from error
    members = answer.get("members") if isinstance(answer, dict) else None
    if not isinstance(members, list) or not members:
        raise ValueError("it has no list of members")
    return [_taken(one, address) for one in members[:MOST_MEMBERS] if isinstance(one, dict)]


def _taken(member: Json, address: str | None) -> Json:
    channels = member.get("channels")
    listed = channels if isinstance(channels, list) else []
    return {
        "address": address,
        "is_reached": member.get("is_reached") is True,
        **{name: _text(member.get(name)) for name in _TEXTS},
        **{name: _number(member.get(name)) for name in _NUMBERS},
        "channels": [
            {
                **{name: _text(channel.get(name)) for name in _CHANNEL_TEXTS},
                **{name: _number(channel.get(name)) for name in _CHANNEL_NUMBERS},
            }
            for channel in listed[:MOST_CHANNELS]
            if isinstance(channel, dict)
        ],
    }


def _text(value: object) -> str | None:
    return one_line(value) if isinstance(value, str) else None


def _number(value: object) -> int | float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # JSON as Python reads it has NaN and infinity; as browsers read it, it has neither.
    if not is_number or not -1e18 < value < 1e18:  # type: ignore[operator]
        return None
    return value  # type: ignore[return-value]
