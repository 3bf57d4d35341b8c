"""The partitions that a channel has: what their coming, their going and their coming back do.

aiokafka rebalances eagerly: every rebalance takes everything away, and most of it comes straight back. So a
revocation lets work finish, commits and lets go; the next assignment takes up what is still ours where it stood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from reactive_kafka.broker.client import Consumer
from reactive_kafka.clock import Clock
from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, NotOwnerError
from reactive_kafka.incoming.lanes import Lane
from reactive_kafka.incoming.positions import NoPositionError, Start, start_position
from reactive_kafka.incoming.settlement import Settlements
from reactive_kafka.observe.events import HandlerAbandoned, HookFailed, Observer, OffsetReset, Rebalanced
from reactive_kafka.records import TopicPartition

HOOK_DEADLINE_S = 30.0
"""How long a hook of a rebalance may take: half of the time after which the group goes on without this member."""

COMMIT_DEADLINE_S = 5.0
"""How long the last commit of an assignment is tried."""

PartitionHook = Callable[[frozenset[TopicPartition]], Awaitable[None]]


@dataclass(slots=True)
class AssignmentFacts:
    """What happened to a channel's assignments."""

    rebalances: dict[str, int] = field(default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0})
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    abandoned: int = 0
    has_joined: bool = False
    not_positioned: str | None = "reading has not begun yet"  # why it has not in all partitions


class Host(Protocol):
    """What an assignment needs from its channel."""

    def joined(self) -> None:
        """An assignment has come."""

    def abandon(self, lane: Lane) -> None:
        """The partition of a lane has gone for good, and handlers still run its records."""

    def fail(self, reason: BaseException) -> bool:
        """Nobody may choose a position: the channel stops."""


