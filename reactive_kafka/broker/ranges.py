"""A consumer that hands out offsets and never a record: for channels whose records others read (Spark's executors).

It goes by the ends of the logs, which it asks for a few times a second; the client underneath is a member of the
group like any other, and its partitions stay held, so that no record travels to this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, cast

from reactive_kafka.broker.auto_commit import AutoCommit, auto_commit_interval_s
from reactive_kafka.broker.client import Chunk, Consumer, Poll, RebalanceListener
from reactive_kafka.broker.finish import cancel
from reactive_kafka.broker.passing import PassingConnector, PassingConsumer
from reactive_kafka.errors import NotOwnerError, OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Subscription

LOOK_EVERY_S = 0.2
"""Between two looks at the ends of the logs: new records are handed out this late, and cost one request."""

MISSING_EVERY_S = 2.0
"""Between two looks for partitions that did not exist."""


class Look(NamedTuple):
    """What the brokers told.

    Attributes:
        starts: The partitions that were asked for -> the start that each had when the look began.
        begins: partition -> where its log begins, for those that have something new.
        ends: partition -> where its log ends.
        missing: Those that do not exist.
    """

    starts: Mapping[TopicPartition, object]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    missing: Collection[TopicPartition]


class RangesConsumer(PassingConsumer):
    """Hands out ``range`` objects of offsets as the records of its chunks; see :class:`~.client.Consumer`.

    A range covers what lies between a position and the log's end: gaps of compaction, transaction markers and aborted
    records are not told apart from records.

    Args:
        inner: A consumer that has not started.
        auto_commit_s: Commit what was handed out every so many seconds; None: never by itself.
    """

    def __init__(self, inner: Consumer, auto_commit_s: float | None = None) -> None:
        super().__init__(inner)
        self._auto_commit_s = auto_commit_s
        self._auto: AutoCommit | None = None
        self._listener: RebalanceListener | None = None
        self._assigned: set[TopicPartition] = set()
        self._going: frozenset[TopicPartition] = frozenset()  # their revocation has begun
        self._positions: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, object] = {}  # a token for each start_at: looks of before do not count
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._outside: set[TopicPartition] = set()
        self._missing: dict[TopicPartition, float] = {}  # those that do not exist -> when to look for them again
        self._look: asyncio.Task[Look] | None = None
        self._look_at = 0.0
        self._is_woken = False

    async def start(self, listener: RebalanceListener) -> None:
        if self._auto_commit_s is not None:
            listener = self._auto = AutoCommit(self, listener, self._auto_commit_s)
        self._listener = listener
        await self._inner.start(self)
        if self._auto is not None:
            self._auto.start()

    async def stop(self) -> None:
        auto, self._auto = self._auto, None
        try:
            if auto is not None:
                await auto.close()
        finally:
            look, self._look = self._look, None
            self._let_go(frozenset(self._assigned))
            self.wake()
            try:
                if look is not None:
                    await cancel([look])
            finally:
                await self._inner.stop()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Hand out nothing of them from here on, and pass it on."""
        self._going = partitions
        try:
            if self._listener is not None:
                await self._listener.on_revoked(partitions)
        finally:
            self._let_go(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Nothing of the new partitions is handed out before ``start_at``; pass it on."""
        self._assigned |= partitions
        if self._listener is not None:
            await self._listener.on_assigned(partitions, generation)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._going = frozenset()
        self._assigned -= partitions
        self._paused -= partitions
        self._outside -= partitions
        known: tuple[dict[TopicPartition, Any], ...] = (self._positions, self._starts, self._ends, self._missing)
        for by_partition in known:
            for partition in partitions:
                by_partition.pop(partition, None)

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        missing = [partition for partition in positions if partition not in self._assigned]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")
        # Not passed on: the client underneath never starts its partitions, so it fetches nothing. Its pending polls
        # keep the membership.
        for partition, position in positions.items():
            self._positions[partition] = position
            self._starts[partition] = object()
            self._ends.pop(partition, None)
            self._outside.discard(partition)
        self._look_at = 0.0

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.update(self._positions.keys() & partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        return dict(self._positions)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return dict(self._ends)

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        """Take the offsets that are there. See :meth:`Consumer.poll`.

        The client underneath is polled all the while, for nothing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if self._auto is not None:
            self._auto.check()
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

    def _flowing(self, budgets: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        held = self._paused | self._going
        return [tp for tp in self._positions if budgets.get(tp, 0) > 0 and tp not in held]

    def _take(self, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        poll, left = Poll(), sum(budgets.values()) if most is None else most
        for partition in self._flowing(budgets):
            position = self._positions[partition]
            if partition in self._outside:
                self._outside.discard(partition)  # the next look says it again
                poll.errors[partition] = OffsetOutOfRangeError(partition, position)
                continue
            end = self._ends.get(partition, position)
            offsets = range(position, min(end, position + min(budgets[partition], left)))
            if offsets:
                left -= len(offsets)
                del self._positions[partition]  # partitions take turns
                self._positions[partition] = offsets.stop
                poll.chunks.append(Chunk(partition, cast(Any, offsets), offsets.stop, end))
        return poll

    def _begin_look(self, partitions: Collection[TopicPartition], now: float) -> float:
        """Begin a look when it is time; returns when that is, infinity while one goes on: its end wakes the poll."""
        if self._look is not None or not partitions:
            return inf
        due = max(self._look_at, min(self._missing.get(partition, now) for partition in partitions))
        if now < due:
            return due
        # In a task of its own, so that a broker that does not answer holds up neither a poll nor a stop.
        self._look_at = now + LOOK_EVERY_S
        wanted = [partition for partition in partitions if self._missing.get(partition, now) <= now]
        self._look = asyncio.create_task(self._look_at_logs(wanted), name="look at the ends of logs")
        self._look.add_done_callback(lambda _: self._inner.wake())
        return inf

    async def _look_at_logs(self, partitions: Sequence[TopicPartition]) -> Look:
        starts = {partition: self._starts.get(partition) for partition in partitions}
        positions = {partition: self._positions.get(partition, 0) for partition in partitions}
        try:
            missing, ends = await self._ask_ends(partitions)
            ahead = [partition for partition, end in ends.items() if end > positions[partition]]
            begins = await self._inner.beginning_offsets(ahead) if ahead else {}
        except TransientBrokerError:
            return Look({}, {}, {}, ())  # whether a broker is there is asked elsewhere; the next look is the retry
        return Look(starts, begins, ends, missing)

    async def _ask_ends(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        """Those that do not exist, and the ends of the others; one that is missing must not hold up the rest."""
        try:
            return [], await self._inner.end_offsets(partitions)
        except TransientBrokerError:
            there = {partition for its in (await self._inner.topics()).values() for partition in its}
            known = [partition for partition in partitions if partition in there]
            if len(known) == len(partitions):
                raise
        missing = [partition for partition in partitions if partition not in there]
        return missing, await self._inner.end_offsets(known) if known else {}

    def _end_look(self, now: float) -> None:
        """Take note of a look that is over.

        Raises:
            FatalBrokerError: Rights are missing; the next look tries again.
        """
        if self._look is None or not self._look.done():
            return
        task, self._look = self._look, None
        look = task.result()
        for partition, start in look.starts.items():
            # It was revoked or sought meanwhile: the answer knows nothing of the new position, which may lie behind an
            # end that was read too early.
            if start is None or self._starts.get(partition) is not start:
                continue
            self._missing.pop(partition, None)
            if partition in look.missing:
                self._missing[partition] = now + MISSING_EVERY_S
            else:
                self._note(partition, look.begins.get(partition, 0), look.ends[partition])

    def _note(self, partition: TopicPartition, begin: int, end: int) -> None:
        self._ends[partition] = end
        if not begin <= self._positions[partition] <= end:
            self._outside.add(partition)


class RangesConnector(PassingConnector):
    """Makes :class:`RangesConsumer`; producers and inspectors are those of *inner*."""

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        kept = {key: value for key, value in properties.items() if key != "enable_auto_commit"}  # done here
        inner = self._inner.consumer(name=name, subscription=subscription, group_id=group_id, properties=kept)
        return RangesConsumer(inner, auto_commit_interval_s(properties))
