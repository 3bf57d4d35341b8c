"""Outputs of a batch that name the message they were made of: a refused one fails only that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    ConfigError,
    RejectedRecordError,
)
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt
from reactive_kafka.records import Record
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.message import Message

FailMessage = Callable[[Message[Any], BaseException], None]
"""Nacks a message one of whose outputs is not written, and reports that."""


class BatchOrigins:
    """The outputs of one batch, by the messages that they name.

    Args:
        batch: The messages that may be named.
        whole: Expects one more record for each message that is named, and fails with what is not
            the fault of a single output.
        fail: Called for each message of which an output is refused.
    """

    def __init__(self, batch: Batch[Any], whole: CallbackReceipt, fail: FailMessage) -> None:
        self._batch = batch
        self._whole = whole
        self._fail = fail
        # (id of the tracker, arrival number) -> what becomes of the outputs of that message.
        self._receipts: dict[tuple[int, int], CallbackReceipt] = {}
        # The messages of the batch. None: no output has named one.
        self._known: set[tuple[int, int]] | None = None

    async def send(self, record: Record, put: Callable[[CallbackReceipt], Awaitable[None]]) -> None:
        """Send an output that names a message, by *put*. After a refused one the others are left.

        Raises:
            ValueError: It names another message.
            BaseException: What is not the fault of this output.
        """
        receipt = self._receipt_of(record.origin)
        if receipt.is_over:
            return
        try:
            await put(receipt)
        except Exception as error:
            if not is_of_record(error):
                raise
            receipt.fail(error)

    def seal(self) -> None:
        """No more outputs follow."""
        for receipt in self._receipts.values():
            receipt.seal()

    def void(self) -> None:
        """Drop the outputs that still wait: the whole batch has failed."""
        for receipt in self._receipts.values():
            receipt.void()

    def _receipt_of(self, origin: object) -> CallbackReceipt:
        if self._known is None:
            self._known = {(id(message.tracker), message.index) for message in self._batch}
        place = None
        if isinstance(origin, Message):
            place = (id(origin.tracker), origin.index)
        if not isinstance(origin, Message) or place not in self._known:
            raise ValueError(
                "Record(origin=...): it is no message of the batch that the handler was called with"
            )
        if place not in self._receipts:
            self._whole.expect()
            self._receipts[place] = CallbackReceipt(partial(self._settle, origin))
        return self._receipts[place]

    def _settle(self, message: Message[Any], error: BaseException | None) -> None:
        if error is not None and not is_of_record(error):
            self._whole.fail(error)
            return
        if error is not None:
            self._fail(message, error)
        self._whole.part_done()


def is_of_record(error: BaseException) -> bool:
    """Return whether an error is about one output, and not about a channel or its broker."""
    if isinstance(error, RejectedRecordError):
        return True
    return isinstance(error, Exception) and not isinstance(
        error, BrokerError | ChannelClosedError | ConfigError
    )


def names_origins(value: Any) -> bool:
    """Return whether a value that a handler has returned is, or has, a Record with an origin."""
    if isinstance(value, Record):
        return value.origin is not None
    if type(value) is list or type(value) is tuple:
        return any(isinstance(item, Record) and item.origin is not None for item in value)
    return False
