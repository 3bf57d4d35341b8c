"""Emitters: many records in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

from reactive_kafka.errors import (
    BrokerError,
    ConfigError,
    OutcomeUnknownError,
    RejectedRecordError,
    text_of,
)
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.formats.sent_values import check_value
from reactive_kafka.outgoing.outgoing_channel import AroundSend, OutgoingChannel, sender_of
from reactive_kafka.outgoing.schema_wait import once_known
from reactive_kafka.outgoing.target import Target
from reactive_kafka.outgoing.transactions.positions import aborted
from reactive_kafka.outgoing.transactions.transaction import Transaction
from reactive_kafka.outgoing.transactions.transactional_writer import TransactionalWriter
from reactive_kafka.records import HeaderPairs, record_of
from reactive_kafka.tasks import HomeLoop
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.unawaited import awaited_or_reported

T = TypeVar("T")


class AtHome(Protocol):
    """Awaits a coroutine on the event loop of the application."""

    async def __call__(self, home: HomeLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T: ...


class EmitterTransaction:
    """Sends many records: all of them are written, or none. :meth:`Emitter.transaction` returns it.

    Readers with ``isolation_level = "read_committed"`` see the records when the block has ended. If
    it raises, they never see them. It is independent of the transaction of a handler that uses it.
    """

    def __init__(
        self,
        running: Callable[[], tuple[Target, HomeLoop]],
        at_home: AtHome,
        around: Callable[[], AroundSend | None],
    ) -> None:
        self._running = running
        self._at_home = at_home
        # The send middleware of the application.
        self._around = around
        self._open: tuple[Transaction, OutgoingChannel, HomeLoop] | None = None

    async def __aenter__(self) -> EmitterTransaction:
        if self._open is not None:
            raise RuntimeError(
                f"the transaction of {self._open[1].name!r} is open: each block takes a "
                "transaction() of its own"
            )
        channel, home = self._running()
        if not (
            isinstance(channel, OutgoingChannel) and isinstance(channel.writer, TransactionalWriter)
        ):
            raise ConfigError(
                f"[outgoing.{channel.name}] has no transactional_id, "
                f"and app.emitter({channel.name!r}).transaction() needs one"
            )
        producers = channel.writer.producers
        begun: list[Transaction] = []

        async def begin() -> None:
            begun.append(producers.begin())

        async def close() -> None:
            for transaction in begun:
                await transaction.close()

        try:
            await self._at_home(home, begin)
        except asyncio.CancelledError:
            # If the caller is on another loop, it may have begun all the same. A stop of the
            # application would wait for its end.
            await self._at_home(home, close)
            raise
        self._open = (begun[0], channel, home)
        return self

    @awaited_or_reported("tx.send(...)")
    async def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: datetime | None = None,
        topic: str | None = None,
    ) -> None:
        """Add a value (or a :class:`Record`); it is written at the end of the block at the latest.

        Raises:
            EncodeError: No serializer fits it.
            RejectedRecordError: The broker refuses it, or Kafka takes none like it.
            TransactionAbortedError: The broker does not answer; nothing of the transaction is
                stored.
            RuntimeError: Called before or after the block, or the block has ended before the value
                could be added.
        """
        if self._open is None:
            raise RuntimeError("send() is for inside of `async with emitter.transaction() as tx:`")
        transaction, channel, home = self._open
        record = record_of(value, key, headers, partition, timestamp, topic)
        if (around := self._around()) is not None:
            put = partial(self._put, transaction, channel)
            await self._at_home(home, partial(around, channel.name, record, put))
            return
        check_value(record)
        try:
            outgoing = channel.prepare(record)
        except SchemaMissing as missing:
            prepare = partial(channel.prepare, record)
            outgoing = await self._at_home(
                home, partial(once_known, prepare, missing, channel.settings.send_timeout_s)
            )
            self._check_open(transaction)
        put = partial(transaction.put, [(sender_of(channel), outgoing)])
        if not home.is_here:
            await self._at_home(home, partial(_step, put))
            return
        # Most records are only collected, so the coroutines of a step that waits are saved.
        if transaction.collect(sender_of(channel), outgoing):
            await _step(transaction.write)

    async def _put(self, transaction: Transaction, channel: OutgoingChannel, record: Any) -> None:
        """Add what the send middleware has made of a record."""
        check_value(record)
        try:
            outgoing = channel.prepare(record)
        except SchemaMissing as missing:
            outgoing = await once_known(
                partial(channel.prepare, record), missing, channel.settings.send_timeout_s
            )
        self._check_open(transaction)
        await _step(partial(transaction.put, [(sender_of(channel), outgoing)]))

    def _check_open(self, transaction: Transaction) -> None:
        """Check that the block has not ended while a send waited.

        Its records are written by then: one more would be lost, and its caller would not know.
        """
        if self._open is None or self._open[0] is not transaction:
            raise RuntimeError(
                "this send() was still waiting when its block has ended: nothing of it is sent; "
                "await it within the block"
            )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or abort where the block has raised.

        Raises:
            RejectedRecordError: The broker refuses a record; nothing is stored.
            TransactionAbortedError: The broker does not answer; nothing is stored.
            OutcomeUnknownError: It does not answer the commit: all may be stored, or nothing.
        """
        # __aenter__ has set it.
        assert self._open is not None  # noqa: S101
        transaction, _, home = self._open
        self._open = None
        await self._at_home(home, partial(_end, transaction, is_to_commit=error is None))


async def _end(transaction: Transaction, *, is_to_commit: bool) -> None:
    try:
        if is_to_commit:
            await _step(transaction.write)
            await _step(transaction.commit)
    finally:
        with not_ageing():
            await transaction.close()


async def _step(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Take a step of the transaction.

    Raises:
        TransactionAbortedError: A broker error after which nothing is stored.
        RejectedRecordError, OutcomeUnknownError: As the step raises them.
    """
    try:
        with not_ageing():
            await step()
    except (RejectedRecordError, OutcomeUnknownError):
        raise
    except BrokerError as error:
        raise aborted(text_of(error)) from error
