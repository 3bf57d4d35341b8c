"""Looks up where to read: after an assignment, after a seek, and if the log lost the position."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from reactive_kafka.assignment.log_ends import ask_log_ends, ask_log_ends_by_topic
from reactive_kafka.assignment.new_partitions import NewPartitions
from reactive_kafka.assignment.partition_starter import PartitionStarter
from reactive_kafka.assignment.recreated_topics import RecreatedTopics
from reactive_kafka.assignment.start_policy import Start
from reactive_kafka.assignment.time_ranges import TimeRanges
from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Consumer, SomePositionsUnknownError
from reactive_kafka.commit.committer import Committer
from reactive_kafka.errors import BrokerError, NotOwnerError, StoreAwayError, TransientBrokerError
from reactive_kafka.observe.events import PositionsKnown, PositionsUnknown
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.start_choice import StartChoice, Where
from reactive_kafka.records import Committed, TopicPartition

BACKOFF = Backoff(0.5, 3.0)
"""How soon a question without an answer is repeated, unless partitions or a seek came
meanwhile."""

Unknown = dict[TopicPartition, BrokerError]
"""partition -> why it cannot start now, where others can."""


class PositionLookup:
    """Finds where to read in the partitions of one client, and starts them.

    While the broker is asked, a seek, a revocation or another assignment may come. So a caller
    remembers the number of the assignment, and drops an answer that does not fit any more.

    Args:
        resumed: Called when partitions were retained, so that workers may take their records again.
        keeps_positions: The positions are in a checkpoint store.
    """

    def __init__(
        self,
        context: ClientContext,
        owned: ClientPartitions,
        committer: Committer,
        starter: PartitionStarter,
        recreated: RecreatedTopics,
        new_partitions: NewPartitions,
        resumed: Callable[[], None],
        *,
        keeps_positions: bool,
    ) -> None:
        self._context = context
        self._settings = context.settings
        self._clock = context.clock
        self.keeps_positions = keeps_positions
        self._owned = owned
        self.table = owned.table
        self._committer = committer
        self._resumed = resumed
        self._starter = starter
        self._recreated = recreated
        self._new_partitions = new_partitions
        self._time_ranges = TimeRanges(context.settings, owned.table)
        self._one_at_a_time = asyncio.Lock()
        self._waits = Waits(BACKOFF)
        # What the last question without an answer was for, and when it is repeated.
        self._asked_in_vain: frozenset[tuple[TopicPartition, int, StartChoice | None]] = frozenset()
        self._again_at = 0.0
        self.consumer: Consumer | None = None
        # Why reading has not begun everywhere; None: it has.
        self.not_begun: str | None = "reading has not begun yet"

    def is_retained(self, name: TopicPartition, committed: int | None) -> bool:
        """Whether a partition will continue where it was, if the group has this position."""
        partition = self.table.get(name)
        if partition is None or partition.start.choice is not None:
            return False
        return self.table.is_retained(partition, committed)

    @property
    def are_done(self) -> bool:
        """Whether reading has started in the whole assignment, and the topics were looked at."""
        was_assigned = self.table.generation >= 0
        if was_assigned and not self._new_partitions.has_looked:
            return False
        return not self.table.pending

    # -- starting an assignment

    async def find(self) -> None:
        """Start to read wherever reading has not started.

        What the broker cannot say now stays for the next call. Before the hooks of their assignment
        have run, partitions do not start, and those that are retained only commit.
        """
        consumer = self.consumer
        if consumer is None:
            return
        async with self._one_at_a_time:
            if self.are_done:
                return
            is_early = self._clock.monotonic() < self._again_at
            if is_early and self._asked_in_vain == self._wanted():
                return
            try:
                await self._find_all(consumer)
            except NotOwnerError:
                # Another assignment will come, and start again.
                return
            except BrokerError as error:
                self._report_unknown(error)
                self._asked_in_vain = self._wanted()
                self._again_at = self._clock.monotonic() + self._waits.next_s()
            else:
                self._asked_in_vain = frozenset()
                if not self.table.pending:
                    self._waits.progressed()

    def _wanted(self) -> frozenset[tuple[TopicPartition, int, StartChoice | None]]:
        """What is asked for: another assignment or another choice makes it another question."""
        return frozenset(
            (partition.id, partition.assignment, partition.start.choice)
            for partition in self.table.pending
        )

    async def _find_all(self, consumer: Consumer) -> None:
        unknown = await self._retain_before_hooks(consumer)
        # The hooks of these have run: they continue where they were, unless another place was
        # chosen.
        self._resume(
            consumer,
            [
                partition
                for partition in self.table
                if partition.state is PartitionState.RETAINED
                and partition.start.is_allowed
                and partition.start.choice is None
            ],
        )
        await self._look_at_topics_before_reading(consumer)
        # A question that names a partition whose leader is away gets no answer for the others
        # either.
        pending = {
            partition: partition.assignment
            for partition in self.table.pending
            if partition.start.is_allowed and not _lacks_leader(partition)
        }
        if not (pending or self._new_partitions.has_looked or self.table.pending):
            await self._new_partitions.look(consumer)
        while pending:
            unknown |= await self._find(consumer, pending)
            # Once more for partitions with a seek while the broker was asked.
            pending = {
                partition: assignment
                for partition, assignment in pending.items()
                if partition.awaits_start(assignment)
                and partition.start.sought is not None
                and partition.id not in unknown
            }
        self._raise_if_away(unknown)
        if self.table.pending:
            return
        self.not_begun = None
        if self._context.problems.positions is not None:
            self._context.problems.positions = None
            self._context.observer.on(PositionsKnown(channel=self._context.channel))
        # A poll that began before this asks for no partition, and would keep waiting.
        consumer.wake()

    async def _look_at_topics_before_reading(self, consumer: Consumer) -> None:
        # What is retained does not wait for this question: its answer may come behind that of a
        # fetch that waits for records. If its topic was recreated meanwhile, a later look notices
        # it, as it does while reading.
        is_needed = not self._new_partitions.has_looked or any(
            partition.start.is_allowed for partition in self.table.pending
        )
        if is_needed:
            await self._recreated.ask_before_reading(consumer)
            await self._recreated.restart(consumer)

    def _raise_if_away(self, unknown: Unknown) -> None:
        reasons = set()
        for partition in self.table.pending:
            if partition.log.leader_away is not None:
                reasons.add(partition.log.leader_away.reason)
            if partition.id in unknown:
                reasons.add(f"{partition.id}: {unknown[partition.id]}")
        if reasons:
            raise TransientBrokerError("; ".join(sorted(reasons)))

    def _report_unknown(self, error: BrokerError) -> None:
        is_store = isinstance(error, StoreAwayError)
        reason = f"the checkpoint store is away: {error}" if is_store else str(error)
        names = frozenset(partition.id for partition in self.table.pending)
        unknown = PositionsUnknown(channel=self._context.channel, partitions=names, reason=reason)
        self.not_begun = unknown.what()
        if is_store:
            # Those who ask the store have reported it.
            return
        reported = self._context.problems.positions
        if reported is None or reported.what() != self.not_begun:
            self._context.observer.on(unknown)
        self._context.problems.positions = unknown

    async def _find(self, consumer: Consumer, pending: Mapping[Partition, int]) -> Unknown:
        """Start these partitions, except where another start was chosen while the broker was asked.

        Returns:
            Those that cannot start now, because the broker has answered for others only.
        """
        choices = {partition: partition.start.choice for partition in pending}
        names = frozenset(partition.id for partition in pending)
        committed, unknown = await self._committed(consumer, names)
        fresh = []
        retained = []
        for partition, assignment in pending.items():
            if not partition.awaits_start(assignment) or partition.id in unknown:
                continue
            choice = partition.start.choice
            if choice is not choices[partition]:
                continue
            found = committed[partition.id]
            if self.keeps_positions and found is not None and choice and choice.is_resumed:
                # The store may be further than the session before knew: the answer to a
                # transaction may have been lost.
                partition.start.forget_configured()
            if not self._retain(partition, found):
                fresh.append(partition)
            if partition.state is PartitionState.RETAINED:
                retained.append(partition)
        self._resume(consumer, retained)
        # Those without a leader stay pending, and _raise_if_away says why.
        led = {partition: pending[partition] for partition in fresh if not _lacks_leader(partition)}
        if led:
            unknown |= await self._start_fresh(consumer, led, committed)
        return unknown

    async def _retain_before_hooks(self, consumer: Consumer) -> Unknown:
        """Let retained partitions commit while the hooks run; they are not read yet.

        Hooks may wait for verdicts on their records.
        """
        waiting = {
            partition: partition.assignment
            for partition in self.table.pending
            if not partition.start.is_allowed and partition.left is not None
        }
        if not waiting:
            return {}
        names = frozenset(partition.id for partition in waiting)
        committed, unknown = await self._committed(consumer, names)
        for partition, assignment in waiting.items():
            if partition.id not in committed or partition.left is None:
                continue
            if partition.awaits_start(assignment):
                self._retain(partition, committed[partition.id])
        return unknown

    def _retain(self, partition: Partition, stored: Committed | None) -> bool:
        """Let a partition continue where it was, if it is retained; return whether it is."""
        if partition.start.choice is not None:
            offset = None if stored is None else stored.offset
            if partition.left is not None:
                is_ours = self.table.is_retained(partition, offset)
                self._owned.drop(partition, is_ours=is_ours)
            return False
        if self._settings.enable_auto_commit and partition.left is not None:
            # The client commits what it has handed out.
            partition.left.attempted = partition.left.position
        is_retained = self._owned.retain(partition, stored)
        if partition.commits.metadata.lost_plans:
            # Until the group has the plans again, a crash would have their records cut again.
            self._committer.request()
        return is_retained

    def _resume(self, consumer: Consumer, retained: list[Partition]) -> None:
        if not retained:
            return
        positions = {}
        for partition in retained:
            self._owned.resume(partition)
            # It was retained with its tracker.
            assert partition.tracker is not None  # noqa: S101
            positions[partition.id] = partition.tracker.position
        consumer.start_at(positions)
        self._resumed()

    async def _committed(
        self, consumer: Consumer, names: frozenset[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, Committed | None], Unknown]:
        """The positions of the group, and why the others are not known now."""
        if self._settings.group_id is None and not self.keeps_positions:
            return dict.fromkeys(names), {}
        try:
            return await consumer.committed(names), {}
        except SomePositionsUnknownError as error:
            return error.found, error.unknown

    async def _start_fresh(
        self,
        consumer: Consumer,
        fresh: Mapping[Partition, int],
        committed: Mapping[TopicPartition, Committed | None],
    ) -> Unknown:
        without_range = await self._time_ranges.find(consumer, fresh)
        fresh = {one: number for one, number in fresh.items() if one.id not in without_range}
        if not fresh:
            return without_range
        choices = {partition: partition.start.choice for partition in fresh}
        names = [partition.id for partition in fresh]
        wanted = {
            partition.id: choice.where
            for partition, choice in choices.items()
            if choice is not None
        }
        logs, unknown = await ask_log_ends_by_topic(consumer, names, wanted)
        new = await self._new_partitions.among(consumer, names)
        started: dict[Partition, Start] = {}
        for partition, choice in choices.items():
            name = partition.id
            if name not in logs:
                continue
            # The broker was asked in between: a seek, a revocation or another assignment may have
            # come. What was looked up is used only if it is still what is wanted, else the next
            # round of _find_all looks it up again. Choices are compared by identity, because a
            # second seek to the same place is a new request.
            if not partition.awaits_start(fresh[partition]):
                continue
            if partition.start.choice is not choice:
                continue
            start = self._starter.start_found(
                partition, committed[name], choice, logs[name], is_new=name in new
            )
            if start is not None:
                started[partition] = start
        await self._read(consumer, started, fresh)
        return unknown | without_range

    async def _read(
        self,
        consumer: Consumer,
        started: Mapping[Partition, Start],
        assignments: Mapping[Partition, int],
    ) -> None:
        """Read from these starts on; a start that the policy chose is committed before.

        So the next owner begins there too after a crash. If that commit fails, the next tick tries
        again; reading does not wait for it.
        """
        if any(start.commit for start in started.values()):
            await self._committer.commit()
        flows = {}
        for partition, start in started.items():
            # During that commit the partition may have gone, or a seek may have come.
            is_current = partition.assignment == assignments[partition]
            is_wanted = is_current and partition.start.sought is None
            if is_wanted and partition.state is PartitionState.STARTING:
                self.table.move(partition, "read")
                flows[partition.id] = start.read_from
        consumer.start_at(flows)

    # -- while reading

    async def _go_on(self, consumer: Consumer, partition: Partition, start: Start) -> None:
        # At once: records from where it was read before would pass for those behind a gap.
        consumer.start_at({partition.id: start.read_from})
        consumer.wake()
        if start.commit:
            await self._committer.commit()

    async def look_at_topics(self) -> None:
        """Restart the partitions of recreated topics.

        The log of a new topic may be longer by now than the position, so that nothing else would
        show it.

        Raises:
            BrokerError: No broker answers.
        """
        consumer = self.consumer
        if consumer is None:
            return
        # Without the lock: an assignment must not wait for the answer.
        await self._recreated.ask(consumer)
        async with self._one_at_a_time:
            await self._recreated.restart(consumer)

    async def reset(self, name: TopicPartition, position: int) -> None:
        """Start where the policy says: the position of a partition is not in its log any more.

        If the log still has unsettled records (its end was cut off), these are read again, and no
        policy passes them.

        Raises:
            BrokerError: The ends of the log could not be asked for.
        """
        consumer = self.consumer
        partition = self.table.get(name)
        if consumer is None or partition is None:
            return
        assignment = partition.assignment
        logs = await ask_log_ends(consumer, [name], {})
        old = partition.live
        if partition.assignment != assignment or old is None:
            return
        if old.position != position and partition.ranges is None:
            return
        log = logs[name]
        if log.start <= position <= log.end:
            # By now it is there.
            start: Start | None = Start(position)
        else:
            start = self._starter.start_again(partition, old, log)
        if start is not None:
            await self._go_on(consumer, partition, start)

    # -- seeks

    async def seek(self, name: TopicPartition, where: Where) -> None:
        """Read a partition from somewhere else; if reading has not started, it starts there.

        Raises:
            NotOwnerError: The partition is not ours, or was taken away meanwhile.
            BrokerError: The broker did not answer for its log.
        """
        partition = self.table.get(name)
        if partition is None or not partition.is_ours:
            raise _not_ours(self._context.channel, name)
        assignment = partition.assignment
        if partition.is_pending:
            partition.start.seek(StartChoice(where))
            if partition.state is PartitionState.RETAINED:
                # Its records in flight are not handled to the end.
                self._owned.drop(partition, is_ours=True)
        else:
            await self._seek_while_reading(partition, where, assignment)
        if partition.awaits_start(assignment):
            await self.find()
        # In a later assignment it may be ours still, but the seek was for this one.
        if partition.assignment != assignment:
            raise _not_ours(self._context.channel, name)

    async def _seek_while_reading(
        self, partition: Partition, where: Where, assignment: int
    ) -> None:
        async with self._one_at_a_time:
            consumer = self.consumer
            if consumer is None or partition.assignment != assignment:
                raise _not_ours(self._context.channel, partition.id)
            logs = {}
            if not partition.is_pending:
                logs = await ask_log_ends(consumer, [partition.id], {partition.id: where})
            if partition.assignment != assignment:
                return
            if partition.is_pending:
                # It has to start again in the meantime, and starts there, unless there was another
                # seek after this one.
                if partition.start.sought is None:
                    partition.start.seek(StartChoice(where))
                return
            if partition.live is None:
                raise _not_ours(self._context.channel, partition.id)
            start = self._starter.start_where_chosen(
                partition, partition.commits.stored, StartChoice(where), logs[partition.id]
            )
            if start is not None:
                await self._go_on(consumer, partition, start)


def _lacks_leader(partition: Partition) -> bool:
    """Whether the ends of a partition's log cannot be asked for, although they are needed."""
    # A partition that may be retained does not need them.
    return partition.log.leader_away is not None and partition.left is None


def _not_ours(channel: str, partition: TopicPartition) -> NotOwnerError:
    return NotOwnerError(f"channel {channel!r}: {partition} is not ours")
