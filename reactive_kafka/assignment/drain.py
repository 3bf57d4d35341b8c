"""Waits for the handlers of partitions that are about to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from math import inf

from reactive_kafka.assignment.history import During
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.observe.events import StopWaits
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag, is_set_within
from reactive_kafka.verdicts.acknowledger import Acknowledger

CUT_OFF_S = 10.0
"""How long a stop without a grace waits for jobs that it has cancelled, or ``drain_timeout`` if
that is less."""

REPORT_AFTER_S = 1.0
"""How long a stop waits for records before it reports which, and for how long at most."""


class HandlerDrain:
    """Lets no handler start, and waits for those that run; of one client."""

    def __init__(
        self,
        context: ClientContext,
        owned: ClientPartitions,
        workers: ChannelWorkers,
        acknowledger: Acknowledger,
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._owned = owned
        self._workers = workers
        # While something waits here, each verdict and each worker that leaves a lane calls
        # changed().
        self._awaited_by = acknowledger.awaited_by
        self._changed = Flag()
        # When each of the two began to wait for handlers: a stop may come during a revocation, and
        # the other way round.
        self._waits_since: dict[During, float] = {}
        self._has_reported = False

    def begin(self, during: During) -> None:
        """A revocation or a stop begins to wait for handlers."""
        self._waits_since[during] = self._clock.monotonic()

    def end(self) -> None:
        """Nothing waits for handlers any more."""
        self._awaited_by.discard(self)

    def waited_s(self, during: During) -> float:
        """How long a revocation or a stop has waited for handlers."""
        now = self._clock.monotonic()
        return now - self._waits_since.get(during, now)

    def changed(self) -> None:
        """A worker left a lane, or a verdict was given: look again whether the wait is over."""
        self._changed.set()

    def take_nothing_new(
        self, partitions: Collection[TopicPartition] | None = None, *, for_good: bool = False
    ) -> None:
        """Let no handler be called for records of these (None: of all).

        Args:
            for_good: Nor after the next assignment.
        """
        if for_good:
            self._waits_since.setdefault("stop", self._clock.monotonic())
            self._owned.is_ending = True
        self._awaited_by.add(self)
        self._owned.drain(partitions)
        self._workers.suspended()

    async def drain(
        self,
        deadline: float,
        partitions: Collection[TopicPartition] | None = None,
        *,
        most: float = inf,
        to_the_end: bool = False,
    ) -> None:
        """Take nothing new of these partitions (None: of all), and wait for handlers that run.

        Jobs that run on a cluster are cancelled in time, or when the grace of a revocation is over,
        and waited for until they do nothing any more; all of that takes ``drain_timeout`` at most.

        Args:
            deadline: Until when handlers are waited for; monotonic.
            most: Until when jobs are waited for.
            to_the_end: The process ends: wait also for handlers whose partition has gone or was
                reset.
        """
        self.take_nothing_new(partitions, for_good=to_the_end)
        waits_for_replaced = to_the_end or self._workers.works_elsewhere

        def are_over() -> bool:
            if waits_for_replaced and self._owned.has_replaced_lanes():
                return False
            return not self._owned.running(partitions)

        # Cancelling a job takes time, too. A revocation has it after the grace; a stop keeps a part
        # of its own time for that, so the first wait ends earlier than the whole.
        now = self._clock.monotonic()
        drain_timeout_s = self._context.settings.drain_timeout_s
        for_jobs_s = min(drain_timeout_s, CUT_OFF_S if to_the_end else most - now)
        whole_s = max(deadline - now, for_jobs_s)
        ends = min(deadline, now + whole_s - self._workers.reserve_s(whole_s))
        wait = self.until_reported if to_the_end else self.until
        if await wait(are_over, ends):
            return
        try:
            async with asyncio.timeout(max(0.0, now + whole_s - self._clock.monotonic())):
                await self._workers.cut_off()
        except TimeoutError:
            # A job does not end, which was logged; the channel cannot wait for ever.
            pass
        await self.until(are_over, deadline)

    async def until_settled(
        self, deadline: float, partitions: Collection[TopicPartition] | None, during: During
    ) -> None:
        """Wait until all records of these partitions are settled, or the deadline is over."""
        wait = self.until_reported if during == "stop" else self.until
        await wait(lambda: self._owned.are_settled(partitions), deadline)

    async def until(self, holds: Callable[[], bool], deadline: float) -> bool:
        """Wait until a condition holds; False if it does not by the deadline."""
        while not holds():
            self._changed.clear()
            if not await is_set_within(self._changed, deadline - self._clock.monotonic()):
                return holds()
        return True

    async def until_reported(self, holds: Callable[[], bool], deadline: float) -> bool:
        """Wait as :meth:`until` does, at a stop; a long wait is reported once."""
        report_at = self._clock.monotonic() + REPORT_AFTER_S
        if await self.until(holds, min(deadline, report_at)):
            return True
        left_s = deadline - self._clock.monotonic()
        if left_s > 0 and not self._has_reported:
            self._has_reported = True
            self._context.observer.on(
                StopWaits(
                    channel=self._context.channel,
                    records=self._owned.in_flight(),
                    oldest=tuple(self._owned.unsettled()),
                    left_s=left_s,
                )
            )
        return await self.until(holds, deadline)
