"""Sends what a handler returned, and settles the incoming message once the broker has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.outgoing.channel import Outbound, OutgoingChannel
from reactive_kafka.records import Record
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.partition import verdicts_of


class Emitter:
    """Sends the values that one handler returns.

    Args:
        channels: Each of them gets every value, except a :class:`Record` that names one.
        settles: Whether the incoming message is acked by the confirmation (``ack = "post"``).
        spawn: Starts a task with a name, for channels whose handlers do not wait for the write.
    """

    def __init__(self, channels: Sequence[OutgoingChannel], spawn: Spawn, *, settles: bool) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._spawn = spawn
        self._settles = settles
        self._waits = all(channel.settings.wait_for_write for channel in channels)
        self._room = asyncio.Semaphore(min(channel.settings.max_in_flight for channel in channels))

    async def __call__(self, value: Any, message: Message[Any]) -> None:
        """Send *value* (None sends nothing), and ack the message once it is written.

        With ``wait_for_write = false`` this returns when there is room for the record; the ack follows.

        Raises:
            EncodeError, RejectedRecordError: The value cannot be sent: a failure of the handler.
        """
        # One that does not fit a channel is found before another channel has sent it.
        writes = [(channel, channel.prepare(value)) for channel in self._targets(value)]
        if self._waits or not writes:
            await _write(writes)
            if self._settles:
                await message.ack()
            return
        await self._room.acquire()

        async def follow() -> None:
            try:
                await _write(writes)
            except Exception as error:  # whatever the client says to what the handler returned is the handler's failure
                if self._settles:
                    verdicts_of(message.tracker).channel.failed(message, error)
            else:
                if self._settles:
                    message.ack()
            finally:
                self._room.release()

        self._spawn(follow, f"write to {', '.join(self._channels)}")

    def _targets(self, value: Any) -> list[OutgoingChannel]:
        if value is None:
            return []
        if isinstance(value, Record) and value.channel is not None:
            if value.channel not in self._channels:
                known = ", ".join(map(repr, self._channels))
                raise ConfigError(f"Record(channel={value.channel!r}): the handler sends to {known} only")
            return [self._channels[value.channel]]
        return list(self._channels.values())


async def _write(writes: list[tuple[OutgoingChannel, Outbound]]) -> None:
    """Write to each channel, at once; raises the first failure."""
    if len(writes) == 1:
        channel, outbound = writes[0]
        await channel.write(outbound)
        return
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.write(outbound), name=f"write to {one.name}") for one, outbound in writes]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    for task in tasks:
        task.result()  # raises where one was cancelled: for a group that is no failure, and nothing was written
