"""An incoming channel: connects, fetches under back-pressure, watches for poison, and stops."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from reactive_kafka.broker.client import Chunk, Connector, Consumer, Poll
from reactive_kafka.clock import Clock
from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.commit.poison import Poison, PoisonWatch
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    DecodeError,
    FatalBrokerError,
    FencedError,
    OffsetOutOfRangeError,
    PoisonError,
)
from reactive_kafka.incoming.assignment import Assignment, PartitionHook
from reactive_kafka.incoming.budget import MAX_WINDOW_RECORDS, Valves, budgets
from reactive_kafka.incoming.lanes import Lane, Lanes
from reactive_kafka.incoming.message import Message
from reactive_kafka.incoming.settlement import Settlements
from reactive_kafka.lifecycle import transition
from reactive_kafka.observe.events import (
    BrokerAvailable,
    BrokerUnavailable,
    ChannelFailed,
    ChannelStateChanged,
    HandlerRetried,
    Observer,
    PoisonSettled,
    ReadFailed,
    RecordPoisoned,
)
from reactive_kafka.observe.facts import (
    ChannelFacts,
    ChannelState,
    DurationHistogram,
    PartitionFacts,
    PartitionTotals,
    PoisonFacts,
)
from reactive_kafka.records import RawRecord, TopicPartition

POLL_S = 0.5
"""Longest wait of one poll: the client must be polled all the time, paused or draining."""

CHECK_S = 2.0
"""How often a broker is asked whether it is there."""

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.25, 10.0
REBUILD_AFTER_S = 60.0
"""How long no broker may answer before the client is built anew, so that moved brokers are found."""

READ_ERROR_PAUSE_S = 2.0
"""How long a partition whose log cannot be read is left alone between two attempts."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The application's hooks of one channel, each already awaitable."""

    on_assigned: tuple[PartitionHook, ...] = ()
    on_revoked: tuple[PartitionHook, ...] = ()


class Workers:
    """Who works on the lanes: the dispatchers, or nobody while an application iterates over the channel itself."""

    retries = 0
    most_at_once: int | None = None

    def __init__(self) -> None:
        self.durations = DurationHistogram()

    def work_is_there(self) -> None:
        """Records were put into the lanes."""

    def stop_retrying(self) -> None:
        """Waits between attempts end."""

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        """What of the records is kept while they wait."""
        return records


