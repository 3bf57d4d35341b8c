"""One client in its group: aiokafka's rebalance callbacks passed on, and what the group thinks of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.protocol.admin import DescribeGroupsRequest

from reactive_kafka.broker.aiokafka.assignment import Assignment
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, translate
from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.errors import FencedError, TransientBrokerError
from reactive_kafka.records import TopicPartition

_UUID_LENGTH = 36


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes rebalances on. aiokafka swallows what a listener raises, so it is kept and raised by the next poll.

    Two clients with one ``group_instance_id`` throw each other out for ever (H16): aiokafka does not know the
    broker's word for it (FENCED_INSTANCE_ID), so the one that was thrown out joins again under the same name, which
    throws out the other, and both work on the same partitions meanwhile. Ours looks who goes by its name, and stays
    out.

    Args:
        group_id: None where it has joined no group, and nobody can put it out.
        wake: Makes a poll that waits return at once.
    """

    listener: RebalanceListener  # from when its consumer starts

    def __init__(
        self, assignment: Assignment, group_id: str | None, instance_id: str | None, wake: Callable[[], None]
    ) -> None:
        self._is_busy = False
        self._assignment = assignment
        self._group_id = group_id
        self._instance_id = instance_id
        self._wake = wake
        self._has_joined = False
        self._is_fenced = False
        self._error: Exception | None = None
        self._assigning: asyncio.Task[None] | None = None

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        try:
            with self._call():
                await self.listener.on_revoked(_ours(revoked))
                await self._stay_out_if_fenced()
        finally:
            self._assignment.let_go()

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        with self._call():
            self._has_joined = True
            self._assignment.hold(assigned)
            await self.listener.on_assigned(_ours(assigned), self._assignment.generation)

    @contextmanager
    def _call(self) -> Iterator[None]:
        self._is_busy = True
        try:
            yield
        except Exception as error:
            self._error = error
        finally:
            self._is_busy = False

    def assign(self, partitions: Collection[Any]) -> None:
        """Pass on a static assignment, which aiokafka tells nobody of."""
        self._assigning = asyncio.create_task(self.on_partitions_assigned(partitions), name="assign partitions")

    async def close(self, caller: asyncio.Task[Any] | None) -> bool:
        """End the call that passes on a static assignment, unless that is the *caller*; True while one goes on."""
        if self._assigning is not None and self._assigning is not caller:
            await cancel([self._assigning])
        return self._is_busy

    def is_member(self) -> bool:
        if self._group_id is None or not self._has_joined or self._assignment.is_closed:
            return True
        return bool(self._assignment.client._coordinator.member_id != "")  # thrown out, it is to ask for a new one

    async def raise_errors(self) -> None:
        """Raise what the listener raised, or the client has parked; a task of its that has ended makes it useless."""
        raised, self._error = self._error, None
        if raised is not None:
            raise raised
        if self._is_fenced:
            raise FencedError(_fenced(self._instance_id))
        client = self._assignment.client
        coordinator = client._coordinator
        coordination = getattr(coordinator, "_coordination_task", None)  # without a group there is none
        for task in (coordination, client._fetcher._fetch_task):
            if task is not None and task.done():
                cause = None if task.cancelled() else task.exception()
                raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause
        try:
            coordinator.check_errors()
        except kafka_errors.KafkaError as error:
            # FENCED_INSTANCE_ID (82) came after aiokafka's list of errors, and reaches us as its UnknownError.
            self._is_fenced = "UnknownError" in str(error) and await self._is_taken()
            if self._is_fenced:
                raise FencedError(_fenced(self._instance_id)) from error
            raise translate(error) from error

    async def _stay_out_if_fenced(self) -> None:
        """Do not join again, until the end, where another goes by our ``group_instance_id``."""
        if not self.is_member() and await self._is_taken():
            self._is_fenced = True
            self._wake()
            await asyncio.Event().wait()

    async def _is_taken(self) -> bool:
        """Whether the group has another member of our name; False where nobody can tell in time."""
        if self._instance_id is None or self._group_id is None:
            return False
        client = self._assignment.client
        coordinator = client._coordinator
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await coordinator.ensure_coordinator_known()
                request = DescribeGroupsRequest([self._group_id])
                answer = await client._client.send(coordinator.coordinator_id, request)
        except (kafka_errors.KafkaError, TimeoutError):
            return False
        others = {member[0] for group in answer.groups for member in group[5]} - {coordinator.member_id}
        # The broker calls a static member NAME-UUID.
        return any(member_id[: -_UUID_LENGTH - 1] == self._instance_id for member_id in others)


def _ours(partitions: Collection[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(partition.topic, partition.partition) for partition in partitions)


def _fenced(instance_id: str | None) -> str:
    return (
        f"another consumer has joined the group with group_instance_id = {instance_id!r}, "
        "which only one at a time may have: this one stops"
    )
