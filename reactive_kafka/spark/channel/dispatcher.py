"""Keeps the records of a Spark channel as columns, and starts a job for each batch of them."""

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
    LaneProgress,
    WorkerSetup,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.columns import record_batch
from reactive_kafka.spark.batches.cuts import BatchQueue
from reactive_kafka.spark.batches.runs import RecordRun, give_back, lanes_of, plan, trackers_of
from reactive_kafka.spark.channel.batch_job import SparkJob
from reactive_kafka.spark.channel.frame_ahead import FrameAhead
from reactive_kafka.spark.channel.refetch import Fetch
from reactive_kafka.spark.channel.runner import SparkRunner
from reactive_kafka.spark.channel.settle import JobContext, RunOutcome
from reactive_kafka.tasks import Flag
from reactive_kafka.tracking.tracker import OffsetTracker

# How much of the time of a stop is reserved for ending jobs; at most half of it.
MOST_RESERVE_S = 10.0
# The pause after the group has refused a plan. The rebalance behind that arrives soon.
REFUSED_PLAN_PAUSE_S = 0.5
# How often it looks whether Spark is ready.
READY_POLL_S = 0.2


class SparkDispatcher(ChannelWorkers):
    """Runs Spark jobs on the records in the lanes, at most ``max_concurrent_jobs`` at once.

    The lanes hold Arrow record batches, made as records arrive, or Python ranges of offsets that
    executors will read. The lanes only use their ``len`` and slices of them.
    """

    takes_batches = True
    # A record does not become poison while its job runs.
    works_elsewhere = True

    def __init__(
        self,
        setup: WorkerSetup,
        runner: SparkRunner,
        fetch: Fetch,
    ) -> None:
        self._setup = setup
        self._clock = setup.channel.clock
        self._progress = LaneProgress(setup.channel, setup.acknowledger)
        self._context = JobContext(
            channel=setup.channel,
            acknowledger=setup.acknowledger,
            runner=runner,
            exit=setup.exit,
            store_plans=setup.store_plans,
            fetch=fetch,
        )
        self._queue = BatchQueue(setup.settings, setup.lanes, self._is_free)
        # Job -> when it has started.
        self._jobs: dict[SparkJob, float] = {}
        # The DataFrame of the next batch, which is planned already.
        self._next_frame: FrameAhead | None = None
        # Outcomes that were cut off. They are carried out if their partition is retained.
        self._unsettled: list[tuple[RecordRun, RunOutcome]] = []
        # Tracker and id of a range that will run again -> how often it has run.
        self._attempts: dict[tuple[OffsetTracker, str], int] = {}
        self._job_numbers = count(1)
        # Until this time no batch is taken, and no outcome is carried out.
        self._not_before = -inf
        self._is_running = False
        self._is_closed = False
        self._changed = Flag()

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        if isinstance(records, range):
            # Executors will read these offsets.
            return records
        return record_batch(partition, records)

    def wants(self, lane: Lane, records: int) -> int:
        # Keeping the records of a poll takes the loop some ms. A batch whose function is about to
        # be called would wait for that. And if the next batch is here already, the records behind
        # it have time: at most two batches are kept.
        has_next = self._jobs and self._next_frame is not None
        is_about_to_call = any(not job.has_called for job in self._jobs)
        if has_next or is_about_to_call:
            return 0
        return self._queue.wants(lane, records)

    def work_is_there(self) -> None:
        self._changed.set()
        if not self._is_running:
            self._is_running = True
            # A channel that was not enabled at the start needs Spark from now on.
            self._context.runner.engine.open()
            self._setup.channel.spawn(self._work, f"spark batches of {self._setup.settings.name}")

    async def _work(self) -> None:
        while not self._is_closed:
            self._changed.clear()
            wait_s = self._start_due()
            self._prepare_next()
            timeout_s: float | None = wait_s
            if wait_s <= 0:
                # A batch is due, but Spark is not ready.
                timeout_s = READY_POLL_S
            elif wait_s == inf:
                timeout_s = None
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()

    def _start_due(self) -> float:
        """Start the jobs that are due, and return the seconds until the next one, as `_wait_s`."""
        self._resume_settling()
        # Take no records before Spark can run them: queued records can be released at once when
        # their partition is revoked, but those of a job must wait for its end.
        while True:
            wait_s = self._wait_s(self._clock.monotonic())
            if wait_s > 0 or not self._context.runner.engine.ready:
                return wait_s
            runs = self._queue.take()
            earlier = max(self._attempts.pop(self._range_key(run), 0) for run in runs)
            self._start(runs, 1 + earlier)

    def _range_key(self, run: RecordRun) -> tuple[OffsetTracker, str]:
        """Key of `_attempts`: the range of a run, in the assignment that counts its attempts."""
        return run.tracker, self._context.id_of(run)

    def _wait_s(self, now: float) -> float:
        """Return the seconds until there is something to do, or infinity if that is unknown.

        0 or less: a batch may be taken now.
        """
        due = inf
        if len(self._jobs) < self._setup.settings.spark.max_concurrent_jobs:
            due = max(self._queue.due(), self._not_before)
        if self._unsettled and self._not_before > now:
            due = min(due, self._not_before)
        return due - now

    def _prepare_next(self) -> None:
        """While a batch runs, plan the next one if it is full, store its plan, make its DataFrame.

        Its records stay in the lanes until their turn, as those of any planned range. With several
        jobs at once it could block records that another job would take, so it is not done then.
        """
        if self._next_frame is not None or self._setup.settings.spark.max_concurrent_jobs > 1:
            return
        if not (self._jobs and self._context.runner.engine.ready):
            return
        runs = self._queue.next_full(lanes_of([run for job in self._jobs for run in job.runs]))
        if not runs:
            return
        plan(runs)
        self._next_frame = FrameAhead(self._context, runs)

        async def store() -> None:
            # If this fails, the job of the batch stores the plans again.
            await self._setup.store_plans(trackers_of(runs))

        self._setup.channel.spawn(store, f"Spark plan of {self._setup.settings.name}")

    def _drop_next_frame(self) -> None:
        if self._next_frame is not None:
            self._next_frame.drop()
            self._next_frame = None

    def _is_free(self, lane: Lane) -> bool:
        """True if no outcome of the lane is pending, and no job of an earlier assignment runs."""
        tracker = lane.tracker
        if any(run.tracker is tracker for run, _ in self._unsettled):
            return False
        for job in self._jobs:
            for run in job.runs:
                if run.tracker is not tracker and run.tracker.partition == tracker.partition:
                    return False
        return True

    def _resume_settling(self) -> None:
        """Carry out the outcomes that were cut off, if their partitions have been retained."""
        self._unsettled = [
            (run, outcome) for run, outcome in self._unsettled if not run.tracker.is_closed
        ]
        retained = [(run, outcome) for run, outcome in self._unsettled if not run.lane.revoked]
        if retained and self._clock.monotonic() >= self._not_before:
            self._unsettled = [
                (run, outcome) for run, outcome in self._unsettled if run.lane.revoked
            ]
            self._start([run for run, _ in retained], 1, [outcome for _, outcome in retained])

    def _start(
        self, runs: Sequence[RecordRun], attempt: int, outcomes: Sequence[RunOutcome] | None = None
    ) -> None:
        """Start a job. With *outcomes* its function is not called, they are only carried out."""
        frame = None
        if outcomes is None and self._next_frame is not None:
            frame = self._next_frame.only_for(runs)
            self._next_frame = None
        lanes = lanes_of(runs)

        def on_first_call() -> None:
            for lane in lanes:
                self._progress.left(lane)

        records = sum(run.records for run in runs)
        # Holds the report for `rate_limit` until it was made, which happens once.
        reports = [self._setup.lanes.batch_taken()] if outcomes is None else []

        def on_call() -> None:
            # `rate_limit` counts a batch when its function is called, not when it was taken: it may
            # have waited, and then the next one would follow without a pause. This closure must not
            # refer to the job, or a reference cycle would keep the records of the job in memory.
            if reports:
                reports.pop()(records)
                self._changed.set()

        job = SparkJob(self._context, runs, attempt, on_first_call, on_call, outcomes, frame)
        self._jobs[job] = self._clock.monotonic()
        for lane in lanes:
            self._setup.lanes.hold(lane)

        async def run() -> None:
            try:
                await job.run()
            finally:
                if reports:
                    reports.pop()(0)
                self._on_end(job)
            if not self._is_closed:
                # Start the next job here and not in the task of `_work`: the loop would keep the
                # records of a poll first.
                self._start_due()

        self._setup.channel.spawn(
            run, f"spark batch {next(self._job_numbers)} of {self._setup.settings.name}"
        )

    def _on_end(self, job: SparkJob) -> None:
        """Give the runs of a job that have no outcome back to their lanes, and note the others."""
        self._setup.totals.durations.observe(self._clock.monotonic() - self._jobs.pop(job))
        self._setup.totals.retries += job.retries
        # Ranges of closed trackers never run again. The same offsets may be read once more after a
        # seek, and then their attempts are counted from 1.
        self._attempts = {
            (tracker, id_): attempts
            for (tracker, id_), attempts in self._attempts.items()
            if not tracker.is_closed
        }
        for run in reversed(job.left):
            if not run.tracker.is_closed:
                give_back(run.slices)
                self._attempts[self._range_key(run)] = job.attempts.begun
        self._unsettled += job.unsettled
        if job.was_refused or (job.unsettled and job.only_settles):
            self._not_before = self._clock.monotonic() + REFUSED_PLAN_PAUSE_S
        for lane in lanes_of(job.runs):
            self._setup.lanes.release(lane)
            self._progress.left(lane)
        self._changed.set()

    def stop_retrying(self) -> None:
        for job in self._jobs:
            job.stop_waiting()

    def resumed(self) -> None:
        for job in self._jobs:
            job.resumed()

    def suspended(self) -> None:
        self._drop_next_frame()
        self._queue.forget_weights()
        for job in self._jobs:
            if job.is_revoked:
                job.stop_waiting()

    def reserve_s(self, most_s: float) -> float:
        return min(MOST_RESERVE_S, most_s / 2) if self._jobs else 0.0

    async def cut_off(self) -> None:
        """Cancel the jobs of revoked lanes, and wait for their end.

        Records without an outcome go back to their lanes. The next owner runs them again.
        """
        jobs = [job for job in self._jobs if job.is_revoked]
        for job in jobs:
            job.cut_off()
        await asyncio.gather(*(job.over.wait() for job in jobs))

    async def over(self) -> None:
        await asyncio.gather(*(job.over.wait() for job in self._jobs))

    def abandon(self, lane: Lane) -> None:
        """Cancel the jobs of a partition that is gone, or that is read from another position.

        No other job of the partition starts until they have ended.
        """
        if self._next_frame is not None and self._next_frame.has(lane):
            self._drop_next_frame()
        for job in self._jobs:
            if any(run.lane is lane for run in job.runs):
                job.cut_off()
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._drop_next_frame()
        for job in self._jobs:
            job.cut_off()
        self._changed.set()
