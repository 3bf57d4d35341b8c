"""Calls the jobs of one run when they are due, one call of a job after the other."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from math import inf

from anyio import CapacityLimiter

from reactive_kafka.assignment.rebalance_hooks import (
    HOOK_CLIENT,
    PartitionHook,
    RebalanceHooks,
    RevokedHook,
    as_hook_of,
)
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.handlers.blocking_calls import as_async
from reactive_kafka.handlers.declared_jobs import DeclaredJob
from reactive_kafka.observe.events import JobFailed, JobLate, JobLeft
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import (
    Fails,
    Flag,
    Handle,
    all_ended,
    is_set_within,
    outcome_of,
    outcome_text,
)
from reactive_kafka.verdicts.unawaited import checked_alone

EVERYWHERE = "*"
"""The channel, in events, of a job that runs in each process."""
ALONE_S = 30.0
"""How long a stop waits for jobs if the application has no channel: a channel's default."""
LOOKS_S = 30.0
"""How long a job sleeps at most before it looks at the wall clock again: it may have been set."""


class Jobs:
    """The jobs of one run of an application."""

    def __init__(
        self, jobs: Sequence[DeclaredJob], services: RunServices, context: Context, fails: Fails
    ) -> None:
        self._jobs = [_RunningJob(job, services, context) for job in jobs]
        self._clock = services.clock
        # Called with a bug in a job's task. What a job itself raises becomes an event.
        self._fails = fails

    def with_hooks(self, settings: IncomingSettings, hooks: RebalanceHooks) -> RebalanceHooks:
        """Return the hooks of a channel, and behind them those that begin and end its jobs."""
        for job in self._jobs:
            if job.owner is None or job.channel != settings.name:
                continue
            partition = job.owner.partition_in(settings)
            if partition is not None:
                assigned, revoked = _hooks(job, partition, settings.revoke_grace_s, self._fails)
                hooks = replace(
                    hooks,
                    on_assigned=(*hooks.on_assigned, assigned),
                    on_revoked=(*hooks.on_revoked, revoked),
                )
        return hooks

    def start(self) -> None:
        """Start the jobs that run in each process. The others start with their partitions."""
        for job in self._jobs:
            if job.owner is None:
                job.begin(self._fails)

    def drain_timeouts(self, of_channels: Mapping[str, float]) -> dict[str, float]:
        """Return how long a stop waits for the jobs that run in each process.

        That is as long as for the channel with the longest time.
        """
        longest_s = max(of_channels.values(), default=ALONE_S)
        return {job.channel: longest_s for job in self._jobs if job.owner is None}

    async def drain(self, deadlines: Mapping[str, float]) -> None:
        """Begin no more calls, and wait for those that run.

        Args:
            deadlines: Channel -> until when its calls may run (monotonic).
        """
        now = self._clock.monotonic()
        await all_ended(
            *(job.end(deadlines[job.channel] - now, for_good=True) for job in self._jobs)
        )


