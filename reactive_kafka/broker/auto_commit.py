"""Consumers that commit by themselves, and ``enable_auto_commit`` as one of them.

With it the positions of the records that polls have returned are committed periodically, whether or
not the records are settled. It is done here for every client. aiokafka's own auto-commit would also
commit positions of partitions that have not started yet, and would try for ever while the broker is
away: in the middle of a rebalance, and at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import ByteRoom, Consumer, Poll, RebalanceListener
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tasks import Handle

logger = logging.getLogger(__name__)

# How long to wait for a running commit at the end.
END_S = 5.0
LAST_S = 2.0
"""For how long a last commit that has failed is tried again.

A member learns its new epoch from a heartbeat. So the group may refuse the first commit after a
rebalance, and nobody would store the positions later.
"""
AGAIN_S = 0.1
"""Between these attempts."""

BACKOFF = Backoff(0.25, 5.0)
"""How soon a periodic commit that has failed is tried again, however short the interval is."""


def with_auto_commit(consumer: Consumer, properties: Mapping[str, object]) -> Consumer:
    """Return the consumer, wrapped in :class:`AutoCommit` if its properties say so."""
    if str(properties.get("enable_auto_commit", False)).lower() != "true":
        return consumer
    interval_ms = float(str(properties.get("auto_commit_interval_ms", 5_000)))
    return AutoCommit(consumer, interval_ms / 1000)


class CommittingConsumer(ClientWrapper[Consumer]):
    """Commits periodically, at a revocation after its listener was called, and at the end.

    A subclass decides what to commit. *interval_s* None: nothing is committed.
    """

    # Set when the consumer starts.
    _listener: RebalanceListener

    def __init__(self, inner: Consumer, interval_s: float | None, name: str) -> None:
        super().__init__(inner)
        self._generation = -1
        self._interval_s = interval_s
        self._task_name = name
        self._one_commit_at_a_time = asyncio.Lock()
        self._ticking: Handle | None = None
        self._failure: BaseException | None = None

    async def start(self, listener: RebalanceListener) -> None:
        self._listener = listener
        await self._inner.start(self)
        if (interval_s := self._interval_s) is not None:
            self._ticking = Handle(lambda: self._tick(interval_s), self._task_name, self._failed)

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        # Otherwise the end of the periodic commits would stay unnoticed.
        if self._failure is not None:
            raise self._failure
        return await self._inner.poll(budgets, timeout_s, most, byte_room)

    async def stop(self) -> None:
        ticking = self._ticking
        self._ticking = None
        try:
            if ticking is not None:
                ticking.cancel()
                await asyncio.wait([ticking.task], timeout=END_S)
                await self._commit_last()
        finally:
            self._is_leaving()
            await self._inner.stop()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._listener.on_revoked(partitions)
        await self._commit_last()

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._generation = generation
        await self._listener.on_assigned(partitions, generation)

    async def _commit(self) -> bool:
        """Commit what has moved; False if another attempt may help."""
        if self._interval_s is None:
            return True
        async with self._one_commit_at_a_time:
            return await self._commit_moved()

    async def _commit_last(self) -> None:
        """Commit what has moved, because nothing is committed after this."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_S
        while True:
            is_done = await self._commit()
            if is_done or loop.time() + AGAIN_S >= until:
                return
            await asyncio.sleep(AGAIN_S)

    async def _commit_moved(self) -> bool:
        """Try once to commit what has moved. Reports a failure, which the next try repeats.

        Returns:
            False if another attempt may help.
        """
        raise NotImplementedError

    def _is_leaving(self) -> None:
        """Called after the last commit, before the group is left."""

    def _failed(self, error: BaseException) -> None:
        self._failure = error

    async def _tick(self, interval_s: float) -> None:
        waits = Waits(BACKOFF)
        wait_s = interval_s
        while True:
            await asyncio.sleep(wait_s)
            if await self._commit():
                waits.progressed()
                wait_s = interval_s
            else:
                wait_s = max(interval_s, waits.next_s())


class AutoCommit(CommittingConsumer):
    """Commits its positions every *interval_s* seconds, at a revocation, and at the end."""

    def __init__(self, inner: Consumer, interval_s: float) -> None:
        super().__init__(inner, interval_s, "auto-commit")
        self._stored: dict[TopicPartition, int] = {}

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        # Another member may have committed these partitions meanwhile, but no other ones.
        for partition in partitions:
            self._stored.pop(partition, None)
        await super().on_assigned(partitions, generation)

    async def _commit_moved(self) -> bool:
        positions = self._inner.positions()
        moved = {
            partition: position
            for partition, position in positions.items()
            if self._stored.get(partition) != position
        }
        if not moved:
            return True
        offsets = {partition: Committed(position) for partition, position in moved.items()}
        try:
            await self._inner.commit(offsets, self._generation)
        except BrokerError as error:
            logger.warning("auto commit: %s: %s", type(error).__name__, error)
            return not isinstance(error, TransientBrokerError)
        self._stored.update(moved)
        return True
