"""Iterating over a channel that has no handler: the application takes its messages one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Literal

from reactive_kafka.channel.blueprint import ByWorkers, RecordReading
from reactive_kafka.channel.channel_session import ChannelSession
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.errors import ChannelClosedError, DecodeError, text_of
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.ageing import HOLDER, Held
from reactive_kafka.verdicts.message import Message, new_message


async def messages(channel: ChannelLifecycle) -> AsyncIterator[Message[Any]]:
    """Yield the messages of a channel as they come, until it ends.

    The first iteration starts the channel: before that it would own partitions and read none.
    A record that cannot be decoded is nacked, and not yielded.

    Raises:
        ChannelClosedError: The channel has a handler, or has failed and does not restart by itself.
    """
    consumption = channel.blueprint.consumption
    if isinstance(consumption, ByWorkers):
        raise ChannelClosedError(
            f"channel {channel.name!r} has a handler: it cannot be iterated over as well"
        )
    reading = channel.blueprint.reading
    # This generator runs in the context of the task that iterates, and so does what that task
    # sends. A send finds the records that wait for it by this variable.
    HOLDER.set(_Iteration(channel))
    if channel.status.state == "starting":
        channel.start()
    watch = channel.blueprint.receives
    monotonic = channel.services.clock.monotonic
    asked_at = monotonic()
    session = channel.session
    # Lane -> the schema that its next record needs.
    missing: dict[Lane, SchemaMissing] = {}
    while True:
        # Looked at again each time: a restart makes another session.
        if session is not channel.session:
            session = channel.session
            missing.clear()
        lane = session.lanes.take()
        if lane is None:
            if not channel.status.may_go_on:
                break
            session.arrival.clear()
            await session.arrival.wait()
            continue
        # Only channels with workers are ordered by key.
        assert isinstance(lane, Lane)  # noqa: S101
        now = monotonic()
        try:
            message = _next(session, lane, reading, consumption.skipping, now)
        except SchemaMissing as error:
            message = None
            missing[lane] = error
        else:
            missing.pop(lane, None)
        session.lanes.release(lane)
        session.progress.left(lane)
        if lane in missing and session.lanes.ready <= sum(each.queued for each in missing):
            # No other partition has records.
            await _schema_comes(session, missing.values())
            missing.clear()
        if message is not None:
            if watch is not None:
                watch.received(message, monotonic() - asked_at)
            yield message
            asked_at = monotonic()
    failure = channel.status.failure
    if failure is not None:
        raise ChannelClosedError(
            f"channel {channel.name!r} has failed: {text_of(failure)}"
        ) from failure


class _Iteration:
    """An application that iterates over a channel. It holds all messages without a verdict."""

    def __init__(self, channel: ChannelLifecycle) -> None:
        self._channel = channel
        self.loop = asyncio.get_running_loop()

    def held(self, *, briefly: bool) -> Iterator[Held]:
        yield from self._channel.session.kept()

    def wait_begins(self, now: float) -> int:
        # There is no call whose duration counts.
        return 0

    def wait_ends(self, number: int, now: float) -> None:
        pass

    def waited_s(self) -> float:
        return 0.0


def _next(
    session: ChannelSession,
    lane: Lane,
    reading: RecordReading,
    skipping: Skipping | None,
    now: float,
) -> Message[Any] | None:
    """Take the next record of a lane; None if the application does not get it.

    Raises:
        SchemaMissing: The record cannot be read yet. It is in the lane again.
    """
    record: RawRecord = lane.records[lane.cursor]
    index = lane.first + lane.cursor
    lane.cursor += 1
    lane.tracker.start_range(index, 1, now)
    if skipping is not None and skipping.filters_undecoded:
        undecoded: Message[Any] = new_message(record.value, record, lane.tracker, index)
        if _is_skipped(session, undecoded, skipping.why_undecoded):
            return None
    try:
        message = new_message(reading.read(record), record, lane.tracker, index)
        # The message decodes its key when it is first asked for. A key that cannot be decoded has
        # to be found here.
        _ = message.key
    except DecodeError as error:
        message = new_message(None, record, lane.tracker, index)
        if skipping is not None and skipping.is_too_old(message):
            session.acknowledger.skips.skip(message, "age")
        else:
            session.acknowledger.nacks.nack(message, error)
        return None
    except SchemaMissing:
        # The application has not got the record, so it does not age.
        lane.tracker.unstart(index)
        lane.put_back(record, index)
        raise
    if skipping is not None and _is_skipped(session, message, skipping.why):
        return None
    session.workers.handed_out(message)
    return message


def _is_skipped(
    session: ChannelSession,
    message: Message[Any],
    why_skipped: Callable[[Message[Any]], Literal["filter", "age"] | None],
) -> bool:
    """Return whether the application does not get a message.

    Either it is skipped, or the user's filter has raised and it is nacked.
    """
    try:
        why = why_skipped(message)
    except Exception as error:
        session.acknowledger.nacks.nack(message, error)
        return True
    if why is not None:
        session.acknowledger.skips.skip(message, why)
    return why is not None


async def _schema_comes(session: ChannelSession, missing: Iterable[SchemaMissing]) -> None:
    """Wait until the registry has answered, or there is something else to look at."""
    session.arrival.clear()
    waiters = [each.arrives() for each in missing]
    for waiter in waiters:
        waiter.add_done_callback(lambda _: session.arrival.set())
    try:
        await session.arrival.wait()
    finally:
        for waiter in waiters:
            waiter.cancel()
