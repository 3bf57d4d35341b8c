"""The message of a record that goes to several handlers: none of them settles it alone."""

from __future__ import annotations

from asyncio import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn

from reactive_kafka.errors import CommitRefusedError
from reactive_kafka.records import Record
from reactive_kafka.verdicts.message import Message


class SharedMessage(Message[Any]):
    """A message of a channel with ``broadcast = true``, as one of its handlers has it."""

    __slots__ = ()

    def ack(self, metadata: str | None = None) -> Future[bool]:
        self._refuse("ack")

    def nack(self, reason: BaseException, *, record: Record | None = None) -> Future[bool]:
        self._refuse("nack")

    def retry_later(self, delay: float | str) -> Future[bool]:
        self._refuse("retry_later")

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        self._refuse("transaction")

    def _refuse(self, what: str) -> NoReturn:
        raise CommitRefusedError(
            f"channel {self.channel!r}: {what}() would settle a record for all of its handlers, with broadcast = true: "
            "return when this one is done, or raise"
        )


def shared_message(message: Message[Any]) -> SharedMessage:
    """The same message for one of several handlers."""
    shared = SharedMessage()
    shared.payload, shared.record = message.payload, message.record
    shared.tracker, shared.index, shared.attempt = message.tracker, message.index, message.attempt
    return shared
