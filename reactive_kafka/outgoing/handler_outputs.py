"""Sends what handlers and sources return or yield, and settles the incoming messages."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from reactive_kafka.errors import (
    BrokerError,
    ConfigError,
    EncodeError,
    RejectedRecordError,
    text_of,
)
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.outgoing.batch_origins import BatchOrigins, names_origins
from reactive_kafka.outgoing.handler_records import AckingRecord, HandlerRecord
from reactive_kafka.outgoing.outgoing_channel import AroundSend, OutgoingChannel, sender_of
from reactive_kafka.outgoing.output_routing import OutputRouting, Prepared
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt
from reactive_kafka.outgoing.queue.writer import settle
from reactive_kafka.outgoing.target import CalledOffError, LeftError, Target
from reactive_kafka.outgoing.transactions.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.transactions.positions import aborted
from reactive_kafka.outgoing.transactions.transaction import Transaction
from reactive_kafka.records import RawRecord, Record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import ack_range, verdicts_of
from reactive_kafka.verdicts.ageing import HOLDER, not_ageing, not_working
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import Message, new_message
from reactive_kafka.verdicts.value_origins import handler_done, with_other_handlers


class Outputs:
    """Sends the results of one handler or source to *channels*.

    Args:
        settles: A message is acked when all its records are written, and nacked when one fails.
        yields, around, returns: As of :class:`OutputRouting`.
    """

    def __init__(
        self,
        channels: Sequence[Target],
        *,
        settles: bool,
        yields: bool,
        around: AroundSend | None = None,
        returns: Any = Any,
    ) -> None:
        self._routing = OutputRouting(channels, yields=yields, around=around, returns=returns)
        self._settles = settles
        self._yields = yields
        self._waits = all(channel.settings.wait_for_write for channel in channels)
        # The one channel of the fast path, which has no wait, no generator and no middleware.
        self._only: OutgoingChannel | None = None
        if len(channels) == 1 and not (self._waits or yields or around is not None):
            channel = channels[0]
            if isinstance(channel, OutgoingChannel):
                self._only = channel
        # A value in a memory channel is with another handler, and its record ages there.
        self._ages_on = any(not isinstance(channel, OutgoingChannel) for channel in channels)

    @property
    def is_quick(self) -> bool:
        """Whether :meth:`at_once` sends most results."""
        return self._only is not None

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Send the result of a record if that takes no wait; False if nothing was done.

        Args:
            record: The incoming record, with the arrival number *index* of *tracker*.

        Raises:
            EncodeError, RejectedRecordError: It cannot be sent, which is a failure of the handler.
        """
        # The fast path of a chain. The general path does the same in several coroutines, each of
        # which costs as much as all of this.
        channel = self._only
        if channel is None:
            return False
        if result is None:
            if self._settles:
                ack_range(tracker, index, index + 1)
            return True
        queued = AckingRecord() if self._settles else HandlerRecord()
        queued.tracker = tracker
        queued.index = index
        queued.record = record
        queued.is_over = False
        if type(result) is bytes and channel.is_plain and not record.headers:
            queued.value = result
            queued.key = None
            queued.timestamp_ms = None
            queued.headers = ()
            if not channel.writer.accept(queued, channel.topic):
                return False
        elif not self._prepared_at_once(channel, result, queued):
            return False
        if self._settles:
            tracker.hand_over(index)
        return True

    def _prepared_at_once(
        self, channel: OutgoingChannel, result: Any, queued: HandlerRecord
    ) -> bool:
        """Encode a single record and hand it to the writer; False if nothing was done."""
        records = self._routing.records_of(result)
        if len(records) != 1 or not channel.writer.has_room:
            return False
        (sent,) = records
        if isinstance(sent, Record) and sent.channel is not None:
            return False
        try:
            topic, in_bytes, partition = channel.prepare(sent, queued.record)
        except SchemaMissing:
            return False
        except BaseException as error:
            message = new_message(None, queued.record, queued.tracker, queued.index)
            _report_lost((message,), error)
            raise
        queued.value = in_bytes.value
        queued.key = in_bytes.key
        queued.headers = in_bytes.headers
        queued.timestamp_ms = in_bytes.timestamp_ms
        if partition is not None or not channel.writer.accept(queued, topic):
            channel.writer.put_now(queued, topic, partition)
        return True

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Send the result of a message, which is acked when all its records are written.

        None sends nothing. With ``wait_for_write = false`` this returns when there is room for the
        records, and the ack follows.

        Raises:
            EncodeError, RejectedRecordError: A record cannot be sent, which is a failure of the
                handler.
        """
        try:
            if self._waits:
                await self._write(result, message.record)
                if self._settles:
                    with not_ageing():
                        await message.ack()
            else:
                await self._answer_when_written(result, message)
        except BaseException as error:
            if self._is_of_output(error):
                _report_lost((message,), error)
            raise

    async def _answer_when_written(self, result: Any, message: Message[Any]) -> None:
        finish = _settle if self._settles else _report_failure
        receipt = CallbackReceipt(partial(finish, message))
        try:
            await self._put_all(result, message.record, receipt)
        except BaseException:
            receipt.void()
            raise
        if self._settles:
            _handler_returned()
        receipt.seal()

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Send the result of a batch; returns when all is written, and the caller settles it.

        A message that a refused Record names as its origin is nacked, and the others are written.
        """
        try:
            await self._write(result, batch=batch if self._settles else None)
        except BaseException as error:
            if self._is_of_output(error):
                _report_lost(batch, error)
            raise

    def _is_of_output(self, error: BaseException) -> bool:
        """Whether an error means that a record could not be sent.

        A generator runs while its values are sent, so an error may also be its own.
        """
        return not self._yields or isinstance(error, EncodeError | BrokerError | ConfigError)

    async def write(self, result: Any, message: Message[Any]) -> None:
        """Send the result of a message, and settle nothing. As :meth:`_write`."""
        await self._write(result, message.record)

    async def _write(
        self, result: Any, source: RawRecord | None = None, batch: Batch[Any] | None = None
    ) -> None:
        """Send a result, or all that a generator yields; returns when the brokers have it.

        After a failure nothing more is sent. What was written by then stays.

        Args:
            source: The incoming record that the result was made of.
            batch: The messages that Records may name as their origins. None: origins do not count.

        Raises:
            BaseException: The first failure.

        Cancellation:
            Records whose write has not begun are not written.
        """
        done: Future[None] = asyncio.get_running_loop().create_future()
        receipt = CallbackReceipt(partial(settle, done))
        origins = None if batch is None else BatchOrigins(batch, receipt, _fail_origin)
        try:
            await self._put_all(result, source, receipt, origins)
            if origins is not None:
                origins.seal()
            receipt.seal()
            with self._waiting_for_writes():
                await done
        except LeftError as left:
            await left.leave()
        finally:
            receipt.void()
            if origins is not None:
                origins.void()
            if done.done() and not done.cancelled():
                # If the function raised by itself this error is not looked at, and asyncio would
                # log that.
                done.exception()

    @contextmanager
    def _waiting_for_writes(self) -> Iterator[None]:
        """Stop the clock of the handler's records, which wait for a broker now.

        If values went to a memory channel, the clock runs while its handler has them. In either
        case the wait does not count as time of the call.
        """
        holder = HOLDER.get()
        if not self._ages_on or holder is None:
            with not_ageing():
                yield
            return
        held = holder.held(briefly=True)
        with not_working(), with_other_handlers(held, asyncio.get_running_loop().time):
            yield

    async def put(self, value: Any, then: Callable[[BaseException | None], None]) -> None:
        """Send one value when there is room for it; *then* is called with its outcome."""
        receipt = CallbackReceipt(then)
        await self._routing.send(value, None, partial(_put, receipt))
        receipt.seal()

    async def _put_all(
        self,
        result: Any,
        source: RawRecord | None,
        receipt: CallbackReceipt,
        origins: BatchOrigins | None = None,
    ) -> None:
        async def put(value: Any) -> bool:
            if origins is None or not names_origins(value):
                await self._routing.send(value, source, partial(_put, receipt))
                return receipt.is_over
            # One by one, so that a record that cannot be sent holds up no other.
            for record in self._routing.records_of(value):
                if names_origins(record):
                    await origins.send(record, partial(self._send, record, source))
                else:
                    await self._send(record, source, receipt)
            # True: a record has failed already.
            return receipt.is_over

        await self._routing.send_all(result, put)

    async def _send(self, value: Any, source: RawRecord | None, receipt: CallbackReceipt) -> None:
        await self._routing.send(value, source, partial(_put, receipt))


