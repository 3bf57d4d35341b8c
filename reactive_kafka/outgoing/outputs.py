"""What handlers and sources produce is sent to their outgoing channels; then the incoming message is settled."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.outbox import Gathering, Outbound
from reactive_kafka.outgoing.results import records_of
from reactive_kafka.outgoing.writer import settle
from reactive_kafka.records import RawRecord, Record
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.partition import verdicts_of


class Outputs:
    """Sends what one function returns or yields to each of *channels*; a :class:`Record` that names one, only there."""

    def __init__(self, channels: Sequence[OutgoingChannel]) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._waits = all(channel.settings.wait_for_write for channel in channels)

    async def answer(self, result: Any, message: Message[Any], *, settles: bool) -> None:
        """Send what a handler made of a message (None sends nothing), and ack the message once all of it is written.

        With ``wait_for_write = false`` this returns when there is room for the records; the ack follows. EncodeError,
        RejectedRecordError: something cannot be sent, which is a failure of the handler.
        """
        if self._waits:
            await self.write(result, message.record)
            if settles:
                await message.ack()
            return

        def then(error: BaseException | None) -> None:
            if not settles:
                return
            if error is None:
                message.ack()
            else:
                verdicts_of(message.tracker).channel.failed(message, error)

        receipt = Gathering(then)
        try:
            await self._put_all(result, message.record, receipt)
        except BaseException:
            receipt.void()
            raise
        receipt.seal()

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
        if not isinstance(result, AsyncGenerator):
            await self._put(self._prepared(result, source), receipt)
            return
        try:
            async for value in result:
                await self._put(self._prepared(value, source), receipt)
                if receipt.is_over:  # a record has failed already
                    return
        finally:
            await result.aclose()

    def _prepared(self, result: Any, source: RawRecord | None = None) -> list[tuple[OutgoingChannel, Outbound]]:
        # One that does not fit a channel is found before another channel has sent it.
        return [
            (channel, channel.prepare(value, source))
            for value in records_of(result)
            for channel in self._targets(value)
        ]

    def _targets(self, value: Any) -> Sequence[OutgoingChannel]:
        if isinstance(value, Record) and value.channel is not None:
            if value.channel not in self._channels:
                known = ", ".join(map(repr, self._channels))
                raise ConfigError(f"Record(channel={value.channel!r}): the handler sends to {known} only")
            return (self._channels[value.channel],)
        return tuple(self._channels.values())

    async def _put(self, prepared: Sequence[tuple[OutgoingChannel, Outbound]], receipt: Gathering) -> None:
        for channel, outbound in prepared:
            await channel.writer.put(outbound, receipt)
