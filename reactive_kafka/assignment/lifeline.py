"""A member that may be alone: once its session is over by its own clock, no record of its
partitions is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.broker.client import Consumer
from reactive_kafka.observe.events import SessionOver, SessionUp
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import PartitionState

LOOK_S = 0.1
"""How soon it is noticed that the group answers again."""

BEGUN = frozenset({PartitionState.STARTING, PartitionState.READING})


class Lifeline:
    """Suspends the lanes of one client while its group may have given its partitions to others.

    The client learns that it was put out only when it reaches its coordinator again. Until then it
    would work through all that it has fetched, and fetches, beside the next owner. What runs may
    end; its acks wait for the next assignment, as those of any partition that may be retained.
    """

    def __init__(
        self,
        parts: ClientParts,
        owned: ClientPartitions,
        # What waits in the lanes may be taken again.
        resumed: Callable[[], None],
        fail: Callable[[BaseException], object],
    ) -> None:
        self._parts = parts
        self._owned = owned
        self._resumed = resumed
        self._fail = fail
        self._timer: asyncio.TimerHandle | None = None
        # When the session ended; monotonic.
        self.over_since: float | None = None

    def begin(self, consumer: Consumer) -> None:
        """Watch the session of a client that has started, until :meth:`end`."""
        try:
            left_s = consumer.session_ends_at() - self._parts.clock.monotonic()
            was_alone = self._owned.is_alone
            self._owned.is_alone = left_s <= 0
            if left_s <= 0:
                self._suspend(left_s)
            elif was_alone:
                self._go_on()
        except Exception as error:
            # A bug, of ours or of the client: it stops this channel, and no other.
            self._fail(error)
            return
        # A timer and no task: it fires once a session, as each answer moves the end.
        if left_s < inf:
            wait_s = left_s if left_s > 0 else LOOK_S
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.begin, consumer)

    def end(self) -> None:
        """The client is being closed, or replaced."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.over_since = None
        self._owned.is_alone = False

    def _suspend(self, left_s: float) -> None:
        # Looked for each time: reading may start, or be moved by a seek, without the group. Who is
        # read has no other reason to be suspended: what is revoked, or about to go, is not read.
        lanes = [one.lane for one in self._owned.table.reading if one.lane is not None]
        if not lanes:
            return
        if running := [lane for lane in lanes if not lane.revoked]:
            for lane in running:
                lane.change("suspend")
            self._parts.workers.suspended()
        if self.over_since is None:
            self.over_since = self._parts.clock.monotonic() + left_s
            self._parts.observer.on(SessionOver(channel=self._parts.settings.name))

    def _go_on(self) -> None:
        # Others are suspended for a rebalance, and wait for its end.
        for one in self._owned.table:
            if one.state in BEGUN and one.lane is not None and one.lane.revoked:
                one.lane.change("retain")
                self._parts.lanes.offer(one.lane)
        if self.over_since is not None:
            self.over_since = None
            self._parts.observer.on(SessionUp(channel=self._parts.settings.name))
        self._resumed()

    def not_ready(self, now: float) -> str | None:
        """Why no record is started; None: they are."""
        if self.over_since is None:
            return None
        over_s = now - self.over_since
        return f"the group does not answer, and the session has been over for {over_s:.0f} s: no record is started"
