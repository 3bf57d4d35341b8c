"""Stops handling records while a client may be out of its group without knowing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from reactive_kafka.broker.client import Consumer
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.observe.events import SessionOver, SessionUp
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import PartitionState
from reactive_kafka.tasks import aligned_wait_s

LOOK_S = 0.1
"""How soon it is noticed that the group answers again."""

AGAIN_S = 2.0
"""How often to look when the session ends. That may come nearer: a consumer learns how long its
session is after its start, and an operator can change it.
"""

BEGUN = frozenset({PartitionState.STARTING, PartitionState.READING})


class Lifeline:
    """Suspends the lanes of one client once its session is over by its own clock.

    From then on the group may have given its partitions to others. The client learns that only when
    it reaches its coordinator again. Until then it would handle all that it has fetched, at the
    same time as the next owner. Handlers that run may end; their acks wait for the next assignment,
    as those of any partition that may be retained.

    Args:
        resumed: Called when workers may take records again.
        fail: Called with an unexpected error.
    """

    def __init__(
        self,
        context: ClientContext,
        owned: ClientPartitions,
        lanes: LaneQueue,
        workers: ChannelWorkers,
        resumed: Callable[[], None],
        fail: Callable[[BaseException], object],
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._owned = owned
        self._lanes = lanes
        self._workers = workers
        self._resumed = resumed
        self._fail = fail
        self._timer: asyncio.TimerHandle | None = None
        # When the session ended; monotonic.
        self.over_since: float | None = None

    def begin(self, consumer: Consumer) -> None:
        """Watch the session of a client that has started, until :meth:`end`."""
        try:
            left_s = consumer.session_ends_at() - self._clock.monotonic()
            was_alone = self._owned.is_alone
            self._owned.is_alone = left_s <= 0
            if left_s <= 0:
                self._suspend(left_s)
            elif was_alone:
                self._resume()
        except Exception as error:
            # A bug, of ours or of the client: it stops this channel, and no other.
            self._fail(error)
            return
        # A timer and no task: nothing else may keep it from looking in time.
        if left_s < inf:
            again_s = aligned_wait_s(AGAIN_S, self._clock.monotonic())
            wait_s = min(left_s, again_s) if left_s > 0 else LOOK_S
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.begin, consumer)

    def end(self) -> None:
        """Stop watching: the client is being closed, or replaced."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.over_since = None
        self._owned.is_alone = False

    def _suspend(self, left_s: float) -> None:
        # Each time again: reading may start, or be moved by a seek, without the group. Lanes that
        # are read have no other reason to be suspended: what is revoked or drains is not read.
        lanes = [
            partition.lane for partition in self._owned.table.reading if partition.lane is not None
        ]
        if not lanes:
            return
        running = [lane for lane in lanes if not lane.revoked]
        for lane in running:
            lane.change("suspend")
        if running:
            self._workers.suspended()
        if self.over_since is None:
            self.over_since = self._clock.monotonic() + left_s
            self._context.problems.session_over = True
            self._context.observer.on(SessionOver(channel=self._context.channel))

    def _resume(self) -> None:
        # Lanes in other states are suspended by a rebalance, and wait for its end.
        for partition in self._owned.table:
            lane = partition.lane
            if partition.state in BEGUN and lane is not None and lane.revoked:
                lane.change("retain")
                self._lanes.offer(lane)
        self.over_since = None
        self.group_answers()
        self._resumed()

    def group_answers(self) -> None:
        """Report the end of a session's outage, if its beginning was reported.

        The client that notices the end may be another one than the client whose session was over.
        """
        if self._context.problems.session_over:
            self._context.problems.session_over = False
            self._context.observer.on(SessionUp(channel=self._context.channel))

    def not_ready(self, now: float) -> str | None:
        """Why no record is handled; None: records are."""
        if self.over_since is None:
            return None
        over_s = now - self.over_since
        return (
            f"the group does not answer, and the session has been over for {over_s:.0f} s: "
            "no record is started"
        )
