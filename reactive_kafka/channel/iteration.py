"""Consuming a channel without a handler: the application takes the messages itself, and settles them by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from reactive_kafka.channel.session import ChannelSession
from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.errors import DecodeError
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.message import Message, new_message


class Host(Protocol):
    """What an iteration needs from its channel."""

    @property
    def session(self) -> ChannelSession:
        """That of the moment: a restart makes another one."""

    @property
    def may_go_on(self) -> bool:
        """Whether records may come, now or when the channel is started again by itself."""

    def progress(self, lane: Lane) -> None:
        """A record was taken from a lane."""


async def messages(
    host: Host, decode: Callable[[bytes | None], Any] | None, clock: Clock
) -> AsyncIterator[Message[Any]]:
    """The messages of a channel as they come, until it ends; what cannot be decoded is nacked."""
    while True:
        session = host.session
        lane = session.lanes.take()
        if lane is None:
            if not host.may_go_on:
                return
            session.arrival.clear()
            await session.arrival.wait()
            continue
        assert isinstance(lane, Lane)  # noqa: S101  # without a handler there are no lanes of keys
        message = _next(session, lane, decode, clock)
        session.lanes.release(lane)
        host.progress(lane)
        if message is not None:
            yield message


def _next(
    session: ChannelSession, lane: Lane, decode: Callable[[bytes | None], Any] | None, clock: Clock
) -> Message[Any] | None:
    record: RawRecord = lane.records[lane.cursor]
    index = lane.first + lane.cursor
    lane.cursor += 1
    lane.tracker.start_range(index, 1, clock.monotonic())
    try:
        payload = record.value if decode is None else decode(record.value)
        message = new_message(payload, record, lane.tracker, index)
        _ = message.key  # kept by the message
    except DecodeError as error:
        session.acknowledger.nack(new_message(None, record, lane.tracker, index), error)
        return None
    session.workers.returned.add(message)
    return message
