"""What one worker of a channel is at, and the messages that no worker has any more."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from contextvars import Context, copy_context
from typing import Any

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.lane import Part
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.message import new_message


class Worker:
    """What one worker is at; made in its task.

    Args:
        keeps_apart: Handlers get contexts of their own, so nothing that is in this one comes from a handler.

    Attributes:
        task, context: In which it runs, and the handlers that it calls.
        clean: What handlers find in their context; differs from ``context`` where one of them has changed that.
        lanes: Those that it holds.
        piece, first: What it reads from a lane that it has to itself, and the arrival number of its first record: the
            lane may have gone on to the next piece while the handler of the last record of this one runs.
        index, record: The record that its handler has, where that is not told by the tracker's run.
        messages: Those of the call that it tries again, or of its batch.
        blocked_on: Nacks of its records that are being carried out: what comes after them waits.
        is_aside: It waits for something else than a handler, and its place is another's.
        is_interrupted: Its handler was cancelled, and has not ended yet.
        is_spent: A handler has left something in its task or its context: it goes on in another one.
        strays: Cancellations that came between two calls, and were meant for a call that was over.
        is_left: It counts no longer: another one has its place, and it ends when its handler does.
        has_lanes: False once its lanes were released for it.
    """

    __slots__ = (
        "blocked_on", "clean", "context", "first", "has_lanes", "index", "interrupts", "is_aside", "is_interrupted",
        "is_left", "is_spent", "lanes", "messages", "piece", "record", "strays", "task", "wait",
    )  # fmt: skip

    def __init__(self, *, keeps_apart: bool = False) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # for the type checker
        self.task: asyncio.Task[Any] = task
        self.context: Context = copy_context()
        self.clean = self.context if keeps_apart else self.context.copy()
        self.lanes: Sequence[Part] = ()
        self.piece: Sequence[RawRecord] = ()
        self.first = 0
        self.index = -1
        self.record: RawRecord | None = None
        self.messages: Sequence[Delivery] = ()
        self.blocked_on: list[Future[bool]] = []
        self.wait: Future[bool] | None = None
        self.is_aside = False
        self.interrupts = 0
        self.is_interrupted = False
        self.is_left = False
        self.is_spent = False
        self.strays = 0
        self.has_lanes = False

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        """Whether a record is with its handler; of a batch, whether one of its partition is."""
        if not self.has_lanes or all(lane.tracker is not tracker for lane in self.lanes):
            return False
        return bool(self.messages) or self.index == index or tracker.run_at == index

    def messages_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """What its handler has and has not settled, if this record is among it: that message, or its whole batch."""
        if not self.has_lanes:
            return []
        if any(message.tracker is tracker and message.index == index for message in self.messages):
            return [message for message in self.messages if is_open(message)]
        for lane in self.lanes:
            if lane.tracker is not tracker:
                continue
            record = self.record if self.index == index else None
            if record is None and tracker.run_at == index and 0 <= index - self.first < len(self.piece):
                record = self.piece[index - self.first]
            if record is not None:
                return [new_message(None, record, tracker, index)]
        return []

    @property
    def is_parked(self) -> bool:
        """Whether a lane of its was parked."""
        return any(lane.partition_lane.revoked for lane in self.lanes)

    def comes_to_rest(self) -> bool:
        """Its handler has ended; whether it had been interrupted."""
        if not self.is_interrupted:
            return False
        self.is_interrupted = False
        self.task.uncancel()
        return True

    @property
    def has_strange_values(self) -> bool:
        """Whether a handler has changed the context."""
        try:
            return self.context != self.clean
        except BaseException:  # the values are anybody's, and so is how they compare
            return True

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled its task, our own interrupt of the handler aside."""
        return self.task.cancelling() > self.is_interrupted

    def take_off_cancellation(self) -> None:
        """Count as cancelled no more than our own interrupt says."""
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
            self._messages = {at: kept for at, kept in self._messages.items() if is_open(kept)}
            self._sweep_at = max(64, 2 * len(self._messages))

    def find(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """The message of a record, if it is kept."""
        message = self._messages.get((id(tracker), index))
        return [message] if message is not None and message.tracker is tracker and is_open(message) else []
