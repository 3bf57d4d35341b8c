"""How a handler is called, and what is done around the call: settle, send, decode a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from reactive_kafka.config.settings import AckMode
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.errors import DecodeError
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.batch import Batch, ack_returned_batch
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.delivery_hook import Call, DeliveryHook
from reactive_kafka.verdicts.message import Message, ack_returned


class Sends(Protocol):
    """Sends what a handler returns to outgoing channels."""

    @property
    def is_quick(self) -> bool:
        """Whether most of what it sends takes no wait."""

    def at_once(self, result: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> bool:
        """Send the result for a record if that takes no wait, and settle the record later.

        Returns:
            False: nothing was done.

        Raises:
            Exception: As :meth:`answer`.
        """

    async def answer(self, result: Any, message: Message[Any]) -> None:
        """Send the result for a message, and settle the message.

        Raises:
            Exception: The result cannot be sent.
        """

    async def answer_batch(self, result: Any, batch: Batch[Any]) -> None:
        """Send the result for a batch, and settle what is still open. Raises as :meth:`answer`."""

    async def write(self, result: Any, message: Message[Any]) -> None:
        """Send the result for a message, and settle nothing. Raises as :meth:`answer`.

        Returns when the result is written.
        """


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a handler is called."""

    # Takes the payload, the message or the batch. A blocking function is wrapped already.
    call: Call
    # Turns the bytes of a value into the payload, or raises DecodeError. None: the payload is the
    # bytes as they are.
    decode: Callable[[bytes | None], Any] | None
    # The handler takes a Message; otherwise it takes the payload.
    wants_message: bool
    ack: AckMode
    # None: nothing is sent.
    emit: Sends | None = None
    # Decodes a record that has headers. None: as all others.
    decode_record: Callable[[RawRecord], Any] | None = None
    # The error for a record without a payload. None: the handler takes None.
    refusal: str | None = None
    # The channel has a ``key_deserializer``: a record whose key does not fit never reaches the
    # handler.
    decodes_keys: bool = False
    # The call decodes the record itself, because something has to see the record before that.
    decodes_late: bool = False
    # The handler runs in a thread.
    is_blocking: bool = False
    # That thread continues when the call is cancelled, and the call ends.
    leaves_threads: bool = False
    # Wraps each attempt, together with what it sends. The wrapped call takes messages.
    around: Callable[[Call], Call] | None = None
    # The call acks its message or batch itself, so that the channel's watch sees each ack.
    # Otherwise a worker settles records without that.
    acks_by_message: bool = False
    # With ``latest`` the next record of a lane waits until the ack's commit is confirmed.
    awaits_commits: bool = False

    @property
    def settles_first(self) -> bool:
        """Whether records are settled before the handler is called."""
        return self.ack in ("pre", "none")

    def read(self, record: RawRecord) -> Any:
        """Decode a record. Raises what the decoder raises."""
        if self.decode_record is not None and record.headers:
            return self.decode_record(record)
        return record.value if self.decode is None else self.decode(record.value)

    def read_checked(self, record: RawRecord) -> Any:
        """Decode a record for the handler.

        Raises:
            DecodeError: The record has no payload, and the handler takes no None.
            Exception: As the decoder.
        """
        payload = self.read(record)
        if payload is None and self.refusal is not None:
            raise DecodeError(self.refusal)
        return payload


@dataclass(frozen=True, slots=True)
class RecordCall:
    """The call of a handler for one record, with what is around it."""

    call: Call
    # The call takes the message; otherwise it takes the payload.
    wants_message: bool
    # The worker settles the record when the call returns; otherwise the call settles it.
    settles_on_return: bool = False
    # The worker sends what the call returns, and that settles the record.
    sends: Sends | None = None


