"""What a handler has, for whatever is called by it: its log lines, say. Nothing is kept of that for
each record.

A worker knows what its handler has, and its context says which worker it is: that is set once for
each worker. A thread or another task can outlive the call that it was started by, so there that
says nothing. So the first calls of each worker get contexts of their own that say what the call
has. Later calls get them once somebody has asked in a thread or in another task, and always where
handlers run in threads.
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
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.message import Message

# Characters of a key in a log line.
LONGEST_KEY = 200


class TellsCalls(Protocol):
    """The workers of a channel, as they are seen from inside of a handler."""

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what it has."""


class AtWork(Protocol):
    """A worker, as it is seen from inside of its handler."""

    task: asyncio.Task[Any]

    @property
    def pool(self) -> TellsCalls:
        """All of its channel."""

    def call(self) -> Call | None:
        """What its handler has; None between two calls, and where it was abandoned."""


class Call:
    """What a handler has: one message, or those of a batch."""

    __slots__ = ("_worker", "is_batch", "messages")

    def __init__(self, worker: AtWork, messages: Sequence[Delivery], *, is_batch: bool) -> None:
        self._worker = worker
        self.messages = messages
        self.is_batch = is_batch

    def goes_on(self) -> bool:
        """Whether its handler has not returned, or has left a record without a verdict."""
        if any(map(is_open, self.messages)):
            return True
        now = self._worker.call()
        mine = self.messages[0]
        return now is not None and (now.messages[0].tracker, now.messages[0].index) == (
            mine.tracker,
            mine.index,
        )


class LazyMessage(Message[Any]):
    """A message whose payload is decoded when somebody asks for it: a worker remembers the record
    alone.
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


WORKER: ContextVar[AtWork] = ContextVar("reactive_kafka worker")
CALL: ContextVar[Call | None] = ContextVar("reactive_kafka call")


def _call_here() -> Call | None:
    """What the handler around this code has, also in its tasks and threads that nothing else is
    known of.

    A task that has outlived its call is taken for one of the worker's next call.
    """
    call = CALL.get(None)
    if call is not None and call.goes_on():
        return call
    worker = WORKER.get(None)
    return None if worker is None else worker.call()


Place = tuple[OffsetTracker, int]
"""A record: the tracker of its partition, and its arrival number there."""


def itself(delivery: Delivery) -> Iterable[Place]:
    """The record of Kafka that a delivery is: itself."""
    return ((delivery.tracker, delivery.index),)


class CallHolder:
    """The records that the handler around this code has, and those that its application has not
    settled yet.
    """

    def __init__(
        self,
        roots: Callable[[Delivery], Iterable[Place]],
        left_unsettled: Callable[[], Iterable[Held]],
    ) -> None:
        self._roots = roots
        self._left_unsettled = left_unsettled

    def held(self, *, briefly: bool) -> Iterator[Held]:
        call = _call_here()
        mine: dict[OffsetTracker, list[int]] = {}
        for message in call.messages if call is not None else ():
            for tracker, index in self._roots(message):
                mine.setdefault(tracker, []).append(index)
        yield from mine.items()
        if not briefly:
            yield from self._left_unsettled()


def _call() -> Call | None:
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
    return call if call is not None and call.goes_on() else None


def current_message() -> Message[Any] | None:
    """The message that the handler around this has; None outside of handlers, and where the handler
    has a batch.

    A handler's tasks and threads have it, too, until the handler has returned and the message has
    its verdict. If none of them asks in the first calls of a channel, the first one that asks later
    gets None, and so do those of the calls in flight then. Calls that begin 5 ms later have an
    answer.

    The payload is decoded anew where the handler takes it instead of the message.
    """
    call = _call()
    message = None if call is None or call.is_batch else call.messages[0]
    return message if isinstance(message, Message) else None


def current_batch() -> Batch[Any] | None:
    """The batch that the handler around this has, of the messages of this attempt; else as
    :func:`current_message`.
    """
    call = _call()
    if call is None or not call.is_batch:
        return None
    return Batch(message for message in call.messages if isinstance(message, Message))


def fields_of_call() -> dict[str, Any]:
    """What a log line says of where it was written: nothing outside of handlers. Of a batch, its
    first record.
    """
    call = _call()
    if call is None:
        return {}
    first = call.messages[0]
    # For the type checker.
    assert isinstance(first, Message)  # noqa: S101
    fields = {
        "channel": first.channel,
        "topic": one_line(first.topic),
        "partition": first.partition,
    }
    fields["offset"] = first.offset
    key = first.record.key
    if call.is_batch:
        fields["records"] = len(call.messages)
    elif key is not None:
        text = key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
        fields["key"] = one_line(text, limit=LONGEST_KEY)
    return fields
