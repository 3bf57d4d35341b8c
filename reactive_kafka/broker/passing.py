"""Consumers and connectors that pass everything on, but for what they change; one of them is
``enable_auto_commit``.

That commits from time to time what polls have handed out, whether or not it is settled. It is done
here for every client. aiokafka's own would also commit the positions of partitions that have not
begun yet, and would try for ever while the broker is away: in the middle of a rebalance, and at the
end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from reactive_kafka.broker.client import Consumer, Poll, RebalanceListener
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tasks import Handle

T = TypeVar("T")

logger = logging.getLogger(__name__)

# How long a commit that is on its way may take at the end.
END_S = 5.0


class Passing(Generic[T]):
    """Does what *inner* does, a connector or a consumer that has not started, but for a subclass's
    own methods.
    """

    def __init__(self, inner: T) -> None:
        self._inner: T = inner

    # Of methods: the seam has no other attributes.
    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._inner, name)  # type: ignore[no-any-return]


def committing(consumer: Consumer, properties: Mapping[str, object]) -> Consumer:
    """The consumer; with ``enable_auto_commit`` among its properties one that commits by itself as
    well.
    """
    if str(properties.get("enable_auto_commit", False)).lower() != "true":
        return consumer
    return AutoCommit(consumer, float(str(properties.get("auto_commit_interval_ms", 5_000))) / 1000)


class CommittingConsumer(Passing[Consumer]):
    """Commits what has moved: from time to time, at a revocation once its listener was told, and at
    the end.
    """

    # From when it starts.
    _listener: RebalanceListener

    def __init__(self, inner: Consumer, interval_s: float | None, name: str) -> None:
        super().__init__(inner)
        self._generation = -1
        # None: it commits nothing.
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
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        # Or nobody would hear of what has ended the commits.
        if self._failure is not None:
            raise self._failure
        return await self._inner.poll(budgets, timeout_s, most)

    async def stop(self) -> None:
        ticking = self._ticking
        self._ticking = None
        try:
            if ticking is not None:
                ticking.cancel()
                await asyncio.wait([ticking.task], timeout=END_S)
                await self._commit()
        finally:
            self._is_leaving()
            await self._inner.stop()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._listener.on_revoked(partitions)
        await self._commit()

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._generation = generation
        await self._listener.on_assigned(partitions, generation)

    async def _commit(self) -> None:
        if self._interval_s is not None:
            async with self._one_commit_at_a_time:
                await self._commit_moved()

    async def _commit_moved(self) -> None:
        """One attempt for what has moved; what fails is told, and sent again at the next one."""
        raise NotImplementedError

    def _is_leaving(self) -> None:
        """The last commit is over, and the group is about to be left."""

    def _failed(self, error: BaseException) -> None:
        self._failure = error

    async def _tick(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._commit()


class AutoCommit(CommittingConsumer):
    """Commits its positions every *interval_s* seconds, at a revocation once its listener was told,
    and at the end.
    """

    def __init__(self, inner: Consumer, interval_s: float) -> None:
        super().__init__(inner, interval_s, "auto-commit")
        self._stored: dict[TopicPartition, int] = {}

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        # Another member may have committed them meanwhile; those that stayed are ours.
        for partition in partitions:
            self._stored.pop(partition, None)
        await super().on_assigned(partitions, generation)

    async def _commit_moved(self) -> None:
        positions = self._inner.positions()
        moved = {
            partition: at
            for partition, at in positions.items()
            if self._stored.get(partition) != at
        }
        if not moved:
            return
        offsets = {partition: Committed(at) for partition, at in moved.items()}
        try:
            await self._inner.commit(offsets, self._generation)
        except BrokerError as error:
            logger.warning("auto commit: %s: %s", type(error).__name__, error)
        else:
            self._stored.update(moved)
