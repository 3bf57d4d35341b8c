"""What handlers and sources produce is sent to their outgoing channels; then the incoming message is settled."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from reactive_kafka.errors import BrokerError, ConfigError, RejectedRecordError, text_of
from reactive_kafka.outgoing.channel import sender_of
from reactive_kafka.outgoing.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.memory import LeftError, Target
from reactive_kafka.outgoing.outbox import Gathering, Receipt
from reactive_kafka.outgoing.positions import aborted
from reactive_kafka.outgoing.results import records_of
from reactive_kafka.outgoing.transactions import Transaction
from reactive_kafka.outgoing.writer import settle
from reactive_kafka.records import RawRecord, Record
from reactive_kafka.verdicts.message import Batch, Message
from reactive_kafka.verdicts.partition import verdicts_of


class _Settling(Receipt):
    """Settles the message of which a handler has made one record."""

    __slots__ = ("_message",)

    def __init__(self, message: Message[Any]) -> None:
        super().__init__()
        self._message = message

    def told(self, error: BaseException | None) -> None:
        if error is None:
            self._message.ack()
        elif isinstance(error, LeftError):
            verdicts_of(self._message.tracker).channel.left(self._message, error)
        else:
            verdicts_of(self._message.tracker).channel.failed(self._message, error)


class _Telling(Receipt):
    """The receipt of a record that settles nothing: its channel has told what became of it."""

    __slots__ = ()

    def told(self, error: BaseException | None) -> None:
        pass


class Outputs:
    """Sends what one function returns or yields to each of *channels*; a :class:`Record` that names one, only there.

    *settles*: a message is acked when all that was made of it is written. *yields*: results are async generators.
    """

    def __init__(self, channels: Sequence[Target], *, settles: bool, yields: bool) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._settles = settles
        self._yields = yields
        self._waits = all(channel.settings.wait_for_write for channel in channels)
        self._only = channels[0] if len(channels) == 1 and not self._waits and not yields else None

    def at_once(self, result: Any, message: Message[Any]) -> bool:
        """Send one record where nobody waits for the write and there is room for it; False: nothing was done.

        EncodeError, RejectedRecordError: it cannot be sent, which is a failure of the handler.
        """
        # The plain case of a fast chain, without the coroutines of the general one, each of which costs as much as all
        # that is done here.
        channel = self._only
        if channel is None or not channel.writer.has_room:
            return False
        records = records_of(result)
        if len(records) != 1 or (isinstance(records[0], Record) and records[0].channel is not None):
            return False
        outbound = channel.prepare(records[0], message.record)
        channel.writer.put_now(outbound, _Settling(message) if self._settles else _Telling())
        return True

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Send what a handler made of a message, and ack the message once all of it is written; None sends nothing.

        With ``wait_for_write = false`` this returns when there is room for the records; the ack follows. EncodeError,
        RejectedRecordError: something cannot be sent, which is a failure of the handler.
        """
        if self._waits:
            await self.write(result, message.record)
            if self._settles:
                await message.ack()
            return
        receipt = Gathering((_Settling(message) if self._settles else _Telling()).told)
        try:
            await self._put_all(result, message.record, receipt)
        except BaseException:
            receipt.void()
            raise
        receipt.seal()

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Send what a handler made of a batch; returns when all of it is written, and the caller settles the batch."""
        await self.write(result)

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
            await done
        except LeftError as left:
            await left.leave()
        finally:
            receipt.void()
            if done.done() and not done.cancelled():
                done.exception()  # where the function itself has raised

    async def put(self, value: Any, then: Callable[[BaseException | None], None]) -> None:
        """Send one value when there is room for it; *then* hears what became of it."""
        receipt = Gathering(then)
        await self._put(self._prepared(value), receipt)
        receipt.seal()

    async def _put_all(self, result: Any, source: RawRecord | None, receipt: Gathering) -> None:
        async def put(value: Any) -> bool:
            await self._put(self._prepared(value, source), receipt)
            return receipt.is_over  # a record has failed already

        await self._each(result, put)

    async def _each(self, result: Any, put: Callable[[Any], Awaitable[bool]]) -> None:
        """Hand on the result, or each value that it yields until *put* says that it is enough."""
        if not self._yields:
            await put(result)
            return
        try:
            async for value in result:
                if await put(value):
                    return
        finally:
            await result.aclose()

    def _prepared(self, result: Any, source: RawRecord | None = None) -> list[tuple[Target, Any]]:
        # One that does not fit a channel is found before another channel has sent it.
        return [
            (channel, channel.prepare(value, source))
            for value in records_of(result)
            for channel in self._targets(value)
        ]

    def _targets(self, value: Any) -> Sequence[Target]:
        if isinstance(value, Record) and value.channel is not None:
            if value.channel not in self._channels:
                known = ", ".join(map(repr, self._channels))
                raise ConfigError(f"Record(channel={value.channel!r}): the handler sends to {known} only")
            return (self._channels[value.channel],)
        return tuple(self._channels.values())

    async def _put(self, prepared: Sequence[tuple[Target, Any]], receipt: Gathering) -> None:
        for channel, outbound in prepared:
            await channel.writer.put(outbound, receipt)


class TransactionalOutputs(Outputs):
    """Sends what one function makes of its records in one transaction with the positions behind them."""

    def __init__(self, channels: Sequence[Target], *, yields: bool, transactions: ExactlyOnce) -> None:
        super().__init__(channels, settles=True, yields=yields)
        self._transactions = transactions

    def at_once(self, result: Any, message: Message[Any]) -> bool:
        return False

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """As :meth:`ExactlyOnce.run`."""
        await self._transactions.run((message,), partial(self._produce, result, message.record))
        verdicts_of(message.tracker).settle(message.index)  # where nothing was sent; a tick commits it

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """As :meth:`ExactlyOnce.run`."""
        await self._transactions.run(batch, partial(self._produce, result, None))

    async def _produce(self, result: Any, source: RawRecord | None, transaction: Transaction) -> None:
        async def put(value: Any) -> bool:
            prepared = self._prepared(value, source)
            try:
                await transaction.put((sender_of(channel), outbound) for channel, outbound in prepared)
            except RejectedRecordError:
                raise
            except BrokerError as error:  # ours, and none of the handler's own
                raise aborted(text_of(error)) from error
            return False

        await self._each(result, put)
