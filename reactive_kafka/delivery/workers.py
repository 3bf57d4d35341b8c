"""What one worker of a channel does, what a channel asks of whatever handles its records, and hands
to that.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.current import (
    CALL,
    WORKER,
    Call,
    CallHolder,
    LazyMessage,
    Place,
    itself,
)
from reactive_kafka.delivery.keyed import KeyedLane
from reactive_kafka.delivery.lane import UNKEYED, Lane
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.states import (
    ABANDONED_WORKERS,
    INTERRUPTED_WORKERS,
    WORKER_TRANSITIONS,
    WorkerState,
    after,
)
from reactive_kafka.observe.events import AlsoFailed, HandlerRetried
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.ageing import HOLDER, Held
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery, failure_of, is_open
from reactive_kafka.verdicts.delivery_hook import Call as HandlerCall
from reactive_kafka.verdicts.delivery_hook import DeliveryHook
from reactive_kafka.verdicts.message import new_message
from reactive_kafka.verdicts.unawaited import CALLER, Caller


class Worker:
    """One worker; made in its task, which runs in *context*, as do the handlers that it calls.

    With *keeps_apart* handlers get contexts of their own, so nothing that is in this one comes from
    a handler.
    """

    __slots__ = (
        "blocked_on",
        "clean",
        "context",
        "first",
        "index",
        "is_new",
        "is_spent",
        "key",
        "lanes",
        "left",
        "messages",
        "piece",
        "place",
        "pool",
        "record",
        "replacement",
        "state",
        "strays",
        "stretch_end",
        "task",
        "wait",
    )

    def __init__(self, pool: Workers, context: Context, *, keeps_apart: bool = False) -> None:
        task = asyncio.current_task()
        # For the type checker.
        assert task is not None  # noqa: S101
        self.task: asyncio.Task[Any] = task
        # For those whom its handlers call; in the context of its own task.
        WORKER.set(self)
        CALLER.set(Caller())
        HOLDER.set(CallHolder(pool.roots, pool.left_unsettled))
        self.context = context
        # What handlers find; one may have changed it.
        self.clean = context if keeps_apart else context.copy()
        self.pool = pool
        self.state = WorkerState.IDLE
        # It has not begun its first stretch.
        self.is_new = True
        # Those that it holds; empty also once they were released for it.
        self.lanes: Sequence[Lane] = ()
        # Those that it has released, and whose records it has not timed since.
        self.left: set[Lane] = set()
        # What it reads from a lane that it has to itself.
        self.piece: Sequence[RawRecord] = ()
        # The arrival number of that piece's first record.
        self.first = 0
        # Of the record that its handler has, where that is not told by the tracker's run.
        self.index = -1
        self.record: RawRecord | None = None
        # By which that record is ordered: none other of that key may run.
        self.key: Hashable = UNKEYED
        # When it is to let the loop run.
        self.stretch_end = 0.0
        # Those of the call that it tries again, or of its batch.
        self.messages: Sequence[Delivery] = ()
        # Nacks of its records being carried out: what comes after them waits.
        self.blocked_on: list[Future[bool]] = []
        # For the next attempt; True: it is due, or there is a verdict by now.
        self.wait: Future[bool] | None = None
        # What it waits for while it returns.
        self.place: Future[bool] | None = None
        # Abandons it if its handler ignores its cancellation.
        self.replacement: asyncio.TimerHandle | None = None
        # A handler has left something in its task or its context, and it goes on in another one.
        # That is true of the task, whatever the worker does, and is acted on between two lanes.
        self.is_spent = False
        # Cancellations that came between two calls, and were meant for a call that was over.
        self.strays = 0

    def follow(self, event: str) -> None:
        """Change its state as the table says; where that takes or gives a place, :class:`Places`
        does it.
        """
        self.state = after(WORKER_TRANSITIONS, self.state, event)

    @property
    def is_abandoned(self) -> bool:
        return self.state in ABANDONED_WORKERS

    @property
    def is_interrupted(self) -> bool:
        """Whether its handler was cancelled for poison, and has not ended yet."""
        return self.state in INTERRUPTED_WORKERS

    @property
    def is_revoked(self) -> bool:
        """Whether a partition of the lanes it holds is suspended or gone."""
        return any(lane.revoked for lane in self.lanes)

    def cut_lanes(self) -> None:
        """Have it turn away after its record; in a lane with keys that others are in, too, it looks
        by itself.
        """
        for lane in self.lanes:
            if not isinstance(lane, KeyedLane) or lane.sole is self:
                lane.cut()

    def handler_ended(self) -> bool:
        """Its handler has ended; whether it had been interrupted."""
        if not self.is_interrupted:
            return False
        self.follow("handler ended")
        self.task.uncancel()
        if self.replacement is not None:
            self.replacement.cancel()
        return True

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        """Whether a record is with its handler; of a batch, whether one of its partition is."""
        if all(lane.tracker is not tracker for lane in self.lanes):
            return False
        if self.pool.takes_batches:
            return bool(self.messages)
        return self.index == index or (self.record is None and tracker.run_at == index)

    def call(self) -> Call | None:
        """What its handler has; None between two calls, and where it was abandoned."""
        if self.messages:
            return Call(self, self.messages, is_batch=self.pool.takes_batches)
        if not self.lanes or self.pool.takes_batches:
            return None
        tracker = self.lanes[0].tracker
        record = self.record
        index = self.index
        # It reads a piece.
        if record is None:
            index = tracker.run_at if tracker.run_at >= 0 else self.lanes[0].taken
            if not 0 <= (at := index - self.first) < len(self.piece):
                return None
            record = self.piece[at]
        return Call(
            self, (LazyMessage(self.pool.payload_of, record, tracker, index),), is_batch=False
        )

    def messages_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """The unsettled messages of its call, if this record is among them: one, or its whole
        batch.
        """
        if not self.lanes:
            return []
        if any(message.tracker is tracker and message.index == index for message in self.messages):
            return [message for message in self.messages if is_open(message)]
        for lane in self.lanes:
            if lane.tracker is not tracker:
                continue
            record = self.record if self.index == index else None
            # The lane may have gone on to its next piece while the handler has the last record of
            # this one. So the worker remembers the piece that it reads, and where that begins: the
            # lane's own would be another record.
            if (
                record is None
                and tracker.run_at == index
                and 0 <= index - self.first < len(self.piece)
            ):
                record = self.piece[index - self.first]
            if record is not None:
                return [new_message(None, record, tracker, index)]
        return []

    @property
    def has_strange_values(self) -> bool:
        try:
            return self.context != self.clean
        except BaseException:
            # The values are anybody's, and so is how they compare.
            return True

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled its task, apart from our own interrupt of the handler."""
        return self.task.cancelling() > self.is_interrupted

    def take_off_cancellation(self) -> None:
        """Have its task count no more cancellations than our own interrupt."""
        while self.is_cancelled:
            self.task.uncancel()

    def fresh_context(self, *, tells: bool) -> Context:
        """A context for one call, without what other calls have set; *tells*: it says what that
        call has.
        """
        context = (self.clean if self.is_spent else self.context).copy()
        if tells:
            context.run(CALL.set, self.call())
        return context


