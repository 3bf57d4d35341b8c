"""What a client's group thinks of it: whether it is a member, and whether another goes by its ``group_instance_id``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.protocol.admin import DescribeGroupsRequest

from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, translate
from reactive_kafka.errors import FencedError, TransientBrokerError

_UUID_LENGTH = 36


class Membership:
    """One client in its group; also of a client that has none, which nobody can put out.

    Two clients with one ``group_instance_id`` throw each other out for ever (H16): aiokafka does not know the
    broker's word for it (FENCED_INSTANCE_ID), so the one that was thrown out joins again under the same name, which
    throws out the other, and both work on the same partitions meanwhile. Ours looks who goes by its name, and stays
    out.

    Args:
        client: The client, which has started.
        group_id: None where it has joined no group.
        instance_id: Its ``group_instance_id``.
        wake: Makes a poll that waits return at once.
    """

    def __init__(
        self,
        client: aiokafka.AIOKafkaConsumer,
        group_id: str | None,
        instance_id: str | None,
        wake: Callable[[], None],
    ) -> None:
        self.has_joined = False
        self._client = client
        self._group_id = group_id
        self._instance_id = instance_id
        self._wake = wake
        self._is_fenced = False

    def is_member(self) -> bool:
        """False once the group has put this client out, and told it so."""
        if self._group_id is None or not self.has_joined:
            return True
        return bool(self._client._coordinator.member_id != "")  # thrown out, it is to ask for a new one

    async def stay_out_if_fenced(self) -> None:
        """Do not join again, until the end, where another goes by our ``group_instance_id``."""
        if not self.is_member() and await self._is_taken():
            self._is_fenced = True
            self._wake()
            await asyncio.Event().wait()

    async def raise_errors(self) -> None:
        """Raise what the client has parked for the next poll; a task of its that has ended makes it useless."""
        if self._is_fenced:
            raise FencedError(_fenced(str(self._instance_id)))
        coordinator = self._client._coordinator
        coordination = getattr(coordinator, "_coordination_task", None)  # without a group there is none
        for task in (coordination, self._client._fetcher._fetch_task):
            if task is not None and task.done():
                cause = None if task.cancelled() else task.exception()
                raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause
        try:
            coordinator.check_errors()
        except kafka_errors.KafkaError as error:
            # FENCED_INSTANCE_ID (82) came after aiokafka's list of errors, and reaches us as its UnknownError.
            self._is_fenced = "UnknownError" in str(error) and await self._is_taken()
            if self._is_fenced:
                raise FencedError(_fenced(str(self._instance_id))) from error
            raise translate(error) from error

    async def _is_taken(self) -> bool:
        """Whether the group has another member of our name; False where nobody can tell in time."""
        if self._instance_id is None or self._group_id is None:
            return False
        coordinator = self._client._coordinator
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await coordinator.ensure_coordinator_known()
                request = DescribeGroupsRequest([self._group_id])
                answer = await self._client._client.send(coordinator.coordinator_id, request)
        except (kafka_errors.KafkaError, TimeoutError):
            return False
        members = {member[0] for group in answer.groups for member in group[5]}
        return any(_name_of(member) == self._instance_id for member in members - {coordinator.member_id})


def _name_of(member_id: str) -> str:
    """The ``group_instance_id`` in the id that the broker gave a static member: NAME-UUID."""
    return member_id[: -_UUID_LENGTH - 1]


def _fenced(instance_id: str) -> str:
    return (
        f"another consumer has joined the group with group_instance_id = {instance_id!r}, "
        "which only one at a time may have: this one stops"
    )
