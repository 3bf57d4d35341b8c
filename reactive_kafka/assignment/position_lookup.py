"""Where reading begins: after an assignment, after a seek, and where the position is not in the log
any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.assignment.log_ends import ask_log_ends, ask_log_ends_by_topic
from reactive_kafka.assignment.new_partitions import NewPartitions
from reactive_kafka.assignment.partition_starter import PartitionStarter
from reactive_kafka.assignment.recreated_topics import RecreatedTopics
from reactive_kafka.assignment.start_policy import Start
from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Consumer, SomePositionsUnknownError
from reactive_kafka.commit.committer import Committer
from reactive_kafka.errors import BrokerError, NotOwnerError, StoreAwayError, TransientBrokerError
from reactive_kafka.observe.events import PositionsKnown, PositionsUnknown
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.start_choice import StartChoice, Where
from reactive_kafka.records import Committed, TopicPartition

BACKOFF = Backoff(0.5, 3.0)
"""How soon what could not be told is asked again, unless partitions came or somebody sought
meanwhile.
"""


Unknown = dict[TopicPartition, BrokerError]
"""partition -> why it cannot start now, where others can."""


class PositionLookup:
    """Finds where to read from in the partitions of one client."""

    def __init__(
        self,
        parts: ClientParts,
        owned: ClientPartitions,
        committer: Committer,
        fail: Callable[[BaseException], bool],
        resumed: Callable[[], None],
        *,
        tells_topics: bool,
    ) -> None:
        self._settings = parts.settings
        # In a checkpoint store.
        self.keeps_positions = parts.hook.keeps_positions
        self._owned = owned
        self.table = owned.table
        self._committer = committer
        # Called when partitions were retained, and what waited in them may be taken again.
        self._resumed = resumed
        self._observer = parts.observer
        self._starter = PartitionStarter(parts, owned, fail)
        self._recreated = RecreatedTopics(parts, owned, committer, self._starter)
        self._first_look = NewPartitions(parts, tells_topics=tells_topics)
        self._one_at_a_time = asyncio.Lock()
        self._told: PositionsUnknown | None = None
        self._clock = parts.clock
        self._waits = Waits(BACKOFF)
        self._asked_in_vain: frozenset[tuple[TopicPartition, int, StartChoice | None]] = frozenset()
        # When that is asked again.
        self._again_at = 0.0
        self.consumer: Consumer | None = None
        # None: it has, everywhere.
        self.not_begun: str | None = "reading has not begun yet"

    def is_retained(self, partition: TopicPartition, committed: int | None) -> bool:
        """Whether a partition will go on where it stood, if this is what the group has."""
        one = self.table.get(partition)
        return one is not None and one.choice is None and self.table.is_retained(one, committed)

    @property
    def are_done(self) -> bool:
        """Whether reading has started in every partition of the assignment, and the topics have
        been looked at.
        """
        was_assigned = self.table.generation >= 0
        return (self._first_look.is_done or not was_assigned) and not self.table.pending

    async def find(self) -> None:
        """Start to read wherever that has not been done; what the broker cannot tell now stays for
        the next call.

        Before the hooks of their assignment have run partitions do not start, and those that are
        retained only commit.
        """
        consumer = self.consumer
        if consumer is None:
            return
        async with self._one_at_a_time:
            if self.are_done or (
                self._asked_in_vain == self._wanted() and self._clock.monotonic() < self._again_at
            ):
                return
            try:
                await self._find_all(consumer)
            except NotOwnerError:
                # The next assignment begins anew.
                return
            except BrokerError as error:
                self._tell_unknown(error)
                self._asked_in_vain = self._wanted()
                self._again_at = self._clock.monotonic() + self._waits.next_s()
            else:
                self._asked_in_vain = frozenset()
                if not self.table.pending:
                    self._waits.progressed()

    def _wanted(self) -> frozenset[tuple[TopicPartition, int, StartChoice | None]]:
        """The partitions in which reading has not begun, with the number of their assignment, and
        what was chosen.
        """
        return frozenset((one.id, one.assignment, one.choice) for one in self.table.pending)

    async def _find_all(self, consumer: Consumer) -> None:
        """Start wherever reading has not; once more where somebody sought while the broker was
        asked.
        """
        unknown = await self._look_back(consumer)
        # the hooks have run: go on where it stood, if nothing else was chosen
        retained = [one for one in self.table if one.state is PartitionState.RETAINED]
        self._resume(consumer, [one for one in retained if one.is_open and one.choice is None])
        # What is retained has not waited for this question, whose answer may come behind that of a
        # fetch that waits for records. A topic made anew meanwhile is noticed by it all the same,
        # as while reading.
        if not self._first_look.is_done or any(one.is_open for one in self.table.pending):
            await self._recreated.ask_before_reading(consumer)
            await self._recreated.begin_anew(consumer)
        # Who asks for a partition whose leader is away gets no answer for the others that he asks
        # for with it.
        able = [one for one in self.table.pending if one.is_open and not _lacks_leader(one)]
        pending = {one: one.assignment for one in able}
        if not (pending or self._first_look.is_done or self.table.pending):
            await self._first_look.look(consumer)
        while pending:
            unknown |= await self._find(consumer, pending)
            again = [
                one for one, at in pending.items() if _is_of(one, at) and one.sought is not None
            ]
            pending = {one: pending[one] for one in again if one.id not in unknown}
        away = {one.silent[0] for one in self.table.pending if one.silent is not None}
        away |= {f"{one.id}: {unknown[one.id]}" for one in self.table.pending if one.id in unknown}
        if away:
            raise TransientBrokerError("; ".join(sorted(away)))
        if self.table.pending:
            return
        self.not_begun = None
        if self._told is not None:
            self._told = None
            self._observer.on(PositionsKnown(channel=self._settings.name))
        # A poll that began before is for no partition, and would go on waiting.
        consumer.wake()

    def _tell_unknown(self, error: BrokerError) -> None:
        # Its keeper has told of it.
        is_store = isinstance(error, StoreAwayError)
        reason = f"the checkpoint store is away: {error}" if is_store else str(error)
        pending = frozenset(one.id for one in self.table.pending)
        told = PositionsUnknown(channel=self._settings.name, partitions=pending, reason=reason)
        self.not_begun = told.what()
        if is_store:
            return
        if self._told is None or self._told.what() != self.not_begun:
            self._observer.on(told)
        self._told = told

    async def _find(self, consumer: Consumer, pending: Mapping[Partition, int]) -> Unknown:
        """Start these partitions, but for those whose choice is another one by the time the broker
        has answered.

        Returns:
            Those that cannot start now, because the broker tells of the others only.
        """
        choices = {one: one.choice for one in pending}
        committed, unknown = await self._committed(consumer, frozenset(one.id for one in pending))
        same = [one for one in pending if _is_of(one, pending[one]) and one.choice is choices[one]]
        same = [one for one in same if one.id not in unknown]
        if self.keeps_positions:
            for one in same:
                if (
                    committed[one.id] is not None
                    and one.choice is not None
                    and one.choice.is_resumed
                ):
                    # The store may be further: a transaction's answer was lost.
                    one.chosen = None
        fresh = [one for one in same if not self._retain(one, committed[one.id])]
        self._resume(consumer, [one for one in same if one.state is PartitionState.RETAINED])
        led = {one: pending[one] for one in fresh if not _lacks_leader(one)}
        if led:
            unknown |= await self._start_afresh(consumer, led, committed)
        return unknown

    async def _look_back(self, consumer: Consumer) -> Unknown:
        """Let what is retained commit, and no more: what waits for the hooks is still suspended,
        and not fetched.
        """
        closed = [one for one in self.table.pending if not one.is_open]
        waiting = {one: one.assignment for one in closed if one.left is not None}
        if not waiting:
            return {}
        committed, unknown = await self._committed(consumer, frozenset(one.id for one in waiting))
        for one, at in waiting.items():
            if one.id in committed and _is_of(one, at) and one.left is not None:
                self._retain(one, committed[one.id])
        return unknown

    def _resume(self, consumer: Consumer, retained: list[Partition]) -> None:
        positions = {}
        for one in retained:
            self._owned.resume(one)
            # It was retained with it.
            assert one.tracker is not None  # noqa: S101
            positions[one.id] = one.tracker.position
        if retained:
            consumer.start_at(positions)
            self._resumed()

    def _retain(self, one: Partition, stored: Committed | None) -> bool:
        """Whether a partition is retained: it is tracked where it stood then, and verdicts are
        answered.
        """
        if one.choice is not None:
            offset = None if stored is None else stored.offset
            if one.left is not None:
                self._owned.drop(one, is_ours=self.table.is_retained(one, offset))
            return False
        if self._settings.enable_auto_commit and one.left is not None:
            # The client commits what it has handed out.
            one.left.attempted = one.left.position
        is_retained = self._owned.retain(one, stored)
        if one.metadata.lost_plans:
            # Until they are there again, a crash would have their records cut anew.
            self._committer.request()
        return is_retained

    async def _committed(
        self, consumer: Consumer, partitions: frozenset[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, Committed | None], Unknown]:
        """partition -> the group's position; and those whose position the broker does not tell
        now.
        """
        if self._settings.group_id is None and not self.keeps_positions:
            return dict.fromkeys(partitions), {}
        try:
            return await consumer.committed(partitions), {}
        except SomePositionsUnknownError as error:
            return error.found, error.unknown

    async def _start_afresh(
        self,
        consumer: Consumer,
        fresh: Mapping[Partition, int],
        committed: Mapping[TopicPartition, Committed | None],
    ) -> Unknown:
        choices = {one: one.choice for one in fresh}
        names = [one.id for one in fresh]
        wanted = {one.id: choice.where for one, choice in choices.items() if choice is not None}
        logs, unknown = await ask_log_ends_by_topic(consumer, names, wanted)
        new = await self._first_look.new_ones(consumer, names)
        started: dict[Partition, Start] = {}
        for one, choice in choices.items():
            if one.id not in logs:
                continue
            # The broker was asked in between: a seek, a revocation or another assignment may have
            # come. What was looked up is used only if it is still what is wanted, else the next
            # round of _find_all looks it up anew. A StartChoice is compared by identity, for a second
            # seek to the same place is a wish of its own.
            if not _is_of(one, fresh[one]) or one.choice is not choice:
                continue
            start = self._starter.start_found(
                one, committed[one.id], choice, logs[one.id], is_new=one.id in new
            )
            if start is not None:
                started[one] = start
        await self._let_flow(consumer, started, fresh)
        return unknown

    async def _go_on(self, consumer: Consumer, one: Partition, start: Start) -> None:
        """Read from somewhere else at once: what comes from where it was read before would pass for
        a gap.
        """
        consumer.start_at({one.id: start.read_from})
        consumer.wake()
        if start.commit:
            await self._committer.commit()

    async def _let_flow(
        self,
        consumer: Consumer,
        started: Mapping[Partition, Start],
        numbers: Mapping[Partition, int],
    ) -> None:
        """Start reading. A start that the policy chose is committed before: who comes after a crash
        begins there too.

        Where that cannot be done now, the next tick tries again; reading does not wait for it. What
        was sought during that commit does not begin here.
        """
        if any(start.commit for start in started.values()):
            await self._committer.commit()
        flows = {}
        for one, start in started.items():
            is_wanted = one.assignment == numbers[one] and one.sought is None
            if is_wanted and one.state is PartitionState.STARTING:
                self.table.move(one, "read")
                flows[one.id] = start.read_from
        consumer.start_at(flows)

    async def look_at_topics(self) -> None:
        """Begin anew where a topic was deleted and made anew: what is known of its partitions is of
        other records.

        Its log may be longer by now than the position, so that nothing else would tell.
        BrokerError: no answer.
        """
        if (consumer := self.consumer) is not None:
            # Without the lock: an assignment must not wait for the answer.
            await self._recreated.ask(consumer)
            async with self._one_at_a_time:
                await self._recreated.begin_anew(consumer)

    async def reset(self, partition: TopicPartition, position: int) -> None:
        """The position of a partition is not in its log any more: start where the policy says, with
        a new tracker.

        Where the log still has what is unsettled (its end was cut off), that is read again, and no
        policy passes it. BrokerError: the log's ends could not be asked for.
        """
        consumer = self.consumer
        one = self.table.get(partition)
        if consumer is None or one is None:
            return
        at = one.assignment
        logs = await ask_log_ends(consumer, [partition], {})
        old = one.live
        if one.assignment != at or old is None or (old.position != position and one.ranges is None):
            return
        log = logs[partition]
        # By now.
        is_there = log.start <= position <= log.end
        start = Start(position) if is_there else self._starter.start_again(one, old, log)
        if start is not None:
            await self._go_on(consumer, one, start)

    async def seek(self, partition: TopicPartition, where: Where) -> None:
        """Go on from somewhere else. Where reading has not started yet, it starts there.

        NotOwnerError: the partition is not ours, or was taken away meanwhile. BrokerError: no
        answer about its log.
        """
        one = self.table.get(partition)
        if one is None or not one.is_ours:
            raise _not_ours(self._settings.name, partition)
        at = one.assignment
        if one.is_pending:
            one.sought = StartChoice(where)
            if one.state is PartitionState.RETAINED:
                # Its records in flight are not.
                self._owned.drop(one, is_ours=True)
        else:
            await self._seek(one, where, at)
        if one.assignment == at and one.is_pending:
            await self.find()
        # In a later assignment it may be ours still.
        if one.assignment != at:
            raise _not_ours(self._settings.name, partition)

    async def _seek(self, one: Partition, where: Where, at: int) -> None:
        """Go on from somewhere else where reading has started; if it has to start anew meanwhile,
        it starts there.
        """
        async with self._one_at_a_time:
            consumer = self.consumer
            partition = one.id
            if consumer is None or one.assignment != at:
                raise _not_ours(self._settings.name, partition)
            logs = (
                {}
                if one.is_pending
                else await ask_log_ends(consumer, [partition], {partition: where})
            )
            if one.assignment != at:
                return
            if one.is_pending:
                # Unless somebody has sought after us.
                one.sought = one.sought or StartChoice(where)
                return
            if one.live is None:
                raise _not_ours(self._settings.name, partition)
            start = self._starter.start_where_chosen(
                one, one.stored, StartChoice(where), logs[partition]
            )
            if start is not None:
                await self._go_on(consumer, one, start)


def _is_of(one: Partition, assignment: int) -> bool:
    """Whether a partition still waits for the start that was looked up for it: not if it went
    meanwhile.
    """
    return one.assignment == assignment and one.is_pending


def _lacks_leader(one: Partition) -> bool:
    """Whether the ends of a partition's log cannot be asked for; if it may be retained that does
    not matter.
    """
    return one.silent is not None and one.left is None


def _not_ours(channel: str, partition: TopicPartition) -> NotOwnerError:
    return NotOwnerError(f"channel {channel!r}: {partition} is not ours")