class TransactionalOutputs:
    """Sends the results of one handler in transactions with the positions of its records.

    It has the methods of :class:`Outputs` that workers call.
    """

    is_quick = False

    def __init__(
        self,
        channels: Sequence[Target],
        *,
        yields: bool,
        transactions: ExactlyOnce,
        around: AroundSend | None = None,
        returns: Any = Any,
    ) -> None:
        self._routing = OutputRouting(channels, yields=yields, around=around, returns=returns)
        self._transactions = transactions

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Return False: a transaction takes a wait."""
        return False

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Commit the result with the position of the message. As :meth:`ExactlyOnce.run`."""
        await self._transactions.run((message,), partial(self._produce, result, message.record))
        # If nothing was sent there was no transaction: the commit on the interval stores it.
        verdicts_of(message.tracker).settle(message.index)

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Commit the result with the positions of the batch. As :meth:`ExactlyOnce.run`."""
        await self._transactions.run(batch, partial(self._produce, result, None))

    async def write(self, result: Any, message: Message[Any]) -> None:
        """Refuse: a broadcast cannot be exactly once, and start-up says so.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("a broadcast cannot write in transactions")

    async def _produce(
        self, result: Any, source: RawRecord | None, transaction: Transaction
    ) -> None:
        async def put_prepared(prepared: Prepared) -> None:
            records = ((sender_of(channel), outgoing) for channel, outgoing in prepared)
            try:
                with not_ageing():
                    await transaction.put(records)
            except RejectedRecordError:
                raise
            except BrokerError as error:
                # It is no error of the handler, so it must not nack the message.
                raise aborted(text_of(error)) from error

        async def put(value: Any) -> bool:
            await self._routing.send(value, source, put_prepared)
            return False

        await self._routing.send_all(result, put)


