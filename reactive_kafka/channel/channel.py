"""The public face of an incoming channel: iterate, pause, look at its offsets and move them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import Any

from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.offsets import ChannelOffsets
from reactive_kafka.channel.session import ChannelSession
from reactive_kafka.channel.spec import ChannelSpec
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.errors import ChannelClosedError, DecodeError, text_of
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.records import PartitionLike, RawRecord, TopicPartition, as_partition
from reactive_kafka.verdicts.ageing import HOLDER, Held
from reactive_kafka.verdicts.message import Message, new_message

PAUSED = "paused by the application"
"""The reason of a pause where none is given."""


class Channel(ChannelOffsets):
    """One incoming channel of a running application, from ``app.channel(name)``.

    ``async for message in channel`` consumes without a handler; you ack or nack each message
    yourself.
    """

    def __repr__(self) -> str:
        return f"<Channel {self.name!r}>"

    def __aiter__(self) -> AsyncIterator[Message[Any]]:
        """Messages as they arrive, to be acked or nacked by hand, until the channel ends.

        Raises:
            ChannelClosedError: The channel has a handler, or has failed and does not restart by
                itself.
        """
        return messages(self._lifecycle)

    def facts(self) -> ChannelFacts:
        """What health, metrics and the page show of the channel; nothing is asked of the broker."""
        return self._lifecycle.facts()

    @property
    def is_started(self) -> bool:
        """Whether it runs or has run. A channel without a handler starts when it is first iterated
        over.
        """
        return self._lifecycle.status.state != "starting"

    @property
    def is_ready(self) -> bool:
        """Whether it has its assignment, and reading has begun in all of it."""
        return self._lifecycle.is_ready

    @property
    def is_stopped(self) -> bool:
        """Whether it does not run because of :meth:`stop`, or of ``enabled = false``; :meth:`start`
        starts it.
        """
        return self._lifecycle.status.stopped_by is not None

    async def stop(self) -> None:
        """Stop this channel alone, until :meth:`start`: it drains, commits what is settled, and
        leaves its group.

        Handlers may finish within ``drain_timeout``; an iteration over the channel ends. Pauses and
        counts stay. A stopped channel is ready, and says that it is stopped. Nothing happens where
        it is stopped already, and while the application stops, which stops it as well.

        Returns when the group is left. A handler or a hook of the channel itself cannot wait for
        that: for it the call returns at once, no further record is taken, and the channel stops
        when the handler has returned. Cancelling the caller does not end the stop.
        """
        await self._lifecycle.switch.stop()

    async def start(self) -> None:
        """Start a channel that is stopped, is not ``enabled``, or has failed; it goes on at the
        committed position.

        Returns when it has started; it connects in the background. Nothing happens where it runs.
        After a stop that is under way it starts when that is over: a handler or a hook of the
        channel itself is not held up by it.

        Raises:
            ChannelClosedError: The application is stopping.
        """
        await self._lifecycle.switch.start()

    async def restart(self) -> None:
        """Restart a channel that has failed. Returns when it has started; it connects in the
        background.

        Waits until the channel has released its partitions. All attempts of
        ``restart.max_attempts`` are available again. Handlers that are still running are left
        behind, and their records are handled again.

        Raises:
            ChannelClosedError: The channel has not failed, or the application is stopping.
        """
        await self._lifecycle.restart()

    def pause(
        self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None
    ) -> None:
        """Stop fetching and handling queued records. Running handlers and commits go on.

        The pause lasts until :meth:`resume` removes its reason, through rebalances and restarts,
        and may begin before the channel has joined. Each party pauses for a reason of its own,
        which counts once: records flow again when no reason is left. A paused channel stays a
        member of its group, and is ready. Callable from any thread; in effect when it returns.

        Args:
            reason: One line for people, shown on the page and in health.
            partitions: Pause only these, assigned or not; None: the whole channel.

        Raises:
            TypeError: The reason is not a string, or a partition is not a partition.
        """
        self._change_pauses(Pauses.pause, reason, partitions)

    def resume(
        self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None
    ) -> None:
        """Remove a reason of :meth:`pause`; an unknown reason changes nothing. Callable from any
        thread.

        Args:
            partitions: Remove it only from these, if they were paused for it themselves; None: from
                the channel and from every partition.

        Raises:
            TypeError: As :meth:`pause`.
        """
        self._change_pauses(Pauses.resume, reason, partitions)

    def _change_pauses(
        self,
        change: Callable[[Pauses, str, Iterable[TopicPartition] | None], None],
        reason: str,
        partitions: Collection[PartitionLike] | None,
    ) -> None:
        if not isinstance(reason, str):
            raise TypeError(
                f"a reason is a string, not {reason!r}; partitions are given as partitions=[...]"
            )
        places = None if partitions is None else [as_partition(one) for one in partitions]

        def do() -> None:
            self._lifecycle.change_pauses(lambda pauses: change(pauses, reason, places))

        self._home.call(do, lambda: None)

    @property
    def paused(self) -> bool:
        """Whether the whole channel is paused; False while only some of its partitions are."""
        return self._lifecycle.is_paused

    @property
    def in_flight(self) -> int:
        """Records delivered to a handler or to the application, and without a verdict."""
        return self._lifecycle.session.clients.in_flight()


async def messages(channel: ChannelLifecycle) -> AsyncIterator[Message[Any]]:
    """The messages of a channel as they come, until it ends; a record that cannot be decoded is
    nacked.

    The first iteration starts the channel. Raises as iterating over a ``Channel`` does.
    """
    if channel.spec.make_workers is not None:
        raise ChannelClosedError(
            f"channel {channel.name!r} has a handler: it cannot be iterated over as well"
        )
    spec = channel.spec
    # This generator runs in the context of the task that iterates, and so do the sends of that
    # task.
    HOLDER.set(_Iteration(channel))
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
        # Without a handler there are no lanes of keys.
        assert isinstance(lane, Lane)  # noqa: S101
        missing = None
        try:
            message = _next(session, lane, spec)
        except SchemaMissing as still_to_come:
            message = None
            missing = still_to_come
        session.lanes.release(lane)
        session.worker_signals.progress(lane)
        if missing is not None:
            await _schema_comes(session, missing)
        if message is not None:
            yield message
    failure = channel.status.failure
    if failure is not None:
        raise ChannelClosedError(
            f"channel {channel.name!r} has failed: {text_of(failure)}"
        ) from failure


class _Iteration:
    """An application that iterates over a channel: it has all messages without a verdict."""

    def __init__(self, channel: ChannelLifecycle) -> None:
        self._channel = channel

    def held(self, *, briefly: bool) -> Iterator[Held]:
        yield from self._channel.session.kept()


def _next(session: ChannelSession, lane: Lane, spec: ChannelSpec) -> Message[Any] | None:
    record: RawRecord = lane.records[lane.cursor]
    index = lane.first + lane.cursor
    lane.cursor += 1
    lane.tracker.start_range(index, 1, spec.services.clock.monotonic())
    try:
        if spec.decode_record is not None and record.headers:
            payload = spec.decode_record(record)
        else:
            payload = record.value if spec.decode is None else spec.decode(record.value)
        message = new_message(payload, record, lane.tracker, index)
        # Decoded now, and cached by the message.
        _ = message.key
    except DecodeError as error:
        message = new_message(None, record, lane.tracker, index)
        if spec.skipping is not None and spec.skipping.is_too_old(message):
            session.acknowledger.skips.skip(message, "age")
        else:
            session.acknowledger.nack(message, error)
        return None
    except SchemaMissing:
        # It has not begun.
        lane.tracker.unstart(index)
        lane.put_back(record, index)
        raise
    if spec.skipping is not None and _is_skipped(session, message, spec.skipping):
        return None
    session.workers.handed_out(message)
    return message


def _is_skipped(session: ChannelSession, message: Message[Any], skipping: Skipping) -> bool:
    """Whether the application does not get a message: it is skipped, or its filter has failed and
    it is nacked.
    """
    try:
        why = skipping.why(message)
    except Exception as error:
        session.acknowledger.nack(message, error)
        return True
    if why is not None:
        session.acknowledger.skips.skip(message, why)
    return why is not None


async def _schema_comes(session: ChannelSession, missing: SchemaMissing) -> None:
    """Wait until the registry has answered, or something else is to be looked at."""
    session.arrival.clear()
    waiter = missing.arrives()
    waiter.add_done_callback(lambda _: session.arrival.set())
    try:
        await session.arrival.wait()
    finally:
        waiter.cancel()
