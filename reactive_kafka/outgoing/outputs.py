"""What handlers and sources produce is sent to their outgoing channels; then the incoming message is settled."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import BrokerError, ConfigError, RejectedRecordError, text_of
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.outgoing.channel import OutgoingChannel, sender_of
from reactive_kafka.outgoing.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.memory import LeftError, Target
from reactive_kafka.outgoing.outbox import Gathering
from reactive_kafka.outgoing.positions import aborted
from reactive_kafka.outgoing.results import records_of
from reactive_kafka.outgoing.schemas import once_known
from reactive_kafka.outgoing.transactions import Transaction
from reactive_kafka.outgoing.waiting import Waiting
from reactive_kafka.outgoing.writer import settle
from reactive_kafka.records import RawRecord, Record, TopicPartition
from reactive_kafka.verdicts.message import Batch, Message, new_message
from reactive_kafka.verdicts.partition import ack_range, verdicts_of


class _Settling(Waiting):
    """The one record that a handler has made of an incoming one: it settles that."""

    __slots__ = ("index", "is_over", "record", "tracker")

    is_over: bool
    tracker: OffsetTracker
    index: int
    record: RawRecord

    def written(self, at: TopicPartition, offset: int) -> None:
        self.all_written((self,), at, offset)

    @classmethod
    def all_written(cls, waiting: Sequence[Waiting], at: TopicPartition, offset: int) -> None:
        # Lanes run in order, so what stands in a batch one after the other came so, too: it is settled as ranges.
        failed: BaseException | None = None
        for tracker, start, stop in _ranges(cast("Sequence[_Settling]", waiting)):
            try:
                ack_range(tracker, start, stop)
            except BaseException as error:  # the others are settled all the same
                failed = failed or error
        if failed is not None:
            raise failed

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.is_over = True
            verdicts_of(self.tracker).channel.failed(new_message(None, self.record, self.tracker, self.index), error)


def _ranges(waiting: Sequence[_Settling]) -> list[tuple[OffsetTracker, int, int]]:
    """The arrival numbers of those that are not over yet, from first to last (exclusive); they are over then."""
    found: list[tuple[OffsetTracker, int, int]] = []
    tracker: OffsetTracker | None = None
    start = stop = 0
    for one in waiting:
        if one.is_over:
            continue
        one.is_over = True
        if one.index == stop and one.tracker is tracker:
            stop += 1
            continue
        if tracker is not None:
            found.append((tracker, start, stop))
        tracker, start = one.tracker, one.index
        stop = start + 1
    if tracker is not None:
        found.append((tracker, start, stop))
    return found


class _Telling(Waiting):
    """A record that settles nothing: its channel has told what became of it."""

    __slots__ = ("is_over",)

    is_over: bool

    def written(self, at: TopicPartition, offset: int) -> None:
        self.is_over = True

    def fail(self, error: BaseException) -> None:
        self.is_over = True


def _settle(message: Message[Any], error: BaseException | None) -> None:
    """What was made of a message is written, or why it is not."""
    if error is None:
        message.ack()
    elif isinstance(error, LeftError):
        verdicts_of(message.tracker).channel.left(message, error)
    else:
        verdicts_of(message.tracker).channel.failed(message, error)


class Outputs:
    """Sends what one function returns or yields to each of *channels*; a :class:`Record` that names one, only there.

    *settles*: a message is acked when all that was made of it is written. *yields*: results are async generators.
    """

    def __init__(self, channels: Sequence[Target], *, settles: bool, yields: bool) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._settles = settles
        self._yields = yields
        self._waits = all(channel.settings.wait_for_write for channel in channels)
        only = channels[0] if len(channels) == 1 and not self._waits and not yields else None
        self._only = only if isinstance(only, OutgoingChannel) else None

    @property
    def is_quick(self) -> bool:
        """Whether most of what it sends takes no wait."""
        return self._only is not None

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Send what was made of a record where nobody waits for the write and there is room; False: nothing was done.

        EncodeError, RejectedRecordError: it cannot be sent, which is a failure of the handler.
        """
        # The plain case of a fast chain, without the coroutines of the general one, each of which costs as much as all
        # that is done here.
        channel = self._only
        if channel is None:
            return False
        if result is None:
            if self._settles:
                ack_range(tracker, index, index + 1)
            return True
        waiting: _Settling | _Telling
        if self._settles:
            waiting = _Settling()
            waiting.tracker = tracker
            waiting.index = index
            waiting.record = record
        else:
            waiting = _Telling()
        waiting.is_over = False
        if type(result) is bytes and channel.is_plain and not record.headers:
            waiting.value = result
            waiting.key = waiting.timestamp_ms = None
            waiting.headers = ()
            return channel.writer.take(waiting, channel.topic)
        records = records_of(result)
        if len(records) != 1 or not channel.writer.has_room:
            return False
        (made,) = records
        if isinstance(made, Record) and made.channel is not None:
            return False
        try:
            topic, out, partition = channel.prepare(made, record)
        except SchemaMissing:
            return False
        waiting.value, waiting.key, waiting.headers, waiting.timestamp_ms = out
        if partition is not None or not channel.writer.take(waiting, topic):
            channel.writer.put_now(waiting, topic, partition)
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
        receipt = Gathering(partial(_settle, message) if self._settles else lambda error: None)
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
        await self._put(await self._once_prepared(value), receipt)
        receipt.seal()

    async def _put_all(self, result: Any, source: RawRecord | None, receipt: Gathering) -> None:
        async def put(value: Any) -> bool:
            await self._put(await self._once_prepared(value, source), receipt)
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

    async def _once_prepared(self, result: Any, source: RawRecord | None = None) -> list[tuple[Target, Any]]:
        """As :meth:`_prepared`, when the registry has told how to write it."""
        try:
            return self._prepared(result, source)
        except SchemaMissing as still_to_come:
            missing = still_to_come
        return await once_known(partial(self._prepared, result, source), missing)

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

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
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
            prepared = await self._once_prepared(value, source)
            try:
                await transaction.put((sender_of(channel), outbound) for channel, outbound in prepared)
            except RejectedRecordError:
                raise
            except BrokerError as error:  # ours, and none of the handler's own
                raise aborted(text_of(error)) from error
            return False

        await self._each(result, put)
