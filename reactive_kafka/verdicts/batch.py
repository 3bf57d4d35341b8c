"""Batches of messages, as handlers get them."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count, repeat
from typing import Any, Generic, NamedTuple, TypeVar, overload

from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.message import Message, new_message

T = TypeVar("T")


class Piece(NamedTuple):
    """Records of one partition that arrived one after the other, and what handlers get of them.

    Attributes:
        first: The arrival number of the first record.
        records: A sequence of raw records.
        payloads: The decoded value of each record.
        messages: Empty, unless the messages were made before, to decode their keys.
    """

    tracker: OffsetTracker
    first: int
    records: Any
    payloads: list[Any]
    messages: list[Message[Any]]


def undecoded(tracker: OffsetTracker, first: int, records: Sequence[RawRecord]) -> Piece:
    """Return the piece of these records for a handler that takes their values as they are."""
    return Piece(tracker, first, records, [record.value for record in records], [])


class Batch(Sequence[Message[T]], Generic[T]):
    """At least one message, of one or more partitions; the messages of a partition are in order.

    Each message may be settled by itself. ``ack`` and ``nack`` apply to those without a verdict.
    """

    __slots__ = ("_made", "_pieces", "_trace")

    def __init__(self, messages: Iterable[Message[T]]) -> None:
        # What the channel's watch keeps with the batch.
        self._trace: object = None
        # None: they have to be made from the pieces.
        self._made: tuple[Message[T], ...] | None = tuple(messages)
        self._pieces: Sequence[Piece] = ()

    @property
    def _messages(self) -> tuple[Message[T], ...]:
        # They are made when one is asked for: making a message is a third of what a record costs,
        # and many handlers read payloads only.
        if self._made is None:
            messages: list[Message[T]] = []
            for tracker, first, records, payloads, made in self._pieces:
                if made:
                    messages.extend(made)
                else:
                    messages.extend(
                        map(new_message, payloads, records, repeat(tracker), count(first))
                    )
            self._made = tuple(messages)
        return self._made

    @property
    def payloads(self) -> list[T]:
        """The payloads, in the messages' order."""
        if self._made is None:
            return [payload for piece in self._pieces for payload in piece.payloads]
        return [message.payload for message in self._made]

    def ack(self) -> Future[bool]:
        """Ack every message without a verdict; True if that was at least one."""
        return self._ack(self._messages)

    def nack(self, reason: BaseException) -> Future[bool]:
        """Nack every message without a verdict; True if that was at least one."""
        return self._same_verdict(self._messages, lambda message: message.nack(reason))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return a transaction for the whole batch; see ``Message.transaction``."""
        messages = self._messages
        hook = verdicts_of(messages[0].tracker).channel.hook
        return hook.transaction(messages, is_batch=True)

    def ack_up_to(self, message: Message[T]) -> Future[bool]:
        """Ack *message* and those before it in this batch, of every partition.

        The future is True if that was at least one.

        Raises:
            ValueError: The message is not in this batch.
        """
        for position, candidate in enumerate(self._messages):
            # By identity: messages of the same content are not the same message.
            if candidate is message:
                up_to_message = self._messages[: position + 1]
                return self._ack(up_to_message)
        raise ValueError(f"{message!r} is not in this batch")

    def _ack(self, messages: Sequence[Message[T]]) -> Future[bool]:
        answer = self._same_verdict(
            messages, lambda message: verdicts_of(message.tracker).ack(message.index)
        )
        watch = verdicts_of(messages[0].tracker).channel.watch
        if watch is not None:
            watch.acked_together(messages, answer, self._trace)
        return answer

    def _same_verdict(
        self, messages: Sequence[Message[T]], settle: Callable[[Message[T]], Future[bool]]
    ) -> Future[bool]:
        return verdicts_of(messages[0].tracker).channel.same_verdict(messages, settle)

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message[T], ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._messages[index]

    def __len__(self) -> int:
        if self._made is None:
            return sum(len(piece.records) for piece in self._pieces)
        return len(self._made)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} messages>"


def batch_of(pieces: Sequence[Piece]) -> Batch[Any]:
    """Return the batch of what was read; its messages are made when one is asked for."""
    batch: Batch[Any] = Batch(())
    batch._made = None
    batch._pieces = pieces
    return batch


def keep_batch_trace(batch: Batch[Any], trace: object) -> None:
    """Keep with a batch what the channel's watch gets back when the batch is acked."""
    batch._trace = trace


def ack_returned_batch(batch: Batch[Any]) -> None:
    """Ack what is open of a batch because its handler has returned. As ``ack_returned``."""
    messages = batch._messages
    channel = verdicts_of(messages[0].tracker).channel
    answers = [verdicts_of(message.tracker).settle(message.index) for message in messages]
    if channel.watch is not None:
        channel.watch.acked_together(messages, channel.futures.any_of(answers), batch._trace)


def settle_all(messages: Sequence[Message[Any]]) -> None:
    """Settle those without a verdict, at once.

    A batch as it was read is settled by its ranges, without making its messages.
    """
    if isinstance(messages, Batch) and messages._pieces:
        for piece in messages._pieces:
            piece.tracker.settle_range(piece.first, piece.first + len(piece.records))
        return
    for message in messages:
        message.tracker.settle(message.index)
