"""Makes what handlers return, yield or send events of an outbox: rows of their transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any
from uuid import uuid4

from reactive_kafka.errors import CheckpointError, ConfigError
from reactive_kafka.outgoing.outgoing_channel import AroundSend, OutgoingChannel
from reactive_kafka.outgoing.output_routing import OutputRouting, Prepared
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.outbox import OUTBOX_CALL, OutboxEvent, OutboxTransaction
from reactive_kafka.verdicts.unawaited import awaited_or_reported

BeginTransaction = Callable[[], AbstractAsyncContextManager[Any]]


class OutboxOutputs:
    """Stores the results of one handler as rows of the transaction that settles its records.

    It has the methods of :class:`~reactive_kafka.outgoing.handler_outputs.Outputs` that workers
    call. A transaction that the handler has opened is committed when the handler has returned, so
    that what it returns is part of it. If it has opened none, its results get one.
    """

    is_quick = False

    def __init__(
        self,
        channels: Sequence[OutgoingChannel],
        *,
        yields: bool,
        around: AroundSend | None = None,
        returns: Any = Any,
    ) -> None:
        self._routing = OutputRouting(channels, yields=yields, around=around, returns=returns)

    def around(self, call: Call) -> Call:
        """Return *call*, which calls the handler and sends its results, with its transaction."""

        async def called(given: Any) -> Any:
            handler_call = OutboxHandlerCall(self._routing, is_batch=isinstance(given, Batch))
            token = OUTBOX_CALL.set(handler_call)
            try:
                result = await call(given)
                await handler_call.commit()
            except BaseException as error:
                await handler_call.roll_back(error)
                raise
            finally:
                OUTBOX_CALL.reset(token)
            return result

        return called

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Return False: a transaction takes a wait."""
        return False

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Store the result of a message, and settle the message."""
        await self._store(result, (message,), message.transaction, message.record)
        if is_open(message):
            # There was nothing to store.
            message.ack()

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Store the result of a batch; the caller settles what is still open."""
        await self._store(result, batch, batch.transaction)

    async def write(self, result: Any, message: Message[Any]) -> None:
        """Refuse: a broadcast has no transaction, and start-up says so.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("a broadcast cannot write to an outbox")

    async def _store(
        self,
        result: Any,
        messages: Sequence[Message[Any]],
        begin: BeginTransaction,
        source: RawRecord | None = None,
    ) -> None:
        handler_call = OUTBOX_CALL.get()
        # Workers call this inside of around().
        assert isinstance(handler_call, OutboxHandlerCall)  # noqa: S101
        settled = []
        if not handler_call.has_transaction:
            settled = [message for message in messages if not is_open(message)]
        try:
            await self._routing.send_all(result, partial(handler_call.put, source))
            await handler_call.finish(begin)
        except BaseException as error:
            # The others are not settled, and are handled again.
            for message in settled:
                verdicts_of(message.tracker).channel.output_lost(message, error)
            raise


class OutboxHandlerCall:
    """One call of a handler that sends to an outbox, with the transaction that it has opened.

    It is an :class:`~reactive_kafka.verdicts.outbox.OutboxCall`.

    Args:
        is_batch: The handler was called with a batch: what it sends is made of no single record,
            also if there is only one.
    """

    def __init__(self, routing: OutputRouting, *, is_batch: bool) -> None:
        self._routing = routing
        self._is_batch = is_batch
        self.task = asyncio.current_task()
        # The transaction that the task of the call has opened last, until it is committed.
        self._block: _Block | None = None
        # Events that were sent before there was a transaction.
        self._pending: list[OutboxEvent] = []

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open, which is rolled back if the call fails."""
        return self._block is not None

    def around(self, transaction: OutboxTransaction) -> _Block:
        """Return the block that the handler enters in place of *transaction*."""
        return _Block(self, transaction)

    async def put(self, source: RawRecord | None, value: Any) -> bool:
        """Send one value that the handler has returned or yielded; False: more may follow."""
        await self._routing.send(value, source, self._put_prepared)
        return False

    async def send(self, value: Any, transaction: OutboxTransaction) -> None:
        """Make a value an event of an open transaction."""

        async def put(prepared: Prepared) -> None:
            await transaction.add(events_of(prepared))

        source = None if self._is_batch else transaction.source
        await self._routing.send(value, source, put)

    async def _put_prepared(self, prepared: Prepared) -> None:
        events = events_of(prepared)
        if self._block is None:
            self._pending += events
        else:
            await self._block.transaction.add(events)

    async def begin(self, block: _Block) -> None:
        """The task of the call has opened a transaction."""
        self._block = block
        if self._pending:
            pending = self._pending
            self._pending = []
            await block.transaction.add(pending)

    def forget(self, block: _Block) -> None:
        """A transaction has been rolled back."""
        if self._block is block:
            self._block = None

    async def finish(self, begin: BeginTransaction) -> None:
        """The handler has returned, and its values are sent: commit them.

        Args:
            begin: Opens a transaction of the records, if the handler has opened none.
        """
        if self._pending and self._block is None:
            async with begin():
                pass
        await self.commit()

    async def commit(self) -> None:
        """Commit the transaction whose block the handler has left. Raises as its end does."""
        block = self._block
        if block is None or not block.is_left:
            return
        self._block = None
        await block.transaction.__aexit__(None, None, None)

    async def roll_back(self, error: BaseException) -> None:
        """Roll back the transaction whose block the handler has left, for *error*."""
        block = self._block
        self._block = None
        if block is not None and block.is_left:
            await block.transaction.__aexit__(type(error), error, error.__traceback__)


class _Block:
    """The block of a transaction in the code of a handler.

    In the task of the call the commit waits for the handler's return. In a task that the handler
    has started, the block's end commits, as it does without an outbox.
    """

    def __init__(self, call: OutboxHandlerCall, transaction: OutboxTransaction) -> None:
        self.transaction = transaction
        self.is_left = False
        self._call = call
        self._is_of_call = False

    async def __aenter__(self) -> Any:
        call = self._call
        self._is_of_call = asyncio.current_task() is call.task
        if self._is_of_call:
            # A batch may have a transaction for each of its messages.
            await call.commit()
        connection = await self.transaction.__aenter__()
        connection.send = self.send
        if self._is_of_call:
            try:
                await call.begin(self)
            except BaseException as error:
                await self.__aexit__(type(error), error, error.__traceback__)
                raise
        return connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self.is_left = True
        if error is None and self._is_of_call:
            return None
        self._call.forget(self)
        return await self.transaction.__aexit__(kind, error, trace)

    @awaited_or_reported("tx.send()")
    async def send(self, value: Any) -> None:
        """Send a value, or a Record, with the transaction.

        Raises:
            EncodeError, RejectedRecordError, ConfigError: It cannot be sent.
            CheckpointError: The block is over.
        """
        if self.is_left:
            raise CheckpointError("tx.send() after the block of its transaction")
        await self._call.send(value, self.transaction)


def events_of(prepared: Prepared) -> list[OutboxEvent]:
    """Return the events of prepared records, each with a new id."""
    events = []
    for channel, outgoing in prepared:
        # Start-up refuses outboxes of other channels.
        assert isinstance(channel, OutgoingChannel)  # noqa: S101
        events.append(channel.event(uuid4().hex, outgoing))
    return events