@dataclass(slots=True)
class HandlerTotals:
    """Counters of handler calls; they outlive a restart of the channel."""

    # Calls after the first one.
    retries: int = 0
    # Handlers that were cancelled for poison, and did not end.
    abandoned: int = 0
    durations: DurationHistogram = field(default_factory=DurationHistogram)


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a channel session hands to its workers."""

    settings: IncomingSettings
    lanes: Lanes
    clock: Clock
    spawn: Spawn
    # The channel's checkpoint store.
    hook: DeliveryHook
    totals: HandlerTotals = field(default_factory=HandlerTotals)
    # Every task is being cancelled, as at the end of ``asyncio.run``
    is_ending: Callable[[], bool] = lambda: False
    # What is around each call of a handler; the call takes its message or its batch.
    around: Callable[[HandlerCall], HandlerCall] | None = None
    # The records of Kafka that a delivery was made of, as records age and not values.
    roots: Callable[[Delivery], Iterable[Place]] = itself
    # The trackers of the partitions that hold records, if the application may keep messages without
    # a verdict.
    trackers: Callable[[], Iterable[OffsetTracker]] = tuple
    # Each worker has a copy of it.
    context: Context = field(default_factory=copy_context)


class WorkerSignals:
    """What workers tell their channel and ask of it; verdicts go to its acknowledger."""

    def __init__(
        self,
        parts: ChannelContext,
        acknowledger: Acknowledger,
        exit: Callable[[BaseException], None],
        store_plans: Callable[..., Coroutine[Any, Any, bool]],
    ) -> None:
        self._parts = parts
        self._awaited_by = acknowledger.awaited_by
        self.fail = parts.fail
        # A handler asked the process to end (SystemExit, KeyboardInterrupt)
        self.exit = exit
        # Commits until the group has the trackers' plans; False: one is not ours.
        self.store_plans = store_plans
        # The handler of a message failed for good.
        self.nack = acknowledger.nacks.failed
        self.verdict_of = acknowledger.verdict_of
        self.settled = acknowledger.settled
        self.skip = acknowledger.skips.skip
        self.raised_after_ack = acknowledger.raised_after_ack

    def progress(self, lane: Lane) -> None:
        """A worker turned away from a lane: there may be room for new records, or a drain may be
        over.
        """
        if self._awaited_by and (lane.revoked or lane.waiting <= lane.low_water):
            self._parts.progress()

    def will_retry(
        self, message: Delivery, reason: BaseException, attempt: int, wait_s: float
    ) -> None:
        """Call number *attempt* for a message (for a batch: its first one) failed, and another one
        follows.
        """
        about = failure_of(self._parts.settings.name, message, reason)
        self._parts.observer.on(HandlerRetried(**about, attempt=attempt, wait_s=wait_s))

    def also_failed(self, message: Delivery, reason: BaseException) -> None:
        """Another handler of a broadcast failed for good: the record will be nacked for what the
        first one raised.
        """
        self._parts.observer.on(
            AlsoFailed(**failure_of(self._parts.settings.name, message, reason))
        )


class Workers:
    """What handles the records in the lanes. This one does nothing: an application iterates over
    the channel.
    """

    # A call takes records of several lanes, and frees the room of many records at once.
    takes_batches = False
    # Ranges of records run outside of this process. So no partition may go before that is over,
    # even where its lane was dropped; and a record that is not due holds back those behind it, or
    # ranges would have holes.
    works_elsewhere = False

    def __init__(self) -> None:
        self.returned = ReturnedUnsettled()

    @property
    def idle(self) -> int:
        """How many workers have nothing to do, or may be started."""
        return 0

    def work_is_there(self) -> None:
        """Records were put into the lanes, or lanes were retained."""

    def stop_retrying(self) -> None:
        """End the waits between attempts; their records stay unsettled."""

    def suspended(self) -> None:
        """Lanes were suspended: end the waits for another attempt in them, and put their records
        back.
        """

    def abandon(self, lane: Lane) -> None:
        """Stop counting workers still busy with this lane; replacements may start."""

    def payload_of(self, record: RawRecord) -> Any:
        """What its handler gets of a record. Raises as the decoder does."""
        return record.value

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what it has."""

    def roots(self, delivery: Delivery) -> Iterable[Place]:
        """The records of Kafka that a delivery was made of."""
        return itself(delivery)

    def left_unsettled(self) -> Iterable[Held]:
        """The records that handlers have returned from without a verdict, by partition: the
        application has them.
        """
        return ()

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a broker, a store or a registry is away, and waits for
        its next call.
        """
        return False

    def not_ready(self, now: float) -> Iterable[str]:
        """What records wait for between two calls of their handler, where that takes long."""
        return ()

    def resumed(self) -> None:
        """Pauses are over: attempts that have waited for that are made."""

    def blocks_on(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        """A nack is being carried out: hold its lane until *verdict*, even if the handler returns
        before.
        """

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Cancel the handler that has a record, and await it no more; the unsettled messages of its
        call, if any.
        """
        return self.returned.find(tracker, index)

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        """Whether a handler runs a record, as far as that is known: here nobody knows."""
        return True

    def close(self) -> None:
        """No work will come any more: idle workers end, and busy ones as soon as they are done."""

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        """What to keep of the records while they are queued: here the records themselves."""
        return records

    def wants(self, lane: Lane, records: int) -> int:
        """How many records one poll should bring for a lane with room for *records* (possibly
        none).
        """
        return records

    def reserve_s(self, most_s: float) -> float:
        """How many of the *most_s* seconds that a stop may take have to be left for
        :meth:`cut_off`.
        """
        return 0.0

    async def over(self) -> None:
        """Returns when nothing runs outside of this process any more."""

    async def cut_off(self) -> None:
        """The time of what runs outside of this process, in suspended lanes, is over; returns when
        it has ended.
        """
