"""Which channels the results of a function go to, and what they become there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.formats.sent_values import check_value
from reactive_kafka.outgoing.outgoing_channel import AroundSend
from reactive_kafka.outgoing.result_records import promises_records, records_of
from reactive_kafka.outgoing.schema_wait import once_known
from reactive_kafka.outgoing.target import Target
from reactive_kafka.records import RawRecord, Record

PutValue = Callable[[Any], Awaitable[bool]]
"""Sends one value; True: a record has failed already, so no more values are wanted."""

Prepared = list[tuple[Target, Any]]
"""The records of one value, each with its channel."""

PutPrepared = Callable[[Prepared], Awaitable[None]]


class OutputRouting:
    """The channels of one handler or source.

    Each value goes to every channel; a :class:`Record` that names a channel goes to that one only.

    Args:
        yields: A result is an asynchronous generator that is run: it is called with the function
            that sends a value.
        around: The send middleware of the application.
        returns: The return annotation of the function. If it promises a list of Records, an empty
            list is no record.
    """

    def __init__(
        self,
        channels: Sequence[Target],
        *,
        yields: bool,
        around: AroundSend | None = None,
        returns: Any = Any,
    ) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._yields = yields
        self._around = around
        self.records_of = partial(records_of, empty_is_none=promises_records(returns))

    async def send_all(self, result: Any, put: PutValue) -> None:
        """Send the result, or each value that the generator yields, by *put*."""
        if self._yields:
            await result(put)
        else:
            await put(result)

    async def send(self, value: Any, source: RawRecord | None, put: PutPrepared) -> None:
        """Send what one value becomes, by *put*.

        Args:
            source: The incoming record that the value was made of.

        Raises:
            EncodeError, RejectedRecordError, ConfigError: A record cannot be sent.
        """
        if self._around is None:
            await put(await self._prepared_once_known(value, source))
            return
        for record in self.records_of(value):
            for channel in self._targets(record):
                await self._around(channel.name, record, partial(_send_to, channel, source, put))

    async def _prepared_once_known(self, result: Any, source: RawRecord | None) -> Prepared:
        """As :meth:`_prepared`, when the registry has answered."""
        try:
            return self._prepared(result, source)
        except SchemaMissing as still_to_come:
            missing = still_to_come
        return await once_known(partial(self._prepared, result, source), missing)

    def _prepared(self, result: Any, source: RawRecord | None) -> Prepared:
        # All records are prepared before the first is sent. So one that does not fit its channel is
        # found before another channel has written anything.
        return [
            (channel, channel.prepare(value, source))
            for value in self.records_of(result)
            for channel in self._targets(value)
        ]

    def _targets(self, value: Any) -> Sequence[Target]:
        if isinstance(value, Record) and value.channel is not None:
            if value.channel not in self._channels:
                known = ", ".join(map(repr, self._channels))
                raise ConfigError(
                    f"Record(channel={value.channel!r}): the handler sends to {known} only"
                )
            return (self._channels[value.channel],)
        return tuple(self._channels.values())


async def _send_to(
    channel: Target, source: RawRecord | None, put: PutPrepared, record: Any
) -> None:
    """Send what the send middleware has made of a record to *channel*."""
    check_value(record)
    prepare = partial(channel.prepare, record, source)
    try:
        prepared = prepare()
    except SchemaMissing as still_to_come:
        missing = still_to_come
    else:
        await put([(channel, prepared)])
        return
    # Outside of the except clause, so that errors of the wait do not have the first one as context.
    await put([(channel, await once_known(prepare, missing))])
