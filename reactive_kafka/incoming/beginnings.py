"""Where reading begins: after an assignment, after a seek, and where the position is not in the log any more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from reactive_kafka.broker.client import Consumer
from reactive_kafka.broker.topic_pattern import TopicPattern
from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, NotOwnerError, StoreAwayError
from reactive_kafka.incoming.holdings import Holdings
from reactive_kafka.incoming.inherited import Inherited
from reactive_kafka.incoming.positions import (
    NoPositionError,
    Start,
    Where,
    chosen_position,
    milliseconds,
    start_position,
)
from reactive_kafka.observe.events import Observer, OffsetReset, PositionsKnown, PositionsUnknown
from reactive_kafka.records import Committed, TopicPartition


class Host(Protocol):
    """What the beginnings need from their channel."""

    def fail(self, reason: BaseException) -> bool:
        """Nobody may choose a position: the channel stops."""

    def came_back(self) -> None:
        """Partitions came straight back, and what waited in them may be taken again."""


class Beginnings:
    """Begins to read the partitions of one client; the broker's answers may fail, and then they stay pending.

    Args:
        resets: Where to (earliest, latest) -> partitions whose position was reset by policy; counted here.
        resume: Where a channel that is restarted goes on, in partitions that no group assigns.
        keeps_plans: What begins at the group's position keeps to the ranges that were planned beyond it.

    Attributes:
        pending: Partitions of the assignment in which reading has not begun.
        is_open: The hooks of the assignment have run.
        not_begun: Why reading has not begun everywhere; None: it has.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        holdings: Holdings,
        committer: Committer,
        host: Host,
        observer: Observer,
        resets: dict[str, int],
        resume: Mapping[TopicPartition, int],
        *,
        keeps_plans: bool = False,
    ) -> None:
        self._settings = settings
        self._holdings = holdings
        self._engine = holdings.engine
        self._committer = committer
        self._host = host
        self._observer = observer
        self._resets = resets
        self._pattern = TopicPattern(settings.pattern) if settings.pattern is not None else None
        self._chosen: dict[TopicPartition, Where] = {
            one.partition: one.start for one in settings.assign if one.start is not None
        }
        self._chosen.update(resume)
        self._resumed = frozenset(resume)
        self._inherited = Inherited(settings, observer, keeps_plans=keeps_plans)
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
        self.pending = set(partitions)
        self._taken_up.clear()
        self.is_open = False
        self._was_assigned = True

    def revoked(self) -> None:
        """The assignment is over, and so is what was chosen for it."""
        if not self._settings.assign:
            self._chosen.clear()
        self.pending.clear()

    def goes_on(self, partition: TopicPartition, committed: int | None) -> bool:
        """Whether a partition will be taken up where it stood, if this is what the group has."""
        return partition not in self._chosen and self._engine.comes_back(partition, committed)

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
        consumer, generation = self.consumer, self._engine.generation
        if consumer is None:
            return
        async with self._one_at_a_time:
            pending = frozenset(self.pending)
            if self.are_done or self._is_past(consumer, generation):
                return
            try:
                if not self.is_open:
                    await self._look_back(consumer, generation)
                    return
                if pending:
                    await self._find(consumer, pending, generation)
                else:
                    await self._look_at_topics(consumer)
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

    async def _find(self, consumer: Consumer, pending: frozenset[TopicPartition], generation: int) -> None:
        back = {partition for partition in pending if self._was_taken_up(partition)}
        committed = await self._committed(consumer, pending - back)
        if self._is_past(consumer, generation):
            return
        if self._settings.checkpoint is not None:
            for partition in self._resumed.intersection(pending):
                if committed[partition] is not None:
                    self._chosen.pop(partition, None)  # it may be further: a transaction's answer was lost
        back.update(partition for partition in sorted(pending - back) if self._take_up(partition, committed))
        if back:
            self._go_on_in(consumer, back)
        if fresh := sorted(pending - back):
            await self._start_afresh(consumer, fresh, committed, generation)

    async def _look_back(self, consumer: Consumer, generation: int) -> None:
        """Take up what came straight back, and no more: what waits for the hooks is still parked, and not fetched."""
        left = frozenset(partition for partition in self.pending if self._engine.left(partition) is not None)
        if not left:
            return
        committed = await self._committed(consumer, left)
        if not self._is_past(consumer, generation):
            taken_up = [partition for partition in sorted(left & self.pending) if self._take_up(partition, committed)]
            self._taken_up.update({partition: self._engine.trackers[partition] for partition in taken_up})

    def _was_taken_up(self, partition: TopicPartition) -> bool:
        """Whether it was while the hooks ran, and is to go on there: nothing else was chosen, nor has it begun anew."""
        tracker = self._taken_up.get(partition)
        return tracker is not None and self._engine.has(tracker) and partition not in self._chosen

    def _go_on_in(self, consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
        for partition in sorted(partitions):
            self._holdings.go_on(partition)
            consumer.start_at({partition: self._engine.trackers[partition].position})
        self.pending.difference_update(partitions)
        self._host.came_back()

    def _is_past(self, consumer: Consumer, generation: int) -> bool:
        """Whether another assignment has come meanwhile; one without a group is of generation 0 with every client."""
        return self._engine.generation != generation or self.consumer is not consumer

    async def _committed(
        self, consumer: Consumer, partitions: frozenset[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        if self._settings.group_id is None and self._settings.checkpoint is None:
            return dict.fromkeys(partitions)
        return await consumer.committed(partitions)

    def _take_up(self, partition: TopicPartition, committed: Mapping[TopicPartition, Committed | None]) -> bool:
        """Whether a partition came straight back: it is tracked where it stood then, and verdicts are answered."""
        if partition in self._chosen:
            self._holdings.give_up(partition)
            return False
        if self._settings.enable_auto_commit and (left := self._engine.left(partition)) is not None:
            left.attempted = left.position  # the client commits what it has handed out
        stored = committed[partition]
        if self._holdings.take_up(partition, None if stored is None else stored.offset) is None:
            return False
        self._engine.found(partition, stored)
        return True

    async def _start_afresh(
        self,
        consumer: Consumer,
        partitions: list[TopicPartition],
        committed: Mapping[TopicPartition, Committed | None],
        generation: int,
    ) -> None:
        chosen = {partition: self._chosen[partition] for partition in partitions if partition in self._chosen}
        logs = await _look_at_logs(consumer, partitions, chosen)
        new = await self._new_ones(consumer, partitions)
        if self._is_past(consumer, generation):
            return
        begun = {}
        for partition in partitions:
            log, where, found = logs[partition], chosen.get(partition), committed[partition]
            stored = None if found is None else found.offset
            if where is not None:
                begin = self._begin_where_chosen(partition, stored, where, log)
            else:
                begin = self._begin(partition, stored, log, is_new=partition in new)
            if begin is not None:
                begun[partition] = begin
                self._engine.found(partition, found)
                if where is None or partition in self._resumed:
                    self._inherited.hand_on(
                        self._engine.trackers[partition], found, log.end,
                        was_reset=begin.reset is not None, is_resumed=partition in self._resumed,
                    )  # fmt: skip
        await self._let_flow(consumer, begun, generation)

    async def _go_on(self, consumer: Consumer, partition: TopicPartition, start: Start) -> None:
        """Read from somewhere else at once: what comes from where it was read before would pass for a gap."""
        consumer.start_at({partition: start.position})
        consumer.wake()
        if start.commit:
            await self._committer.commit()

    async def _let_flow(self, consumer: Consumer, begun: dict[TopicPartition, Start], generation: int) -> None:
        """Start reading. A start that the policy chose is committed before: who comes after a crash begins there too.

        Where that cannot be done now, the next tick tries again; reading does not wait for it.
        """
        if any(start.commit for start in begun.values()):
            await self._committer.commit()
        if not self._is_past(consumer, generation):
            consumer.start_at({partition: start.position for partition, start in begun.items()})
            self.pending.difference_update(begun)

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
        ends = await consumer.end_offsets(there) if there else {}
        self._known = {partition for partition, end in ends.items() if end > 0}

    async def _partitions_there(self, consumer: Consumer) -> set[TopicPartition]:
        topics = await consumer.topics()
        return {partition for topic, there in topics.items() if self._reads(topic) for partition in there}

    def _reads(self, topic: str) -> bool:
        if self._pattern is not None:
            return self._pattern.match(topic)
        return topic in self._settings.topics

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
            self._holdings.track(
                OffsetTracker(partition, start.position, committed=committed, commit_start=start.commit)
            )
        return start

    def _begin_where_chosen(
        self, partition: TopicPartition, stored: int | None, where: Where, log: _Log
    ) -> Start | None:
        """Track a partition from a start that somebody chose; that alone moves no committed position."""
        wanted = chosen_position(where, log.start, log.end, log.at_time)
        start = self._start(partition, wanted, log)
        self._chosen.pop(partition, None)
        if start is not None:
            tracker = OffsetTracker(partition, start.position, committed=_passed(stored, start.position))
            tracker.uncommitted_from = start.position
            self._holdings.track(tracker, stored=stored)
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
        consumer, generation = self.consumer, self._engine.generation
        if consumer is None:
            return
        logs = await _look_at_logs(consumer, [partition], {})
        old = self._engine.trackers.get(partition)
        if self._is_past(consumer, generation) or old is None or old.position != position:
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
        if partition in self.pending:
            self._chosen[partition] = where
            if self._taken_up.pop(partition, None) is not None:
                self._holdings.drop(partition)  # its records in flight are not ours any more
            await self.find()
            return
        async with self._one_at_a_time:
            consumer, old = self.consumer, self._engine.trackers.get(partition)
            if consumer is None or old is None:
                raise _not_ours(self._settings.name, partition)
            logs = await _look_at_logs(consumer, [partition], {partition: where})
            old = self._engine.trackers.get(partition)
            if old is None or self.consumer is not consumer:  # in a later assignment it may be ours still
                raise _not_ours(self._settings.name, partition)
            stored = self._engine.stored(partition)
            start = self._begin_where_chosen(partition, stored, where, logs[partition])
            if start is not None:
                await self._go_on(consumer, partition, start)


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