class Assignment:
    """The lanes and trackers of the partitions that a channel has; the listener of its consumer's rebalances.

    Args:
        on_assigned: The application's hooks; they run before reading begins.
        on_revoked: The application's hooks; they run while the partitions are still ours.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        engine: CommitEngine,
        committer: Committer,
        settlements: Settlements,
        host: Host,
        clock: Clock,
        observer: Observer,
        *,
        on_assigned: tuple[PartitionHook, ...] = (),
        on_revoked: tuple[PartitionHook, ...] = (),
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._committer = committer
        self._settlements = settlements
        self._host = host
        self._clock = clock
        self._observer = observer
        self._assigned_hooks = on_assigned
        self._revoked_hooks = on_revoked
        self._pending: set[TopicPartition] = set()
        self._may_begin = False  # the hooks of this assignment have run
        self._known: set[TopicPartition] | None = None
        self._positioning = asyncio.Lock()
        self._changed = asyncio.Event()
        self.lanes: dict[TopicPartition, Lane] = {}
        self.consumer: Consumer | None = None
        self.is_letting_go = False
        self._letting_go_since = clock.monotonic()
        self._hooked: frozenset[TopicPartition] = frozenset()  # assigned hooks have run, revoked ones have not
        self._releasing = asyncio.Lock()
        self._replaced: list[Lane] = []  # of partitions that were reset or went, with handlers that still run
        self.facts = AssignmentFacts()

    # -- the listener

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Let work finish within ``revoke_grace``, commit, and let go."""
        self._pending.clear()
        if not partitions and not self._engine.trackers:
            return
        deadline = self._clock.monotonic() + self._settings.revoke_grace_s
        await self.drain(deadline)
        await self.release(deadline, during="revocation")
        self._tell_gone(partitions, is_lost=not self._committer.is_owner)

    async def lose(self) -> None:
        """The client is of no use any more: what is settled is committed if that can be done at all."""
        self._pending.clear()
        partitions = frozenset(self._engine.trackers)
        now = self._clock.monotonic()
        await self.drain(now)
        await self.release(now, during="revocation")
        if partitions:
            self._tell_gone(partitions, is_lost=True)

    def _tell_gone(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        self.facts.rebalances["lost" if is_lost else "revoked"] += 1
        self._observer.on(
            Rebalanced(
                channel=self._settings.name,
                kind="lost" if is_lost else "revoked",
                partitions=partitions,
                generation=self._engine.generation,
            )
        )

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Take up what came straight back, start the rest afresh."""
        self.is_letting_go = False
        for tracker in self._engine.begin(generation, partitions):
            self._forget(tracker)
        self.changed()
        self._pending = set(partitions)
        self._may_begin = False
        self._committer.is_owner = True
        self.facts.rebalances["assigned"] += 1
        self.facts.has_joined = True
        self._observer.on(
            Rebalanced(channel=self._settings.name, kind="assigned", partitions=partitions, generation=generation)
        )
        self._host.joined()
        if partitions:
            self._hooked = partitions
            await self._run_hooks("on_assigned", self._assigned_hooks, partitions)
        self._may_begin = True
        await self.find_positions()

    # -- letting go

    def take_nothing_new(self) -> None:
        """Forget what waits for a handler: none is called from here on, not even by a worker that is in a lane."""
        if not self.is_letting_go:
            self._letting_go_since = self._clock.monotonic()
        self.is_letting_go = True
        self._settlements.is_awaited = True
        for lane in self.lanes.values():
            lane.revoked = True
            first = lane.drop()
            if first is not None:
                lane.tracker.forget_from(first)

    async def drain(self, deadline: float, *, to_the_end: bool = False) -> bool:
        """Take nothing new, and wait for the handlers that run.

        Args:
            to_the_end: Also for those whose partition has gone or was reset: the process ends.

        Returns:
            False if some still run at *deadline* (monotonic).
        """
        self.take_nothing_new()

        def all_have_ended() -> bool:
            self._replaced = [lane for lane in self._replaced if lane.workers]
            return not (to_the_end and self._replaced) and not any(lane.workers for lane in self.lanes.values())

        return await self._until(all_have_ended, deadline)

    async def release(self, deadline: float, *, during: str) -> None:
        """Run the hooks, give what is still unsettled the rest of the time, commit, and stop committing."""
        async with self._releasing:  # a stop may come while a revocation is at it
            hooked, self._hooked = self._hooked, frozenset()
            if hooked:
                await self._run_hooks("on_revoked", self._revoked_hooks, hooked)
            if self._engine.trackers:
                await self._until(lambda: not any(one.open for one in self._engine.trackers.values()), deadline)
                self._count_abandoned(during)
                await self._committer.flush(self._clock.monotonic() + COMMIT_DEADLINE_S)
            self.leave()

    def leave(self) -> None:
        """Stop committing; verdicts given from here on are answered at the next assignment."""
        self._settlements.hold_answers(self._engine.leave())

    def close(self) -> None:
        """No assignment will follow: every tracker is closed, and who waits for an answer gets it."""
        self._pending.clear()
        for tracker in self._engine.close():
            self._forget(tracker)

    def changed(self) -> None:
        """A worker turned away from a lane, or a verdict was given: whoever waits for that looks again."""
        self._changed.set()

    async def _until(self, holds: Callable[[], bool], deadline: float) -> bool:
        while not holds():
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                return holds()
        return True

    def _count_abandoned(self, during: str) -> None:
        running = sum(lane.workers for lane in self.lanes.values())
        self.facts.abandoned += running
        left = sum(tracker.open for tracker in self._engine.trackers.values())
        if left:
            self._observer.on(
                HandlerAbandoned(
                    channel=self._settings.name,
                    during="revocation" if during == "revocation" else "stop",
                    records=left,
                    waited_s=self._clock.monotonic() - self._letting_go_since,
                )
            )

    def _forget(self, tracker: OffsetTracker) -> None:
        lane = self.lanes.pop(tracker.partition, None)
        if lane is not None:
            self._replace(lane)
        self._settlements.answer(tracker, came_back=False)

    def _replace(self, lane: Lane) -> None:
        """The lane's records are not ours any more, or are read anew; handlers may still run some of them."""
        lane.revoked = True
        lane.drop()
        if lane.workers:
            self._replaced.append(lane)
            self._host.abandon(lane)

    async def _run_hooks(
        self, kind: str, hooks: tuple[PartitionHook, ...], partitions: frozenset[TopicPartition]
    ) -> None:
        for hook in hooks:
            try:
                async with asyncio.timeout(HOOK_DEADLINE_S):
                    await hook(partitions)
            except Exception as error:  # a hook of the application: told, and the rebalance goes on
                reason = f"no end within {HOOK_DEADLINE_S:g} s" if isinstance(error, TimeoutError) else repr(error)
                self._observer.on(HookFailed(channel=self._settings.name, hook=kind, reason=reason, error=error))

    # -- where reading begins

    @property
    def is_positioned(self) -> bool:
        """Whether reading has begun in every partition of the assignment, and the topics have been looked at."""
        return not self._pending and (self._known is not None or not self.facts.has_joined)

    async def find_positions(self) -> None:
        """Begin to read wherever that has not been done; what the broker cannot tell now stays for the next call."""
        consumer, generation = self.consumer, self._engine.generation
        if consumer is None or not self._may_begin:
            return
        async with self._positioning:
            pending = frozenset(self._pending)
            if self.is_positioned or self._engine.generation != generation:
                return
            try:
                if pending:
                    await self._find(consumer, pending, generation)
                else:
                    await self._look_at_topics(consumer)
                self.facts.not_positioned = None
                consumer.wake()  # a poll that began before is for no partition, and would go on waiting
            except NotOwnerError:
                return  # the next assignment begins anew
            except BrokerError as error:
                self.facts.not_positioned = f"positions of {len(self._pending)} partitions are not known: {error}"

    async def _find(self, consumer: Consumer, pending: frozenset[TopicPartition], generation: int) -> None:
        known = await consumer.committed(pending)
        committed = {partition: None if at is None else at.offset for partition, at in known.items()}
        if self._engine.generation != generation:
            return
        fresh = []
        for partition in sorted(pending):
            if not self._take_up(consumer, partition, committed[partition]):
                fresh.append(partition)
        if fresh:
            await self._start_afresh(consumer, fresh, committed, generation)

    def _take_up(self, consumer: Consumer, partition: TopicPartition, committed: int | None) -> bool:
        left = self._engine.left(partition)
        tracker = self._engine.take_up(partition, committed)
        if tracker is None:
            if left is not None:
                self._forget(left)
            return False
        consumer.start_at({partition: tracker.position})
        self._pending.discard(partition)
        self.lanes[partition].revoked = False
        self._settlements.answer(tracker, came_back=True)
        return True

    async def _start_afresh(
        self,
        consumer: Consumer,
        partitions: list[TopicPartition],
        committed: dict[TopicPartition, int | None],
        generation: int,
    ) -> None:
        starts, ends = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
        new = await self._new_ones(consumer, partitions)
        if self._engine.generation != generation:
            return
        begun = {}
        for partition in partitions:
            stored, is_new = committed[partition], partition in new
            begin = self._begin(partition, stored, stored, starts[partition], ends[partition], is_new=is_new)
            if begin is not None:
                begun[partition] = begin
        await self._let_flow(consumer, begun, generation)

    async def _let_flow(self, consumer: Consumer, begun: dict[TopicPartition, Start], generation: int) -> None:
        """Start reading. A start that was chosen is committed before: who comes after a crash begins there too.

        Where that cannot be done now, the next tick tries again; reading does not wait for it.
        """
        if any(start.commit for start in begun.values()):
            await self._committer.commit()
        if self._engine.generation == generation:
            consumer.start_at({partition: start.position for partition, start in begun.items()})
            self._pending.difference_update(begun)

    async def _new_ones(self, consumer: Consumer, partitions: list[TopicPartition]) -> set[TopicPartition]:
        """Those that appeared after this channel had first looked at its topics."""
        if self._known is None:
            self._known = await self._partitions_there(consumer)
            self._known.update(partitions)
        new = set(partitions) - self._known
        self._known |= new
        return new

    async def _look_at_topics(self, consumer: Consumer) -> None:
        """Note what there is at a first assignment without partitions; what is empty by then is new when it comes.

        A topic that our own question has created exists by now, and nobody owns it yet.
        """
        there = await self._partitions_there(consumer)
        ends = await consumer.end_offsets(there) if there else {}
        self._known = {partition for partition, end in ends.items() if end > 0}

    async def _partitions_there(self, consumer: Consumer) -> set[TopicPartition]:
        topics = await consumer.topics()
        return {partition for topic in self._settings.topics for partition in topics.get(topic, ())}

    def _begin(
        self,
        partition: TopicPartition,
        stored: int | None,
        wanted: int | None,
        log_start: int,
        log_end: int,
        *,
        is_new: bool = False,
    ) -> Start | None:
        """Track a partition from *wanted*, if the log has it; *stored* is what the group has, which may be less.

        Returns:
            Where it begins; None if nobody may choose, and the channel stops.
        """
        try:
            start = start_position(wanted, log_start, log_end, self._settings.auto_offset_reset, is_new=is_new)
        except NoPositionError:
            self._pending.discard(partition)
            self._host.fail(_no_position(self._settings.name, partition, wanted, log_start, log_end))
            return None
        # A position beyond the start (the log was cut off) has passed none of the records that are read now.
        committed = stored if stored is not None and stored <= start.position else None
        tracker = OffsetTracker(partition, start.position, committed=committed, commit_start=start.commit)
        tracker.owner = self._settlements
        old, lane = self._engine.trackers.get(partition), self.lanes.get(partition)
        if lane is not None:
            self._replace(lane)
        if old is not None:
            self._settlements.gone(old)
        self._engine.replace(tracker)
        self.lanes[partition] = Lane(tracker)
        if start.reset is not None:
            self._tell_reset(partition, wanted, start)
        return start

    def _tell_reset(self, partition: TopicPartition, wanted: int | None, start: Start) -> None:
        assert start.reset is not None  # noqa: S101  # for the type checker
        self.facts.resets[start.reset] += 1
        self._observer.on(
            OffsetReset(
                channel=self._settings.name,
                partition=partition,
                from_offset=wanted,
                to_offset=start.position,
                to=start.reset,
                skipped=start.lost if wanted is not None else None,
            )
        )

    async def reset(self, partition: TopicPartition, position: int) -> None:
        """The position of a partition is not in its log any more: begin where the policy says, with a new tracker.

        Raises:
            BrokerError: The log's ends could not be asked for.
        """
        consumer, generation = self.consumer, self._engine.generation
        if consumer is None:
            return
        starts, ends = await asyncio.gather(consumer.beginning_offsets([partition]), consumer.end_offsets([partition]))
        old = self._engine.trackers.get(partition)
        if self._engine.generation != generation or old is None or old.position != position:
            return
        start = self._begin(partition, old.committed, position, starts[partition], ends[partition])
        if start is not None:
            await self._let_flow(consumer, {partition: start}, generation)


def _no_position(
    channel: str, partition: TopicPartition, committed: int | None, log_start: int, log_end: int
) -> FatalBrokerError:
    had = "no committed position" if committed is None else f"position {committed}"
    return FatalBrokerError(
        f"channel {channel!r}: {partition} has {had}, its log goes from {log_start} to {log_end}, and "
        "auto_offset_reset = 'none' lets nobody choose: set a position, or auto_offset_reset = 'earliest' or 'latest'"
    )
