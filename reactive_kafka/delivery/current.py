"""Which message or batch a handler has, for the code that it calls: for its log lines, say.

Nothing is noted for each record. A worker knows what its handler has, and a context variable, set
once for each worker, says which worker runs this code.

A thread or another task can outlive the call that started it, so there the worker would be the
wrong one to ask. Such code needs a context of the call's own, which says what the call has and
costs 2 µs. The first calls of each worker get one. Later calls get one once such code has asked
from a thread or from another task, and always where handlers run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.call_waits import CallWaits
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.message import Message

# How many characters of a key a log line shows.
LONGEST_KEY = 200


class WorkersOfHandler(Protocol):
    """The workers of a channel, as they are seen from inside of a handler."""

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what the call has."""


class WorkerOfHandler(Protocol):
    """A worker, as it is seen from inside of its handler."""

    task: asyncio.Task[Any]
    # The record that its handler has. None: a batch, or nothing.
    record: RawRecord | None
    waits: CallWaits

    @property
    def pool(self) -> WorkersOfHandler:
        """All workers of the channel."""

    def call(self) -> CurrentCall | None:
        """Return what its handler has; None between two calls, and if it was abandoned."""


class CurrentCall:
    """What a handler has: one message, or those of a batch."""

    __slots__ = ("_worker", "is_batch", "messages")

    def __init__(
        self, worker: WorkerOfHandler, messages: Sequence[Delivery], *, is_batch: bool
    ) -> None:
        self._worker = worker
        self.messages = messages
        self.is_batch = is_batch

    def goes_on(self) -> bool:
        """Return whether its handler still runs, or has left a record without a verdict."""
        if any(map(is_open, self.messages)):
            return True
        current = self._worker.call()
        if current is None:
            return False
        mine = self.messages[0]
        theirs = current.messages[0]
        return theirs.tracker == mine.tracker and theirs.index == mine.index


class LazyMessage(Message[Any]):
    """A message that decodes its payload when it is asked for.

    A worker remembers only the record, so the payload that the handler got is not at hand.
    """

    __slots__ = ("_decode",)

    def __init__(
        self,
        decode: Callable[[RawRecord], Any],
        record: RawRecord,
        tracker: OffsetTracker,
        index: int,
    ) -> None:
        self._decode = decode
        self.record = record
        self.tracker = tracker
        self.index = index

    def __getattr__(self, name: str) -> Any:
        if name != "payload":
            raise AttributeError(name)
        self.payload = self._decode(self.record)
        return self.payload


WORKER: ContextVar[WorkerOfHandler] = ContextVar("reactive_kafka worker")
CALL: ContextVar[CurrentCall | None] = ContextVar("reactive_kafka call")

RecordPlace = tuple[OffsetTracker, int]
"""A record: the tracker of its partition, and its arrival number there."""


def itself(delivery: Delivery) -> Iterable[RecordPlace]:
    """Return the record of Kafka that a delivery was made of: that which it is."""
    return ((delivery.tracker, delivery.index),)


class CallHolder:
    """The records that the handler around this code has, and those its application still holds."""

    def __init__(
        self,
        worker: WorkerOfHandler,
        roots: Callable[[Delivery], Iterable[RecordPlace]],
        left_unsettled: Callable[[], Iterable[Held]],
    ) -> None:
        self._worker = worker
        self._roots = roots
        self._left_unsettled = left_unsettled

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the application."""
        return self._worker.task.get_loop()

    def held(self, *, briefly: bool) -> Iterator[Held]:
        """Yield the records that do not age while the code around this waits, by partition."""
        call = _call_around_wait()
        mine: dict[OffsetTracker, list[int]] = {}
        for message in call.messages if call is not None else ():
            for tracker, index in self._roots(message):
                mine.setdefault(tracker, []).append(index)
        yield from mine.items()
        if not briefly:
            yield from self._left_unsettled()

    def wait_begins(self, now: float) -> int:
        """Leave the time from now on out of the duration of the worker's call.

        A task that has outlived its call is taken for one of the next call.
        """
        return self._worker.waits.begins(self._worker.record, now)

    def wait_ends(self, number: int, now: float) -> None:
        """Note the end of a wait."""
        self._worker.waits.ends(number, now)

    def waited_s(self) -> float:
        """Return how long the calls of the worker have waited for us so far."""
        return self._worker.waits.total_s


def _call_around_wait() -> CurrentCall | None:
    """Return the call around code that waits.

    Tasks and threads without a call of their own get that of their worker. So a task that
    has outlived its call is taken for one of the worker's next call.
    """
    call = CALL.get(None)
    if call is not None and call.goes_on():
        return call
    worker = WORKER.get(None)
    return None if worker is None else worker.call()


def _current_call() -> CurrentCall | None:
    """Return the call around this code; have later calls say what they have if that is unknown."""
    call = CALL.get(None)
    worker = WORKER.get(None)
    if worker is None:
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # This is a thread.
        task = None
    if task is not worker.task:
        # The first calls of each worker say what they have. Later ones do so because of this.
        worker.pool.tell_calls()
    elif call is None:
        return worker.call()
    if call is None or not call.goes_on():
        return None
    return call


def current_message() -> Message[Any] | None:
    """Return the message of the handler around this; None outside of handlers, and for a batch.

    A handler's tasks and threads get it, too, until the handler has returned and the message has
    its verdict. If none of them asks in the first calls of a channel, the first one that asks later
    gets None, and so do those of the calls in flight then. Calls that begin 5 ms later have an
    answer.

    If the handler takes the payload and not the message, the payload is decoded again.
    """
    call = _current_call()
    if call is None or call.is_batch:
        return None
    message = call.messages[0]
    return message if isinstance(message, Message) else None


def current_batch() -> Batch[Any] | None:
    """Return the batch of the handler around this: the messages of the current attempt.

    None outside of handlers, and if the handler takes single messages. For tasks and threads see
    :func:`current_message`.
    """
    call = _current_call()
    if call is None or not call.is_batch:
        return None
    return Batch(message for message in call.messages if isinstance(message, Message))


def fields_of_call() -> dict[str, Any]:
    """Return where a log line was written: fields of the record, or of a batch's first record.

    The result is empty outside of handlers.
    """
    call = _current_call()
    if call is None:
        return {}
    first = call.messages[0]
    # For the type checker.
    assert isinstance(first, Message)  # noqa: S101
    fields: dict[str, Any] = {
        "channel": first.channel,
        "topic": one_line(first.topic),
        "partition": first.partition,
        "offset": first.offset,
    }
    key = first.record.key
    if call.is_batch:
        fields["records"] = len(call.messages)
    elif key is not None:
        text = key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
        fields["key"] = one_line(text, limit=LONGEST_KEY)
    return fields
