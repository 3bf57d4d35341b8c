"""Listens to the rebalances of one client: takes partitions in, and lets them go.

A revocation names its partitions: their work may finish, what is settled is committed, and they are
let go. The others are read on meanwhile. An eager client (aiokafka's) revokes everything in every
rebalance; what it gets back is retained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from reactive_kafka.assignment import deadlines as granted
from reactive_kafka.assignment.deadlines import Deadlines, LastAssignment, Slot
from reactive_kafka.assignment.drain import HandlerDrain
from reactive_kafka.assignment.history import AssignmentReports, During
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.assignment.rebalance_hooks import HookRunner
from reactive_kafka.commit.committer import Committer
from reactive_kafka.config.checks import GroupTimes
from reactive_kafka.observe.events import RevocationCut, SettledNotStored
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import NoEndError, outcome_of


class Assignment:
    """The partitions that one client is assigned, from one rebalance to the next.

    Args:
        joined: Called when an assignment has come.
    """

    def __init__(
        self,
        context: ClientContext,
        owned: ClientPartitions,
        starts: PositionLookup,
        committer: Committer,
        drain: HandlerDrain,
        hooks: HookRunner,
        reports: AssignmentReports,
        joined: Callable[[], None],
    ) -> None:
        self._context = context
        self._settings = context.settings
        self._clock = context.clock
        self._owned = owned
        self._starts = starts
        self._committer = committer
        self.drain = drain
        self._hooks = hooks
        self._reports = reports
        self._joined = joined
        self._times = GroupTimes.of(context.settings.client.get)
        self._last = LastAssignment()
        # The assigned hooks have run for these partitions, and the revoked hooks have not.
        self._await_revoked_hooks: set[Partition] = set()
        self._releasing = asyncio.Lock()
        # The channel has stopped. Partitions that are assigned before the client has left the group
        # are not read.
        self._is_over = False
        # The client leaves its group, and another one follows.
        self._is_leaving = False
        self.has_joined = False

    # -- rebalances

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Let the work in these partitions finish, commit it, and let them go.

        Handlers have ``revoke_grace``, and less if the group waits for less.
        """
        if not partitions:
            return
        self.drain.begin("revocation")
        deadlines = self._revocation_deadlines()
        await self.drain.drain(
            min(deadlines.grace, deadlines.drain_end), partitions, most=deadlines.drain_end
        )
        await self.release(deadlines, partitions, during="revocation")
        self._reports.rebalanced(
            "lost" if self._is_lost() else "revoked", partitions, self._owned.table.generation
        )

    def _revocation_deadlines(self) -> Deadlines:
        settings = self._settings
        is_stored_elsewhere = settings.commit_strategy == "checkpoint"
        return granted.of_revocation(
            self._times,
            settings.revoke_grace_s,
            self._clock.monotonic(),
            self._last,
            hooks=len(self._hooks.hooks.on_revoked),
            commits_twice=settings.enable_auto_commit or is_stored_elsewhere,
        )

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """Go on in the partitions that are retained, and start the others.

        Args:
            partitions: Those that have come. An eager client gets back what it keeps, too.
            generation: Of the group; commits name it.
        """
        if self._is_over or self._is_leaving:
            # The client is about to leave its group, so nobody reads these partitions.
            return
        self._last.began = self._clock.monotonic()
        if not self._owned.is_ending:
            # The revocation is over, and its wait for handlers, too. A stop keeps waiting.
            self.drain.end()
        self._owned.assign(generation, partitions)
        if not self._owned.table.is_static:
            # The answer to a commit that was sent before says nothing about this assignment.
            # Without a group the client keeps what it has, and only reads more.
            self._committer.engine.end_request()
        # Work of a partition that did not come back is waited for no longer.
        self.drain.changed()
        self._committer.begin_assignment()
        self.has_joined = True
        self._reports.rebalanced("assigned", partitions, generation)
        self._joined()
        # Each with the number of this assignment: while the hooks run, a partition may be revoked
        # and assigned again.
        come = {partition: partition.assignment for partition in self._owned.among(partitions)}
        if come and self._hooks.hooks.on_assigned:
            # Before the hooks, retained partitions may commit again, but none is read: a hook may
            # wait until records of a retained partition are committed.
            await self._starts.find()
        await self._run_assigned_hooks(come, partitions)
        # After the hooks, all of them may be read.
        await self._starts.find()
        self._last.ended = self._clock.monotonic()

    async def _run_assigned_hooks(
        self, come: Mapping[Partition, int], partitions: frozenset[TopicPartition]
    ) -> None:
        """Run the hooks of an assignment, unless all of it has gone again; then it may start."""
        current = _still_assigned(come)
        if self._is_over or not current:
            return
        self._await_revoked_hooks.difference_update(come)
        self._await_revoked_hooks.update(current)
        now = self._clock.monotonic()
        deadlines = granted.of_assignment(self._times, self._settings.revoke_grace_s, now)
        raised = await self._hooks.run_assigned(partitions, deadlines)
        self._hooks.exit_if_asked(raised)
        for partition in _still_assigned(come):
            self._owned.table.move(partition, "open")
            partition.start.allow()

    async def lose(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Give up a client that is of no use any more: commit what can be committed, and leave.

        Args:
            leave: Leaves the group.
        """
        partitions = frozenset(self._owned.table.trackers)
        now = self._clock.monotonic()
        self.drain.begin("revocation")
        # Until it has left, the group may still assign partitions to it. The next client would not
        # be told that they are gone: a cooperative assignment names only what comes and goes, and
        # what came to the lost client would stay.
        self._is_leaving = True
        try:
            await self.drain.drain(now)
            await self.release(granted.without_group(now), during="revocation", is_lost=True)
            if partitions:
                self._reports.rebalanced("lost", partitions, self._owned.table.generation)
            await leave()
        finally:
            self._is_leaving = False

    def close(self) -> None:
        """No assignment will follow: close every tracker, and answer those who wait."""
        self.drain.end()
        self._committer.engine.end_request()
        self._owned.close()

    # -- letting go

    async def release(
        self,
        deadlines: Deadlines,
        partitions: Collection[TopicPartition] | None = None,
        *,
        during: During,
        is_lost: bool = False,
    ) -> None:
        """Run the hooks, wait for unsettled records, commit, and release the partitions.

        Args:
            partitions: None: all.
            is_lost: The client is of no use any more, and the partitions go with it.
        """
        # A stop may come during a revocation.
        async with self._releasing:
            raised = await self._run_revoked_hooks(deadlines, partitions, is_lost=is_lost)
            records = 0
            unstored = 0
            has_live = any(
                partition.live is not None for partition in self._owned.among(partitions)
            )
            if has_live:
                # The drain before this call waited for handlers. Their records may still wait for
                # an output, a letter or a store.
                rest_end = min(deadlines.grace, deadlines.commit_at)
                await self.drain.until_settled(rest_end, partitions, during)
                records = self._report_abandoned(partitions, during)
                slot = deadlines.commit(self._clock.monotonic())
                if not await self._flush(slot, partitions):
                    unstored = self._report_unstored(partitions, during, slot)
            hooks = sum(isinstance(error, NoEndError) for error in raised)
            if deadlines.is_short and (hooks or records or unstored):
                # One event for all that had no time to end.
                self._context.observer.on(
                    RevocationCut(
                        channel=self._context.channel,
                        waits_s=self._times.rebalance_s,
                        hooks=hooks,
                        records=records,
                        unstored=unstored,
                    )
                )
            self._owned.revoke(partitions)
            if not self._owned.table.trackers:
                # No partition is left, so an answer to the commit on its way means nothing more.
                self._committer.engine.end_request()
            if during == "stop":
                self._is_over = True
        # Only now, so that the process commits and lets go before it ends.
        self._hooks.exit_if_asked(raised)

    async def _run_revoked_hooks(
        self,
        deadlines: Deadlines,
        partitions: Collection[TopicPartition] | None,
        *,
        is_lost: bool,
    ) -> list[BaseException]:
        waiting = [
            partition
            for partition in self._owned.among(partitions)
            if partition in self._await_revoked_hooks
        ]
        if not waiting:
            return []
        self._await_revoked_hooks.difference_update(waiting)
        names = frozenset(partition.id for partition in waiting)
        return await self._hooks.run_revoked(names, deadlines, is_lost=is_lost or self._is_lost())

    async def _flush(self, slot: Slot, partitions: Collection[TopicPartition] | None) -> bool:
        """Make the last commit; False if something is not stored."""
        # It has a task of its own, because cancelling it at its deadline may take longer: a
        # transaction is aborted.
        is_stored = False

        async def flush() -> None:
            nonlocal is_stored
            deadline = self._clock.monotonic() + slot.run_s
            is_stored = await self._committer.flush(deadline, partitions)

        error = await outcome_of(
            flush,
            f"last commit of {self._context.channel}",
            slot.run_s,
            cleanup_s=slot.cleanup_s,
        )
        if error is not None and not isinstance(error, NoEndError):
            raise error
        return is_stored

    def _report_abandoned(
        self, partitions: Collection[TopicPartition] | None, during: During
    ) -> int:
        """Report the records that are released without a verdict; returns how many."""
        records = self._owned.in_flight(partitions)
        self._reports.abandoned(
            self._owned.running(partitions), records, during, self.drain.waited_s(during)
        )
        return records

    def _report_unstored(
        self, partitions: Collection[TopicPartition] | None, during: During, slot: Slot
    ) -> int:
        """Report settled records that are not stored; returns the number of their partitions."""
        offsets = self._committer.engine.unstored(
            partition for partition in self._owned.among(partitions) if partition.live is not None
        )
        # If another member has the partitions, that was reported already.
        if offsets and self._committer.is_owner:
            no_answer = f"no answer within {round(slot.run_s, 2):g} s"
            self._context.observer.on(
                SettledNotStored(
                    channel=self._context.channel,
                    during=during,
                    partitions=frozenset(offsets),
                    records=sum(offsets.values()),
                    reason=self._committer.not_stored or no_answer,
                )
            )
        return len(offsets)

    def _is_lost(self) -> bool:
        """Whether the partitions are another member's already.

        The broker has refused a commit, or put this client out of the group.
        """
        # Looked up, not taken from the callback: aiokafka calls the same one for a revocation and
        # for a membership that has ended.
        if not self._committer.is_owner:
            return True
        consumer = self._starts.consumer
        return consumer is not None and not consumer.is_member()

    def has(self, name: TopicPartition) -> bool:
        """Whether a partition is ours, and is not about to go."""
        partition = self._owned.table.get(name)
        if partition is None or not partition.is_ours:
            return False
        return partition.state is not PartitionState.DRAINING


def _still_assigned(come: Mapping[Partition, int]) -> list[Partition]:
    """The partitions that have not gone since the assignment with the number given for each."""
    return [
        partition for partition, assignment in come.items() if partition.assignment == assignment
    ]