class IncomingChannel:
    """One incoming channel, from configuration to the end.

    ``async for message in channel`` consumes without a handler; each message is to be settled by hand.

    Args:
        spawn: Starts a task with a name, which ends with the application.
        make_workers: Makes the channel's dispatcher; None: the application iterates.
        on_exit: A handler asked the process to end.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        connector: Connector,
        clock: Clock,
        observer: Observer,
        spawn: Callable[[Callable[[], Awaitable[None]], str], None],
        *,
        decode: Callable[[bytes | None], Any] | None = None,
        decode_key: Callable[[bytes | None], Any] | None = None,
        hooks: Hooks | None = None,
        make_workers: Callable[[IncomingChannel, Lanes], Any] | None = None,
        on_exit: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self._connector = connector
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._decode = decode
        self._on_exit = on_exit
        self._totals: dict[TopicPartition, PartitionTotals] = {}
        self._engine = CommitEngine()
        self._lanes = Lanes(shared=settings.ordering == "unordered")
        hooks = hooks or Hooks()
        self.settlements = Settlements(settings, self._engine, observer, self._totals_of, self.fail, self._progress)
        self.settlements.decode_key = decode_key
        self._committer = Committer(
            self.name, self._engine, settings.commit_interval_s, clock, observer, self.settlements.confirmed,
            commits=settings.commit_strategy == "throttled",
        )  # fmt: skip
        self._assignment = Assignment(
            settings, self._engine, self._committer, self.settlements, self, clock, observer,
            on_assigned=hooks.on_assigned, on_revoked=hooks.on_revoked,
        )  # fmt: skip
        self.workers: Any = make_workers(self, self._lanes) if make_workers else Workers()
        self._is_iterated = make_workers is None
        self._arrival = asyncio.Event()
        self._watch = PoisonWatch(settings.unprocessed_record_max_age_s)
        self._valves = Valves()
        self._consumer: Consumer | None = None
        self._state: ChannelState = "starting"
        self._reason: str | None = None
        self._failure: BaseException | None = None
        self._broker_error: str | None = "connecting"
        self._away_since: float | None = None
        self._read_errors: dict[TopicPartition, tuple[str, float]] = {}
        self._failed_poison: tuple[PoisonFacts, ...] = ()
        self._ends: dict[TopicPartition, int] = {}
        self._is_closed = False
        self._finished = asyncio.Event()

    # -- life

    def start(self) -> None:
        """Start the channel's tasks; they connect, and go on trying where no broker answers."""
        self._change("connect")
        self._spawn(self._live, f"channel {self.name}")
        if self.settings.commit_strategy == "throttled":
            self._spawn(self._committer.run, f"committer of {self.name}")
        if self.settings.unprocessed_record_max_age_s and self.settings.commit_strategy == "throttled":
            self._spawn(self._watch_for_poison, f"poison watch of {self.name}")

    async def quiesce(self, deadline: float) -> None:
        """Fetch nothing more, drop what waits, and wait for the handlers that run, until *deadline* (monotonic)."""
        if self._state == "failed":
            await self._has_let_go(deadline)
        self._change("stop")
        self.workers.stop_retrying()
        await self._assignment.drain(deadline)

    async def _has_let_go(self, deadline: float) -> None:
        """Wait until a channel that failed has let go, or until *deadline*."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await self._finished.wait()
        except TimeoutError:
            pass  # what still runs is left behind, as by any stop

    async def finish(self, deadline: float) -> None:
        """Let go of the partitions after the last commit, leave the group, and close."""
        self._is_closed = True
        await self._assignment.release(deadline, during="stop")
        await self._leave()
        self._arrival.set()
        self._change("stopped")

    def fail(self, reason: BaseException) -> None:
        """Stop this channel, and only it: what is settled is committed, the rest stays for the next owner."""
        if self._state in ("failed", "stopping", "stopped"):
            return
        self._reason = str(reason)
        self._failure = reason
        self._change("fail")
        self._assignment.take_nothing_new()  # at once: what comes after a failed record is not worked on before it
        self._observer.on(ChannelFailed(channel=self.name, reason=self._reason))
        self._spawn(self._let_go_after_failure, f"end of {self.name}")

    async def _let_go_after_failure(self) -> None:
        self.workers.stop_retrying()
        await self._assignment.drain(self._clock.monotonic() + self.settings.drain_timeout_s)
        await self._assignment.release(deadline=self._clock.monotonic(), during="stop")
        await self._leave()
        self._finished.set()
        self._arrival.set()

    async def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._assignment.consumer = self._committer.consumer = None
        if consumer is not None:
            await consumer.stop()
        self._assignment.close()

    def _change(self, event: str) -> None:
        old, self._state = self._state, transition(self._state, event)
        if old != self._state:
            self._observer.on(ChannelStateChanged(channel=self.name, old=old, new=self._state, reason=self._reason))

    @property
    def is_started(self) -> bool:
        """Whether it runs, or has run: one without a handler starts when it is first iterated over."""
        return self._state != "starting"

    @property
    def is_ready(self) -> bool:
        """Whether it has its assignment, and reading has begun in all of it."""
        return self._state == "running" and self._assignment.is_positioned

    async def commit_now(self) -> bool:
        """Commit what is settled at once instead of at the next tick; False if it was not stored."""
        return await self._committer.commit()

    def _is_over(self) -> bool:
        return self._is_closed or self._state in ("failed", "stopped")

    # -- the connection

    async def _live(self) -> None:
        """Connect, fetch until the client breaks or the channel ends, and connect again."""
        backoff_s = FIRST_BACKOFF_S
        while not self._is_over():
            consumer = self._connector.consumer(
                name=self.name,
                topics=self.settings.topics,
                group_id=self.settings.group_id,
                properties=self.settings.client,
            )
            try:
                await consumer.start(self._assignment)
            except BrokerError as error:
                self._is_away(str(error))
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
                continue
            if self._is_over():
                await consumer.stop()
                return
            self._consumer = self._assignment.consumer = self._committer.consumer = consumer
            backoff_s = FIRST_BACKOFF_S
            self._is_back()
            async with asyncio.TaskGroup() as tasks:
                check = tasks.create_task(self._check(consumer), name=f"broker check of {self.name}")
                await self._fetch(consumer)
                check.cancel()
            if self._consumer is consumer and not self._is_over():
                await self._rebuild(consumer)

    async def _rebuild(self, consumer: Consumer) -> None:
        """The client is of no use any more. Its membership ends with it, so nothing can be committed after."""
        self._change("connect")
        await self._assignment.drain(self._clock.monotonic())
        self._assignment.leave()
        self._consumer = self._assignment.consumer = self._committer.consumer = None
        await consumer.stop()

    async def _check(self, consumer: Consumer) -> None:
        """Ask for a broker now and then; the client itself is silent about their absence."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await consumer.check()
            except BrokerError as error:
                self._is_away(str(error))
            else:
                self._is_back()
                await self._ask_ends(consumer)

    async def _ask_ends(self, consumer: Consumer) -> None:
        """Partitions that are not fetched tell nothing about their log's end: ask."""
        try:
            silent = [tp for tp in self._engine.trackers if tp in self._valves.closed or tp not in self._ends]
            if silent:
                self._ends.update(await consumer.end_offsets(silent))
        except BrokerError:
            pass  # only the lag of these is old meanwhile; the next check says whether a broker is there

    def _is_away(self, reason: str) -> None:
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
        self._broker_error = reason
        self._observer.on(BrokerUnavailable(channel=self.name, reason=reason))

    def _is_back(self) -> None:
        if self._broker_error is not None and self._away_since is not None:
            away_s = self._clock.monotonic() - self._away_since
            self._observer.on(BrokerAvailable(channel=self.name, away_s=away_s))
        self._broker_error, self._away_since = None, None

    def joined(self) -> None:
        """An assignment has come."""
        self._read_errors.clear()
        self._valves.open_all()
        self._change("joined")

    # -- fetching

    async def _fetch(self, consumer: Consumer) -> None:
        """Poll until the channel ends or the client breaks. It is polled while draining too: a member must be."""
        while self._consumer is consumer and not self._is_closed:
            if self._away_since is not None and self._clock.monotonic() - self._away_since > REBUILD_AFTER_S:
                return
            try:
                if not self._assignment.is_positioned:
                    await self._assignment.find_positions()
                poll = await consumer.poll(self._budgets(consumer), POLL_S)
            except FencedError as error:
                self.fail(error)
                await asyncio.sleep(FIRST_BACKOFF_S)
                continue
            except FatalBrokerError as error:
                self._is_away(str(error))
                await asyncio.sleep(FIRST_BACKOFF_S)
                continue
            except BrokerError as error:
                if self._consumer is consumer:
                    self._is_away(str(error))
                return
            self._deliver(poll)
            if poll.chunks:
                await asyncio.sleep(0)  # the workers first: then one poll fills all that they have emptied
            for partition, unreadable in poll.errors.items():
                await self._cannot_read(partition, unreadable)

    def _budgets(self, consumer: Consumer) -> dict[TopicPartition, int]:
        """What each partition may bring; whoever is left out is woken for when there is room."""
        lanes = self._assignment.lanes
        if self._state != "running" or self._assignment.is_letting_go:
            return {}
        now = self._clock.monotonic()
        trackers = self._engine.trackers
        held = {partition: tracker.unsettled for partition, tracker in trackers.items()}
        allowed = budgets(held, self.settings.max_in_flight)
        stopped = self._stopped_partitions(now)
        enough = max(1, self.settings.max_in_flight // (8 * max(1, len(held))))
        wanted = {}
        for partition, records in allowed.items():
            lane, tracker = lanes.get(partition), trackers[partition]
            if lane is None or partition in stopped or tracker.window >= MAX_WINDOW_RECORDS:
                continue
            if records >= enough or not lane.waiting:
                wanted[partition] = min(records, self.workers.most_at_once or records)
        for partition in held.keys() - wanted.keys():
            if (lane := lanes.get(partition)) is not None:
                lane.low_water = min(lane.waiting // 2, self.settings.concurrency)
        self.settlements.is_awaited = len(wanted) < len(held)
        to_pause, to_resume = self._valves.update(held.keys(), wanted.keys(), stopped, now)
        consumer.pause(to_pause)
        consumer.resume(to_resume)
        return wanted

    def _stopped_partitions(self, now: float) -> set[TopicPartition]:
        """Those not to be fetched whatever room there is: behind a poison record, or with a log that cannot be read."""
        stopped = {partition for partition, (_, until) in self._read_errors.items() if now < until}
        if self.settings.on_poison != "warn":
            stopped |= {poison.tracker.partition for poison in self._watch.current}
        return stopped

    def _deliver(self, poll: Poll) -> None:
        now = self._clock.monotonic()
        for chunk in poll.chunks:
            tracker = self._engine.trackers.get(chunk.partition)
            lane = self._assignment.lanes.get(chunk.partition)
            if tracker is None or lane is None or lane.revoked:
                continue
            self._ends[chunk.partition] = chunk.high_watermark
            self._read_errors.pop(chunk.partition, None)
            self._take_in(chunk, tracker, lane, now)
        if poll.chunks:
            self.workers.work_is_there()
            self._arrival.set()

    def _take_in(self, chunk: Chunk, tracker: OffsetTracker, lane: Lane, now: float) -> None:
        records = chunk.records
        if records and records[0].offset < tracker.position:
            records = [record for record in records if record.offset >= tracker.position]
        if not records:
            tracker.deliver((), chunk.next_offset)
            return
        low, high = records[0].offset, records[-1].offset
        is_dense = high - low + 1 == len(records)
        first = tracker.deliver(
            range(low, high + 1) if is_dense else [record.offset for record in records], chunk.next_offset
        )
        self._totals_of(chunk.partition).received += len(records)
        self._lanes.add(lane, self.workers.keep(chunk.partition, records), first, now)

    async def _cannot_read(self, partition: TopicPartition, error: BrokerError) -> None:
        reason = error
        if isinstance(error, OffsetOutOfRangeError):
            try:
                await self._assignment.reset(partition, error.offset)
                self._ends.pop(partition, None)
                return
            except BrokerError as again:
                reason = again
        self._read_errors[partition] = (str(reason), self._clock.monotonic() + READ_ERROR_PAUSE_S)
        self._observer.on(
            ReadFailed(
                channel=self.name, partition=partition, offset=getattr(error, "offset", None), reason=str(reason)
            )
        )

    # -- what workers and verdicts tell

    def progress(self, lane: Lane) -> None:
        """A worker turned away from a lane."""
        if self.settlements.is_awaited and (lane.revoked or lane.waiting <= lane.low_water):
            self._progress()

    def _progress(self) -> None:
        self._assignment.changed()
        if self._consumer is not None:
            self._consumer.wake()

    def nack(self, message: Message[Any], reason: BaseException) -> Future[bool]:
        """The handler of a message failed for good."""
        return self.settlements.nack(message, reason)

    def will_retry(self, message: Message[Any], reason: BaseException, attempt: int, wait_s: float) -> None:
        """A call of a handler failed, and another one follows."""
        self._observer.on(
            HandlerRetried(
                channel=self.name,
                partition=message.topic_partition,
                offset=message.offset,
                attempt=attempt,
                wait_s=wait_s,
                reason=f"{type(reason).__name__}: {reason}",
            )
        )

    def raised_after_ack(self, message: Message[Any], reason: BaseException) -> None:
        """A handler raised, and its record was settled before it ran."""
        self.settlements.raised_after_ack(message, reason)

    def exit(self, reason: BaseException) -> None:
        """A handler asked the process to end."""
        if self._on_exit is not None:
            self._assignment.take_nothing_new()
            self._on_exit(reason)

    # -- poison

    async def _watch_for_poison(self) -> None:
        while not self._is_over():
            now = self._clock.monotonic()
            for poison in self._watch.look(self._engine.trackers.values(), now):
                self._found(poison, now)
            for poison in self._watch.settled():
                self._observer.on(
                    PoisonSettled(
                        channel=self.name,
                        partition=poison.tracker.partition,
                        offset=poison.offset,
                        age_s=now - poison.since,
                    )
                )
                self._progress()
            due = self._watch.next_look(self._engine.all_trackers(), now)
            await asyncio.sleep(max(0.001, (due or now) - now))

    def _found(self, poison: Poison, now: float) -> None:
        partition = poison.tracker.partition
        self._totals_of(partition).poison += 1
        event = RecordPoisoned(
            channel=self.name,
            partition=partition,
            offset=poison.offset,
            age_s=now - poison.since,
            limit_s=self.settings.unprocessed_record_max_age_s,
            waiting=poison.waiting,
            on_poison=self.settings.on_poison,
        )
        self._observer.on(event)
        if self.settings.on_poison == "fail":
            self._failed_poison = (_poison_facts(poison, now),)
            self.fail(PoisonError(event.text()))

    # -- consuming without a handler

    async def __aiter__(self) -> AsyncIterator[Message[Any]]:
        """Messages as they come, to be acked or nacked by hand, until the channel ends.

        Raises:
            ChannelClosedError: The channel has a handler, or has failed.
        """
        if not self._is_iterated:
            raise ChannelClosedError(f"channel {self.name!r} has a handler: it cannot be iterated over as well")
        if self._state == "starting":
            self.start()
        while True:
            lane = self._lanes.take()
            if lane is None:
                if self._is_over() or self._state == "stopping":
                    break
                self._arrival.clear()
                await self._arrival.wait()
                continue
            message = self._next_message(lane)
            self._lanes.release(lane)
            self.progress(lane)
            if message is not None:
                yield message
        if self._failure is not None:
            raise ChannelClosedError(f"channel {self.name!r} has failed: {self._failure}") from self._failure

    def _next_message(self, lane: Lane) -> Message[Any] | None:
        record: RawRecord = lane.records[lane.cursor]
        index = lane.first + lane.cursor
        lane.cursor += 1
        lane.tracker.start_range(index, 1, self._clock.monotonic())
        try:
            payload = record.value if self._decode is None else self._decode(record.value)
        except DecodeError as error:
            self.settlements.nack(Message(None, record, lane.tracker, index), error)
            return None
        return Message(payload, record, lane.tracker, index)

    # -- what is known

    def _totals_of(self, partition: TopicPartition) -> PartitionTotals:
        totals = self._totals.get(partition)
        if totals is None:
            totals = self._totals[partition] = PartitionTotals()
        return totals

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return frozenset(self._engine.trackers)

    @property
    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(self._in_flight(partition, tracker) for partition, tracker in self._engine.trackers.items())

    def _in_flight(self, partition: TopicPartition, tracker: OffsetTracker) -> int:
        lane = self._assignment.lanes.get(partition)
        return tracker.open - (lane.waiting if lane is not None else 0)

    def facts(self) -> ChannelFacts:
        """What is known about the channel now."""
        now = self._clock.monotonic()
        committing = self._committer.facts
        facts = self._assignment.facts
        return ChannelFacts(
            channel=self.name,
            state=self._state,
            reason=self._reason,
            on_poison=self.settings.on_poison,
            poison_limit_s=self.settings.unprocessed_record_max_age_s,
            has_joined=facts.has_joined,
            broker_error=self._broker_error,
            partitions=tuple(self._partition_facts(tracker, now) for tracker in self._engine.trackers.values()),
            poison=self._failed_poison or tuple(_poison_facts(poison, now) for poison in self._watch.current),
            totals=self._totals_now(),
            commits=dict(committing.outcomes),
            commit_durations=committing.durations,
            handler_durations=self.workers.durations,
            retries=self.workers.retries,
            rebalances=dict(facts.rebalances),
            resets=dict(facts.resets),
            abandoned_handlers=facts.abandoned,
            not_ready=self._not_ready(),
        )

    def _not_ready(self) -> tuple[str, ...]:
        reasons = [reason for reason, _ in self._read_errors.values()]
        if self._assignment.facts.not_positioned is not None and not self._assignment.is_positioned:
            reasons.append(self._assignment.facts.not_positioned)
        if self._committer.facts.failing is not None and self._state == "running":
            reasons.append(f"the last commit was not stored: {self._committer.facts.failing}")
        return tuple(reasons)

    def _partition_facts(self, tracker: OffsetTracker, now: float) -> PartitionFacts:
        partition = tracker.partition
        lane = self._assignment.lanes.get(partition)
        oldest = tracker.oldest_started()
        end = self._ends.get(partition)
        behind = tracker.start if tracker.committed is None else tracker.committed
        return PartitionFacts(
            partition=partition,
            position=tracker.position,
            committed=tracker.committed,
            log_end=end,
            lag=None if end is None else max(0, end - behind),
            in_flight=self._in_flight(partition, tracker),
            queued=lane.waiting if lane is not None else 0,
            oldest_unacked_s=None if oldest is None else max(0.0, now - oldest[1]),
            paused=partition in self._valves.closed or partition in self._stopped_partitions(now),
        )

    def _totals_now(self) -> dict[TopicPartition, PartitionTotals]:
        """The counters of every partition; acks are counted here and not as they come."""
        for tracker in self._engine.trackers.values():
            self.settlements.count_acks(tracker)
        return dict(self._totals)


def _poison_facts(poison: Poison, now: float) -> PoisonFacts:
    return PoisonFacts(
        partition=poison.tracker.partition, offset=poison.offset, age_s=now - poison.since, waiting=poison.waiting
    )
