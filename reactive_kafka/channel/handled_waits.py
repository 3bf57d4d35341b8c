"""Waits until a channel has handled a record, so that an application can read its own write."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf

from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.record_lookup import stage_of
from reactive_kafka.errors import ChannelClosedError, NotOwnerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import not_ageing

FIRST_LOOK_S = 0.002
"""How soon this looks again after the first look."""
LOOK_S = 0.05
"""The longest time between two looks. The next one comes after a tenth of the wait so far."""
LOOK_FOR_BROKERS_S = 1.0
"""How often a call that waits looks whether the brokers of the channel are away."""
UNDECIDED_S = 5.0
"""How long a partition may have no owner, as during an eager rebalance, before a wait fails."""


@dataclass(slots=True)
class _HandledWait:
    partition: TopicPartition
    offset: int
    handled: asyncio.Future[None]
    began: float
    # The tracker that had the partition at the last look.
    last: OffsetTracker | None = None
    # Since when the partition is not ours, while it may still come. Infinite: it is ours.
    undecided_since: float = inf

    @property
    def record(self) -> str:
        return f"{self.partition} offset {self.offset}"


class HandledWaits:
    """The calls of ``Channel.handled`` that wait for records of one channel.

    A timer looks at the records while there are such calls. A notification from each settled record
    would slow down every channel, for the few that use this.
    """

    def __init__(self, channel: ChannelLifecycle) -> None:
        self._channel = channel
        self._clock = channel.services.clock
        self._waiters: list[_HandledWait] = []
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, partition: TopicPartition, offset: int) -> None:
        """Wait until a record is settled. Raises as ``Channel.handled`` does.

        Cancellation:
            Nothing is left behind.
        """
        now = self._clock.monotonic()
        handled = asyncio.get_running_loop().create_future()
        waiter = _HandledWait(partition, offset, handled, now)
        if self._is_handled(waiter, now):
            return
        self._waiters.append(waiter)
        self._look_later(now)
        try:
            while not handled.done():
                # The records of the caller age only while the brokers answer.
                with not_ageing() if self._is_away() else nullcontext():
                    await asyncio.wait([handled], timeout=LOOK_FOR_BROKERS_S)
            handled.result()
        finally:
            # A caller that gives up leaves nothing that would be looked at again.
            handled.cancel()

    def _is_away(self) -> bool:
        clients = self._channel.session.clients
        return any(client.connection.broker_error is not None for client in clients)

    def _look_later(self, now: float) -> None:
        youngest_s = now - max(waiter.began for waiter in self._waiters)
        wait_s = min(LOOK_S, max(FIRST_LOOK_S, youngest_s / 10))
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            # Otherwise waits that begin all the time would put the next look off for ever.
            if self._timer.when() <= loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        now = self._clock.monotonic()
        for waiter in self._waiters:
            if waiter.handled.done():
                # The caller was cancelled.
                continue
            try:
                if self._is_handled(waiter, now):
                    waiter.handled.set_result(None)
            except Exception as error:
                waiter.handled.set_exception(error)
        self._waiters = [waiter for waiter in self._waiters if not waiter.handled.done()]
        self._timer = None
        if self._waiters:
            self._look_later(now)

    def _is_handled(self, waiter: _HandledWait, now: float) -> bool:
        """Return whether a record is settled.

        Raises:
            ChannelClosedError: The channel will not handle it.
            NotOwnerError: Its partition is another member's.
        """
        clients = self._channel.session.clients.consumers
        owner = next((one for one in clients if waiter.partition in one.table.ours), None)
        tracker = None if owner is None else owner.table.trackers.get(waiter.partition)
        if tracker is not None and has_passed(tracker, waiter.offset):
            return True
        if waiter.last is not tracker and was_committed(waiter.last, waiter.offset):
            # It was settled after the last look, and then the partition went.
            return True
        waiter.last = tracker
        self._check_goes_on(waiter, tracker)
        if owner is not None:
            waiter.undecided_since = inf
        elif self._channel.status.state == "running":
            # Between two assignments a member has no partition at all.
            has_some = all(client.table.ours for client in clients)
            waiter.undecided_since = min(waiter.undecided_since, now)
            if has_some or now - waiter.undecided_since >= UNDECIDED_S:
                raise NotOwnerError(
                    f"channel {self._channel.name!r}: {waiter.partition} is not ours, so another "
                    f"member of the group handles offset {waiter.offset}"
                )
        return False

    def _check_goes_on(self, waiter: _HandledWait, tracker: OffsetTracker | None) -> None:
        status = self._channel.status
        if status.may_go_on or status.state == "starting":
            return
        if status.state == "stopping" and tracker is not None:
            index = tracker.index_of(waiter.offset)
            if index is not None and stage_of(tracker, index) in ("handling", "failing"):
                # Handlers that run may end within drain_timeout.
                return
        error = ChannelClosedError(
            f"channel {self._channel.name!r} has {_PAST.get(status.state, status.state)} before it "
            f"has handled {waiter.record}"
        )
        error.__cause__ = status.failure
        raise error


_PAST = {"stopping": "stopped"}


def was_committed(tracker: OffsetTracker | None, offset: int) -> bool:
    """Return whether a position behind *offset* was committed, also before the assignment ended."""
    return tracker is not None and tracker.committed is not None and tracker.committed > offset


def has_passed(tracker: OffsetTracker, offset: int) -> bool:
    """Return whether the record at *offset* is settled, or the log does not have it."""
    if tracker.safe > offset:
        return True
    index = tracker.index_of(offset)
    if index is None:
        # A gap between the records in the window, as compaction makes them.
        return offset < tracker.position
    return tracker.is_settled(index)
