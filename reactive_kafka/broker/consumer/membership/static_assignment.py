"""Partitions that a consumer has chosen itself, and keeps until it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from reactive_kafka.broker.client import STATIC_GENERATION, RebalanceListener
from reactive_kafka.broker.consumer.membership.group_parts import PartitionReader
from reactive_kafka.records import TopicPartition


class StaticAssignment:
    """Passes the partitions on to the listener, as an assignment that is never revoked.

    Args:
        reader: Fetches them.
        listener: Of the consumer.
    """

    def __init__(self, reader: PartitionReader, listener: RebalanceListener) -> None:
        self._reader = reader
        self._listener = listener
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._call: asyncio.Task[None] | None = None
        self._raised: Exception | None = None

    def start(self, partitions: Collection[TopicPartition]) -> None:
        """Pass on the first partitions, of which there may be none."""
        self._pass_on(frozenset(partitions))

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Pass on those of *partitions* that are new, once the last call has ended.

        They come alone, as in an assignment of a cooperative member.
        """
        new = frozenset(partitions) - self._partitions
        if new and self._call is not None and self._call.done():
            self._pass_on(new)

    def raise_errors(self) -> None:
        """Raise what the listener has raised, once."""
        raised = self._raised
        self._raised = None
        if raised is not None:
            raise raised

    async def close(self, caller: asyncio.Task[Any] | None) -> None:
        """Cancel the call of the listener, unless that is the *caller*."""
        call = self._call
        if call is not None and call is not caller:
            call.cancel()
            await asyncio.wait([call])

    def _pass_on(self, partitions: frozenset[TopicPartition]) -> None:
        self._partitions |= partitions
        self._reader.hold(partitions)
        self._call = asyncio.create_task(self._tell(partitions), name="assign partitions")

    async def _tell(self, partitions: frozenset[TopicPartition]) -> None:
        try:
            await self._listener.on_assigned(partitions, STATIC_GENERATION)
        except Exception as error:
            self._raised = error
            self._reader.wake()