def record_call(
    invocation: Invocation, returned: ReturnedUnsettled | None, hook: DeliveryHook
) -> RecordCall:
    """Return the handler's own call if nothing wraps it, otherwise the wrapped call.

    Args:
        returned: Keeps the messages that the handler leaves without a verdict.
    """
    settles_silently = not (invocation.awaits_commits or invocation.acks_by_message)
    is_plain = invocation.emit is None and (
        (invocation.ack == "post" and settles_silently)
        or (invocation.ack == "manual" and returned is None)
    )
    call = invocation.call if is_plain else _settling(invocation, returned)
    wants_message = invocation.wants_message or not is_plain
    if invocation.around is not None:
        call = invocation.around(_of_message(call, wants_message=wants_message))
        wants_message = True
    if invocation.wants_message:
        call = hook.around(call)
    if invocation.decodes_keys:
        call = with_key(call, wants_message=wants_message)
        wants_message = True
    return RecordCall(call, wants_message, settles_on_return=is_plain and invocation.ack == "post")


def quick_call(
    invocation: Invocation, returned: ReturnedUnsettled | None, hook: DeliveryHook
) -> RecordCall | None:
    """Return the handler's own call, with the worker sending its results; None if that is no use.

    It saves a message, a coroutine and its calls, which is half of the cost of a fast chain of
    channels. It is possible if nothing else is around the call.
    """
    emit = invocation.emit
    if emit is None or not emit.is_quick:
        return None
    has_more_around = (
        invocation.ack != "post"
        or returned is not None
        or invocation.decodes_keys
        or invocation.around is not None
        or (invocation.wants_message and hook.around(invocation.call) is not invocation.call)
    )
    if has_more_around:
        return None
    return RecordCall(invocation.call, invocation.wants_message, sends=emit)


def _settling(invocation: Invocation, returned: ReturnedUnsettled | None) -> Call:
    """Return a call that settles its message, before or after the handler, or sends the result."""
    emit = invocation.emit

    async def called(message: Message[Any]) -> None:
        if invocation.settles_first:
            message.ack()
        result = await invocation.call(message if invocation.wants_message else message.payload)
        # This is `deliver_cancellation()` written out: another coroutine would cost more than that.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await asyncio.sleep(0)
        if emit is not None:
            is_sent = not invocation.acks_by_message and emit.at_once(
                result, message.record, message.tracker, message.index
            )
            if not is_sent:
                await emit.answer(result, message)
        elif invocation.awaits_commits and invocation.ack == "post":
            with not_ageing():
                await message.ack()
        elif invocation.ack == "post":
            ack_returned(message)
        if returned is not None and is_open(message):
            returned.add(message)

    return called


def batch_call(invocation: Invocation) -> Call:
    """Return the handler's call for a batch, with what is around it.

    If the handler's results are sent, they are sent before the call returns.
    """
    call = invocation.call
    if invocation.emit is not None:
        call = _answering(call, invocation.emit)
    if invocation.acks_by_message and invocation.ack == "post":
        call = _acking(call, awaits_commits=invocation.awaits_commits)
    if invocation.around is not None:
        call = invocation.around(call)
    return call


def _answering(call: Call, emit: Sends) -> Call:
    async def called(batch: Batch[Any]) -> None:
        result = await call(batch)
        await deliver_cancellation()
        await emit.answer_batch(result, batch)

    return called


def _acking(call: Call, *, awaits_commits: bool) -> Call:
    async def called(batch: Batch[Any]) -> None:
        await call(batch)
        await deliver_cancellation()
        if awaits_commits:
            with not_ageing():
                await batch.ack()
        else:
            ack_returned_batch(batch)

    return called


async def deliver_cancellation() -> None:
    """Let a cancellation come that a handler has asked for, and not awaited.

    Otherwise it would come after something has been done for the handler's return.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)


def with_key(call: Call, *, wants_message: bool) -> Call:
    """Return a call that decodes the message's key first, even if the handler never looks at it.

    A key that does not fit is a failure of the record.
    """

    async def called(message: Message[Any]) -> Any:
        # The message keeps the decoded key.
        _ = message.key
        return await call(message if wants_message else message.payload)

    return called


def _of_message(call: Call, *, wants_message: bool) -> Call:
    """Return the same call, which takes the message."""
    return call if wants_message else lambda message: call(message.payload)