async def _put(receipt: CallbackReceipt, prepared: Prepared) -> None:
    for channel, outgoing in prepared:
        if channel.writer.has_room:
            await channel.writer.put(outgoing, receipt)
            continue
        # The wait for room is not the handler's time.
        with not_ageing():
            await channel.writer.put(outgoing, receipt)


def _handler_returned() -> None:
    """Stop the clock of the handler's records for good: they only wait for a broker now."""
    holder = HOLDER.get()
    if holder is not None:
        handler_done(holder.held(briefly=True), asyncio.get_running_loop().time())


def _settle(message: Message[Any], error: BaseException | None) -> None:
    """Settle a message whose records are written, or one of whose records has failed."""
    if error is None:
        message.ack()
        return
    nacks = verdicts_of(message.tracker).channel.nacks
    if isinstance(error, CalledOffError):
        nacks.left(message, error)
        return
    _report_lost((message,), error)
    if isinstance(error, LeftError):
        nacks.left(message, error)
    else:
        nacks.failed(message, error)


def _fail_origin(message: Message[Any], error: BaseException) -> None:
    """Nack a message of a batch, one of whose records is refused."""
    _report_lost((message,), error)
    verdicts_of(message.tracker).channel.nacks.failed(message, error)


def _report_failure(message: Message[Any], error: BaseException | None) -> None:
    """Report a failed record of a message that its records do not settle."""
    if error is not None and not isinstance(error, CalledOffError):
        _report_lost((message,), error)


def _report_lost(messages: Iterable[Delivery], error: BaseException) -> None:
    """Report that records of these messages are not written.

    If a message is settled all the same, its records are lost.
    """
    for message in messages:
        verdicts_of(message.tracker).channel.output_lost(message, error)
