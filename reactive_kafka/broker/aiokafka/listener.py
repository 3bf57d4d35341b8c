"""aiokafka's rebalance callbacks, passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from aiokafka.abc import ConsumerRebalanceListener

from reactive_kafka.broker.aiokafka.assignment import Assignment
from reactive_kafka.broker.aiokafka.membership import Membership
from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.broker.finish import cancel
from reactive_kafka.records import TopicPartition


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes rebalances on. aiokafka swallows what a listener raises, so it is kept and raised by the next poll."""

    def __init__(self, listener: RebalanceListener, assignment: Assignment, membership: Membership) -> None:
        self.is_busy = False
        self._listener = listener
        self._assignment = assignment
        self._membership = membership
        self._error: Exception | None = None
        self._assigning: asyncio.Task[None] | None = None

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """What we have is about to go."""
        self.is_busy = True
        try:
            await self._listener.on_revoked(_ours(revoked))
            await self._membership.stay_out_if_fenced()
        except Exception as error:
            self._error = error
        finally:
            self.is_busy = False
            self._assignment.let_go()

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Partitions are ours, and are fetched once the listener has said where they begin."""
        self.is_busy = True
        try:
            self._membership.has_joined = True
            self._assignment.hold(assigned)
            await self._listener.on_assigned(_ours(assigned), self._assignment.generation)
        except Exception as error:
            self._error = error
        finally:
            self.is_busy = False

    def assign(self, partitions: Collection[Any]) -> None:
        """Pass on a static assignment, which aiokafka tells nobody of."""
        self._assigning = asyncio.create_task(self.on_partitions_assigned(partitions), name="assign partitions")

    def raise_error(self) -> None:
        """Raise what the listener has raised since the last call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def close(self, caller: asyncio.Task[Any] | None) -> None:
        """End the call that passes on a static assignment, except where it is the *caller* of this."""
        if self._assigning is not None and self._assigning is not caller:
            await cancel([self._assigning])


def _ours(partitions: Collection[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(partition.topic, partition.partition) for partition in partitions)