class _RunningJob:
    """One job of a run: a task while it may be called here, and a task of its own for each call."""

    def __init__(self, job: DeclaredJob, services: RunServices, context: Context) -> None:
        self.name = job.name
        self.owner = job.owner
        self.channel = EVERYWHERE if job.owner is None else job.owner.channel
        self._function = job.function
        self._services = services
        self._context = context
        self._schedule = job.schedule()
        self.is_blocking = not inspect.iscoroutinefunction(job.function)
        call = job.function
        if self.is_blocking:
            call = as_async(self._in_thread, CapacityLimiter(inf))
        call = checked_alone(call, f"job {self.name}", in_thread=self.is_blocking)
        if job.owner is not None:
            # It counts as a hook of its channel, so a stop of the channel waits for it.
            call = as_hook_of(self.channel, call)
        self._call = call
        # Threads that calls run in now. A call that is cancelled leaves its thread behind.
        self._threads = 0
        # When the last call began (monotonic).
        self._began = 0.0
        self._no_call_runs = Flag()
        self._no_call_runs.set()
        self._task: Handle | None = None
        # Set when the present run of the task begins no more calls.
        self._ends = Flag()
        # The clients of the channel that have the partition, as far as they know.
        self._clients: set[object] = set()
        # No call begins ever again.
        self._is_over = False

    def begin(self, fails: Fails, client: object = None) -> None:
        """Call the job when it is due, from now on, because *client* has its partition."""
        self._clients.add(client)
        if not self._is_over and (self._task is None or self._ends.is_set()):
            self._ends = Flag()
            run = partial(self._run, self._ends)
            self._task = self._services.tasks.start(run, f"job {self.name}", fails)

    async def end(
        self, within_s: float | None, client: object = None, *, for_good: bool = False
    ) -> None:
        """Begin no more calls, and wait for the call that runs.

        The job continues if another client of the channel has the partition by now.

        Args:
            within_s: After how many seconds the call is cancelled. None: never, however long it
                takes.
            client: The client that has the partition no more.
            for_good: The job never begins again.

        Cancellation:
            The call is cancelled at once.
        """
        self._clients.discard(client)
        if self._clients and not for_good:
            return
        self._ends.set()
        self._is_over = self._is_over or for_good
        task = self._task
        has_ended = False
        if task is None:
            return
        try:
            has_ended = self._no_call_runs.is_set() or await is_set_within(
                self._no_call_runs, within_s
            )
        finally:
            if not has_ended:
                left = JobLeft(channel=self.channel, job=self.name, is_in_thread=self.is_blocking)
                self._services.observer.on(left)
            task.cancel()
            # This wait ends: the cleanup of the call has a bound of its own.
            await asyncio.wait([task.task])

    async def _run(self, ends: Flag) -> None:
        """Call the job when it is due, until *ends* is set; the calls never overlap."""
        clock = self._services.clock
        schedule = self._schedule
        was_late = False
        schedule.begin(clock.monotonic(), clock.wall())
        while not ends.is_set():
            wait_s = schedule.wait_s(clock.monotonic(), clock.wall())
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, LOOKS_S))
                continue
            # A call of an earlier assignment may still be cleaning up.
            await self._no_call_runs.wait()
            if ends.is_set():
                return
            schedule.call_begins(clock.monotonic(), clock.wall())
            if self._threads:
                # The thread of that call runs on. This time is left out, as if the call did.
                is_late = True
            else:
                self._began = clock.monotonic()
                await self._once()
                is_late = schedule.call_ended(clock.monotonic(), clock.wall())
            if is_late and not was_late:
                took_s = clock.monotonic() - self._began
                self._services.observer.on(
                    JobLate(channel=self.channel, job=self.name, took_s=took_s)
                )
            was_late = is_late

    async def _once(self) -> None:
        self._no_call_runs.clear()
        try:
            error = await outcome_of(self._call, f"call of {self.name}", None, self._context.copy())
        finally:
            self._no_call_runs.set()
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._services.exit(error)
        elif error is not None:
            failed = JobFailed(
                channel=self.channel, job=self.name, reason=outcome_text(error), error=error
            )
            self._services.observer.on(failed)

    def _in_thread(self) -> object:
        self._threads += 1
        try:
            return self._function()
        finally:
            self._threads -= 1


def _hooks(
    job: _RunningJob, partition: TopicPartition, grace_s: float, fails: Fails
) -> tuple[PartitionHook, RevokedHook]:
    """Return the hooks that have a job called while this process has its partition.

    A job of a partition is called between two hooks of its channel. So a rebalance has time for
    it, and the next owner of the partition begins after it.
    """

    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        if partition in partitions:
            job.begin(fails, HOOK_CLIENT.get())

    async def revoked(partitions: frozenset[TopicPartition], lost: bool) -> None:
        # The next owner of the partition begins when this returns.
        if partition not in partitions:
            return
        within_s: float | None = grace_s
        if lost:
            within_s = 0.0
        elif job.is_blocking:
            # Nothing ends a thread, so it is waited for as long as the rebalance lasts.
            within_s = None
        await job.end(within_s, HOOK_CLIENT.get())

    return assigned, revoked
