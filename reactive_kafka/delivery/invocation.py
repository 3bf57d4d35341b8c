"""How a channel's handler is called, and what is done around the call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.schema import AckMode
from reactive_kafka.delivery.worker import ReturnedUnsettled
from reactive_kafka.errors import DecodeError, describe
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.hook import Call, DeliveryHook
from reactive_kafka.verdicts.message import Message


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a handler is called.

    Attributes:
        call: Takes the payload, the message or the batch; a blocking handler is already wrapped.
        decode: Value bytes to payload, raising DecodeError; None hands out the bytes as they are.
        refusal: Without ``decode``: what is wrong with a record that has no value; None if the handler takes None.
        wants_message: The handler takes a Message; else it takes the payload.
        ack: When a record counts as done.
        emit: Takes the returned value and the message; settles the message itself. None: nothing is sent.
        decodes_keys: The channel has a ``key_deserializer``: what does not fit it never reaches the handler.
        is_blocking: It runs in a thread, which goes on when the call is cancelled.
        awaits_commits: The next record of a lane waits until the ack's commit is confirmed (``latest``).
    """

    call: Call
    decode: Callable[[bytes | None], Any] | None
    wants_message: bool
    ack: AckMode
    emit: Callable[[Any, Message[Any]], Awaitable[None]] | None = None
    refusal: str | None = None
    decodes_keys: bool = False
    is_blocking: bool = False
    awaits_commits: bool = False


def record_call(
    invocation: Invocation, returned: ReturnedUnsettled | None, hook: DeliveryHook
) -> tuple[Call, bool, bool]:
    """The handler's own call where that is all there is, which costs nothing; else one with what is around it.

    Args:
        returned: Keeps messages that the handler leaves without a verdict; None: nobody needs them.

    Returns:
        The call, whether it takes the message (else the payload), and whether a return counts as an ack, which the
        worker gives; else the call settles the message itself.
    """
    is_plain = invocation.emit is None and (
        (invocation.ack == "post" and not invocation.awaits_commits)
        or (invocation.ack == "manual" and returned is None)
    )
    call = invocation.call if is_plain else _around(invocation, returned)
    wants_message = invocation.wants_message or not is_plain
    if invocation.wants_message:
        call = hook.around(call)
    if invocation.decodes_keys:
        call, wants_message = _with_key(call, wants_message=wants_message), True
    return call, wants_message, is_plain and invocation.ack == "post"


def _around(invocation: Invocation, returned: ReturnedUnsettled | None) -> Call:
    """Settle before the handler runs, or send what it returns."""

    async def called(message: Message[Any]) -> None:
        if invocation.ack in ("pre", "none"):
            message.ack()
        result = await invocation.call(message if invocation.wants_message else message.payload)
        await _deliver_cancellation()
        if invocation.emit is not None:
            await invocation.emit(result, message)
        elif invocation.ack == "post":
            await message.ack()
        if returned is not None and is_open(message):
            returned.add(message)

    return called


async def _deliver_cancellation() -> None:
    """Let a cancellation that a handler has asked for, and not awaited, come before anything is done for its return."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)


def _with_key(call: Call, *, wants_message: bool) -> Call:
    """Decode the key of a message first, whether or not the handler looks at it: what does not fit is its failure."""

    async def called(message: Message[Any]) -> Any:
        _ = message.key  # kept by the message
        return await call(message if wants_message else message.payload)

    return called


def no_key(error: BaseException) -> BaseException:
    """What to raise for a record whose ordering key cannot be told."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return error
    refused = DecodeError(f"the record's ordering key cannot be told: {describe(error)}")
    refused.part = "ordering key"
    refused.__cause__ = error
    return refused
