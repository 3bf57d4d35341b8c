"""The workers of a Spark channel: they keep columns instead of records, and run a job for each
batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from math import inf
from typing import Any

from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.workers.interface import (
    ChannelWorkers,
    WorkerSetup,
    WorkerSignals,
)
from reactive_kafka.observe.events import Observer
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.columns import record_batch
from reactive_kafka.spark.batches.cuts import BatchQueue
from reactive_kafka.spark.batches.runs import RecordRun, give_back, lanes_of, plan, trackers_of
from reactive_kafka.spark.channel.ahead import Ahead
from reactive_kafka.spark.channel.job import SparkJob
from reactive_kafka.spark.channel.refetch import Fetch
from reactive_kafka.spark.channel.runner import SparkRunner
from reactive_kafka.spark.channel.settle import JobContext, RunOutcome

# That a stop leaves for ending jobs; half of its time where that is less.
MOST_RESERVE_S = 10.0
# The pause after the group has refused a plan: the rebalance that explains it is on its way.
NOT_OURS_S = 0.5
# How often Spark is asked whether it is ready.
READY_EVERY_S = 0.2


class SparkDispatcher(ChannelWorkers):
    """Runs Spark jobs on the records in the lanes, at most ``max_concurrent_jobs`` at once.

    The pieces in the lanes are Arrow record batches, made as records arrive, or Python ranges of
    offsets that executors will read; the lanes need only their ``len`` and slices.
    """

    takes_batches = True
    # The poison clock of a record does not run while its job does.
    works_elsewhere = True

    def __init__(
        self,
        setup: WorkerSetup,
        runner: SparkRunner,
        signals: WorkerSignals,
        observer: Observer,
        fetch: Fetch,
    ) -> None:
        self._setup = setup
        self._clock = setup.clock
        self._context = JobContext(setup.settings, runner, signals, fetch, observer)
        self._queue = BatchQueue(setup.settings, setup.lanes, self._is_free)
        # When each has begun.
        self._jobs: dict[SparkJob, float] = {}
        # Of the next batch, which is planned.
        self._ahead: Ahead | None = None
        # Cut off; go on if their partition is retained.
        self._unsettled: list[tuple[RecordRun, RunOutcome]] = []
        # Id of a range that is to run again -> how often it has run.
        self._attempts: dict[str, int] = {}
        self._names = count(1)
        # Until then no batch is taken, and no outcome is carried out.
        self._not_before = -inf
        self._is_running = self._is_closed = False
        self._changed = asyncio.Event()

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        # Executors read offsets.
        return records if isinstance(records, range) else record_batch(partition, records)

    def wants(self, lane: Lane, records: int) -> int:
        # To keep what a poll brings takes the loop some ms, which a batch that is about to be
        # called would wait. What comes behind the next one has time until then: no more than two
        # batches are here.
        is_hurry = (self._jobs and self._ahead is not None) or any(
            not job.has_called for job in self._jobs
        )
        return 0 if is_hurry else self._queue.wants(lane, records)

    def work_is_there(self) -> None:
        self._changed.set()
        if not self._is_running:
            self._is_running = True
            self._setup.spawn(self._work, f"spark batches of {self._setup.settings.name}")

    async def _work(self) -> None:
        while not self._is_closed:
            self._changed.clear()
            wait_s = self._go_on()
            self._look_ahead()
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    READY_EVERY_S if wait_s <= 0 else None if wait_s == inf else wait_s
                ):
                    await self._changed.wait()

    def _go_on(self) -> float:
        """Start what may be started; the seconds until there is something to do, as
        :meth:`_wait_s`.
        """
        self._go_on_settling()
        # Records that are still queued can be let go at once when their partition is revoked; those
        # of a job have to wait for its end. So none are taken before Spark can run them.
        while (
            wait_s := self._wait_s(self._clock.monotonic())
        ) <= 0 and self._context.runner.engine.ready:
            runs = self._queue.take()
            self._start(
                runs, 1 + max(self._attempts.pop(self._context.id_of(run), 0) for run in runs)
            )
        return wait_s

    def _wait_s(self, now: float) -> float:
        """The seconds until there is something to do, infinite if unknown; 0 or less: a batch may
        be taken.
        """
        due = inf
        if len(self._jobs) < self._setup.settings.spark.max_concurrent_jobs:
            due = max(self._queue.due(), self._not_before)
        if self._unsettled and self._not_before > now:
            due = min(due, self._not_before)
        return due - now

    def _look_ahead(self) -> None:
        """While a batch runs: plan the next one if it is full, and have its plan stored and its
        DataFrame made.

        It is taken from the lanes no sooner than any other, as a planned range is. With several
        jobs at once it could hold up records that another job would take.
        """
        if self._ahead is not None or self._setup.settings.spark.max_concurrent_jobs > 1:
            return
        if not (self._jobs and self._context.runner.engine.ready):
            return
        runs = self._queue.ahead(lanes_of([run for job in self._jobs for run in job.runs]))
        if not runs:
            return
        plan(runs)
        self._ahead = Ahead(self._context, runs)

        async def store() -> None:
            # In vain: its job asks for it again.
            await self._context.signals.store_plans(trackers_of(runs))

        self._setup.spawn(store, f"Spark plan of {self._setup.settings.name}")

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.drop()
            self._ahead = None

    def _is_free(self, lane: Lane) -> bool:
        """Whether no outcome of a partition is pending, and no job of an earlier assignment of it
        still runs.
        """
        tracker = lane.tracker
        others = [
            run.tracker for job in self._jobs for run in job.runs if run.tracker is not tracker
        ]
        unsettled = [run.tracker for run, _ in self._unsettled]
        return (
            all(one.partition != tracker.partition for one in others) and tracker not in unsettled
        )

    def _go_on_settling(self) -> None:
        """Carry out the outcomes that were cut off, of partitions that have been retained."""
        self._unsettled = [one for one in self._unsettled if not one[0].tracker.is_closed]
        retained = [one for one in self._unsettled if not one[0].lane.revoked]
        if retained and self._clock.monotonic() >= self._not_before:
            self._unsettled = [one for one in self._unsettled if one[0].lane.revoked]
            self._start([run for run, _ in retained], 1, [outcome for _, outcome in retained])

    def _start(
        self, runs: Sequence[RecordRun], attempt: int, outcomes: Sequence[RunOutcome] | None = None
    ) -> None:
        ahead = None
        if outcomes is None and self._ahead is not None:
            ahead = self._ahead.only_for(runs)
            self._ahead = None
        lanes = lanes_of(runs)

        def calls() -> None:
            for lane in lanes:
                self._context.signals.progress(lane)

        records = sum(run.records for run in runs)
        untold = [self._setup.lanes.batch_taken()] if outcomes is None else []

        def starts() -> None:
            # Counts for ``rate_limit``, the first time. Not when it was taken: it may have waited
            # for its turn, and the next one would come right behind it. This knows nothing of the
            # job, or a cycle would keep its records.
            if untold:
                untold.pop()(records)
                self._changed.set()

        job = SparkJob(self._context, runs, attempt, calls, starts, outcomes, ahead)
        self._jobs[job] = self._clock.monotonic()
        for lane in lanes:
            self._setup.lanes.hold(lane)

        async def run() -> None:
            try:
                await job.run()
            finally:
                if untold:
                    untold.pop()(0)
                self._ended(job)
            if not self._is_closed:
                # At once, and not in the turn of another task: what a poll brings would come in
                # between.
                self._go_on()

        self._setup.spawn(run, f"spark batch {next(self._names)} of {self._setup.settings.name}")

    def _ended(self, job: SparkJob) -> None:
        """A job is over: runs without an outcome wait again, unless their partition is gone."""
        self._setup.totals.durations.observe(self._clock.monotonic() - self._jobs.pop(job))
        self._setup.totals.retries += job.retries
        for run in reversed(job.left):
            if not run.tracker.is_closed:
                give_back(run.slices)
                self._attempts[self._context.id_of(run)] = job.attempts.begun
        self._unsettled += job.unsettled
        if job.was_refused or (job.unsettled and job.only_settles):
            self._not_before = self._clock.monotonic() + NOT_OURS_S
        for lane in lanes_of(job.runs):
            self._setup.lanes.release(lane)
            self._context.signals.progress(lane)
        self._changed.set()

    def stop_retrying(self) -> None:
        for job in self._jobs:
            job.stop_waiting()

    def suspended(self) -> None:
        self._drop_ahead()
        self._queue.forget_weights()
        for job in self._jobs:
            if job.is_revoked:
                job.stop_waiting()

    def reserve_s(self, most_s: float) -> float:
        return min(MOST_RESERVE_S, most_s / 2) if self._jobs else 0.0

    async def cut_off(self) -> None:
        """Cancel the jobs of revoked lanes. Records without an outcome are put back: the next owner
        runs them again.
        """
        jobs = [job for job in self._jobs if job.is_revoked]
        for job in jobs:
            job.cut_off()
        await asyncio.gather(*(job.over.wait() for job in jobs))

    async def over(self) -> None:
        await asyncio.gather(*(job.over.wait() for job in self._jobs))

    def abandon(self, lane: Lane) -> None:
        """A partition is gone, or read again from elsewhere: cancel its job. Until that has ended
        no other starts.
        """
        if self._ahead is not None and self._ahead.has(lane):
            self._drop_ahead()
        for job in self._jobs:
            if any(run.lane is lane for run in job.runs):
                job.cut_off()
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._drop_ahead()
        for job in self._jobs:
            job.cut_off()
        self._changed.set()
