"""One worker of a channel: what it holds at the moment, and what its handler has."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Hashable, Sequence
from contextvars import Context
from typing import Any

from reactive_kafka.delivery.current import CALL, WORKER, CallHolder, CurrentCall, LazyMessage
from reactive_kafka.delivery.lanes.keyed import KeyedLane
from reactive_kafka.delivery.lanes.lane import UNKEYED, Lane, LaneSlice
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.delivery.workers.worker_states import (
    ABANDONED_WORKERS,
    INTERRUPTED_WORKERS,
    WORKER_TRANSITIONS,
    WorkerState,
)
from reactive_kafka.records import RawRecord
from reactive_kafka.state_table import next_state
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import HOLDER
from reactive_kafka.verdicts.call_waits import CallWaits
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.message import new_message
from reactive_kafka.verdicts.unawaited import CALLER, Caller


class Worker:
    """A task that runs handlers. The task itself makes the worker, in the handlers' *context*.

    Args:
        keeps_apart: Handlers run in contexts of their own, so *context* holds nothing of theirs.
    """

    __slots__ = (
        "blocked_on",
        "clean_context",
        "context",
        "has_slot",
        "index",
        "is_new",
        "is_spent",
        "key",
        "lanes",
        "left",
        "messages",
        "place",
        "pool",
        "record",
        "replacement",
        "slices",
        "state",
        "strays",
        "stretch_end",
        "task",
        "waits",
    )

    def __init__(
        self, pool: ChannelWorkers, context: Context, *, keeps_apart: bool = False
    ) -> None:
        task = asyncio.current_task()
        # For the type checker.
        assert task is not None  # noqa: S101
        self.task: asyncio.Task[Any] = task
        # For the code that its handlers call. The variables are set in the context of its own task.
        WORKER.set(self)
        CALLER.set(Caller())
        HOLDER.set(CallHolder(self, pool.roots, pool.left_unsettled))
        self.context = context
        # The context as handlers are to find it. One of them may have changed ``context``.
        self.clean_context = context if keeps_apart else context.copy()
        self.pool = pool
        # How long its calls have waited for us: that is no time of theirs.
        self.waits = CallWaits()
        self.state = WorkerState.IDLE
        # It has one of the slots of ``limit``.
        self.has_slot = False
        # True until it begins its first stretch.
        self.is_new = True
        # The lanes that it holds; empty also if they were released for it.
        self.lanes: Sequence[Lane] = ()
        # Lanes that it has released, and whose settled records are still in their windows.
        self.left: set[Lane] = set()
        # What it has taken of its lanes, where a call takes a batch.
        self.slices: Sequence[LaneSlice] = ()
        # The arrival number of the record that its handler has, and the record.
        self.index = -1
        self.record: RawRecord | None = None
        # The key of that record, in a lane with keys: no other record of that key may run.
        self.key: Hashable = UNKEYED
        # When it has to let other tasks run.
        self.stretch_end = 0.0
        # The messages of a call that is made again, or of a batch.
        self.messages: Sequence[Delivery] = ()
        # Nacks of its records that are being carried out: the records after them wait.
        self.blocked_on: list[Future[bool]] = []
        # What it waits for while it returns: see :class:`WorkerPlaces`.
        self.place: Future[bool] | None = None
        # Abandons the worker if its handler ignores its cancellation.
        self.replacement: asyncio.TimerHandle | None = None
        # A handler has left something in its task or its context, so another worker has to
        # continue. That is no state: it is true of the task, whatever the worker does, and takes
        # effect between two lanes.
        self.is_spent = False
        # How many cancellations came between two calls, and were meant for a call that was over.
        self.strays = 0

    def follow(self, event: str) -> None:
        """Change its state as the table says; :class:`WorkerPlaces` calls this to move a place."""
        self.state = next_state(WORKER_TRANSITIONS, self.state, event)

    @property
    def is_abandoned(self) -> bool:
        """Whether the channel does not wait for it any more."""
        return self.state in ABANDONED_WORKERS

    @property
    def is_interrupted(self) -> bool:
        """Whether its handler was cancelled for poison, and has not ended yet."""
        return self.state in INTERRUPTED_WORKERS

    @property
    def is_revoked(self) -> bool:
        """Whether a partition of its records is being revoked, or all of its records are gone.

        If some of a batch's partitions are read from elsewhere, the records of the others remain.
        """
        kept = [lane for lane in self.lanes if not lane.is_dropped]
        if not kept:
            return bool(self.lanes)
        return any(lane.revoked for lane in kept)

    def cut_lanes(self) -> None:
        """Have it look at its lanes again after its record."""
        for lane in self.lanes:
            # A worker that shares a lane with keys looks after each record anyway.
            if not isinstance(lane, KeyedLane) or lane.sole is self:
                lane.cut()

    def handler_ended(self) -> bool:
        """Note that its handler has ended; return whether the handler had been interrupted."""
        if not self.is_interrupted:
            return False
        self.follow("handler ended")
        self.task.uncancel()
        if self.replacement is not None:
            self.replacement.cancel()
        return True

    def forget_call(self) -> None:
        """Forget the record or the batch of its last call."""
        self.messages = ()
        self.slices = ()
        self.record = None
        self.index = -1

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        """Return whether its handler has a record; for a batch, whether one of that partition."""
        if all(lane.tracker is not tracker for lane in self.lanes):
            return False
        if self.pool.takes_batches:
            return bool(self.messages)
        return self.index == index

    def is_at(self, lane: Lane) -> bool:
        """Return whether it is busy with records of a lane.

        The handler of a batch may have none of a lane that the worker holds: they were skipped, or
        could not be decoded.
        """
        if lane not in self.lanes:
            return False
        if not self.pool.takes_batches or not self.messages:
            return True
        return any(message.tracker is lane.tracker for message in self.messages)

    def call(self) -> CurrentCall | None:
        """Return what its handler has; None between two calls, and if it was abandoned."""
        is_batch = self.pool.takes_batches
        if self.messages:
            return CurrentCall(self, self.messages, is_batch=is_batch)
        if is_batch or not self.lanes or self.record is None:
            return None
        tracker = self.lanes[0].tracker
        message = LazyMessage(self.pool.payload_of, self.record, tracker, self.index)
        return CurrentCall(self, (message,), is_batch=False)

    def messages_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the unsettled messages of its call, if a record is among them.

        That is one message, or those of the whole batch.
        """
        if not self.lanes:
            return []
        if any(message.tracker is tracker and message.index == index for message in self.messages):
            return [message for message in self.messages if is_open(message)]
        if self.index != index or self.record is None:
            return []
        if all(lane.tracker is not tracker for lane in self.lanes):
            return []
        return [new_message(None, self.record, tracker, index)]

    @property
    def has_changed_context(self) -> bool:
        """Whether a handler has changed context variables in its context."""
        try:
            return self.context != self.clean_context
        except BaseException:
            # The values are the application's, and so is how they compare.
            return True

    @property
    def is_cancelled(self) -> bool:
        """Whether its task was cancelled, apart from our own interrupt of the handler."""
        return self.task.cancelling() > self.is_interrupted

    def take_off_cancellation(self) -> None:
        """Have its task count no more cancellations than our own interrupt."""
        while self.is_cancelled:
            self.task.uncancel()

    def fresh_context(self, *, tells: bool) -> Context:
        """Return a context for one call, without what other calls have set.

        Args:
            tells: The context says what that call has.
        """
        context = (self.clean_context if self.is_spent else self.context).copy()
        if tells:
            context.run(CALL.set, self.call())
        return context
