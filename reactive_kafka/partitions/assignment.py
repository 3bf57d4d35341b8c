"""The partitions that one client of a channel is given: what their coming, their going and their coming back do.

aiokafka rebalances eagerly: every rebalance takes everything away, and most of it comes straight back. So a
revocation lets work finish, commits and lets go; the next assignment takes up what is still ours where it stood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from reactive_kafka.broker.client import Consumer
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.observe.events import HandlerAbandoned, HookFailed, Observer, Rebalanced, SettledNotStored
from reactive_kafka.partitions.committer import Committer
from reactive_kafka.partitions.locate import StartPositions
from reactive_kafka.partitions.start import Where
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import outcome_of, told_of
from reactive_kafka.verdicts.acknowledge import Acknowledger

HOOK_DEADLINE_S = 30.0
"""How long a hook of a rebalance may take: half of the time after which the group goes on without this member."""

CUT_OFF_S = 10.0
"""How long a stop that is to wait for nothing waits for jobs that it has cancelled, or ``drain_timeout`` if less."""

COMMIT_DEADLINE_S = 5.0
"""How long the last commit of an assignment is tried."""

PartitionHook = Callable[[frozenset[TopicPartition]], Awaitable[None]]
RevokedHook = Callable[[frozenset[TopicPartition], bool], Awaitable[None]]
"""Also told whether the partitions are lost: they are another's by now, and nothing can be committed for them."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The application's hooks of one channel, each already awaitable.

    Attributes:
        on_assigned: They run before reading begins.
        on_revoked: They run while the partitions are still ours, unless they are lost.
    """

    on_assigned: tuple[PartitionHook, ...] = ()
    on_revoked: tuple[RevokedHook, ...] = ()


@dataclass(slots=True)
class AssignmentFacts:
    """What happened to a channel's assignments, of all of its clients."""

    rebalances: dict[str, int] = field(default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0})
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    abandoned: int = 0
    replays_avoided: int = 0
    duplicates_dropped: int = 0

    def dropped(self, records: int) -> None:
        """Records were settled without their handler, because the checkpoint store had them already."""
        self.duplicates_dropped += records

    def avoided(self, records: int) -> None:
        """Records were not delivered again, because their acks had been kept."""
        self.replays_avoided += records


class Host(Protocol):
    """What an assignment needs from its channel."""

    def joined(self) -> None:
        """An assignment has come."""

    def revoked(self) -> None:
        """Nothing may be taken any more; waits between attempts end, and their records wait with the others."""

    @property
    def works_elsewhere(self) -> bool:
        """Whether what runs in a lane has to be over before its partition goes, also where the lane was dropped."""

    def reserve_s(self, most_s: float) -> float:
        """How much of a stop's time has to be left for :meth:`cut_off`."""

    async def cut_off(self) -> None:
        """The time of what runs in these partitions is over; returns when it does nothing any more."""

    def exit(self, reason: BaseException) -> None:
        """A hook asked the process to end."""


