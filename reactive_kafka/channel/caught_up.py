"""Finds out when everything that was there at an assignment is handled.

Then it calls the ``on_caught_up`` hooks, and a channel with ``ready = "caught-up"`` is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from reactive_kafka.assignment.rebalance_hooks import PartitionHook, as_hook_of
from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import BrokerError
from reactive_kafka.observe.events import HookFailed
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import read_up_to
from reactive_kafka.tasks import Flag, outcome_of, outcome_text

LOOK_S = 0.05
"""How often this looks whether everything is handled, from the assignment on."""
ASK_S = 5.0
"""How often the ends of the logs are asked for meanwhile. A log that was truncated, or a topic that
was recreated, has less to handle.
"""
RETRY_S = 0.5
"""How soon they are asked for again if no broker has answered."""


@dataclass(slots=True)
class _Log:
    partition: TopicPartition
    # Infinite until a broker has said where the log ends.
    end: float = inf


class AssignmentEnds:
    """Which partitions of an assignment are not handled up to their ends. No I/O, no clock."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions = partitions
        self._left: list[_Log] = [_Log(partition) for partition in sorted(partitions)]

    @property
    def left(self) -> frozenset[TopicPartition]:
        """The partitions with records that are not handled."""
        return frozenset(log.partition for log in self._left)

    def records_left(self, positions: Mapping[TopicPartition, int]) -> float:
        """Return how many records are left. Infinite: an end or a position is not known yet."""
        return sum(
            max(0, log.end - positions[log.partition]) if log.partition in positions else inf
            for log in self._left
        )

    def found(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note where logs end now. The first answer counts, and later ones that are lower."""
        for log in self._left:
            log.end = min(log.end, ends.get(log.partition, log.end))

    def handled(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Return whether everything is handled if all records before these positions are."""
        self._left = [log for log in self._left if positions.get(log.partition, -1) < log.end]
        return not self._left


@dataclass(frozen=True, slots=True)
class Behind:
    """What a client has to handle until it has caught up."""

    partitions: int
    # Infinite: it is not known yet.
    records: float


def not_caught_up(clients: Iterable[CatchUp]) -> str | None:
    """Return why a channel with ``ready = "caught-up"`` is not ready. None: it has caught up."""
    behind = [one for client in clients if (one := client.behind()) is not None]
    if not behind:
        return None
    partitions = sum(one.partitions for one in behind)
    records = sum(one.records for one in behind)
    if records == inf:
        return "catching up: it is not known yet how many records are left"
    of = f"{partitions} partition{'' if partitions == 1 else 's'}"
    left = f"{records:.0f} record{'' if records == 1 else 's'}"
    return f"catching up: {left} in {of} left to handle"


class CatchUp:
    """Watches whether one client has caught up, and calls its hooks once for each assignment."""

    def __init__(
        self,
        context: ClientContext,
        table: PartitionTable,
        hooks: Sequence[PartitionHook],
        consumer: Callable[[], Consumer | None],
        exit: Callable[[BaseException], None],
        *,
        delays_readiness: bool,
    ) -> None:
        self._channel = context.channel
        self._clock = context.clock
        self._observer = context.observer
        self._table = table
        self._hooks = hooks
        self._consumer = consumer
        # Called when a hook asks the process to end.
        self._exit = exit
        self._delays_readiness = delays_readiness
        # An assignment with partitions was caught up. A later one does not take readiness back.
        self._has_caught_up = False
        # The ends that the current assignment has to reach. None: they are not known yet.
        self._ends: AssignmentEnds | None = None
        self._assignments = 0
        # The last assignment that was caught up.
        self._reached = 0
        # The last assignment whose hooks have ended, or that has no partitions.
        self._told = 0
        self._began = Flag()

    @property
    def is_wanted(self) -> bool:
        return bool(self._hooks) or self._delays_readiness

    @property
    def is_reached(self) -> bool:
        """Whether all of this assignment is known to be handled."""
        return self._reached == self._assignments > 0

    @property
    def is_pending(self) -> bool:
        """Whether the hooks of this assignment are still to be called, or have not ended."""
        return self.is_wanted and self._told != self._assignments

    def behind(self) -> Behind | None:
        """Return how far the channel is from being ready. None: catching up does not delay it.

        It is None before the first assignment, too: health then says that there is none.
        """
        if not self._delays_readiness or self._has_caught_up or self.is_reached:
            return None
        if self._ends is None:
            return None if self._assignments == 0 else Behind(0, inf)
        return Behind(
            partitions=len(self._ends.left), records=self._ends.records_left(self._handled())
        )

    def begins(self) -> None:
        """Note that an assignment has come. It replaces one that was not caught up."""
        self._assignments += 1
        self._ends = None
        self._began.set()

    async def run(self) -> None:
        """Watch one assignment after the other, for ever."""
        while True:
            await self._began.wait()
            self._began.clear()
            assignment = self._assignments
            if partitions := self._table.ours:
                self._ends = AssignmentEnds(partitions)
                await self._watch(self._ends, assignment)
            else:
                self._reached = assignment
                self._told = assignment

    async def _watch(self, ends: AssignmentEnds, assignment: int) -> None:
        ask_at = self._clock.monotonic()
        while self._assignments == assignment:
            now = self._clock.monotonic()
            if now >= ask_at:
                ask_at = now + await self._ask(ends)
            if ends.handled(self._handled()):
                self._reached = assignment
                self._has_caught_up = True
                await self._call_hooks(ends.partitions)
                self._told = assignment
                return
            await asyncio.sleep(LOOK_S)

    def _handled(self) -> dict[TopicPartition, int]:
        """Return partition -> the position before which every record is handled."""
        trackers = self._table.trackers
        left = frozenset() if self._ends is None else self._ends.left
        return {partition: trackers[partition].safe for partition in left if partition in trackers}

    async def _ask(self, ends: AssignmentEnds) -> float:
        """Ask where the logs end of what is left; return in how many seconds to ask again."""
        consumer = self._consumer()
        if consumer is None:
            return LOOK_S
        try:
            ends.found(read_up_to(self._table.ranges, await consumer.end_offsets(list(ends.left))))
        except BrokerError:
            # The connection reports why the broker cannot be used.
            return RETRY_S
        return ASK_S

    async def _call_hooks(self, partitions: frozenset[TopicPartition]) -> None:
        for hook in self._hooks:
            call = as_hook_of(self._channel, partial(hook, partitions))
            error = await outcome_of(call, f"on_caught_up of {self._channel}", None)
            if error is None:
                continue
            reason = outcome_text(error)
            self._observer.on(
                HookFailed(channel=self._channel, hook="on_caught_up", reason=reason, error=error)
            )
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._exit(error)
