"""Static membership: whether somebody else goes by our ``group_instance_id``.

aiokafka neither knows the broker's word for it (FENCED_INSTANCE_ID) nor stops: whoever is thrown out joins again
under the same name, which throws out the other, for ever, and both work on the same partitions meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol.admin import DescribeGroupsRequest

DEADLINE_S = 5.0
_UUID_LENGTH = 36


async def is_taken(consumer: Any, group_id: str, instance_id: str) -> bool:
    """Whether the group has a member of that name which is not this one; False where nobody can tell in time."""
    coordinator = consumer._coordinator
    try:
        async with asyncio.timeout(DEADLINE_S):
            await coordinator.ensure_coordinator_known()
            answer = await consumer._client.send(coordinator.coordinator_id, DescribeGroupsRequest([group_id]))
    except (kafka_errors.KafkaError, TimeoutError):
        return False
    members = {member[0] for group in answer.groups for member in group[5]}
    return any(name_of(member) == instance_id for member in members - {coordinator.member_id})


def name_of(member_id: str) -> str:
    """The ``group_instance_id`` in the id that the broker gave a static member: NAME-UUID."""
    return member_id[: -_UUID_LENGTH - 1]


def fenced(instance_id: str) -> str:
    """What to tell whoever has to act."""
    return (
        f"another consumer has joined the group with group_instance_id = {instance_id!r}, "
        "which only one at a time may have: this one stops"
    )
