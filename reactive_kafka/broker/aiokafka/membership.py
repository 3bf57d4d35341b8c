"""One client in its group: what it is assigned, rebalance callbacks passed on, and what the group
thinks of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.protocol.admin import DescribeGroupsRequest

from reactive_kafka.broker.aiokafka.asking import Questions
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.error_classes import code_of
from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, theirs, translate, within
from reactive_kafka.broker.client import STATIC_GENERATION, RebalanceListener
from reactive_kafka.errors import FatalBrokerError, FencedError, NotOwnerError, TransientBrokerError
from reactive_kafka.records import TopicPartition

FENCED_INSTANCE_ID = 82
_UUID_LENGTH = 36


class Assignment(Questions):
    """A connected client, and what it owns from the end of one rebalance to the end of the next
    revocation.
    """

    def __init__(self, *, is_static: bool, read_committed: bool) -> None:
        self.is_static = is_static
        self.read_committed = read_committed
        self.started: set[TopicPartition] = set()
        # The client's own object, kept: when a pattern finds another topic, the client drops its
        # assignment before it calls on_partitions_revoked, and nothing could be committed or
        # drained any more.
        self._theirs: Any = None

    @property
    def is_closed(self) -> bool:
        return self._client is None

    @property
    def generation(self) -> int:
        """The group's generation that this member is in, -1 outside of any; 0 for a static
        assignment.
        """
        return STATIC_GENERATION if self.is_static else int(self.client._coordinator.generation)

    def hold(self, partitions: Collection[Any]) -> None:
        """Keep newly assigned partitions from being fetched until ``start_at``, without the client
        resetting them.
        """
        self._theirs = self.client._subscription.subscription.assignment
        # Nothing flows before the hooks have run and the position is known, and the client must not
        # choose a position by itself (H12). So each partition is paused, and sought to 0: any
        # position would do, but with none every poll raises.
        for partition in partitions:
            state = self._theirs.state_value(partition)
            state.pause()
            state.seek(0)

    def add(self, partitions: Collection[TopicPartition]) -> list[Any]:
        """Add what is not assigned yet to a static assignment; what it is, as the client names it.

        The client knows no such thing: its ``assign`` would drop what it knows of the others, and
        has fetched.
        """
        assignment = self.client._subscription.subscription.assignment
        new = [one for one in theirs(sorted(partitions)) if one not in assignment.tps]
        assignment._tp_state.update({one: TopicPartitionState(assignment) for one in new})
        assignment._topic_partitions |= frozenset(new)
        return new

    def let_go(self) -> None:
        self.started.clear()
        self._theirs = None

    def check_owner(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless these partitions were assigned in *generation*, and still
        are.
        """
        if self.is_closed or self.generation != generation:
            raise NotOwnerError(f"the group has moved on from generation {generation}")
        self._check_assigned(partitions)

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self._check_assigned(positions)
        fetcher = self.client._fetcher
        fetcher._client.forget()
        for partition, offset in positions.items():
            state = self._theirs.state_value(partition)
            state.seek(offset)
            fetcher._records.pop(partition, None)
            if partition not in self.started:
                state.resume()
                self.started.add(partition)
        fetcher._notify(fetcher._wait_consume_future)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._theirs.state_value(partition).pause()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._theirs.state_value(partition).resume()

    def states(self) -> dict[TopicPartition, Any]:
        """partition -> the client's state of it, for those that have started."""
        return {partition: self._theirs.state_value(partition) for partition in self.started}

    def positions(self) -> dict[TopicPartition, int]:
        return {
            partition: state.position
            for partition, state in self.states().items()
            if state.has_valid_position
        }

    def end_of(self, state: Any) -> int | None:
        """End of the log as the last fetch saw it; None before one was answered, or where the
        broker does not tell.
        """
        end = state.lso if self.read_committed else state.highwater
        return None if end is None or end < 0 else int(end)

    def held_up(self) -> dict[TopicPartition, tuple[int, int]]:
        """partition -> last stable offset and end, as the last fetch saw them, where only an open
        transaction waits.
        """
        states = self.states() if self.read_committed and not self.is_closed else {}
        # Where it is paused the client does not fetch, and the two are of an unknown age.
        read = {one: at for one, at in states.items() if at.has_valid_position and not at.paused}
        known = {one: at for one, at in read.items() if at.lso is not None and at.lso >= 0}
        held_up = {one: at for one, at in known.items() if at.lso <= at.position < at.highwater}
        return {one: (int(at.lso), int(at.highwater)) for one, at in held_up.items()}

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = frozenset() if self._theirs is None else frozenset(self._theirs.tps)
        missing = [partition for partition in partitions if partition not in assigned]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")


