"""What one worker of a channel does, and the messages that no worker has any more."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import Any

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lane import Lane, Part
from reactive_kafka.delivery.states import (
    ABANDONED_WORKERS,
    INTERRUPTED_WORKERS,
    WORKER_TRANSITIONS,
    WorkerState,
    after,
)
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.message import new_message


class Worker:
    """One worker; made in its task, in whose context it and the handlers that it calls run.

    With *keeps_apart* handlers get contexts of their own, so nothing that is in this one comes from a handler.
    """

    __slots__ = (
        "blocked_on", "clean", "context", "first", "index", "is_spent", "lanes", "messages", "piece", "place", "record",
        "replacement", "state", "strays", "task", "wait",
    )  # fmt: skip

    def __init__(self, *, keeps_apart: bool = False) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # for the type checker
        self.task: asyncio.Task[Any] = task
        self.context: Context = copy_context()
        self.clean = self.context if keeps_apart else self.context.copy()  # what handlers find; one may have changed it
        self.state = WorkerState.IDLE
        self.lanes: Sequence[Part] = ()  # those that it holds; empty also once they were released for it
        self.piece: Sequence[RawRecord] = ()  # what it reads from a lane that it has to itself
        self.first = 0  # the arrival number of that piece's first record
        self.index = -1  # of the record that its handler has, where that is not told by the tracker's run
        self.record: RawRecord | None = None
        self.messages: Sequence[Delivery] = ()  # those of the call that it tries again, or of its batch
        self.blocked_on: list[Future[bool]] = []  # nacks of its records being carried out: what comes after them waits
        self.wait: Future[bool] | None = None  # for the next attempt; True: it is due, or there is a verdict by now
        self.place: Future[bool] | None = None  # what it waits for while it returns
        self.replacement: asyncio.TimerHandle | None = None  # abandons it if its handler ignores its cancellation
        # A handler has left something in its task or its context, and it goes on in another one. That is true of the
        # task, whatever the worker does, and is acted on between two lanes.
        self.is_spent = False
        self.strays = 0  # cancellations that came between two calls, and were meant for a call that was over

    def follow(self, event: str) -> None:
        """Change its state as the table says; where that takes or gives a place, :class:`Places` does it."""
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
        return any(lane.partition_lane.revoked for lane in self.lanes)

    def cut_lanes(self) -> None:
        """Have it turn away after its record; what has a key's lane to itself looks by itself."""
        for lane in self.lanes:
            if isinstance(lane, Lane):
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
        return bool(self.messages) or self.index == index or tracker.run_at == index

    def messages_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """The unsettled messages of its call, if this record is among them: one, or its whole batch."""
        if not self.lanes:
            return []
        if any(message.tracker is tracker and message.index == index for message in self.messages):
            return [message for message in self.messages if is_open(message)]
        for lane in self.lanes:
            if lane.tracker is not tracker:
                continue
            record = self.record if self.index == index else None
            # The lane may have gone on to its next piece while the handler has the last record of this one. So the
            # worker remembers the piece that it reads, and where that begins: the lane's own would be another record.
            if record is None and tracker.run_at == index and 0 <= index - self.first < len(self.piece):
                record = self.piece[index - self.first]
            if record is not None:
                return [new_message(None, record, tracker, index)]
        return []

    @property
    def has_strange_values(self) -> bool:
        try:
            return self.context != self.clean
        except BaseException:  # the values are anybody's, and so is how they compare
            return True

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled its task, apart from our own interrupt of the handler."""
        return self.task.cancelling() > self.is_interrupted

    def take_off_cancellation(self) -> None:
        """Have its task count no more cancellations than our own interrupt."""
        while self.is_cancelled:
            self.task.uncancel()

    def fresh_context(self) -> Context:
        """A context for one call, without what other calls have set."""
        return (self.clean if self.is_spent else self.context).copy()


class ReturnedUnsettled:
    """Messages without a verdict whose handler has returned: a dead letter needs their bytes if they become poison."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int], Delivery] = {}
        self._sweep_at = 64

    def add(self, message: Delivery) -> None:
        """Keep a message until it has its verdict."""
        self._messages[id(message.tracker), message.index] = message
        if len(self._messages) >= self._sweep_at:
            self._messages = {at: one for at, one in self._messages.items() if is_open(one)}
            self._sweep_at = max(64, 2 * len(self._messages))

    def find(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        message = self._messages.get((id(tracker), index))
        return [message] if message is not None and message.tracker is tracker and is_open(message) else []
