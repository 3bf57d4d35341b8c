"""A consumer that returns offsets instead of records, which others read (Spark's executors).

It asks for the ends of the logs a few times a second. The client underneath is a member of the
group like any other. Its partitions never start, so no record travels to this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, cast

from reactive_kafka.broker.auto_commit import with_auto_commit
from reactive_kafka.broker.client import (
    ByteRoom,
    Chunk,
    Connector,
    Consumer,
    Poll,
    RebalanceListener,
    Sight,
)
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.errors import NotOwnerError, OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Subscription

# Between two looks at the ends of the logs. Each look is a request, and new records wait for one.
LOOK_EVERY_S = 0.2
# Between two looks for partitions that do not exist.
MISSING_EVERY_S = 2.0


@dataclass(slots=True, eq=False)
class StartedPartition:
    """A partition from one ``start_at`` to the next. Answers to earlier looks do not count."""

    position: int
    # The end of its log at the last look; its position if there was none.
    end: int
    # Its position is not in the log, which the next poll reports.
    is_outside: bool = False
    # When to look for it again, if it does not exist.
    retry_at: float = 0.0


class LogLook(NamedTuple):
    """What the brokers said about the logs; ``begins`` only of those with something new."""

    asked: Mapping[TopicPartition, StartedPartition]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    missing: Collection[TopicPartition]


class RangesConsumer(ClientWrapper[Consumer]):
    """Returns ``range`` objects of offsets as the records of its chunks.

    A range covers everything between a position and the end of the log. Gaps of compaction,
    transaction markers and aborted records are not told apart from records.
    """

    # Set when the consumer starts.
    _listener: RebalanceListener

    def __init__(self, inner: Consumer) -> None:
        super().__init__(inner)
        self._assigned: set[TopicPartition] = set()
        # Partitions whose revocation has begun.
        self._revoking: frozenset[TopicPartition] = frozenset()
        self._started: dict[TopicPartition, StartedPartition] = {}
        self._paused: set[TopicPartition] = set()
        # Those whose leaders have not answered when they were asked last.
        self._silent: frozenset[TopicPartition] = frozenset()
        self._running_look: asyncio.Task[LogLook] | None = None
        self._next_look_at = 0.0
        self._is_woken = False

    async def start(self, listener: RebalanceListener) -> None:
        self._listener = listener
        await self._inner.start(self)

    async def stop(self) -> None:
        look = self._running_look
        self._running_look = None
        self._let_go(frozenset(self._assigned))
        self.wake()
        try:
            if look is not None:
                look.cancel()
                await asyncio.gather(look, return_exceptions=True)
        finally:
            await self._inner.stop()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._revoking = partitions
        try:
            await self._listener.on_revoked(partitions)
        finally:
            self._let_go(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._assigned |= partitions
        await self._listener.on_assigned(partitions, generation)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._revoking = frozenset()
        self._assigned -= partitions
        self._paused -= partitions
        for partition in partitions:
            self._started.pop(partition, None)

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        missing = [partition for partition in positions if partition not in self._assigned]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")
        # Not passed on: the client underneath never starts its partitions, so it fetches nothing.
        # Its pending polls keep the membership.
        self._started.update(
            {
                partition: StartedPartition(position, position)
                for partition, position in positions.items()
            }
        )
        self._next_look_at = 0.0

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.update(self._started.keys() & partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        return {partition: started.position for partition, started in self._started.items()}

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        """Return the offsets that are there. Polls the client underneath meanwhile, for nothing.

        Offsets have no bytes, so all of them have room.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self._inner.poll({}, 0)
        while True:
            now = loop.time()
            self._end_look(now)
            poll = self._take(budgets, most)
            next_look = self._begin_look(self._answering(budgets), now)
            if poll.chunks or poll.errors or self._is_woken or now >= deadline:
                self._is_woken = False
                return poll
            await self._inner.poll({}, min(deadline, next_look) - now)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        sight = await self._inner.look(partitions)
        self._silent = frozenset(sight.silent)
        return sight

    def wake(self) -> None:
        self._is_woken = True
        self._inner.wake()

    def _readable(
        self, budgets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, StartedPartition]:
        not_read = self._paused | self._revoking
        return {
            partition: started
            for partition, started in self._started.items()
            if budgets.get(partition, 0) > 0 and partition not in not_read
        }

    def _answering(
        self, budgets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, StartedPartition]:
        """Return the partitions to ask for the ends of. One without an answer holds up the rest."""
        return {
            partition: started
            for partition, started in self._readable(budgets).items()
            if partition not in self._silent
        }

    def _take(self, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        poll = Poll()
        room = sum(budgets.values()) if most is None else most
        for partition, started in self._readable(budgets).items():
            if started.is_outside:
                # The next look sets it again.
                started.is_outside = False
                poll.errors[partition] = OffsetOutOfRangeError(partition, started.position)
                continue
            offsets = range(
                started.position, min(started.end, started.position + min(budgets[partition], room))
            )
            if offsets:
                room -= len(offsets)
                started.position = offsets.stop
                # Partitions take turns: this one comes last at the next poll.
                self._started[partition] = self._started.pop(partition)
                poll.chunks.append(Chunk(partition, cast(Any, offsets), offsets.stop, started.end))
        return poll

    def _begin_look(
        self, partitions: Mapping[TopicPartition, StartedPartition], now: float
    ) -> float:
        """Start a look if it is due. Returns when the next one is due.

        Infinite while a look is running: its end wakes the poll.
        """
        if self._running_look is not None or not partitions:
            return inf
        due = max(self._next_look_at, min(started.retry_at for started in partitions.values()))
        if now < due:
            return due
        # In a separate task, so that a broker that does not answer delays neither a poll nor a
        # stop.
        self._next_look_at = now + LOOK_EVERY_S
        wanted = {
            partition: started
            for partition, started in partitions.items()
            if started.retry_at <= now
        }
        self._running_look = asyncio.create_task(
            self._look_at_logs(wanted), name="look at the ends of logs"
        )
        self._running_look.add_done_callback(lambda _: self._inner.wake())
        return inf

    async def _look_at_logs(self, asked: Mapping[TopicPartition, StartedPartition]) -> LogLook:
        try:
            missing, ends = await self._ask_ends(asked)
            ahead = [
                partition for partition, end in ends.items() if end > asked[partition].position
            ]
            begins = await self._inner.beginning_offsets(ahead) if ahead else {}
        except TransientBrokerError:
            # Consumer.check() notices that no broker is there. The next look tries again.
            return LogLook({}, {}, {}, ())
        return LogLook(asked, begins, ends, missing)

    async def _ask_ends(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """Return the partitions that do not exist, and the ends of the others.

        A missing partition must not hold up the rest.
        """
        try:
            return [], await self._inner.end_offsets(partitions)
        except TransientBrokerError:
            topics = await self._inner.topics({partition.topic for partition in partitions})
            existing = {partition for of_topic in topics.values() for partition in of_topic}
            known = [partition for partition in partitions if partition in existing]
            if len(known) == len(partitions):
                raise
        missing = [partition for partition in partitions if partition not in existing]
        return missing, await self._inner.end_offsets(known) if known else {}

    def _end_look(self, now: float) -> None:
        """Use the answers of a finished look.

        Raises:
            FatalBrokerError: Rights are missing. The next look tries again.
        """
        if self._running_look is None or not self._running_look.done():
            return
        task = self._running_look
        self._running_look = None
        look = task.result()
        for partition, started in look.asked.items():
            # If it was revoked or sought meanwhile, the answer says nothing about the new position,
            # which may be behind an end that was read before.
            if self._started.get(partition) is not started:
                continue
            if partition in look.missing:
                started.retry_at = now + MISSING_EVERY_S
            else:
                started.end = look.ends[partition]
                started.retry_at = 0.0
                started.is_outside = (
                    not look.begins.get(partition, 0) <= started.position <= started.end
                )


class RangesConnector(ClientWrapper[Connector]):
    """Creates :class:`RangesConsumer`. Producers and inspectors are those of *inner*."""

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        # with_auto_commit() does it here: positions are those of the ranges.
        kept = {key: value for key, value in properties.items() if key != "enable_auto_commit"}
        inner = self._inner.consumer(
            name=name, subscription=subscription, group_id=group_id, properties=kept
        )
        return with_auto_commit(RangesConsumer(inner), properties)