# Aiokafka is untyped.
class Membership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes rebalances on. aiokafka swallows what a listener raises, so it is kept and raised by
    the next poll.

    Two clients with one ``group_instance_id`` throw each other out for ever (H16): aiokafka does
    nothing about the broker's word for it (FENCED_INSTANCE_ID), so the one that was thrown out
    joins again under the same name, which throws out the other, and both work on the same
    partitions meanwhile. Ours looks who goes by its name, and stays out.
    """

    # From when its consumer starts.
    listener: RebalanceListener

    def __init__(
        self,
        assignment: Assignment,
        group_id: str | None,
        instance_id: str | None,
        wake: Callable[[], None],
    ) -> None:
        self._is_busy = False
        self._assignment = assignment
        # None: it has joined no group, and nobody can put it out.
        self._group_id = group_id
        self._instance_id = instance_id
        # Makes a poll that waits return at once.
        self._wake = wake
        self._has_joined = False
        self._is_fenced = False
        self._error: Exception | None = None
        self._assigning: asyncio.Task[None] | None = None

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        try:
            with self._call():
                await self.listener.on_revoked(_ours(revoked))
                if not self.is_member() and await self._is_taken():
                    self._is_fenced = True
                    self._wake()
                    # Until the end: who returned would join again.
                    await asyncio.Event().wait()
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
            self._wake()
        finally:
            self._is_busy = False

    def assign(self, partitions: Collection[Any]) -> None:
        """Pass on a static assignment, which aiokafka tells nobody of."""
        self._assigning = asyncio.create_task(
            self.on_partitions_assigned(partitions), name="assign partitions"
        )

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Pass on partitions that have appeared beside those of a static assignment; the next call
        does it, if not now.

        They come alone, as in an assignment of a cooperative client.
        """
        if (
            self._assigning is not None
            and self._assigning.done()
            and (new := self._assignment.add(partitions))
        ):
            self.assign(new)

    async def close(self, caller: asyncio.Task[Any] | None) -> bool:
        """End the call that passes on a static assignment, unless that is the *caller*; True while
        one goes on.
        """
        if self._assigning is not None and self._assigning is not caller:
            await cancel([self._assigning])
        return self._is_busy

    def is_member(self) -> bool:
        if self._group_id is None or not self._has_joined or self._assignment.is_closed:
            return True
        # Thrown out, it is to ask for a new one.
        return bool(self._assignment.client._coordinator.member_id != "")

    async def raise_errors(self) -> None:
        """Raise what the listener raised, or the client has parked.

        FatalBrokerError: the broker refuses something, and the client tries it again after this
        call. TransientBrokerError: a task of the client has ended, which makes it useless.
        """
        raised = self._error
        self._error = None
        if raised is not None:
            raise raised
        if self._is_fenced:
            raise FencedError(_fenced(self._instance_id))
        client = self._assignment.client
        coordinator = client._coordinator
        # Without a group there is none.
        coordination = getattr(coordinator, "_coordination_task", None)
        for task in (coordination, client._fetcher._fetch_task):
            if task is not None and task.done():
                cause = None if task.cancelled() else task.exception()
                raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause
        try:
            await self._beat_again(coordinator)
            coordinator.check_errors()
        except kafka_errors.KafkaError as error:
            code = code_of(error)
            self._is_fenced = (
                code is not None and code.code == FENCED_INSTANCE_ID and await self._is_taken()
            )
            if self._is_fenced:
                raise FencedError(_fenced(self._instance_id)) from error
            # Also what may pass. The client is as good as any that would follow it, and still a
            # member: one that was made in its place would have to wait for the end of its session.
            raise FatalBrokerError(str(translate(error))) from error
        except TransientBrokerError as error:
            raise FatalBrokerError(str(error)) from error

    async def _beat_again(self, coordinator: Any) -> None:
        """Go on with heartbeats that have ended with an error; raise that for as long as the broker
        answers with it.

        The client's heartbeats end with the first one that is refused, because the right to read
        the group was withdrawn, and never begin again: it tells of that error for ever (H21).
        """
        ended = getattr(coordinator, "_heartbeat_task", None)
        if ended is None or not ended.done() or ended.cancelled() or ended.exception() is None:
            return

        async def beat() -> None:
            await coordinator.ensure_coordinator_known()
            # Thrown out, it is told to join again.
            await coordinator._do_heartbeat()

        await within(CALL_DEADLINE_S, beat(), "sending a heartbeat")
        # The old error.
        coordinator._pending_exception = None
        coordinator._heartbeat_task = None
        coordinator._start_heartbeat_task()

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
        others = {member[0] for group in answer.groups for member in group[5]} - {
            coordinator.member_id
        }
        # The broker calls a static member NAME-UUID.
        return any(member_id[: -_UUID_LENGTH - 1] == self._instance_id for member_id in others)


def _ours(partitions: Collection[Any]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(partition.topic, partition.partition) for partition in partitions
    )


def _fenced(instance_id: str | None) -> str:
    return (
        f"another consumer has joined the group with group_instance_id = {instance_id!r}, "
        "which only one at a time may have: this one stops"
    )
