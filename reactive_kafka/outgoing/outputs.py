"""What handlers and sources produce is sent to their outgoing channels; then the incoming message
is settled.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import (
    BrokerError,
    ConfigError,
    EncodeError,
    RejectedRecordError,
    text_of,
)
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.outgoing.channel import AroundSend, OutgoingChannel, sender_of
from reactive_kafka.outgoing.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.memory import LeftError, Target
from reactive_kafka.outgoing.outbox import Gathering
from reactive_kafka.outgoing.positions import aborted
from reactive_kafka.outgoing.results import check_value, promises_records, records_of
from reactive_kafka.outgoing.schemas import once_known
from reactive_kafka.outgoing.transactions import Transaction
from reactive_kafka.outgoing.waiting import Settling, Telling
from reactive_kafka.outgoing.writer import settle
from reactive_kafka.records import RawRecord, Record
from reactive_kafka.verdicts.acknowledger import ack_range, verdicts_of
from reactive_kafka.verdicts.ageing import HOLDER, not_ageing
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import Message, new_message
from reactive_kafka.verdicts.value_origins import handler_done, with_other_handlers

Put = Callable[[Any], Awaitable[bool]]
"""Sends one value; True: one of the records has failed, and no more values are wanted."""
Prepared = list[tuple[Target, Any]]
"""What a value has become for each channel."""
PutPrepared = Callable[[Prepared], Awaitable[None]]


def _tell_lost(messages: Iterable[Delivery], error: BaseException) -> None:
    """What was made of these is not written: where they are settled all the same, it never will
    be.
    """
    for message in messages:
        verdicts_of(message.tracker).channel.output_lost(message, error)


def _only_tell_lost(message: Message[Any], error: BaseException | None) -> None:
    """The same of a message that its outputs do not settle."""
    if error is not None:
        _tell_lost((message,), error)


def _settle(message: Message[Any], error: BaseException | None) -> None:
    """What was made of a message is written, or why it is not."""
    if error is not None:
        _tell_lost((message,), error)
    if error is None:
        message.ack()
    elif isinstance(error, LeftError):
        verdicts_of(message.tracker).channel.left(message, error)
    else:
        verdicts_of(message.tracker).channel.failed(message, error)


class Outputs:
    """Sends what one function returns or yields to each of *channels*; a :class:`Record` that names
    one, only there.

    *settles*: a message is acked when all that was made of it is written. *yields*: results are
      what runs a generator,
    and is given where to put each value. *around*: what the application has around each send.
    *returns*: the return annotation of the function; a list of Records that it promises may be
      empty, and is no record then.
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
        self._channels = {channel.name: channel for channel in channels}
        self._around = around
        self._records_of = partial(records_of, empty_is_none=promises_records(returns))
        self._settles = settles
        self._yields = yields
        self._waits = all(channel.settings.wait_for_write for channel in channels)
        is_plain = not self._waits and not yields and around is None
        only = channels[0] if len(channels) == 1 and is_plain else None
        self._only = only if isinstance(only, OutgoingChannel) else None
        # What goes to a memory channel is still with a handler of the application: its record ages
        # there.
        self._ages_on = any(not isinstance(channel, OutgoingChannel) for channel in channels)

    @property
    def is_quick(self) -> bool:
        """Whether most of what it sends takes no wait."""
        return self._only is not None

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Send what was made of a record where nobody waits for the write and there is room; False:
        nothing was done.

        EncodeError, RejectedRecordError: it cannot be sent, which is a failure of the handler.
        """
        # The plain case of a fast chain, without the coroutines of the general one, each of which
        # costs as much as all that is done here.
        channel = self._only
        if channel is None:
            return False
        if result is None:
            if self._settles:
                ack_range(tracker, index, index + 1)
            return True
        waiting: Settling | Telling
        if self._settles:
            waiting = Settling()
            waiting.tracker = tracker
            waiting.index = index
            waiting.record = record
        else:
            waiting = Telling()
            waiting.tracker = tracker
            waiting.index = index
            waiting.record = record
        waiting.is_over = False
        if type(result) is bytes and channel.is_plain and not record.headers:
            waiting.value = result
            waiting.key = waiting.timestamp_ms = None
            waiting.headers = ()
            if not channel.writer.take(waiting, channel.topic):
                return False
            if self._settles:
                tracker.hand_over(index)
            return True
        records = self._records_of(result)
        if len(records) != 1 or not channel.writer.has_room:
            return False
        (made,) = records
        if isinstance(made, Record) and made.channel is not None:
            return False
        try:
            topic, out, partition = channel.prepare(made, record)
        except SchemaMissing:
            return False
        except BaseException as error:
            _tell_lost((new_message(None, record, tracker, index),), error)
            raise
        waiting.value, waiting.key, waiting.headers, waiting.timestamp_ms = out
        if partition is not None or not channel.writer.take(waiting, topic):
            channel.writer.put_now(waiting, topic, partition)
        if self._settles:
            tracker.hand_over(index)
        return True

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Send what a handler made of a message, and ack the message once all of it is written;
        None sends nothing.

        With ``wait_for_write = false`` this returns when there is room for the records; the ack
        follows. EncodeError, RejectedRecordError: something cannot be sent, which is a failure of
        the handler.
        """
        try:
            await self._answer(result, message)
        except BaseException as error:
            if self._is_of_output(error):
                _tell_lost((message,), error)
            raise

    async def _answer(self, result: Any, message: Message[Any]) -> None:
        if self._waits:
            await self.write(result, message.record)
            if self._settles:
                await message.ack()
            return
        receipt = Gathering(partial(_settle if self._settles else _only_tell_lost, message))
        try:
            await self._put_all(result, message.record, receipt)
        except BaseException:
            receipt.void()
            raise
        if self._settles:
            self._handler_done()
        receipt.seal()

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Send what a handler made of a batch; returns when all of it is written, and the caller
        settles the batch.
        """
        try:
            await self.write(result)
        except BaseException as error:
            if self._is_of_output(error):
                _tell_lost(batch, error)
            raise

    def _is_of_output(self, error: BaseException) -> bool:
        """Whether an output could not be sent. A generator runs while it is sent, and may raise
        errors of its own.
        """
        return not self._yields or isinstance(error, EncodeError | BrokerError | ConfigError)

    async def write(self, result: Any, source: RawRecord | None = None) -> None:
        """Send a result, or all that an async generator yields; returns when the brokers have it.

        *source* is the incoming record that it was made of, if it is one.

        Raises the first failure, and begins nothing more then. What has been written by then stays.
        Cancellation: What has not been begun is not written.
        """
        done: Future[None] = asyncio.get_running_loop().create_future()
        receipt = Gathering(partial(settle, done))
        try:
            await self._put_all(result, source, receipt)
            receipt.seal()
            with self._waiting_for_writes():
                await done
        except LeftError as left:
            await left.leave()
        finally:
            receipt.void()
            if done.done() and not done.cancelled():
                # Where the function itself has raised.
                done.exception()

    def _waiting_for_writes(self) -> AbstractContextManager[None]:
        """Around a wait for all that a handler has made: its records do not age, or only with
        another handler.
        """
        holder = HOLDER.get()
        if not self._ages_on or holder is None:
            return not_ageing()
        return with_other_handlers(holder.held(briefly=True), asyncio.get_running_loop().time)

    def _handler_done(self) -> None:
        """The handler is done with its records for good: what is still to come is not its time."""
        holder = HOLDER.get()
        if holder is not None:
            handler_done(holder.held(briefly=True), asyncio.get_running_loop().time())

    async def put(self, value: Any, then: Callable[[BaseException | None], None]) -> None:
        """Send one value when there is room for it; *then* hears what became of it."""
        receipt = Gathering(then)
        await self._send(value, None, partial(self._put, receipt))
        receipt.seal()

    async def _put_all(self, result: Any, source: RawRecord | None, receipt: Gathering) -> None:
        async def put(value: Any) -> bool:
            await self._send(value, source, partial(self._put, receipt))
            # A record has failed already.
            return receipt.is_over

        await self._each(result, put)

    async def _each(self, result: Any, put: Put) -> None:
        """Hand on the result, or each value that is yielded."""
        await (result(put) if self._yields else put(result))

    async def _send(self, value: Any, source: RawRecord | None, put: PutPrepared) -> None:
        """Hand on what one value becomes."""
        if self._around is None:
            await put(await self._once_prepared(value, source))
            return
        for one in self._records_of(value):
            for channel in self._targets(one):
                await self._around(channel.name, one, partial(self._sent_as, channel, source, put))

    async def _sent_as(
        self, channel: Target, source: RawRecord | None, put: PutPrepared, record: Any
    ) -> None:
        """Hand on what the application's send middleware has made of a record."""
        check_value(record)
        prepare = partial(channel.prepare, record, source)
        try:
            prepared = prepare()
        except SchemaMissing as missing:
            still_to_come = missing
        else:
            await put([(channel, prepared)])
            return
        await put([(channel, await once_known(prepare, still_to_come))])

    async def _once_prepared(self, result: Any, source: RawRecord | None = None) -> Prepared:
        """As :meth:`_prepared`, when the registry has told how to write it."""
        try:
            return self._prepared(result, source)
        except SchemaMissing as still_to_come:
            missing = still_to_come
        return await once_known(partial(self._prepared, result, source), missing)

    def _prepared(self, result: Any, source: RawRecord | None = None) -> Prepared:
        # One that does not fit a channel is found before another channel has sent it.
        return [
            (channel, channel.prepare(value, source))
            for value in self._records_of(result)
            for channel in self._targets(value)
        ]

    def _targets(self, value: Any) -> Sequence[Target]:
        if isinstance(value, Record) and value.channel is not None:
            if value.channel not in self._channels:
                known = ", ".join(map(repr, self._channels))
                raise ConfigError(
                    f"Record(channel={value.channel!r}): the handler sends to {known} only"
                )
            return (self._channels[value.channel],)
        return tuple(self._channels.values())

    async def _put(self, receipt: Gathering, prepared: Prepared) -> None:
        for channel, outbound in prepared:
            if channel.writer.has_room:
                await channel.writer.put(outbound, receipt)
                continue
            with not_ageing():
                await channel.writer.put(outbound, receipt)


