"""The listener of one client's rebalances: partitions come, go, and are retained; the application's
hooks run.

A revocation names its partitions: their work may finish, what is settled is committed, and they are
let go. The others go on meanwhile. An eager client (aiokafka's) revokes everything in every
rebalance; what it gets back is retained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from math import inf
from typing import Literal

from reactive_kafka.assignment import deadlines as granted
from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.assignment.deadlines import Deadlines, LastAssignment, Slot
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.assignment.rebalance_hooks import HookRunner, RebalanceHooks
from reactive_kafka.commit.committer import Committer
from reactive_kafka.config.checks import GroupTimes
from reactive_kafka.observe.events import (
    HandlerAbandoned,
    Rebalanced,
    RevocationCut,
    SettledNotStored,
    StopWaits,
)
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import NoEndError, is_set_within, outcome_of

CUT_OFF_S = 10.0
"""How long a stop that is to wait for nothing waits for jobs that it has cancelled, or
``drain_timeout`` if less.
"""
TOLD_AFTER_S = 1.0
"""How long a stop waits for records before it is told which, and for how long at most."""

During = Literal["revocation", "stop"]


class Assignment:
    """Takes partitions in and lets go of them; the listener of one consumer's rebalances."""

    def __init__(
        self,
        parts: ClientParts,
        owned: ClientPartitions,
        starts: PositionLookup,
        committer: Committer,
        hooks: RebalanceHooks,
        exit: Callable[[BaseException], None],
        joined: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._owned = owned
        self._starts = starts
        self._committer = committer
        self._clock = parts.clock
        self._hooks = hooks
        self._runner = HookRunner(parts.settings.name, parts.clock, parts.observer)
        # A hook asked the process to end.
        self._exit = exit
        # Called when an assignment has come.
        self._joined = joined
        self._changed = asyncio.Event()
        self._times = GroupTimes.of(parts.settings.client.get)
        self._last = LastAssignment()
        # When each of the two began to wait for handlers: a stop may come during a revocation, and
        # the other way round.
        self._waits_since: dict[During, float] = {}
        self._has_told_waiting = False
        self._releasing = asyncio.Lock()
        # Let go for good: what is assigned until the client has left is not read.
        self._is_over = False
        # The same, of a client that another one follows.
        self._is_leaving = False
        self.has_joined = False

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Let the work in these partitions finish within ``revoke_grace``, commit, and let go in
        time for the join.
        """
        if not partitions:
            return
        settings = self._settings
        now = self._clock.monotonic()
        self._waits_since["revocation"] = now
        deadlines = granted.of_revocation(
            self._times,
            settings.revoke_grace_s,
            now,
            self._last,
            hooks=len(self._hooks.on_revoked),
            commits_twice=settings.enable_auto_commit or settings.commit_strategy == "checkpoint",
        )
        await self.drain(
            min(deadlines.grace, deadlines.drain_end), partitions, most=deadlines.drain_end
        )
        await self.release(deadlines, partitions, during="revocation")
        self._tell("lost" if self._is_lost() else "revoked", partitions)

    async def lose(self, leave: Callable[[], Awaitable[None]]) -> None:
        """The client is of no use any more: commit what is settled if that can be done, and *leave*
        its group.
        """
        partitions = frozenset(self._owned.table.trackers)
        now = self._clock.monotonic()
        self._waits_since["revocation"] = now
        # Until it has left, the group may still assign partitions to it. Its successor would not be
        # told that they are gone: a cooperative assignment names only what comes and goes, and what
        # came to the lost client would stay.
        self._is_leaving = True
        try:
            await self.drain(now)
            await self.release(granted.without_group(now), during="revocation", is_lost=True)
            if partitions:
                self._tell("lost", partitions)
            await leave()
        finally:
            self._is_leaving = False

    def _tell(
        self, kind: Literal["assigned", "revoked", "lost"], partitions: frozenset[TopicPartition]
    ) -> None:
        self._parts.history.rebalances[kind] += 1
        name = self._settings.name
        generation = self._owned.table.generation
        self._parts.observer.on(
            Rebalanced(channel=name, kind=kind, partitions=partitions, generation=generation)
        )

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Go on in the partitions that are retained, start the other ones afresh."""
        self._last.began = self._clock.monotonic()
        if self._is_over or self._is_leaving:
            return
        # A stop goes on waiting, also through an incremental assignment.
        if not self._owned.is_ending:
            self._parts.acknowledger.awaited_by.discard(self)
        self._owned.assign(generation, partitions)
        self._committer.engine.end_request()
        self.changed()
        self._committer.is_owner = True
        self.has_joined = True
        self._tell("assigned", partitions)
        self._joined()
        added = {one: one.assignment for one in self._owned.named(partitions)}
        if added and self._hooks.on_assigned:
            # What is retained commits already: hooks may wait for verdicts on its records.
            await self._starts.find()
        await self._open(added, partitions)
        await self._starts.find()
        self._last.ended = self._clock.monotonic()

    async def _open(
        self, added: Mapping[Partition, int], partitions: frozenset[TopicPartition]
    ) -> None:
        """Run the hooks of an assignment, unless all of it was taken away meanwhile; then its
        partitions may start.
        """
        if self._is_over or not any(one.assignment == at for one, at in added.items()):
            return
        for one, at in added.items():
            one.has_hooks = one.assignment == at
        now = self._clock.monotonic()
        deadlines = granted.of_assignment(self._times, self._settings.revoke_grace_s, now)
        calls = [partial(hook, partitions) for hook in self._hooks.on_assigned]
        self._exit_if_asked(await self._runner.run("on_assigned", calls, deadlines))
        for one, at in added.items():
            if one.assignment == at:
                self._owned.table.move(one, "open")
                one.is_open = True

    def take_nothing_new(
        self, partitions: Collection[TopicPartition] | None = None, *, for_good: bool = False
    ) -> None:
        """Let no handler be called for records of these (None: any); *for_good*: nor after the next
        assignment.
        """
        if for_good:
            self._waits_since.setdefault("stop", self._clock.monotonic())
            self._owned.is_ending = True
        self._parts.acknowledger.awaited_by.add(self)
        self._owned.drain(partitions)
        self._parts.workers.suspended()

    async def drain(
        self,
        deadline: float,
        partitions: Collection[TopicPartition] | None = None,
        *,
        # Jobs, too, are not waited for any longer.
        most: float = inf,
        to_the_end: bool = False,
    ) -> None:
        """Take nothing new of these partitions (None: of any), and wait for the handlers that run,
        until *deadline*.

        Jobs that run on a cluster are cancelled in time, or when the grace of a revocation is over,
        and waited for until they do nothing any more; all of that takes ``drain_timeout`` at most.
        At the end of the process (*to_the_end*) also those are waited for whose partition has gone
        or was reset.
        """
        self.take_nothing_new(partitions, for_good=to_the_end)
        waits_for_remains = to_the_end or self._parts.workers.works_elsewhere

        def are_over() -> bool:
            return not (
                waits_for_remains and self._owned.has_remains()
            ) and not self._owned.running(partitions)

        # A job elsewhere is cancelled when the grace of a revocation is over, but a stop keeps a
        # part of its own time for that: so what is waited for first ends earlier than the whole,
        # and cancelling has the rest.
        now = self._clock.monotonic()
        whole_s = max(
            deadline - now,
            min(self._settings.drain_timeout_s, CUT_OFF_S if to_the_end else most - now),
        )
        ends = min(deadline, now + whole_s - self._parts.workers.reserve_s(whole_s))
        if await (self._until_told if to_the_end else self._until)(are_over, ends):
            return
        try:
            async with asyncio.timeout(max(0.0, now + whole_s - self._clock.monotonic())):
                await self._parts.workers.cut_off()
        except TimeoutError:
            # It does not end, which was logged; nobody can wait for ever.
            pass
        await self._until(are_over, deadline)

    async def release(
        self,
        deadlines: Deadlines,
        partitions: Collection[TopicPartition] | None = None,
        *,
        during: During,
        # The client is of no use any more, and the partitions go with it.
        is_lost: bool = False,
    ) -> None:
        """Run the hooks, give what is still unsettled the rest of the time, commit, and stop
        committing.
        """
        raised: list[BaseException] = []
        # A stop may come while a revocation is at it.
        async with self._releasing:
            hooked = frozenset(one.id for one in self._owned.named(partitions) if one.has_hooks)
            for one in self._owned.named(hooked):
                one.has_hooks = False
            if hooked:
                is_lost = is_lost or self._is_lost()
                calls = [partial(hook, hooked, is_lost) for hook in self._hooks.on_revoked]
                raised = await self._runner.run("on_revoked", calls, deadlines)
            records = unstored = 0
            if any(one.live is not None for one in self._owned.named(partitions)):
                rest_end = min(deadlines.grace, deadlines.commit_at)
                wait = self._until_told if during == "stop" else self._until
                await wait(lambda: self._owned.are_settled(partitions), rest_end)
                records = self._count_abandoned(partitions, during)
                slot = deadlines.commit(self._clock.monotonic())
                if not await self._flush(slot, partitions):
                    unstored = self._tell_unstored(partitions, during, slot)
            hooks = sum(isinstance(error, NoEndError) for error in raised)
            # One line for all that had no time to end.
            if deadlines.is_short and (hooks or records or unstored):
                name = self._settings.name
                waits_s = self._times.rebalance_s
                cut = RevocationCut(
                    channel=name, waits_s=waits_s, hooks=hooks, records=records, unstored=unstored
                )
                self._parts.observer.on(cut)
            self._owned.revoke(partitions)
            if not self._owned.table.trackers:
                self._committer.engine.end_request()
            self._is_over = self._is_over or during == "stop"
        # The process has committed and let go before it ends.
        self._exit_if_asked(raised)

    async def _flush(self, slot: Slot, partitions: Collection[TopicPartition] | None) -> bool:
        """Make the last commit; False if something is not stored."""
        # In a task of its own: the end of what is cancelled for being late may take longer (a
        # transaction is aborted).
        is_stored = False

        async def flush() -> None:
            nonlocal is_stored
            is_stored = await self._committer.flush(
                self._clock.monotonic() + slot.run_s, partitions
            )

        error = await outcome_of(
            flush, f"last commit of {self._settings.name}", slot.run_s, cleanup_s=slot.cleanup_s
        )
        if error is not None and not isinstance(error, NoEndError):
            raise error
        return is_stored

    def _exit_if_asked(self, errors: Iterable[BaseException]) -> None:
        for error in errors:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._exit(error)

    def close(self) -> None:
        """No assignment will follow: every tracker is closed, and who waits for an answer gets
        it.
        """
        self._parts.acknowledger.awaited_by.discard(self)
        self._owned.close()

    def changed(self) -> None:
        """A worker turned away from a lane, or a verdict was given: whoever waits for that looks
        again.
        """
        self._changed.set()

    async def _until(self, holds: Callable[[], bool], deadline: float) -> bool:
        while not holds():
            self._changed.clear()
            if not await is_set_within(self._changed, deadline - self._clock.monotonic()):
                return holds()
        return True

    async def _until_told(self, holds: Callable[[], bool], deadline: float) -> bool:
        """The same, at a stop; what it waits for is told once."""
        if await self._until(holds, min(deadline, self._clock.monotonic() + TOLD_AFTER_S)):
            return True
        if (left_s := deadline - self._clock.monotonic()) > 0 and not self._has_told_waiting:
            self._has_told_waiting = True
            records = self._owned.in_flight()
            oldest = tuple(self._owned.unsettled())
            name = self._settings.name
            self._parts.observer.on(
                StopWaits(channel=name, records=records, oldest=oldest, left_s=left_s)
            )
        return await self._until(holds, deadline)

    def _count_abandoned(
        self, partitions: Collection[TopicPartition] | None, during: During
    ) -> int:
        self._parts.history.abandoned += self._owned.running(partitions)
        if left := self._owned.in_flight(partitions):
            now = self._clock.monotonic()
            waited_s = now - self._waits_since.get(during, now)
            self._parts.observer.on(
                HandlerAbandoned(
                    channel=self._settings.name, during=during, records=left, waited_s=waited_s
                )
            )
        return left

    def _tell_unstored(
        self, partitions: Collection[TopicPartition] | None, during: During, slot: Slot
    ) -> int:
        left = self._committer.engine.unstored(
            one for one in self._owned.named(partitions) if one.live is not None
        )
        # Else another owner has them, which is told by itself.
        if left and self._committer.is_owner:
            self._parts.observer.on(
                SettledNotStored(
                    channel=self._settings.name,
                    during=during,
                    partitions=frozenset(left),
                    records=sum(left.values()),
                    reason=self._committer.not_stored
                    or f"no answer within {round(slot.run_s, 2):g} s",
                )
            )
        return len(left)

    def _is_lost(self) -> bool:
        """Whether the partitions have been taken already: the broker has refused a commit, or put
        this client out.
        """
        # Known before the hooks run, and not from the callback: aiokafka calls the same one for a
        # revocation and for a membership that has ended.
        consumer = self._starts.consumer
        return not self._committer.is_owner or (consumer is not None and not consumer.is_member())

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition is ours, and is not about to go."""
        one = self._owned.table.get(partition)
        return one is not None and one.is_ours and one.state is not PartitionState.DRAINING
