"""Consuming a channel without a handler: the application takes the messages and settles them itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.session import ChannelSession
from reactive_kafka.channel.spec import Decode
from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.errors import ChannelClosedError, DecodeError, text_of
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.message import Message, new_message


async def messages(channel: ChannelLifecycle) -> AsyncIterator[Message[Any]]:
    """The messages of a channel as they come, until it ends; a record that cannot be decoded is nacked.

    The first iteration starts the channel. Raises as iterating over a ``Channel`` does.
    """
    if channel.spec.make_workers is not None:
        raise ChannelClosedError(f"channel {channel.name!r} has a handler: it cannot be iterated over as well")
    decode, clock = channel.spec.decode, channel.spec.services.clock
    if channel.status.state == "starting":
        channel.start()
    while True:
        session = channel.session
        lane = session.lanes.take()
        if lane is None:
            if not channel.status.may_go_on:
                break
            session.arrival.clear()
            await session.arrival.wait()
            continue
        assert isinstance(lane, Lane)  # noqa: S101  # without a handler there are no lanes of keys
        message = _next(session, lane, decode, clock)
        session.lanes.release(lane)
        session.worker_signals.progress(lane)
        if message is not None:
            yield message
    failure = channel.status.failure
    if failure is not None:
        raise ChannelClosedError(f"channel {channel.name!r} has failed: {text_of(failure)}") from failure


def _next(session: ChannelSession, lane: Lane, decode: Decode | None, clock: Clock) -> Message[Any] | None:
    record: RawRecord = lane.records[lane.cursor]
    index = lane.first + lane.cursor
    lane.cursor += 1
    lane.tracker.start_range(index, 1, clock.monotonic())
    try:
        payload = record.value if decode is None else decode(record.value)
        message = new_message(payload, record, lane.tracker, index)
        _ = message.key  # decoded now, and cached by the message
    except DecodeError as error:
        session.acknowledger.nack(new_message(None, record, lane.tracker, index), error)
        return None
    session.workers.returned.add(message)
    return message
