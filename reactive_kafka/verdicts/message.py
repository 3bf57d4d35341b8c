"""The message that handlers get: a record with ack and nack."""

from __future__ import annotations

from asyncio import Future
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from reactive_kafka.formats.cloudevents import CloudEvent
from reactive_kafka.formats.cloudevents_read import event_of
from reactive_kafka.records import EPOCH, Headers, RawRecord, Record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.delivery_hook import MessageCheckpoint

T = TypeVar("T")


class Message(Delivery, Generic[T]):
    """One record, with ack and nack.

    The first verdict counts. A later one has no effect, nor has one after the partition was taken
    away. ``headers`` and ``timestamp`` are computed when they are read.

    Attributes:
        payload: The value, decoded into the type that the handler asks for.
        record: The raw record: ``offset``, ``timestamp`` (ms), ``key``, ``value``, ``headers``, all
            undecoded.
    """

    __slots__ = ("_attempt", "_cloud_event", "_key", "payload")

    payload: T

    @property
    def topic(self) -> str:
        """The topic it was read from."""
        return self.tracker.partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition it was read from."""
        return self.tracker.partition.partition

    @property
    def key(self) -> Any:
        """The key: bytes or None, or what ``key_deserializer`` makes of it.

        Raises:
            DecodeError: The key does not fit the deserializer. No handler gets such a message.
        """
        decode = verdicts_of(self.tracker).channel.decode_key
        if decode is None:
            return self.record.key
        # The slot is unset until the first read: there is no __init__, and most handlers never ask.
        try:
            return self._key
        except AttributeError:
            pass
        self._key: Any = decode(self.record)
        return self._key

    @property
    def cloud_event(self) -> CloudEvent | None:
        """The record as a CloudEvent, with the payload as its data; None if it is no CloudEvent.

        Its attributes are read at the first access. With ``cloud_events = false`` it is None.

        Raises:
            DecodeError: The CloudEvent is invalid. No handler gets such a message.
        """
        channel = verdicts_of(self.tracker).channel
        if not channel.has_events:
            return None
        try:
            return self._cloud_event
        except AttributeError:
            pass
        event = event_of(self.record, self.payload, is_demanded=channel.has_events_only)
        self._cloud_event: CloudEvent | None = event
        return event

    @property
    def headers(self) -> Headers:
        """The headers, in their order on the wire."""
        return Headers(self.record.headers)

    @property
    def timestamp(self) -> datetime | None:
        """When it was created, or appended, depending on the topic; with a time zone.

        None if the record has no valid time.
        """
        milliseconds = self.record.timestamp
        if milliseconds is None or milliseconds < 0:
            return None
        try:
            return EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError:
            return None

    @property
    def channel(self) -> str:
        """The name of the channel it came through."""
        return verdicts_of(self.tracker).channel.name

    @property
    def attempt(self) -> int:
        """The number of this call of the handler: 1, or more in in-place retries."""
        try:
            return self._attempt
        except AttributeError:
            return 1

    @attempt.setter
    def attempt(self, attempt: int) -> None:
        self._attempt: int = attempt

    def ack(self, metadata: str | None = None) -> Future[bool]:
        """Say that the work is done. It may be called from any thread.

        The ack counts even if the future is ignored.

        Args:
            metadata: A string to store with the position that is committed next, whether or not
                this ack moves it. It is not stored with later positions.

        Raises:
            ValueError: At the call: the metadata is longer than 4,096 UTF-16 units, or has a NUL.
                The message stays unacknowledged.
            CheckpointError: The message is in an open transaction, which acks it at its end.

        Returns:
            A future: True if this call settled the message, False if it had a verdict or its
                partition is gone.
            With ``throttled`` it is complete at once. With ``latest`` it is complete when the
            position that can be committed now is confirmed, or at once if a record before this one
            is unsettled. Between a revocation and the next assignment it completes at that
            assignment: True if the partition is retained.

        Cancellation:
            Safe. The future is this caller's own; the verdict counts all the same.
        """
        verdicts = verdicts_of(self.tracker)
        answer = verdicts.ack(self.index, metadata)
        watch = verdicts.channel.watch
        if watch is not None:
            watch.acked(self, answer)
        return answer

    def nack(self, reason: BaseException, *, record: Record | None = None) -> Future[bool]:
        """Say that the work failed: the channel's failure strategy decides about the record.

        It may be called from any thread. The nack counts even if the future is ignored.

        Args:
            reason: Why it failed; shown in the log and in health.
            record: What to write instead of the record, if the strategy writes it elsewhere: the
                value, and whatever else is set. Bytes and None are written as they are, a string as
                UTF-8, anything else as JSON.

        Raises:
            EncodeError: At the call: the record given cannot be written. The message stays without
                a verdict.
            CheckpointError: The message is in an open transaction: raise an error in its block
                instead.

        Returns:
            A future: True if this call gave the verdict, False if it had one or the partition is
                gone.
            With ``fail`` and ``ignore`` it is complete at once. With dead letters and delayed
            retries it is complete when the broker has the record, and False if the partition went
            before that.

        Cancellation:
            Safe. The future is this caller's own. The nack is carried out all the same, and the
            partition's next record waits for that.
        """
        return verdicts_of(self.tracker).channel.nacks.nack(self, reason, record)

    def retry_later(self, delay: float | str | timedelta) -> Future[bool]:
        """Settle the record by writing it to a retry topic: it comes again later.

        Neither ``max_retries`` nor ``timeout`` of the channel's delayed retries limits that, but it
        counts as one of the retries for the next failure.

        Args:
            delay: How long at least: seconds, a text such as ``"10m"``, or a timedelta, as for
                :class:`reactive_kafka.Later`. The retry topic with the shortest delay that is long
                enough takes the record; a time that has passed already is a short delay.

        Raises:
            ValueError: At the call: it is no time, the channel has no delayed retries, or all their
                delays are shorter. The message stays without a verdict.
            CheckpointError: The message is in an open transaction.

        Returns:
            A future: True if this call gave the verdict, once the broker has the record; False as
                for :meth:`nack`.

        Cancellation:
            Safe, as for :meth:`nack`.
        """
        return verdicts_of(self.tracker).channel.nacks.retry_later(self, delay)

    def committed(self) -> Future[None]:
        """Return a future that completes once the committed position has passed this message.

        Raises:
            NotOwnerError: When awaited: the partition was taken away first, the application has
                ended, or the channel has failed; what it failed for is the error's cause.
            ChannelClosedError: At the call: the channel commits nothing (``commit_strategy =
                "ignore"``), or nothing after the gap between two ranges of ``assign``.

        Cancellation:
            Safe. The future is this caller's own.
        """
        return verdicts_of(self.tracker).committed(self.record.offset)

    @property
    def checkpoint(self) -> MessageCheckpoint:
        """The state of its partition, with ``commit_strategy = "checkpoint"``.

        Raises:
            CheckpointError: The channel has no store, or handles a partition's records out of
                order.
        """
        return verdicts_of(self.tracker).channel.hook.checkpoint(self)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return a transaction of the checkpoint store, which acks the message at its end.

        What is written through the connection that it yields is stored together with the position
        after this message, or neither is. The block is not entered while the store is unavailable.
        If it raises, nothing is stored.

        If the handler sends to a channel with ``outbox = true``, the transaction is committed when
        the handler has returned, and an error behind the block rolls it back. What it returns, and
        what it passes to ``await connection.send(value)``, is stored with it and sent to Kafka
        later, at least once.

        Raises:
            CheckpointError: The channel's store has no transactions, or a record before this one is
                unsettled.
            NotOwnerError: The partition is not ours any more; nothing was stored.
            StoreAwayError: The store was unavailable, and stored nothing. A handler is called
                again; an application that iterates enters the block again.
        """
        return verdicts_of(self.tracker).channel.hook.transaction((self,))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ("index", "tracker")]

    def __repr__(self) -> str:
        return (
            f"<Message {self.tracker.partition} offset {self.record.offset} "
            f"of channel {self.channel!r}>"
        )


def ack_returned(message: Message[Any]) -> Future[bool]:
    """Ack a message because its handler has returned.

    Unlike an ack by hand it is never refused: a channel that is exactly once settles records whose
    handlers send nothing in this way.
    """
    verdicts = verdicts_of(message.tracker)
    answer = verdicts.settle(message.index)
    watch = verdicts.channel.watch
    if watch is not None:
        watch.acked(message, answer)
    return answer


def new_message(
    payload: Any, record: RawRecord, tracker: OffsetTracker, index: int
) -> Message[Any]:
    """Return the message of a record; *index* is its arrival number.

    The hot path of records repeats these lines instead of calling this. A call with arguments costs
    a tenth of a microsecond, which is also why the class has no ``__init__``.
    """
    message: Message[Any] = Message()
    message.payload = payload
    message.record = record
    message.tracker = tracker
    message.index = index
    return message
