"""The jobs of one run: called when they are due, one call after the other, on the owner of their
partition.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from math import inf

from anyio import CapacityLimiter

from reactive_kafka.assignment.rebalance_hooks import (
    PartitionHook,
    RebalanceHooks,
    RevokedHook,
    as_hook_of,
)
from reactive_kafka.channel.spec import RunServices
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.handlers.calls import as_async
from reactive_kafka.handlers.jobs import JobSpec
from reactive_kafka.observe.events import JobFailed, JobLate, JobLeft
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Fails, Handle, each, is_set_within, outcome_of, told_of
from reactive_kafka.verdicts.unawaited import checked_alone

EVERYWHERE = "*"
"""The channel, in events, of what runs in each process."""
ALONE_S = 30.0
"""How long a stop waits for jobs where there is no channel: as for a channel, by default."""
LOOKS_S = 30.0
"""How long a job sleeps at most before it looks at the wall clock again, which may have been
set.
"""


class Jobs:
    """The jobs of one run of an application."""

    def __init__(
        self, specs: Sequence[JobSpec], services: RunServices, context: Context, fails: Fails
    ) -> None:
        self._jobs = [_Job(spec, services, context) for spec in specs]
        self._clock = services.clock
        # Told of a bug in a job's task; what a job raises is told as an event.
        self._fails = fails

    def with_hooks(self, settings: IncomingSettings, hooks: RebalanceHooks) -> RebalanceHooks:
        """The hooks of a channel, and those that have its jobs called where their partitions
        are.
        """
        for one in self._jobs:
            partition = one.spec.owned and one.spec.owned.of(settings)
            if partition is not None and one.channel == settings.name:
                assigned, revoked = _hooks(one, partition, settings.revoke_grace_s, self._fails)
                hooks = replace(
                    hooks,
                    on_assigned=(*hooks.on_assigned, assigned),
                    on_revoked=(*hooks.on_revoked, revoked),
                )
        return hooks

    def start(self) -> None:
        """Start those that run in each process; the others start with their partitions."""
        for one in self._jobs:
            if one.spec.owned is None:
                one.begin(self._fails)

    def drain_timeouts(self, of_channels: Mapping[str, float]) -> dict[str, float]:
        """How long a stop waits for those that run in each process: as long as for the channel that
        takes longest.
        """
        longest_s = max(of_channels.values(), default=ALONE_S)
        return {one.channel: longest_s for one in self._jobs if one.spec.owned is None}

    async def drain(self, deadlines: Mapping[str, float]) -> None:
        """Begin no call any more, and wait for those that run until the deadlines of their channels
        (monotonic).
        """
        now = self._clock.monotonic()
        await each(*(one.end(deadlines[one.channel] - now, for_good=True) for one in self._jobs))


class _Job:
    """One job of a run: a task while it may be called here, and a task of its own for each call."""

    def __init__(self, spec: JobSpec, services: RunServices, context: Context) -> None:
        self.spec = spec
        self.channel = EVERYWHERE if spec.owned is None else spec.owned.channel
        self._services = services
        self._context = context
        self._schedule = spec.schedule()
        self.is_blocking = not inspect.iscoroutinefunction(spec.function)
        call = (
            as_async(self._in_thread, CapacityLimiter(inf)) if self.is_blocking else spec.function
        )
        call = checked_alone(call, f"job {spec.name}", in_thread=self.is_blocking)
        # A stop of that waits for it.
        self._call = call if spec.owned is None else as_hook_of(self.channel, call)
        # That a call runs in, waited for or not.
        self._threads = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._task: Handle | None = None
        # No call begins until it is to be called here again.
        self._ends = False
        # Nor ever again.
        self._is_over = False

    def begin(self, fails: Fails) -> None:
        """Call it from now on when it is due."""
        if not self._is_over and (self._task is None or self._ends):
            self._ends = False
            self._task = self._services.tasks.start(self._run, f"job {self.spec.name}", fails)

    async def end(self, within_s: float | None, *, for_good: bool = False) -> None:
        """Call it no more; a call that runs may end *within_s*, if given, and is cancelled then.

        Cancellation:
            The call is cancelled at once.
        """
        self._ends = True
        self._is_over = self._is_over or for_good
        task = self._task
        is_idle = False
        if task is None:
            return
        try:
            is_idle = self._is_idle.is_set() or await is_set_within(self._is_idle, within_s)
        finally:
            if not is_idle:
                left = JobLeft(
                    channel=self.channel, job=self.spec.name, is_in_thread=self.is_blocking
                )
                self._services.observer.on(left)
            task.cancel()
            # The call's cleanup has a bound of its own.
            await asyncio.wait([task.task])
            if self._task is task:
                self._task = None

    async def _run(self) -> None:
        clock = self._services.clock
        schedule = self._schedule
        was_late = False
        schedule.begin(clock.monotonic(), clock.wall())
        while not self._ends:
            wait_s = schedule.wait_s(clock.monotonic(), clock.wall())
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, LOOKS_S))
                continue
            # A call of an earlier assignment cleans up.
            await self._is_idle.wait()
            began = clock.monotonic()
            is_late = self._threads > 0
            schedule.runs(began, clock.wall())
            if not is_late:
                await self._once()
                is_late = schedule.left_out(clock.monotonic(), clock.wall())
            if is_late and not was_late:
                took_s = clock.monotonic() - began
                self._services.observer.on(
                    JobLate(channel=self.channel, job=self.spec.name, took_s=took_s)
                )
            was_late = is_late

    async def _once(self) -> None:
        self._is_idle.clear()
        try:
            error = await outcome_of(
                self._call, f"call of {self.spec.name}", None, self._context.copy()
            )
        finally:
            self._is_idle.set()
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._services.exit(error)
        elif error is not None:
            failed = JobFailed(
                channel=self.channel, job=self.spec.name, reason=told_of(error), error=error
            )
            self._services.observer.on(failed)

    def _in_thread(self) -> object:
        self._threads += 1
        try:
            return self.spec.function()
        finally:
            self._threads -= 1


def _hooks(
    job: _Job, partition: TopicPartition, grace_s: float, fails: Fails
) -> tuple[PartitionHook, RevokedHook]:
    """What has a job be called while this process has its partition."""

    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        if partition in partitions:
            job.begin(fails)

    async def revoked(partitions: frozenset[TopicPartition], lost: bool) -> None:
        # The next owner begins when this returns. Nothing ends a thread, so it is waited for as
        # long as there is time.
        if partition in partitions:
            await job.end(0.0 if lost else None if job.is_blocking else grace_s)

    return assigned, revoked
