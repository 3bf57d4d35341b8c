"""Where reading begins: after an assignment, after a seek, and where the position is not in the log any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reactive_kafka.broker.client import Consumer
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, NotOwnerError, StoreAwayError
from reactive_kafka.observe.events import NothingMatches, Observer, OffsetReset, PositionsKnown, PositionsUnknown
from reactive_kafka.partitions.committer import Committer
from reactive_kafka.partitions.restore import StoredMetadata
from reactive_kafka.partitions.start import (
    NoPositionError,
    Start,
    Where,
    chosen_position,
    milliseconds,
    start_position,
)
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed, TopicPartition


class Host(Protocol):
    """What the beginnings need from their channel."""

    def fail(self, reason: BaseException) -> bool:
        """Nobody may choose a position: the channel stops."""

    def came_back(self) -> None:
        """Partitions came straight back, and what waited in them may be taken again."""


class StartPositions:
    """Begins to read the partitions of one client; the broker's answers may fail, and then they stay pending.

    Args:
        resets: Where to (earliest, latest) -> partitions whose position was reset by policy; counted here.
        resume: Where a channel that is restarted goes on, in partitions that no group assigns.
        keeps_plans: What begins at the group's position keeps to the ranges that were planned beyond it.
        tells_topics: Of several clients that read the same topics one tells of them.

    Attributes:
        pending: Partitions of the assignment in which reading has not begun.
        is_open: The hooks of the assignment have run.
        not_begun: Why reading has not begun everywhere; None: it has.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        table: PartitionTable,
        committer: Committer,
        host: Host,
        observer: Observer,
        resets: dict[str, int],
        resume: Mapping[TopicPartition, int],
        *,
        keeps_plans: bool = False,
        tells_topics: bool = True,
    ) -> None:
        self._settings = settings
        self._tells_topics = tells_topics
        self._table = table
        self._engine = table.engine
        self._committer = committer
        self._host = host
        self._observer = observer
        self._resets = resets
        given = {one.partition: one.start for one in settings.assign if one.start is not None}
        self._starts = {one: _Choice(where) for one, where in given.items()}
        self._starts |= {one: _Choice(where, is_resumed=True) for one, where in resume.items()}
        self._sought: dict[TopicPartition, _Choice] = {}  # in this assignment, where reading had not begun
        self._epoch = 0
        self._inherited = StoredMetadata(settings, observer, keeps_plans=keeps_plans)
        self._known: set[TopicPartition] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._was_assigned = False
        self._told: PositionsUnknown | None = None
        self._taken_up: dict[TopicPartition, OffsetTracker] = {}  # came straight back, and wait for the hooks
        self.consumer: Consumer | None = None
        self.pending: set[TopicPartition] = set()
        self.is_open = False
        self.not_begun: str | None = "reading has not begun yet"

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """An assignment has come; nothing begins before ``is_open``."""
        self._epoch += 1
        self.pending = set(partitions)
        self._taken_up.clear()
        self.is_open = False
        self._was_assigned = True

    def revoked(self) -> None:
        """The assignment is over, and so is what was sought in it and has not been carried out."""
        self._epoch += 1
        self._sought.clear()
        self.pending.clear()

    def goes_on(self, partition: TopicPartition, committed: int | None) -> bool:
        """Whether a partition will be taken up where it stood, if this is what the group has."""
        return self._choice(partition) is None and self._engine.comes_back(partition, committed)

    def again(self, partition: TopicPartition) -> None:
        """Begin to read a partition anew, where its position says."""
        self.pending.add(partition)

    @property
    def are_done(self) -> bool:
        """Whether reading has begun in every partition of the assignment, and the topics have been looked at."""
        return not self.pending and (self._known is not None or not self._was_assigned)

    async def find(self) -> None:
        """Begin to read wherever that has not been done; what the broker cannot tell now stays for the next call.

        Before the hooks have run nothing begins. What came straight back is taken up: hooks may wait for its verdicts.
        """
        consumer, epoch = self.consumer, self._epoch
        if consumer is None:
            return
        async with self._one_at_a_time:
            if self.are_done or self._is_past(epoch):
                return
            try:
                if not self.is_open:
                    await self._look_back(consumer, epoch)
                    return
                self._go_on_in_taken_up(consumer)
                if self.pending:
                    await self._find_all(consumer, epoch)
                elif self._known is None:
                    await self._look_at_topics(consumer)
                if self._is_past(epoch):
                    return  # as below
                self.not_begun = None
                self._tell_known()
                consumer.wake()  # a poll that began before is for no partition, and would go on waiting
            except NotOwnerError:
                return  # the next assignment begins anew
            except BrokerError as error:
                self._tell_unknown(error)

    def _tell_unknown(self, error: BrokerError) -> None:
        is_store = isinstance(error, StoreAwayError)  # its keeper has told of it
        reason = f"the checkpoint store is away: {error}" if is_store else str(error)
        told = PositionsUnknown(channel=self._settings.name, partitions=frozenset(self.pending), reason=reason)
        self.not_begun = told.what()
        if is_store:
            return
        if self._told is None or self._told.what() != self.not_begun:
            self._observer.on(told)
        self._told = told

    def _tell_known(self) -> None:
        if self._told is not None:
            self._told = None
            self._observer.on(PositionsKnown(channel=self._settings.name))

    async def _find_all(self, consumer: Consumer, epoch: int) -> None:
        """Begin wherever reading has not begun; once more where somebody sought while the broker was asked."""
        pending = frozenset(self.pending)
        while pending and not self._is_past(epoch):
            await self._find(consumer, pending, epoch)
            pending = pending & self.pending & self._sought.keys()

    async def _find(self, consumer: Consumer, pending: frozenset[TopicPartition], epoch: int) -> None:
        """Begin in these partitions, but for those whose choice is another one by the time the broker has answered."""
        choices = self._choices(pending)
        committed = await self._committed(consumer, pending)
        if self._is_past(epoch):
            return
        settled = [partition for partition in sorted(pending) if self._choice(partition) is choices.get(partition)]
        if self._settings.checkpoint is not None:
            for partition in settled:
                if committed[partition] is not None and self._is_resumed(partition):
                    del self._starts[partition]  # the store may be further: a transaction's answer was lost
        fresh = [partition for partition in settled if not self._take_up(consumer, partition, committed)]
        if len(fresh) < len(settled):
            self._host.came_back()
        if fresh:
            await self._start_afresh(consumer, fresh, committed, epoch)

    async def _look_back(self, consumer: Consumer, epoch: int) -> None:
        """Take up what came straight back, and no more: what waits for the hooks is still parked, and not fetched."""
        left = frozenset(partition for partition in self.pending if self._engine.left(partition) is not None)
        if not left:
            return
        committed = await self._committed(consumer, left)
        if self._is_past(epoch):
            return
        for partition in sorted(left & self.pending):
            if self._comes_back(partition, committed):
                self._taken_up[partition] = self._engine.trackers[partition]

    def _go_on_in_taken_up(self, consumer: Consumer) -> None:
        """The hooks have run: go on where it stood, if nothing else was chosen, and it has not to begin anew."""
        taken_up, self._taken_up = self._taken_up, {}
        for partition, tracker in taken_up.items():
            if self._engine.has(tracker) and partition in self.pending and self._choice(partition) is None:
                self._flow_again(consumer, partition)
                self._host.came_back()

    def _is_past(self, epoch: int) -> bool:
        """Whether the assignment has ended meanwhile; also that of a client that needs no group and was built anew."""
        return self._epoch != epoch

    # -- what somebody chose

    def _choice(self, partition: TopicPartition) -> _Choice | None:
        """Where reading is to begin, if somebody has said so: in the last seek, else in the settings, or a restart."""
        return self._sought.get(partition) or self._starts.get(partition)

    def _choices(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, _Choice]:
        found = ((partition, self._choice(partition)) for partition in partitions)
        return {partition: choice for partition, choice in found if choice is not None}

    def _is_resumed(self, partition: TopicPartition) -> bool:
        choice = self._choice(partition)
        return choice is not None and choice.is_resumed

    def _use_up(self, partition: TopicPartition) -> None:
        """It has begun where it was chosen: nothing of that holds for a later client, or a later assignment."""
        self._sought.pop(partition, None)
        self._starts.pop(partition, None)

    async def _committed(
        self, consumer: Consumer, partitions: frozenset[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        if self._settings.group_id is None and self._settings.checkpoint is None:
            return dict.fromkeys(partitions)
        return await consumer.committed(partitions)

    def _take_up(
        self, consumer: Consumer, partition: TopicPartition, committed: Mapping[TopicPartition, Committed | None]
    ) -> bool:
        if not self._comes_back(partition, committed):
            return False
        self._flow_again(consumer, partition)
        return True

    def _flow_again(self, consumer: Consumer, partition: TopicPartition) -> None:
        self._table.go_on(partition)
        consumer.start_at({partition: self._engine.trackers[partition].position})
        self.pending.discard(partition)

    def _comes_back(self, partition: TopicPartition, committed: Mapping[TopicPartition, Committed | None]) -> bool:
        """Whether a partition came straight back: it is tracked where it stood then, and verdicts are answered."""
        stored = committed[partition]
        offset = None if stored is None else stored.offset
        if self._choice(partition) is not None:
            self._table.give_up(partition, is_ours=self._engine.comes_back(partition, offset))
            return False
        if self._settings.enable_auto_commit and (left := self._engine.left(partition)) is not None:
            left.attempted = left.position  # the client commits what it has handed out
        if self._table.take_up(partition, offset) is None:
            return False
        self._engine.found(partition, stored)
        return True

    async def _start_afresh(
        self,
        consumer: Consumer,
        partitions: list[TopicPartition],
        committed: Mapping[TopicPartition, Committed | None],
        epoch: int,
    ) -> None:
        choices = self._choices(partitions)
        logs = await _look_at_logs(consumer, partitions, {one: choice.where for one, choice in choices.items()})
        new = await self._new_ones(consumer, partitions)
        if self._is_past(epoch):
            return
        begun = {}
        for partition in partitions:
            log, choice, found = logs[partition], choices.get(partition), committed[partition]
            if self._choice(partition) is not choice:
                continue  # somebody sought meanwhile: what was looked up is not what is wanted
            stored = None if found is None else found.offset
            if choice is not None:
                begin = self._begin_where_chosen(partition, stored, choice.where, log)
            else:
                begin = self._begin(partition, stored, log, is_new=partition in new)
            if begin is not None:
                begun[partition] = begin
                self._engine.found(partition, found)
                is_resumed = choice is not None and choice.is_resumed
                if choice is None or is_resumed:
                    self._inherited.hand_on(
                        self._engine.trackers[partition], found, log.end,
                        was_reset=begin.reset is not None, is_resumed=is_resumed,
                    )  # fmt: skip
        await self._let_flow(consumer, begun, epoch)

    async def _go_on(self, consumer: Consumer, partition: TopicPartition, start: Start) -> None:
        """Read from somewhere else at once: what comes from where it was read before would pass for a gap."""
        consumer.start_at({partition: start.position})
        consumer.wake()
        if start.commit:
            await self._committer.commit()

    async def _let_flow(self, consumer: Consumer, begun: dict[TopicPartition, Start], epoch: int) -> None:
        """Start reading. A start that the policy chose is committed before: who comes after a crash begins there too.

        Where that cannot be done now, the next tick tries again; reading does not wait for it. What was sought during
        that commit does not begin here.
        """
        if any(start.commit for start in begun.values()):
            await self._committer.commit()
        if not self._is_past(epoch):
            flows = {partition: start.position for partition, start in begun.items() if partition not in self._sought}
            consumer.start_at(flows)
            self.pending.difference_update(flows)

    # -- which partitions are new

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
        if self._settings.pattern is not None and not there and self._tells_topics:
            self._observer.on(NothingMatches(channel=self._settings.name, pattern=self._settings.pattern))
        ends = await consumer.end_offsets(there) if there else {}
        self._known = {partition for partition, end in ends.items() if end > 0}

    async def _partitions_there(self, consumer: Consumer) -> set[TopicPartition]:
        topics = await consumer.topics()
        reads = self._settings.subscription.reads
        return {partition for topic, there in topics.items() if reads(topic) for partition in there}

    # -- one partition

    def _begin(
        self,
        partition: TopicPartition,
        stored: int | None,
        log: _Log,
        *,
        wanted: int | None = None,
        is_new: bool = False,
    ) -> Start | None:
        """Track a partition from *wanted*, or from what the group has *stored*, if the log has it.

        Returns:
            Where it begins; None if nobody may choose, and the channel stops.
        """
        start = self._start(partition, stored if wanted is None else wanted, log, is_new=is_new)
        if start is not None:
            committed = _passed(stored, start.position)
            self._table.track(OffsetTracker(partition, start.position, committed=committed, commit_start=start.commit))
        return start

    def _begin_where_chosen(
        self, partition: TopicPartition, stored: int | None, where: Where, log: _Log
    ) -> Start | None:
        """Track a partition from a start that somebody chose; that alone moves no committed position."""
        wanted = chosen_position(where, log.start, log.end, log.at_time)
        start = self._start(partition, wanted, log)
        self._use_up(partition)
        if start is not None:
            tracker = OffsetTracker(partition, start.position, committed=_passed(stored, start.position))
            tracker.uncommitted_from = start.position
            self._table.track(tracker, stored=stored)
        return start

    def _start(self, partition: TopicPartition, wanted: int | None, log: _Log, *, is_new: bool = False) -> Start | None:
        try:
            start = start_position(wanted, log.start, log.end, self._settings.auto_offset_reset, is_new=is_new)
        except NoPositionError:
            self.pending.discard(partition)
            self._host.fail(_no_position(self._settings.name, partition, wanted, log))
            return None
        if start.reset is not None:
            self._tell_reset(partition, wanted, start)
        return start

    def _tell_reset(self, partition: TopicPartition, wanted: int | None, start: Start) -> None:
        assert start.reset is not None  # noqa: S101  # for the type checker
        self._resets[start.reset] += 1
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

        Where the log still has what is unsettled (its end was cut off), that is read again, and no policy passes it.

        Raises:
            BrokerError: The log's ends could not be asked for.
        """
        consumer, epoch = self.consumer, self._epoch
        if consumer is None:
            return
        logs = await _look_at_logs(consumer, [partition], {})
        old = self._engine.trackers.get(partition)
        if self._is_past(epoch) or old is None or old.position != position:
            return
        log, unsettled = logs[partition], old.committable
        if log.start <= position <= log.end:  # it is there by now
            await self._go_on(consumer, partition, Start(position))
            return
        is_there = log.start <= unsettled <= log.end and self._settings.auto_offset_reset != "none"
        wanted = unsettled if is_there else position
        self._inherited.left_behind(old, log.start, log.end)
        start = self._begin(partition, old.committed, log, wanted=wanted)
        if start is not None:
            await self._go_on(consumer, partition, start)

    async def seek(self, partition: TopicPartition, where: Where) -> None:
        """Go on from somewhere else. Where reading has not begun yet, it begins there.

        Raises:
            NotOwnerError: The partition is not ours, or was taken away meanwhile.
            BrokerError: The log's ends could not be asked for.
        """
        epoch = self._epoch
        if partition in self.pending:
            self._sought[partition] = _Choice(where)
            if self._taken_up.pop(partition, None) is not None:
                self._table.drop(partition, is_ours=True)  # its records in flight are not
        else:
            await self._seek(partition, where, epoch)
        if partition in self.pending:
            await self.find()
        if self._is_past(epoch):  # in a later assignment it may be ours still
            raise _not_ours(self._settings.name, partition)

    async def _seek(self, partition: TopicPartition, where: Where, epoch: int) -> None:
        """Go on from somewhere else where reading has begun; if it has to begin anew meanwhile, it begins there."""
        async with self._one_at_a_time:
            consumer = self.consumer
            if consumer is None or self._is_past(epoch):
                raise _not_ours(self._settings.name, partition)
            logs = {} if partition in self.pending else await _look_at_logs(consumer, [partition], {partition: where})
            if self._is_past(epoch):
                return
            if partition in self.pending:
                self._sought.setdefault(partition, _Choice(where))  # unless somebody has sought after us
                return
            if partition not in self._engine.trackers:
                raise _not_ours(self._settings.name, partition)
            start = self._begin_where_chosen(partition, self._engine.stored(partition), where, logs[partition])
            if start is not None:
                await self._go_on(consumer, partition, start)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """Where somebody wants reading to begin; two of the same place are two.

    Attributes:
        is_resumed: It is where the channel stood when it was restarted.
    """

    where: Where
    is_resumed: bool = False


class _Log:
    """Where the log of a partition begins and ends, and the offset of a time that was asked for."""

    def __init__(self, start: int, end: int, at_time: int | None) -> None:
        self.start = start
        self.end = end
        self.at_time = at_time


async def _look_at_logs(
    consumer: Consumer, partitions: list[TopicPartition], chosen: Mapping[TopicPartition, Where]
) -> dict[TopicPartition, _Log]:
    times = {partition: milliseconds(where) for partition, where in chosen.items() if isinstance(where, datetime)}
    starts, ends = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
    found = await consumer.offsets_for_times(times) if times else {}
    return {one: _Log(starts[one], ends[one], found.get(one)) for one in partitions}


def _passed(stored: int | None, start: int) -> int | None:
    """What the group has, as long as it has passed none of the records that are read from *start* on."""
    return stored if stored is not None and stored <= start else None


def _not_ours(channel: str, partition: TopicPartition) -> NotOwnerError:
    return NotOwnerError(f"channel {channel!r}: {partition} is not ours")


def _no_position(channel: str, partition: TopicPartition, wanted: int | None, log: _Log) -> FatalBrokerError:
    had = "no committed position" if wanted is None else f"position {wanted}"
    return FatalBrokerError(
        f"channel {channel!r}: {partition} has {had}, its log goes from {log.start} to {log.end}, and "
        "auto_offset_reset = 'none' lets nobody choose: set a position, or auto_offset_reset = 'earliest' or 'latest'"
    )