class TransactionalOutputs(Outputs):
    """Sends what one function makes of its records in one transaction with the positions behind
    them.
    """

    def __init__(
        self,
        channels: Sequence[Target],
        *,
        yields: bool,
        transactions: ExactlyOnce,
        around: AroundSend | None = None,
        returns: Any = Any,
    ) -> None:
        super().__init__(channels, settles=True, yields=yields, around=around, returns=returns)
        self._transactions = transactions

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        return False

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """As :meth:`ExactlyOnce.run`."""
        await self._transactions.run((message,), partial(self._produce, result, message.record))
        # Where nothing was sent; a tick commits it.
        verdicts_of(message.tracker).settle(message.index)

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """As :meth:`ExactlyOnce.run`."""
        await self._transactions.run(batch, partial(self._produce, result, None))

    async def _produce(
        self, result: Any, source: RawRecord | None, transaction: Transaction
    ) -> None:
        async def put_prepared(prepared: Prepared) -> None:
            try:
                with not_ageing():
                    await transaction.put(
                        (sender_of(channel), outbound) for channel, outbound in prepared
                    )
            except RejectedRecordError:
                raise
            except BrokerError as error:
                # Ours, and none of the handler's own.
                raise aborted(text_of(error)) from error

        async def put(value: Any) -> bool:
            await self._send(value, source, put_prepared)
            return False

        await self._each(result, put)