class Assignment:
    """Takes partitions up and lets go of them; the listener of one consumer's rebalances."""

    def __init__(
        self,
        settings: IncomingSettings,
        table: PartitionTable,
        starts: StartPositions,
        committer: Committer,
        acknowledger: Acknowledger,
        host: Host,
        clock: Clock,
        observer: Observer,
        *,
        hooks: Hooks,
        facts: AssignmentFacts,
    ) -> None:
        self._settings = settings
        self._table = table
        self._engine = table.engine
        self._starts_ = starts
        self._committer = committer
        self._acknowledger = acknowledger
        self._host = host
        self._clock = clock
        self._observer = observer
        self._hooks = hooks
        self._facts = facts
        self._changed = asyncio.Event()
        self._letting_go_since = clock.monotonic()
        self._hooked: frozenset[TopicPartition] = frozenset()  # assigned hooks have run, revoked ones have not
        self._releasing = asyncio.Lock()
        self._is_over = False  # let go for good: what is assigned until the client has left is not taken up
        self.is_letting_go = False
        self.has_joined = False

    # -- the listener

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Let work finish within ``revoke_grace``, commit, and let go."""
        self._starts_.revoked()
        if not partitions and not self._engine.trackers:
            return
        deadline = self._clock.monotonic() + self._settings.revoke_grace_s
        await self.drain(deadline)
        await self.release(deadline, during="revocation")
        self._tell_gone(partitions, is_lost=self._is_lost())

    async def lose(self) -> None:
        """The client is of no use any more: what is settled is committed if that can be done at all."""
        self._starts_.revoked()
        partitions = frozenset(self._engine.trackers)
        now = self._clock.monotonic()
        await self.drain(now)
        await self.release(now, during="revocation", is_lost=True)
        if partitions:
            self._tell_gone(partitions, is_lost=True)

    def _is_lost(self) -> bool:
        """Whether the partitions have been taken already: the broker has refused a commit, or put this client out."""
        return not self._committer.is_owner or (self.consumer is not None and not self.consumer.is_member())

    def _tell_gone(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        self._facts.rebalances["lost" if is_lost else "revoked"] += 1
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
        if self._is_over:
            return
        self.is_letting_go = self._table.stays_parked
        if not self.is_letting_go:
            self._acknowledger.awaited_by.discard(self)
        for tracker in self._engine.begin(generation, partitions):
            self._table.forget(tracker)
        self.changed()
        self._starts_.assigned(partitions)
        self._committer.is_owner = True
        self._facts.rebalances["assigned"] += 1
        self.has_joined = True
        self._observer.on(
            Rebalanced(channel=self._settings.name, kind="assigned", partitions=partitions, generation=generation)
        )
        self._host.joined()
        if partitions and self._hooks.on_assigned:
            await self._starts_.find()  # what came straight back: hooks may wait for verdicts on its records
            if self._is_over or not self._starts_.pending:
                return  # taken away meanwhile
        if partitions:
            self._hooked = partitions
            for hook in self._hooks.on_assigned:
                self._exit_if_asked(await self._run_hook("on_assigned", hook, partitions))
        self._starts_.is_open = True
        await self._starts_.find()

    # -- letting go

    def take_nothing_new(self, *, for_good: bool = False) -> None:
        """Let no handler be called from here on, not even by a worker that is in a lane; what waits stays there.

        Args:
            for_good: Nor after the next assignment, for the channel ends.
        """
        self._table.stays_parked = self._table.stays_parked or for_good
        if not self.is_letting_go:
            self._letting_go_since = self._clock.monotonic()
        self.is_letting_go = True
        self._acknowledger.awaited_by.add(self)
        self._table.park()
        self._host.revoked()

    async def drain(self, deadline: float, *, to_the_end: bool = False) -> bool:
        """Take nothing new, and wait for the handlers that run.

        Jobs that run on a cluster are cancelled in time, or when the grace of a revocation is over, and waited for
        until they do nothing any more; all of that takes ``drain_timeout`` at most.

        Args:
            to_the_end: Also for those whose partition has gone or was reset: the process ends.

        Returns:
            False if some still run at *deadline* (monotonic).
        """
        self.take_nothing_new(for_good=to_the_end)

        waits_for_remains = to_the_end or self._host.works_elsewhere

        def are_over() -> bool:
            return not (waits_for_remains and self._table.has_remains()) and not self._table.running()

        now = self._clock.monotonic()
        whole_s = max(deadline - now, min(self._settings.drain_timeout_s, CUT_OFF_S if to_the_end else inf))
        ends = min(deadline, now + whole_s - self._host.reserve_s(whole_s))
        if await self._until(are_over, ends):
            return True
        try:
            async with asyncio.timeout(max(0.0, now + whole_s - self._clock.monotonic())):
                await self._host.cut_off()
        except TimeoutError:
            pass  # it does not end, which was logged; nobody can wait for ever
        return await self._until(are_over, deadline)

    async def release(self, deadline: float, *, during: str, is_lost: bool = False) -> None:
        """Run the hooks, give what is still unsettled the rest of the time, commit, and stop committing.

        Args:
            is_lost: The client is of no use any more, and the partitions go with it.
        """
        raised: list[BaseException | None] = []
        async with self._releasing:  # a stop may come while a revocation is at it
            hooked, self._hooked = self._hooked, frozenset()
            if hooked:
                is_lost = is_lost or self._is_lost()
                raised = [await self._run_hook("on_revoked", hook, hooked, is_lost) for hook in self._hooks.on_revoked]
            if self._engine.trackers:
                await self._until(self._table.are_settled, deadline)
                self._count_abandoned(during)
                if not await self._committer.flush(self._clock.monotonic() + COMMIT_DEADLINE_S):
                    self._tell_unstored(during)
            self._acknowledger.hold_answers(self._engine.leave())
            self._is_over = self._is_over or during == "stop"
        for error in raised:
            self._exit_if_asked(error)

    def close(self) -> None:
        """No assignment will follow: every tracker is closed, and who waits for an answer gets it."""
        self._starts_.revoked()
        self._acknowledger.awaited_by.discard(self)
        for tracker in self._engine.close():
            self._table.forget(tracker)

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
        self._facts.abandoned += self._table.running()
        left = self._table.in_flight()
        if left:
            self._observer.on(
                HandlerAbandoned(
                    channel=self._settings.name,
                    during="revocation" if during == "revocation" else "stop",
                    records=left,
                    waited_s=self._clock.monotonic() - self._letting_go_since,
                )
            )

    def _tell_unstored(self, during: str) -> None:
        left = self._engine.unstored()
        if left and self._committer.is_owner:  # else another owner has them, which is told by itself
            self._observer.on(
                SettledNotStored(
                    channel=self._settings.name,
                    during="revocation" if during == "revocation" else "stop",
                    partitions=frozenset(left),
                    records=sum(left.values()),
                    reason=self._committer.failing or f"no answer within {COMMIT_DEADLINE_S:g} s",
                )
            )

    async def _run_hook(
        self, kind: str, hook: Callable[..., Awaitable[None]], *arguments: object
    ) -> BaseException | None:
        """Run a hook of the application, in a task of its own, for it may cancel the one it runs in.

        Whatever it raises is told and returned, and the rebalance goes on; only who cancels that ends it.
        """
        name = self._settings.name
        error = await outcome_of(lambda: hook(*arguments), f"{kind} of {name}", HOOK_DEADLINE_S)
        if error is not None:
            self._observer.on(HookFailed(channel=name, hook=kind, reason=told_of(error), error=error))
        return error

    def _exit_if_asked(self, error: BaseException | None) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._host.exit(error)

    # -- what others ask

    @property
    def consumer(self) -> Consumer | None:
        """The client of the moment."""
        return self._starts_.consumer

    @consumer.setter
    def consumer(self, consumer: Consumer | None) -> None:
        self._starts_.consumer = consumer

    @property
    def lanes(self) -> dict[TopicPartition, Lane]:
        """partition -> its lane."""
        return self._table.lanes

    @property
    def is_positioned(self) -> bool:
        """Whether reading has begun in every partition of the assignment, and the topics have been looked at."""
        return self._starts_.are_done

    async def find_positions(self) -> None:
        """Begin to read wherever that has not been done."""
        await self._starts_.find()

    async def reset(self, partition: TopicPartition, position: int) -> None:
        """The position of a partition is not in its log any more: begin where the policy says.

        Raises:
            BrokerError: The log's ends could not be asked for.
        """
        await self._starts_.reset(partition, position)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that are ours, also where reading has not begun."""
        return frozenset(self._starts_.pending).union(self._engine.trackers)

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition is ours, and is not being let go."""
        is_here = partition in self._engine.trackers or partition in self._starts_.pending
        return is_here and not self.is_letting_go

    async def seek(self, partition: TopicPartition, where: Where) -> None:
        """Go on from somewhere else.

        Raises:
            NotOwnerError: The partition was taken away meanwhile.
            BrokerError: The log's ends could not be asked for.
        """
        await self._starts_.seek(partition, where)
        if self.is_letting_go:
            raise NotOwnerError(f"channel {self._settings.name!r}: {partition} is being taken away")
