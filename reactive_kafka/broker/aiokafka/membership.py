"""A consumer's membership in its group: passes rebalances on, and notices that it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.protocol.admin import DescribeGroupsRequest

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.error_classes import code_of
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.owned_partitions import OwnedPartitions
from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.errors import FatalBrokerError, FencedError, TransientBrokerError
from reactive_kafka.records import TopicPartition

FENCED_INSTANCE_ID = 82
_UUID_LENGTH = 36


# aiokafka is untyped.
class Membership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes aiokafka's rebalance callbacks on to the listener of the consumer.

    aiokafka swallows what a listener raises. So an error is kept, and the next poll raises it.

    Two clients with one ``group_instance_id`` would remove each other for ever (H16). The broker
    tells the removed client so (FENCED_INSTANCE_ID), but aiokafka ignores that and joins again
    under the same name, which removes the other one. Meanwhile both work on the same partitions.
    This class checks who uses the name, and does not join again.

    Args:
        owned: The consumer's partitions.
        group_id: None: it has joined no group, so no group can remove it.
        instance_id: Its ``group_instance_id``.
        wake: Ends a waiting poll.
    """

    # Set when the consumer starts.
    listener: RebalanceListener

    def __init__(
        self,
        owned: OwnedPartitions,
        group_id: str | None,
        instance_id: str | None,
        wake: Callable[[], None],
    ) -> None:
        self._is_busy = False
        self._owned = owned
        self._group_id = group_id
        self._instance_id = instance_id
        self._wake = wake
        self._has_joined = False
        self._is_fenced = False
        self._error: Exception | None = None
        self._static_assignment: asyncio.Task[None] | None = None

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        try:
            with self._calling_listener():
                await self.listener.on_revoked(_ours(revoked))
                if not self.is_member() and await self._is_instance_id_taken():
                    self._is_fenced = True
                    self._wake()
                    # Wait until the consumer is closed: aiokafka joins again when this returns.
                    await asyncio.Event().wait()
        finally:
            self._owned.let_go()

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        with self._calling_listener():
            self._has_joined = True
            self._owned.hold(assigned)
            await self.listener.on_assigned(_ours(assigned), self._owned.generation)

    @contextmanager
    def _calling_listener(self) -> Iterator[None]:
        self._is_busy = True
        try:
            yield
        except Exception as error:
            self._error = error
            self._wake()
        finally:
            self._is_busy = False

    def assign(self, partitions: Collection[Any]) -> None:
        """Pass on a static assignment, for which aiokafka calls no listener."""
        self._static_assignment = asyncio.create_task(
            self.on_partitions_assigned(partitions), name="assign partitions"
        )

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Pass on partitions that a static assignment has got since, once the last call has ended.

        They come alone, as in an assignment of a cooperative client.
        """
        if self._static_assignment is None or not self._static_assignment.done():
            return
        new = self._owned.add(partitions)
        if new:
            self.assign(new)

    async def close(self, caller: asyncio.Task[Any] | None) -> bool:
        """End the call that passes on a static assignment, unless that call is the *caller*.

        Returns:
            True while a listener is being called.
        """
        if self._static_assignment is not None and self._static_assignment is not caller:
            await cancel([self._static_assignment])
        return self._is_busy

    def is_member(self) -> bool:
        """Return False once the group has removed this client and told it so."""
        if self._group_id is None or not self._has_joined or self._owned.is_closed:
            return True
        # A client that was removed forgets its member id, to ask for a new one.
        return bool(self._owned.client._coordinator.member_id != "")

    async def raise_errors(self) -> None:
        """Raise what the listener has raised, or what the client has kept.

        Raises:
            FatalBrokerError: The broker refuses something. The client tries it again after this
                call.
            FencedError: Another consumer uses the same ``group_instance_id``.
            TransientBrokerError: A task of the client has ended, which makes it useless.
        """
        raised = self._error
        self._error = None
        if raised is not None:
            raise raised
        if self._is_fenced:
            raise FencedError(_fenced_text(self._instance_id))
        client = self._owned.client
        coordinator = client._coordinator
        # A static assignment has no such task.
        coordination = getattr(coordinator, "_coordination_task", None)
        for task in (coordination, client._fetcher._fetch_task):
            if task is not None and task.done():
                cause = None if task.cancelled() else task.exception()
                raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause
        try:
            await self._restart_heartbeats(coordinator)
            coordinator.check_errors()
        except kafka_errors.KafkaError as error:
            code = code_of(error)
            is_fencing = code is not None and code.code == FENCED_INSTANCE_ID
            self._is_fenced = is_fencing and await self._is_instance_id_taken()
            if self._is_fenced:
                raise FencedError(_fenced_text(self._instance_id)) from error
            # Also for errors that may pass. This client is as good as a new one would be, and still
            # a member. A new client would have to wait for the end of this one's session.
            raise FatalBrokerError(str(translate(error))) from error
        except TransientBrokerError as error:
            raise FatalBrokerError(str(error)) from error

    async def _restart_heartbeats(self, coordinator: Any) -> None:
        """Start heartbeats again after an error. Raises it as long as the broker repeats it.

        The first refused heartbeat, for example because the right to read the group was withdrawn,
        ends the client's heartbeats for good, and the client reports that error for ever (H21).
        """
        ended = getattr(coordinator, "_heartbeat_task", None)
        if ended is None or not ended.done() or ended.cancelled() or ended.exception() is None:
            return

        async def beat() -> None:
            await coordinator.ensure_coordinator_known()
            # A member that was removed learns here that it has to join again.
            await coordinator._do_heartbeat()

        await within(CALL_DEADLINE_S, beat(), "sending a heartbeat")
        # The client keeps the error that has ended the heartbeats.
        coordinator._pending_exception = None
        coordinator._heartbeat_task = None
        coordinator._start_heartbeat_task()

    async def _is_instance_id_taken(self) -> bool:
        """True if the group has another member with our instance id; False if that is not known."""
        if self._instance_id is None or self._group_id is None:
            return False
        client = self._owned.client
        coordinator = client._coordinator
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await coordinator.ensure_coordinator_known()
                request = DescribeGroupsRequest([self._group_id])
                answer = await client._client.send(coordinator.coordinator_id, request)
        except (kafka_errors.KafkaError, TimeoutError):
            return False
        others = {member[0] for group in answer.groups for member in group[5]} - {
            coordinator.member_id
        }
        # The broker calls a static member NAME-UUID.
        return any(member_id[: -_UUID_LENGTH - 1] == self._instance_id for member_id in others)


def _ours(partitions: Collection[Any]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(partition.topic, partition.partition) for partition in partitions
    )


def _fenced_text(instance_id: str | None) -> str:
    return (
        f"another consumer has joined the group with group_instance_id = {instance_id!r}, "
        "which only one at a time may have: this one stops"
    )
