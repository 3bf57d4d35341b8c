"""A consumer that hands out offsets and never a record: for channels whose records others read
(Spark's executors).

It goes by the ends of the logs, which it asks for a few times a second; the client underneath is a
member of the group like any other, and its partitions stay held, so that no record travels to this
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, cast

from reactive_kafka.broker.client import Chunk, Connector, Consumer, Poll, RebalanceListener
from reactive_kafka.broker.passing import Passing, committing
from reactive_kafka.errors import NotOwnerError, OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Subscription

# Between two looks at the ends of the logs: new records are handed out so late, for one request.
LOOK_EVERY_S = 0.2
# Between two looks for partitions that did not exist.
MISSING_EVERY_S = 2.0


@dataclass(slots=True, eq=False)
class Started:
    """A partition from one ``start_at`` to the next: what a look was told for the one before does
    not count.
    """

    position: int
    # Of its log, as the last look saw it; its position before one has.
    end: int
    # Its position is not in the log, which the next poll says.
    is_outside: bool = False
    # When to look for it again, where it does not exist.
    again_at: float = 0.0


class Look(NamedTuple):
    """What the brokers told of the partitions that were asked for: where the logs begin that have
    something new.
    """

    asked: Mapping[TopicPartition, Started]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    # They do not exist.
    missing: Collection[TopicPartition]


class RangesConsumer(Passing[Consumer]):
    """Hands out ``range`` objects of offsets as the records of its chunks.

    A range covers what lies between a position and the log's end: gaps of compaction, transaction
    markers and aborted records are not told apart from records.
    """

    # From when it starts.
    _listener: RebalanceListener

    def __init__(self, inner: Consumer) -> None:
        super().__init__(inner)
        self._assigned: set[TopicPartition] = set()
        # Their revocation has begun.
        self._going: frozenset[TopicPartition] = frozenset()
        self._started: dict[TopicPartition, Started] = {}
        self._paused: set[TopicPartition] = set()
        self._look: asyncio.Task[Look] | None = None
        self._look_at = 0.0
        self._is_woken = False

    async def start(self, listener: RebalanceListener) -> None:
        self._listener = listener
        await self._inner.start(self)

    async def stop(self) -> None:
        look = self._look
        self._look = None
        self._let_go(frozenset(self._assigned))
        self.wake()
        try:
            if look is not None:
                look.cancel()
                await asyncio.gather(look, return_exceptions=True)
        finally:
            await self._inner.stop()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._going = partitions
        try:
            await self._listener.on_revoked(partitions)
        finally:
            self._let_go(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        self._assigned |= partitions
        await self._listener.on_assigned(partitions, generation)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._going = frozenset()
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
            {partition: Started(position, position) for partition, position in positions.items()}
        )
        self._look_at = 0.0

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.update(self._started.keys() & partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        return {partition: one.position for partition, one in self._started.items()}

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        """Take the offsets that are there. The client underneath is polled all the while, for
        nothing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self._inner.poll({}, 0)
        while True:
            now = loop.time()
            self._end_look(now)
            poll = self._take(budgets, most)
            next_look = self._begin_look(self._flowing(budgets), now)
            if poll.chunks or poll.errors or self._is_woken or now >= deadline:
                self._is_woken = False
                return poll
            await self._inner.poll({}, min(deadline, next_look) - now)

    def wake(self) -> None:
        self._is_woken = True
        self._inner.wake()

    def _flowing(self, budgets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Started]:
        held = self._paused | self._going
        return {
            tp: one
            for tp, one in self._started.items()
            if budgets.get(tp, 0) > 0 and tp not in held
        }

    def _take(self, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        poll = Poll()
        left = sum(budgets.values()) if most is None else most
        for partition, one in self._flowing(budgets).items():
            if one.is_outside:
                # The next look says it again.
                one.is_outside = False
                poll.errors[partition] = OffsetOutOfRangeError(partition, one.position)
                continue
            offsets = range(
                one.position, min(one.end, one.position + min(budgets[partition], left))
            )
            if offsets:
                left -= len(offsets)
                one.position = offsets.stop
                # Partitions take turns.
                self._started[partition] = self._started.pop(partition)
                poll.chunks.append(Chunk(partition, cast(Any, offsets), offsets.stop, one.end))
        return poll

    def _begin_look(self, partitions: Mapping[TopicPartition, Started], now: float) -> float:
        """Begin a look when it is time; returns when that is, infinity while one goes on: its end
        wakes the poll.
        """
        if self._look is not None or not partitions:
            return inf
        due = max(self._look_at, min(one.again_at for one in partitions.values()))
        if now < due:
            return due
        # In a task of its own, so that a broker that does not answer holds up neither a poll nor a
        # stop.
        self._look_at = now + LOOK_EVERY_S
        wanted = {partition: one for partition, one in partitions.items() if one.again_at <= now}
        self._look = asyncio.create_task(
            self._look_at_logs(wanted), name="look at the ends of logs"
        )
        self._look.add_done_callback(lambda _: self._inner.wake())
        return inf

    async def _look_at_logs(self, asked: Mapping[TopicPartition, Started]) -> Look:
        try:
            missing, ends = await self._ask_ends(asked)
            ahead = [
                partition for partition, end in ends.items() if end > asked[partition].position
            ]
            begins = await self._inner.beginning_offsets(ahead) if ahead else {}
        except TransientBrokerError:
            # Whether a broker is there is asked elsewhere; the next look is the retry.
            return Look({}, {}, {}, ())
        return Look(asked, begins, ends, missing)

    async def _ask_ends(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """Those that do not exist, and the ends of the others; one that is missing must not hold up
        the rest.
        """
        try:
            return [], await self._inner.end_offsets(partitions)
        except TransientBrokerError:
            named = await self._inner.topics({partition.topic for partition in partitions})
            there = {partition for its in named.values() for partition in its}
            known = [partition for partition in partitions if partition in there]
            if len(known) == len(partitions):
                raise
        missing = [partition for partition in partitions if partition not in there]
        return missing, await self._inner.end_offsets(known) if known else {}

    def _end_look(self, now: float) -> None:
        """Take note of a look that is over. FatalBrokerError where rights are missing; the next
        look tries again.
        """
        if self._look is None or not self._look.done():
            return
        task = self._look
        self._look = None
        look = task.result()
        for partition, one in look.asked.items():
            # It was revoked or sought meanwhile: the answer knows nothing of the new position,
            # which may lie behind an end that was read too early.
            if self._started.get(partition) is not one:
                continue
            if partition in look.missing:
                one.again_at = now + MISSING_EVERY_S
            else:
                one.end = look.ends[partition]
                one.again_at = 0.0
                one.is_outside = not look.begins.get(partition, 0) <= one.position <= one.end


class RangesConnector(Passing[Connector]):
    """Makes :class:`RangesConsumer`; producers and inspectors are those of *inner*."""

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        # Done here.
        kept = {key: value for key, value in properties.items() if key != "enable_auto_commit"}
        inner = self._inner.consumer(
            name=name, subscription=subscription, group_id=group_id, properties=kept
        )
        return committing(RangesConsumer(inner), properties)
