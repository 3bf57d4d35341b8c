"""A batch of messages, as handlers get it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count, repeat
from typing import Any, Generic, NamedTuple, TypeVar, overload

from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.message import Message, new_message
from reactive_kafka.verdicts.partition import verdicts_of

T = TypeVar("T")


class Piece(NamedTuple):
    """Records of one partition that arrived one after the other, and what a handler gets of
    each.
    """

    tracker: OffsetTracker
    # The arrival number of the first one.
    first: int
    # A sequence of raw records.
    records: Any
    payloads: list[Any]
    # Those that were made to decode their keys; else empty.
    messages: list[Message[Any]]


def undecoded(tracker: OffsetTracker, first: int, records: Sequence[RawRecord]) -> Piece:
    """The piece of these records for a handler that takes their values as they are."""
    return Piece(tracker, first, records, [record.value for record in records], [])


class Batch(Sequence[Message[T]], Generic[T]):
    """At least one message, of one or more partitions, each partition's in order.

    Each message may be settled by itself; ``ack`` and ``nack`` apply to those without a verdict.
    """

    __slots__ = ("_made", "_pieces")

    def __init__(self, messages: Iterable[Message[T]]) -> None:
        self._made: tuple[Message[T], ...] | None = tuple(messages)
        self._pieces: Sequence[Piece] = ()

    @property
    def _messages(self) -> tuple[Message[T], ...]:
        # Made when one is asked for: a message is a third of what a record costs, and many handlers
        # read payloads only.
        if self._made is None:
            self._made = tuple(
                message
                for tracker, first, records, payloads, made in self._pieces
                for message in made
                or map(new_message, payloads, records, repeat(tracker), count(first))
            )
        return self._made

    @property
    def payloads(self) -> list[T]:
        """The payloads, in the messages' order."""
        if self._made is None:
            return [payload for piece in self._pieces for payload in piece.payloads]
        return [message.payload for message in self._made]

    def ack(self) -> Future[bool]:
        """Ack every message without a verdict; True if that was at least one."""
        return self._each(self._messages, lambda message: message.ack())

    def nack(self, reason: BaseException) -> Future[bool]:
        """Nack every message without a verdict, for the same reason; True if that was at least
        one.
        """
        return self._each(self._messages, lambda message: message.nack(reason))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """One transaction of the checkpoint store for the whole batch, as
        :meth:`Message.transaction` is for one.
        """
        return verdicts_of(self._messages[0].tracker).channel.hook.transaction(
            self._messages, is_batch=True
        )

    def ack_up_to(self, message: Message[T]) -> Future[bool]:
        """Ack *message* and those before it in this batch, of every partition; True if that was at
        least one.

        Raises:
            ValueError: The message is not in this batch.
        """
        last = next((at for at, one in enumerate(self._messages) if one is message), None)
        if last is None:
            raise ValueError(f"{message!r} is not in this batch")
        return self._each(self._messages[: last + 1], lambda message: message.ack())

    def _each(
        self, messages: Sequence[Message[T]], settle: Callable[[Message[T]], Future[bool]]
    ) -> Future[bool]:
        return verdicts_of(messages[0].tracker).channel.each(messages, settle)

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message[T], ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._messages[index]

    def __len__(self) -> int:
        return (
            sum(len(piece.records) for piece in self._pieces)
            if self._made is None
            else len(self._made)
        )

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} messages>"


def batch_of(pieces: Sequence[Piece]) -> Batch[Any]:
    """The batch of what was read, whose messages are made when one is asked for."""
    batch: Batch[Any] = Batch(())
    batch._made = None
    batch._pieces = pieces
    return batch


def settle_all(messages: Sequence[Message[Any]]) -> None:
    """Settle those without a verdict, at once: of a batch as it was read without making its
    messages.
    """
    pieces = messages._pieces if isinstance(messages, Batch) else ()
    for piece in pieces:
        piece.tracker.settle_range(piece.first, piece.first + len(piece.records))
    for message in () if pieces else messages:
        message.tracker.settle(message.index)
