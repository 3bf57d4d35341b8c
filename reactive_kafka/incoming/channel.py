"""An incoming channel: its life from the start to the end, poison, and consuming without a handler."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.poison import Poison, PoisonWatch
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ChannelClosedError, DecodeError, PoisonError
from reactive_kafka.incoming.assignment import Assignment, PartitionHook
from reactive_kafka.incoming.connection import Connection
from reactive_kafka.incoming.dispatch import Spawn
from reactive_kafka.incoming.intake import Intake, Workers
from reactive_kafka.incoming.lanes import Lane, Lanes
from reactive_kafka.incoming.message import Message
from reactive_kafka.incoming.settlement import Settlements
from reactive_kafka.incoming.snapshot import Snapshot, poison_facts
from reactive_kafka.lifecycle import transition
from reactive_kafka.observe.events import (
    ChannelFailed,
    ChannelStateChanged,
    HandlerRetried,
    Observer,
    PoisonSettled,
    RecordPoisoned,
)
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts, PartitionTotals, PoisonFacts
from reactive_kafka.records import RawRecord, TopicPartition


@dataclass(frozen=True, slots=True)
class Hooks:
    """The application's hooks of one channel, each already awaitable."""

    on_assigned: tuple[PartitionHook, ...] = ()
    on_revoked: tuple[PartitionHook, ...] = ()


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
        spawn: Spawn,
        *,
        decode: Callable[[bytes | None], Any] | None = None,
        decode_key: Callable[[bytes | None], Any] | None = None,
        hooks: Hooks | None = None,
        make_workers: Callable[[IncomingChannel, Lanes], Workers] | None = None,
        on_exit: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.name = settings.name
        self.settings = settings
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
        self._intake = Intake(
            settings, self._engine, self._assignment, self._lanes, self.settlements, clock, observer,
            held_back=self._held_back, count=self._received,
        )  # fmt: skip
        self._connection = Connection(
            settings, connector, self._assignment, self._committer, self._intake, self, clock, observer
        )
        self._snapshot = Snapshot(
            settings, self._engine, self._assignment, self._committer, self._intake, self._connection
        )
        if make_workers is not None:
            self._intake.workers = make_workers(self, self._lanes)
        self._is_iterated = make_workers is None
        self._watch = PoisonWatch(settings.unprocessed_record_max_age_s)
        self._state: ChannelState = "starting"
        self._reason: str | None = None
        self._failure: BaseException | None = None
        self._failed_poison: tuple[PoisonFacts, ...] = ()
        self._last_partitions: tuple[PartitionFacts, ...] = ()  # as the channel left them when it failed
        self._finished = asyncio.Event()

    # -- life

    def start(self) -> None:
        """Start the channel's tasks; they connect, and go on trying where no broker answers."""
        self._change("connect")
        self._spawn(self._guarded(self._connection.run), f"channel {self.name}")
        if self.settings.commit_strategy == "throttled":
            self._spawn(self._guarded(self._committer.run), f"committer of {self.name}")
        if self.settings.unprocessed_record_max_age_s and self.settings.commit_strategy == "throttled":
            self._spawn(self._guarded(self._watch_for_poison), f"poison watch of {self.name}")

    def _guarded(self, task: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """The task, with a bug in it (of ours, or of the client) stopping this channel and no other."""

        async def run() -> None:
            try:
                await task()
            except Exception as error:  # told with its traceback
                if not self.fail(error):
                    self._observer.on(ChannelFailed(channel=self.name, reason=repr(error), error=error))

        return run

    async def quiesce(self, deadline: float) -> None:
        """Fetch nothing more, drop what waits, and wait for the handlers that run, until *deadline* (monotonic)."""
        if self._state == "failed":
            await self._has_let_go(deadline)
        self._change("stop")
        self._intake.workers.stop_retrying()
        self._intake.arrival.set()  # an application that iterates comes to its end, and may settle what it holds
        await self._assignment.drain(deadline, to_the_end=True)

    async def _has_let_go(self, deadline: float) -> None:
        """Wait until a channel that failed has let go, or until *deadline*."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await self._finished.wait()
        except TimeoutError:
            pass  # what still runs is left behind, as by any stop

    async def finish(self, deadline: float) -> None:
        """Let go of the partitions after the last commit, leave the group, and close."""
        await self._assignment.release(deadline, during="stop")
        await self._leave()
        self._change("stopped")
        self._intake.arrival.set()

    def fail(self, reason: BaseException) -> bool:
        """Stop this channel, and only it: what is settled is committed, the rest stays for the next owner.

        Returns:
            False if it was stopping or had failed before; nothing is told then.
        """
        if self._state in ("failed", "stopping", "stopped"):
            return False
        self._reason = str(reason)
        self._failure = reason
        self._change("fail")
        self._assignment.take_nothing_new()  # at once: what comes after a failed record is not worked on before it
        self._intake.arrival.set()
        self._observer.on(ChannelFailed(channel=self.name, reason=self._reason, error=reason))
        self._spawn(self._guarded(self._let_go_after_failure), f"end of {self.name}")
        return True

    async def _let_go_after_failure(self) -> None:
        self._intake.workers.stop_retrying()
        deadline = self._clock.monotonic() + self.settings.drain_timeout_s
        try:
            await self._assignment.drain(deadline)
            grace = self._clock.monotonic() + self.settings.revoke_grace_s
            await self._assignment.release(min(deadline, grace), during="stop")
        finally:
            # they have been let go by now, and are forgotten when the group is left
            self._last_partitions = self._snapshot.partitions(self._engine.all_trackers(), self._clock.monotonic())
            await self._leave()
            self._finished.set()
            self._intake.arrival.set()

    async def _leave(self) -> None:
        await self._connection.close()
        self._assignment.close()

    def _change(self, event: str) -> None:
        old, self._state = self._state, transition(self._state, event)
        if old != self._state:
            self._observer.on(ChannelStateChanged(channel=self.name, old=old, new=self._state))

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

    # -- what the connection and the assignment ask and tell

    def is_over(self) -> bool:
        """Whether it has failed, or stopped."""
        return self._state in ("failed", "stopped")

    def is_taking(self) -> bool:
        """Whether records are wanted."""
        return self._state == "running"

    def connects(self) -> None:
        """A client is being built again."""
        self._change("connect")

    def joined(self) -> None:
        """An assignment has come."""
        self._intake.start_over()
        self._change("joined")

    # -- what workers and verdicts tell

    def progress(self, lane: Lane) -> None:
        """A worker turned away from a lane."""
        if self.settlements.is_awaited and (lane.revoked or lane.waiting <= lane.low_water):
            self._progress()

    def _progress(self) -> None:
        self._assignment.changed()
        self._connection.wake()

    def abandon(self, lane: Lane) -> None:
        """The partition of a lane has gone for good, and handlers still run its records."""
        self._intake.workers.abandon(lane)

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
                error=reason,
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

    def _held_back(self) -> set[TopicPartition]:
        if self.settings.on_poison == "warn":
            return set()
        return {poison.tracker.partition for poison in self._watch.current}

    async def _watch_for_poison(self) -> None:
        while not self.is_over():
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
            self._failed_poison = (poison_facts(poison, now),)
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
                if not self.is_taking() and self._state != "connecting":
                    break
                self._intake.arrival.clear()
                await self._intake.arrival.wait()
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

    def _received(self, partition: TopicPartition, records: int) -> None:
        self._totals_of(partition).received += records

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return frozenset(self._engine.trackers)

    @property
    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return self._snapshot.in_flight()

    def facts(self) -> ChannelFacts:
        """What is known about the channel now."""
        now = self._clock.monotonic()
        poison = self._failed_poison or tuple(poison_facts(one, now) for one in self._watch.current)
        for tracker in self._engine.trackers.values():
            self.settlements.count_acks(tracker)  # here, and not as they come
        facts = self._snapshot.take(self._state, self._reason, poison, dict(self._totals), now)
        return replace(facts, partitions=self._last_partitions) if self._last_partitions else facts
